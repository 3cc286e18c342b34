"""One parser in place of two: reasoning, content and calls of a response, read in one pass.

vLLM makes one `Parser` of a reasoning parser and a tool parser. Its `DelegatingParser` runs them one after the other,
the second on the text that the first leaves. Then their order decides what is nested in what, and nobody knows any more
whether a marker was a token. If both are ours, or there is only one, a `CombinedParser` takes its place (`composing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import vllm.parser.metrics as _metrics
from vllm.entrypoints.generate.base.protocol import DeltaMessage, FunctionCall
from vllm.parser.abstract_parser import DelegatingParser
from vllm.parser.harmony import HarmonyParser

from ...core.grammar import Format
from ...core.tools import Tools
from ...formats import compose
from ...parsing import UnknownTools
from ..common import as_chosen
from ..self_test import TOOL, Reply, failures
from .deltas import DeltaCounts, as_delta, without_blank
from .parsers import reasoning_parser, tool_parser
from .reasoning import ReasoningCounter
from .request_constraints import constrain, show_markers, strict_level, tools_of
from .response_reader import ResponseReader, cuts_text, start_of_output, vocabulary_of


class CombinedParser(DelegatingParser):  # type: ignore[misc]
    """Parses one response. vLLM makes it with both parsers; only their formats are used.

    What it overrides takes more arguments than it reads, as `hooks.Hook` allows vLLM to have more."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        parts = (self._reasoning_parser, self._tool_parser)
        self._format = _joined(*(None if part is None else part.format for part in parts))
        self._prompt: Sequence[int] | None = None
        """None if nobody knows it: of a prompt that came as embeddings, vLLM has no ids."""
        self._reader: ResponseReader | None = None
        self._counter: ReasoningCounter | None = None
        self._reasoning: list[str] = []
        self._has_answer = False
        self._counts: DeltaCounts | None = None
        """What counts deltas in vLLM's metrics, if they are counted."""
        self._as_is = False
        """Whether deltas are sent as they are read."""

    def adjust_request(self, request: Any, *_: Any, **__: Any) -> Any:
        tokenizer = self.model_tokenizer
        if cuts_text(request) or vocabulary_of(tokenizer) is None:
            show_markers(request, self._format, tokenizer)
        if self._tool_parser is not None:
            self._tool_parser.check_request(request)
            reasons, level = self._reasoning_parser is not None, strict_level(self) or self._tool_parser.strict_level
            constrain(request, self._format, tokenizer, reasoning_parser=reasons, strict_level=level)
        return request

    def set_prompt_token_ids(self, prompt_token_ids: Sequence[int]) -> None:
        """vLLM calls this again if it runs tools itself: then each output has its own prompt."""
        self._prompt, self._counter = prompt_token_ids or None, None

    def parse(
        self,
        model_output: str,
        request: Any,
        enable_auto_tools: bool = False,
        model_output_token_ids: Sequence[int] = (),
        *_: Any,
        **__: Any,
    ) -> tuple[str | None, str | None, list[Any] | None]:
        reader = self._new_reader(request, whole=True)
        said = without_blank(as_delta(reader.whole(model_output, model_output_token_ids), self._format))
        if self._is_counted(request):
            called = said is not None and bool(said.tool_calls)
            _metrics.record_tool_parser_invocation(is_tool_called=called, is_streaming=False, request=request)
        if said is None:
            return None, None, []
        calls = [
            FunctionCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
            for call in said.tool_calls
        ]
        if said.reasoning and not calls and not (said.content or "").strip() and self._must_answer(request):
            return said.content, said.reasoning, calls
        return said.reasoning, said.content, calls

    def parse_delta(
        self,
        delta_text: str,
        delta_token_ids: list[int],
        request: Any,
        prompt_token_ids: list[int] | None = None,
        *_: Any,
        finished: bool,
        **__: Any,
    ) -> Any:
        reader = self._reader
        if reader is None:
            self._prompt = prompt_token_ids or self._prompt
            reader = self._reader = self._new_reader(request)
            self._counts = DeltaCounts(request) if self._is_counted(request) else None
            self._as_is = request.include_reasoning and not request.chat_template_kwargs
        if reader.plain and not finished and reader.shows(delta_token_ids):
            events = reader.feed_tokens(delta_token_ids)
        else:
            events = reader.feed(delta_text, delta_token_ids, finished)
        said = as_delta(events, self._format)
        counts = self._counts
        if counts is not None:
            counts.add(said is not None and said.tool_calls)
            if finished:
                counts.flush()
        return said if self._as_is else self._as_asked(said, request, finished)

    def _as_asked(self, said: Any, request: Any, finished: bool) -> Any:
        """The delta as the request wants it."""
        if request.chat_template_kwargs:
            said = self._answered(said, request, finished)
        if said is None or request.include_reasoning:
            return said
        said.reasoning = None
        return said if said.content or said.tool_calls else None

    def _answered(self, said: Any, request: Any, finished: bool) -> Any:
        """The delta; the last one with the reasoning as its content if there is no answer and must be one."""
        if said is not None:
            self._reasoning += [said.reasoning] if said.reasoning else []
            self._has_answer = self._has_answer or bool(said.tool_calls) or bool((said.content or "").strip())
        if finished and self._reasoning and not self._has_answer and self._must_answer(request):
            said = said or DeltaMessage()
            said.content = (said.content or "") + "".join(self._reasoning)
        return said

    def _must_answer(self, request: Any) -> bool:
        if self._reasoning_parser is None or self._format.reasoning is None:
            return False
        return bool(self._reasoning_parser.counterpart.must_answer(request, self._format.reasoning.open.strip()))

    def count_reasoning_tokens(self, token_ids: Sequence[int], *_: Any, **__: Any) -> int:
        vocabulary = vocabulary_of(self.model_tokenizer)
        if self._reasoning_parser is None or vocabulary is None:
            return 0
        if self._counter is None:
            start = self._prompt and start_of_output(self._prompt, self._format, self.model_tokenizer)
            self._counter = ReasoningCounter(self._format, vocabulary, start)
        return self._counter.count(token_ids)

    def _new_reader(self, request: Any, whole: bool = False) -> ResponseReader:
        opens = self._prompt is None and self._reasoning_parser is not None and self._reasoning_parser.opens
        tools = Tools([])
        unknown_tools: UnknownTools = "text"
        if self._tool_parser is not None:
            tools, ways = tools_of(request, self._tool_parser.tools), self._tool_parser.ways(request)
            tools = ways.typed(tools)
            if tools and request.tools:
                unknown_tools = ways.unknown_tools
        return ResponseReader(
            self._format,
            self.model_tokenizer,
            request,
            tools=tools,
            unknown_tools=unknown_tools,
            separate_reasoning=self._reasoning_parser is not None,
            prompt=self._prompt,
            opens=opens,
            whole=whole,
        )

    def _is_counted(self, request: Any) -> bool:
        """Whether vLLM's metrics count what is parsed."""
        return self._tool_parser is not None and request.tool_choice != "none"


