"""Each format as a `ToolParser` and a `ReasoningParser` of vLLM.

vLLM makes one of each for a response. If both are ours, a `CombinedParser` replaces them and these classes only carry
the format. Beside a parser of vLLM's own they do the work themselves, on text, since text is what vLLM passes from one
to the other. What vLLM asks of them is listed in `hooks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from vllm.entrypoints.generate.base.protocol import (
    DeltaMessage,
    ExtractedToolCallInformation,
    FunctionCall,
    ToolCall,
)
from vllm.reasoning.abs_reasoning_parsers import ReasoningParser
from vllm.tool_parsers.abstract_tool_parser import ToolParser

from ...core.events import Event, ToolCallArguments, ToolCallEnd, ToolCallStart
from ...core.grammar import Format
from ...formats import find
from .deltas import as_delta
from .reasoning_text import ReasoningPrefix
from .reasoning_tokens import DecodedTokens, ReasoningCounter, ReasoningMarkers
from .request_constraints import constrain, show_markers, tools_of
from .response_reader import PROMPT_END, ResponseReader, program_of, start_of_output, vocabulary_of

_OUTPUT_START = 16
"""Tokens of the output that show whether it begins with reasoning."""


class UnbraidToolParser(ToolParser):  # type: ignore[misc]
    """The calls of one response; all else is content."""

    format: Format
    supports_required_and_named = False
    """False: required and named calls are in the model's own notation, not in the plain JSON that vLLM would look
    for."""
    engine_based_streaming = True
    """True: vLLM passes deltas and calls `finish_streaming` at the end."""
    skip_reasoning_parsing = False
    """vLLM sets it if there is no reasoning parser. Then the ids are complete and can be parsed."""

    def __init__(self, tokenizer: Any, tools: list[Any] | None = None) -> None:
        super().__init__(tokenizer, tools)
        program_of(self.format, vocabulary_of(tokenizer))  # raises at server start if tokens are missing
        self._reader: ResponseReader | None = None
        self._fragments: list[str] = []

    def adjust_request(self, request: Any) -> Any:
        show_markers(request, self.format, self.model_tokenizer)
        constrain(request, self.format, self.model_tokenizer, reasoning_parser=not self.skip_reasoning_parsing)
        return request

    def extract_tool_calls(self, model_output: str, request: Any) -> Any:
        said = as_delta(self._new_reader(request, whole=True).whole(model_output, ()), self.format)
        calls = [
            ToolCall(id=call.id, function=FunctionCall(name=call.function.name, arguments=call.function.arguments))
            for call in (said.tool_calls if said else ())
        ]
        return ExtractedToolCallInformation(
            tools_called=bool(calls), tool_calls=calls, content=said.content if said else None
        )

    def extract_tool_calls_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
        request: Any,
    ) -> Any:
        if self._reader is None:
            self._reader = self._new_reader(request)
        return self._delta(self._reader.feed(delta_text, delta_token_ids, False))

    def finish_streaming(self) -> Any:
        """What was held back, at the end of the output."""
        reader, self._reader = self._reader, None
        return None if reader is None else self._delta(reader.feed("", (), True))

    def _new_reader(self, request: Any, whole: bool = False) -> ResponseReader:
        return ResponseReader(
            self.format,
            self.model_tokenizer,
            request,
            tools=tools_of(request),
            separate_reasoning=False,
            by_ids=self.skip_reasoning_parsing,
            whole=whole,
        )

    def _delta(self, events: list[Event]) -> Any:
        """The events as a delta. Calls are also noted where vLLM looks for arguments that were not sent."""
        for event in events:
            match event:
                case ToolCallStart(index, _, name):
                    self.current_tool_id, self.current_tool_name_sent = index, True
                    self.prev_tool_call_arr.append({"name": name, "arguments": ""})
                    self.streamed_args_for_tool.append("")
                    self._fragments = []
                case ToolCallArguments(_, fragment):
                    self._fragments.append(fragment)
                case ToolCallEnd(index):
                    arguments = "".join(self._fragments)
                    self.prev_tool_call_arr[index]["arguments"] = self.streamed_args_for_tool[index] = arguments
        return as_delta(events, self.format)


class UnbraidReasoningParser(ReasoningParser):  # type: ignore[misc]
    """The reasoning of one response, up to the first words of content. The rest goes to the tool parser as the model
    wrote it."""

    format: Format
    engine_based_streaming = True

    def __init__(self, tokenizer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(tokenizer, *args, **kwargs)
        vocabulary = vocabulary_of(tokenizer)
        program_of(self.format, vocabulary)
        self._markers = ReasoningMarkers(self.format, vocabulary or DecodedTokens(tokenizer))
        self._counter: ReasoningCounter | None = None
        self._prefix: ReasoningPrefix | None = None
        self._prompt: str | None = None
        self._output_begins: int | None = None

    @property
    def reasoning_start_str(self) -> str:
        return self._markers.open

    @property
    def reasoning_end_str(self) -> str:
        return self._markers.close

    def adjust_request(self, request: Any) -> Any:
        show_markers(request, self.format, self.model_tokenizer)
        return request

    # Token ids

    def is_reasoning_end(self, input_ids: Sequence[int]) -> bool:
        """Whether a prompt or an output closes the reasoning of its turn."""
        return self._markers.last(input_ids)[0] == "close"

    def is_reasoning_end_streaming(self, input_ids: Sequence[int], delta_ids: Iterable[int]) -> bool:
        """Whether the reasoning ends with `delta_ids`, the last of the ids; also if the model did not reason at all."""
        new = len(list(delta_ids))
        if self._markers.closes(input_ids, new):
            return True
        if self._output_begins is None:
            self._output_begins = len(input_ids) - new
        output = input_ids[self._output_begins : self._output_begins + _OUTPUT_START]
        if len(input_ids) > self._output_begins + _OUTPUT_START or not self._markers.begins_otherwise(output):
            return False
        return self._markers.last(input_ids[: self._output_begins])[0] != "open"

    def extract_content_ids(self, input_ids: list[int]) -> list[int]:
        marker, after = self._markers.last(input_ids)
        if marker == "open" or (marker is None and self.format.prompt):
            return []
        return input_ids[after:]

    def count_reasoning_tokens(self, token_ids: Sequence[int]) -> int:
        vocabulary = vocabulary_of(self.model_tokenizer)
        if self._counter is None and vocabulary is not None:
            self._counter = ReasoningCounter(self.format, vocabulary, self._prompt)
        return 0 if self._counter is None else self._counter.count(token_ids)

    # Text

    def adjust_initial_state_from_prompt(self, prompt_token_ids: Sequence[int]) -> None:
        start = start_of_output(prompt_token_ids, self.format, self.model_tokenizer)
        if not isinstance(start, str):
            start = str(self.model_tokenizer.decode(list(start[-PROMPT_END:]), skip_special_tokens=False))
        self._prompt = start

    def extract_reasoning(self, model_output: str, request: Any) -> tuple[str | None, str | None]:
        """vLLM passes no prompt here. If the reasoning is closed but not opened, the prompt has opened it."""
        closed, opened = model_output.find(self._markers.close), model_output.find(self._markers.open)
        prompt = self._markers.open if closed >= 0 and not 0 <= opened < closed else self._prompt
        prefix = ReasoningPrefix(self.format, prompt)
        reasoning, content = prefix.feed(model_output)
        more, rest = prefix.finish()
        return (reasoning + more) or None, (content + rest) or None

    def extract_reasoning_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
    ) -> Any:
        if self._prefix is None:
            self._prefix = ReasoningPrefix(self.format, self._prompt)
        return _delta(*self._prefix.feed(delta_text))

    def has_engine_confirmed_reasoning_end(self) -> bool:
        return self._prefix is not None and self._prefix.over

    def finish_streaming(self) -> Any:
        """What was held back, at the end of the output or of the reasoning."""
        return None if self._prefix is None else _delta(*self._prefix.finish())


def _delta(reasoning: str, content: str) -> Any:
    said = {name: text for name, text in (("reasoning", reasoning), ("content", content)) if text}
    return DeltaMessage(**said) if said else None


@cache
def tool_parser(format: Format) -> Any:
    """The class for one format."""
    return type(f"ToolParser({format.name})", (UnbraidToolParser,), {"format": format})


@cache
def reasoning_parser(format: Format) -> Any:
    """The class for one format."""
    return type(f"ReasoningParser({format.name})", (UnbraidReasoningParser,), {"format": format})


def __getattr__(name: str) -> Any:
    """The class that `names` lists as `tools hermes` or `reasoning qwen3`."""
    kind, _, format = name.partition(" ")
    if not format:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return (tool_parser if kind == "tools" else reasoning_parser)(find(format))
