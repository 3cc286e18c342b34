"""One parser in place of two: reasoning, content and calls of a response, read in one pass.

vLLM makes one `Parser` of a reasoning parser and a tool parser. Its `DelegatingParser` runs them one after the other,
the second on the text that the first leaves. Then their order decides what is nested in what, and nobody knows any more
whether a marker was a token. If both are ours, or there is only one, a `CombinedParser` takes its place (`composing`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import vllm.parser.metrics as _metrics
from vllm.entrypoints.generate.base.protocol import DeltaMessage, FunctionCall
from vllm.parser.abstract_parser import DelegatingParser
from vllm.parser.harmony import HarmonyParser

from ...core.grammar import Format
from ...core.tools import Tools
from ...formats import compose
from ..choices import as_chosen
from .deltas import as_delta, without_blank
from .reasoning_tokens import ReasoningCounter
from .request_constraints import constrain, show_markers, tools_of
from .response_reader import ResponseReader, cuts_text, start_of_output, vocabulary_of
from .versions import strict_level

BATCH = 32
"""So many deltas are passed on together."""

Count = Callable[[int], object]
"""Counts so many deltas."""


class CombinedParser(DelegatingParser):  # type: ignore[misc]
    """Parses one response. vLLM makes it with both parsers; only their formats are used."""

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

    def adjust_request(self, request: Any) -> Any:
        tokenizer = self.model_tokenizer
        if cuts_text(request) or vocabulary_of(tokenizer) is None:
            show_markers(request, self._format, tokenizer)
        if self._tool_parser is not None:
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
        *,
        finished: bool,
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

    def count_reasoning_tokens(self, token_ids: Sequence[int]) -> int:
        vocabulary = vocabulary_of(self.model_tokenizer)
        if self._reasoning_parser is None or vocabulary is None:
            return 0
        if self._counter is None:
            start = self._prompt and start_of_output(self._prompt, self._format, self.model_tokenizer)
            self._counter = ReasoningCounter(self._format, vocabulary, start)
        return self._counter.count(token_ids)

    def _new_reader(self, request: Any, whole: bool = False) -> ResponseReader:
        opens = self._prompt is None and self._reasoning_parser is not None and self._reasoning_parser.opens
        return ResponseReader(
            self._format,
            self.model_tokenizer,
            request,
            tools=Tools([]) if self._tool_parser is None else tools_of(request, self._tool_parser.tools),
            separate_reasoning=self._reasoning_parser is not None,
            prompt=self._prompt,
            opens=opens,
            whole=whole,
        )

    def _is_counted(self, request: Any) -> bool:
        """Whether vLLM's metrics count what is parsed."""
        return self._tool_parser is not None and request.tool_choice != "none"


class DeltaCounts:
    """Counts the deltas of one response in vLLM's metric of tool parsers: with a call, and without.

    vLLM's own function looks up the labels for each delta, which takes longer than all of the parsing. They are the
    same for a response, so they are looked up once. And counting takes a lock, so deltas are passed on `BATCH` at a
    time, at the end of the response, and when it is given up. The total is vLLM's; while a response runs, it may be
    that many deltas behind.
    """

    __slots__ = ("_called", "_deltas", "_with", "_without")

    def __init__(self, request: Any) -> None:
        self._without, self._with = (delta_counter(request, called) for called in (False, True))
        self._deltas = self._called = 0
        """The deltas that were not passed on, and how many of them have a call."""

    def add(self, called: object) -> None:
        """A delta comes, with a call or without."""
        if called:
            self._called += 1
        self._deltas += 1
        if self._deltas == BATCH:
            self.flush()

    def flush(self) -> None:
        """Pass on what was counted."""
        silent = self._deltas - self._called
        if silent:
            self._without(silent)
        if self._called:
            self._with(self._called)
        self._deltas = self._called = 0

    def __del__(self) -> None:
        self.flush()  # whoever reads the stream may leave before it ends


def delta_counter(request: Any, called: bool) -> Count:
    """What counts deltas with a call, or without, in vLLM's metrics."""
    counter = getattr(_metrics, "_tool_call_parser_invocations", None)
    kind: Any = type(request)
    found = None if counter is None else _child(counter, getattr(_metrics, "_model_name", None), kind, called)
    return found or partial(_one_by_one, request, called)


def _one_by_one(request: Any, called: bool, deltas: int) -> None:
    """As vLLM does it."""
    for _ in range(deltas):
        _metrics.record_tool_parser_invocation(is_tool_called=called, is_streaming=True, request=request)


@lru_cache(maxsize=32)
def _child(counter: Any, model: Any, request: Any, called: bool) -> Count | None:
    """The counter for these labels; None where it has others than in the versions that this is made for."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest

    try:
        outcomes, types = _metrics.ToolCallOutcome, _metrics.RequestType
        kind = types.RESPONSES if issubclass(request, ResponsesRequest) else types.OTHER
        kind = types.CHAT_COMPLETIONS if issubclass(request, ChatCompletionRequest) else kind
        found: Count = counter.labels(
            model_name=model,
            mode="streaming",
            outcome=(outcomes.TOOL_CALL if called else outcomes.NO_TOOL_CALL).value,
            request_type=kind.value,
        ).inc
    except (AttributeError, ValueError):
        return None
    return found


@lru_cache
def _joined(reasoning: Format | None, tools: Format | None) -> Format:
    if reasoning is None or tools is None or reasoning == tools:
        format = tools or reasoning
        assert format is not None
        return format
    return as_chosen(compose(reasoning=reasoning.name, tools=tools.name))


def combined(made: Any) -> Any:
    """The parser that vLLM composed, or ours in its place if all of its parts are ours. For gpt-oss, vLLM's server
    takes outputs apart by itself and relies on a class of its own."""
    parts = (made.reasoning_parser_cls, made.tool_parser_cls)
    if issubclass(made, HarmonyParser) or not all(part is None or hasattr(part, "format") for part in parts):
        return made
    names = ("reasoning_parser_cls", "tool_parser_cls", "tool_strict_level")
    return type(made.__name__, (CombinedParser,), {name: getattr(made, name) for name in names if hasattr(made, name)})