@lru_cache
def _joined(reasoning: Format | None, tools: Format | None) -> Format:
    if reasoning is None or tools is None or reasoning == tools:
        format = tools or reasoning
        assert format is not None
        return format
    return as_chosen(compose(reasoning=reasoning, tools=tools))


def combined(composed: Any) -> Any:
    """The parser that vLLM composed, or ours in its place if all of its parts are ours. For gpt-oss, vLLM's server
    takes outputs apart by itself and relies on a class of its own."""
    parts = (composed.reasoning_parser_cls, composed.tool_parser_cls)
    if issubclass(composed, HarmonyParser) or not all(part is None or hasattr(part, "format") for part in parts):
        return composed
    names = ("reasoning_parser_cls", "tool_parser_cls", "tool_strict_level")
    return type(
        composed.__name__,
        (CombinedParser,),
        {name: getattr(composed, name) for name in names if hasattr(composed, name)},
    )


# --- Self-test ---------------------------------------------------------------------------------------------------


class NoTokens:
    """A tokenizer of no kind that we know, so that text is read."""

    def get_vocab(self) -> dict[str, int]:
        return {}

    def decode(self, ids: Sequence[int], **_: object) -> str:
        return ""


def self_test() -> Iterator[str]:
    """What goes wrong if replies are read as vLLM's server does it."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    tools = [{"type": "function", "function": TOOL}]
    request = ChatCompletionRequest(messages=[{"role": "user", "content": "?"}], model="m", tools=tools)

    def read(format: Format, text: str, whole: bool) -> Reply:
        parts = {"reasoning_parser_cls": reasoning_parser(format, None), "tool_parser_cls": tool_parser(format, None)}
        parser = type("SelfTest", (CombinedParser,), parts)(NoTokens(), request.tools)
        parser.adjust_request(request)
        if whole:
            reasoning, content, calls = parser.parse(text, request, True)
            return reasoning or "", content or "", [(call.name, call.arguments) for call in calls or ()]
        return _folded(
            parser.parse_delta(text[at], [], request, finished=at == len(text) - 1) for at in range(len(text))
        )

    return failures(read)


def _folded(deltas: Iterable[Any]) -> Reply:
    reasoning, content = "", ""
    calls: list[tuple[str, str]] = []
    for delta in filter(None, deltas):
        reasoning, content = reasoning + (delta.reasoning or ""), content + (delta.content or "")
        for call in delta.tool_calls:
            if call.index == len(calls):
                calls.append((call.function.name, ""))
            name, arguments = calls[call.index]
            calls[call.index] = (name, arguments + (call.function.arguments or ""))
    return reasoning, content, calls
