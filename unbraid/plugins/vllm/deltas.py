"""Events as vLLM's `DeltaMessage`, the unit that its server sends to clients, and counted in vLLM's metrics.

Content("Hi"), ToolCallStart(0, …, "f")   ->   DeltaMessage(content="Hi", tool_calls=[DeltaToolCall(index=0, …)])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any

import vllm.parser.metrics as _metrics
from vllm.entrypoints.generate.base.protocol import DeltaFunctionCall, DeltaMessage, DeltaToolCall

from ...core.events import (
    Content,
    Event,
    Markup,
    Reasoning,
    SpeechAudio,
    SpeechText,
    ToolCallArguments,
    ToolCallStart,
    audio_text,
)
from ...core.grammar import Format
from ...core.render import spell_codes
from ..common import is_of_speech
from ..fast_models import unvalidated


def _of_content(text: str) -> Any:
    return DeltaMessage(content=text)


def _of_reasoning(text: str) -> Any:
    return DeltaMessage(reasoning=text)


def _of_arguments(call: int, text: str) -> Any:
    return DeltaMessage(tool_calls=[DeltaToolCall(index=call, function=DeltaFunctionCall(arguments=text))])


def _of_start(call: int, id: str, name: str, text: str) -> Any:
    function = DeltaFunctionCall(name=name, arguments=text)
    return DeltaMessage(tool_calls=[DeltaToolCall(index=call, id=id, type="function", function=function)])


# Most deltas are one event: the next piece of a text or of arguments. They are made without validation.
_content = unvalidated(_of_content, "a text")
_reasoning = unvalidated(_of_reasoning, "a text")
_arguments = unvalidated(_of_arguments, 7, "a text")
_start = unvalidated(_of_start, 7, "an id", "a name", "a text")


def as_delta(events: Sequence[Event], format: Format) -> Any:
    """The events as one `DeltaMessage`; None if there is nothing to send.

    vLLM's messages have no field for speech. It stays in the content as the model wrote it, where `unbraid.parse` finds
    it.
    """
    if len(events) == 1:
        event = events[0]
        kind = type(event)
        if kind is ToolCallArguments:
            return _arguments(event.index, event.fragment)  # type: ignore[union-attr]
        if kind is Content:
            return _content(event.text)  # type: ignore[union-attr]
        if kind is Reasoning:
            return _reasoning(event.text)  # type: ignore[union-attr]
    return _joined(events, format) if events else None


def _joined(events: Iterable[Event], format: Format) -> Any:
    content: list[str] = []
    reasoning: list[str] = []
    starts: dict[int, ToolCallStart] = {}
    fragments: dict[int, list[str]] = {}
    for event in events:
        match event:
            case Content(text) | SpeechText(text):
                content.append(text)
            case Reasoning(text):
                reasoning.append(text)
            case ToolCallArguments(index, fragment):
                fragments.setdefault(index, []).append(fragment)
            case ToolCallStart(index):
                starts[index], fragments[index] = event, []
            case SpeechAudio(codes):
                content.append(_spelled(codes, format))
            case Markup(text) if is_of_speech(text, format.speech):
                content.append(text)
    said: dict[str, Any] = {}
    if reasoning:
        said["reasoning"] = "".join(reasoning)
    if content:
        said["content"] = "".join(content)
    if fragments:
        calls = [_call(index, starts.get(index), "".join(each)) for index, each in fragments.items()]
        if len(calls) == 1 and not said:
            return calls[0]
        said["tool_calls"] = [call for message in calls for call in message.tool_calls]
    return DeltaMessage(**said) if said else None


def without_blank(said: Any) -> Any:
    """A whole message in which whitespace beside calls is no content, as vLLM has it."""
    if said is not None and said.tool_calls and said.content and not said.content.strip():
        said.content = None
    return said


def _call(index: int, start: ToolCallStart | None, arguments: str) -> Any:
    """A delta with one call, or what comes next of it."""
    return _arguments(index, arguments) if start is None else _start(index, start.id, start.name, arguments)


def _spelled(codes: tuple[int, ...], format: Format) -> str:
    """Audio codes as the model wrote them; as chat APIs carry them where it has no text for them."""
    return "" if format.speech is None else spell_codes(format.speech, codes) or audio_text(codes)


# --- Counted in vLLM's metrics -----------------------------------------------------------------------------------

BATCH = 32
"""So many deltas are passed on together."""

Count = Callable[[int], object]
"""Counts so many deltas."""


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
    count = None if counter is None else _child(counter, getattr(_metrics, "_model_name", None), kind, called)
    return count or partial(_one_by_one, request, called)


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
        count: Count = counter.labels(
            model_name=model,
            mode="streaming",
            outcome=(outcomes.TOOL_CALL if called else outcomes.NO_TOOL_CALL).value,
            request_type=kind.value,
        ).inc
    except (AttributeError, ValueError):
        return None
    return count
