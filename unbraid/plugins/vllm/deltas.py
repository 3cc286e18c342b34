"""Events as vLLM's `DeltaMessage`, the unit that its server sends to clients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

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
from ..quick import quick


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
_content = quick(_of_content, "a text")
_reasoning = quick(_of_reasoning, "a text")
_arguments = quick(_of_arguments, 7, "a text")
_start = quick(_of_start, 7, "an id", "a name", "a text")


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
            case Markup(text) if _is_of_speech(text, format):
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


def _is_of_speech(markup: str, format: Format) -> bool:
    speech = format.speech
    return speech is not None and markup.strip() in (speech.open.strip(), speech.close.strip())
