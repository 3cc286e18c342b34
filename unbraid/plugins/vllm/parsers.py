"""Every format as a `ToolParser` and as a `ReasoningParser` of vLLM. Checked against vLLM 0.32.

vLLM makes one of each for a response, and one parser of the two: `vllm_whole` is that one, where both are ours. Beside
the parsers of others these here do the work themselves, on text, for that is what is passed from one to the other.
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
from vllm.reasoning.abs_reasoning_parsers import ReasoningParser, ReasoningParserManager
from vllm.tool_parsers.abstract_tool_parser import ToolParser, ToolParserManager

from ...core.events import Event, ToolCallArguments, ToolCallEnd, ToolCallStart
from ...core.grammar import Format
from ...formats import all_formats
from .combined_parser import read_once
from .deltas import as_delta
from .reasoning_tokens import DecodedTokens, ReasoningMarks, ReasoningTokens, UpToContent
from .request_constraints import constrain, show_markers, tools_of
from .response_reader import PROMPT_END, Reading, program_of, start_of_output, vocabulary_of

START = 16
"""As many tokens of the output as show that it does not begin with reasoning."""


class UnbraidToolParser(ToolParser):  # type: ignore[misc]
    """The calls of one response; all else is content."""

    format: Format
    supports_required_and_named = False
    """Such calls are written as the model writes all calls, and not as the JSON that vLLM would look for."""
    engine_based_streaming = True
    """Deltas will do, and the end is to be told: `finish_streaming`."""
    skip_reasoning_parsing = False
    """Set by vLLM where there is no reasoning parser. Then nobody has read the output before, and ids are all there."""

    def __init__(self, tokenizer: Any, tools: list[Any] | None = None) -> None:
        super().__init__(tokenizer, tools)
        program_of(self.format, vocabulary_of(tokenizer))  # what is missing is said when the server starts
        self._reading: Reading | None = None
        self._fragments: list[str] = []

    def adjust_request(self, request: Any) -> Any:
        show_markers(request, self.format, self.model_tokenizer)
        constrain(request, self.format, self.model_tokenizer, reasoning_parser=not self.skip_reasoning_parsing)
        return request

    def extract_tool_calls(self, model_output: str, request: Any) -> Any:
        said = as_delta(self._read(request, whole=True).whole(model_output, ()), self.format)
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
        if self._reading is None:
            self._reading = self._read(request)
        return self._told(self._reading.feed(delta_text, delta_token_ids, False))

    def finish_streaming(self) -> Any:
        """The output is over: what was held back."""
        reading, self._reading = self._reading, None
        return None if reading is None else self._told(reading.feed("", (), True))

    def _read(self, request: Any, whole: bool = False) -> Reading:
        return Reading(
            self.format,
            self.model_tokenizer,
            request,
            tools=tools_of(request),
            separate_reasoning=False,
            by_ids=self.skip_reasoning_parsing,
            whole=whole,
        )

    def _told(self, events: list[Event]) -> Any:
        """The events as a delta; and noted where vLLM looks for arguments that were not sent."""
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
    """The reasoning of one response, up to its first words of content. These, and all that follows, are left to the
    tool parser as the model wrote them."""

    format: Format
    engine_based_streaming = True

    def __init__(self, tokenizer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(tokenizer, *args, **kwargs)
        vocabulary = vocabulary_of(tokenizer)
        program_of(self.format, vocabulary)
        self._marks = ReasoningMarks(self.format, vocabulary or DecodedTokens(tokenizer))
        self._tokens: ReasoningTokens | None = None
        self._stream: UpToContent | None = None
        self._prompt: str | None = None
        self._output_begins: int | None = None

    @property
    def reasoning_start_str(self) -> str:
        return self._marks.open

    @property
    def reasoning_end_str(self) -> str:
        return self._marks.close

    def adjust_request(self, request: Any) -> Any:
        show_markers(request, self.format, self.model_tokenizer)
        return request

    # --- Ids -------------------------------------------------------------------------------------------------------

    def is_reasoning_end(self, input_ids: Sequence[int]) -> bool:
        """Whether a prompt, or an output, closes the reasoning of its turn."""
        return self._marks.last(input_ids)[0] == "close"

    def is_reasoning_end_streaming(self, input_ids: Sequence[int], delta_ids: Iterable[int]) -> bool:
        """Whether the reasoning is over with `delta_ids`, the last of the ids; also where the model leaves it out."""
        new = len(list(delta_ids))
        if self._marks.closes(input_ids, new):
            return True
        if self._output_begins is None:
            self._output_begins = len(input_ids) - new
        output = input_ids[self._output_begins : self._output_begins + START]
        if len(input_ids) > self._output_begins + START or not self._marks.begins_otherwise(output):
            return False
        return self._marks.last(input_ids[: self._output_begins])[0] != "open"

    def extract_content_ids(self, input_ids: list[int]) -> list[int]:
        mark, after = self._marks.last(input_ids)
        if mark == "open" or (mark is None and self.format.prompt):
            return []
        return input_ids[after:]

    def count_reasoning_tokens(self, token_ids: Sequence[int]) -> int:
        vocabulary = vocabulary_of(self.model_tokenizer)
        if self._tokens is None and vocabulary is not None:
            self._tokens = ReasoningTokens(self.format, vocabulary, self._prompt)
        return 0 if self._tokens is None else self._tokens.count(token_ids)

    # --- Text ------------------------------------------------------------------------------------------------------

    def adjust_initial_state_from_prompt(self, prompt_token_ids: Sequence[int]) -> None:
        start = start_of_output(prompt_token_ids, self.format, self.model_tokenizer)
        if not isinstance(start, str):
            start = str(self.model_tokenizer.decode(list(start[-PROMPT_END:]), skip_special_tokens=False))
        self._prompt = start

    def extract_reasoning(self, model_output: str, request: Any) -> tuple[str | None, str | None]:
        """There is no prompt here: that it has opened the reasoning shows where that is closed."""
        closed, opened = model_output.find(self._marks.close), model_output.find(self._marks.open)
        prompt = self._marks.open if closed >= 0 and not 0 <= opened < closed else self._prompt
        stream = UpToContent(self.format, prompt)
        reasoning, content = stream.feed(model_output)
        more, rest = stream.finish()
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
        if self._stream is None:
            self._stream = UpToContent(self.format, self._prompt)
        return _delta(*self._stream.feed(delta_text))

    def has_engine_confirmed_reasoning_end(self) -> bool:
        return self._stream is not None and self._stream.over

    def finish_streaming(self) -> Any:
        """The output is over, or the rest of it is content."""
        return None if self._stream is None else _delta(*self._stream.finish())


def _delta(reasoning: str, content: str) -> Any:
    said = {name: text for name, text in (("reasoning", reasoning), ("content", content)) if text}
    return DeltaMessage(**said) if said else None


@cache
def tool_parser(format: Format) -> Any:
    """The class for one format; always the same one."""
    return type(f"ToolParser({format.name})", (UnbraidToolParser,), {"format": format})


@cache
def reasoning_parser(format: Format) -> Any:
    """The class for one format; always the same one."""
    return type(f"ReasoningParser({format.name})", (UnbraidReasoningParser,), {"format": format})


def register() -> None:
    """Make all formats known to vLLM, as `unbraid-<name>`, under each of their names."""
    read_once()
    for format, aliases in all_formats().items():
        names = [f"unbraid-{name}" for name in (format.name, *aliases)]
        if format.tools is not None:
            ToolParserManager.register_module(names, module=tool_parser(format))
        if format.reasoning is not None:
            ReasoningParserManager.register_module(names, module=reasoning_parser(format))
