"""The events of one chunk as one delta of OpenAI's chat dialect.

vLLM's contract has one delta for each chunk, whatever came in it: a piece of reasoning, of content and of a call stand
side by side.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET

from ...core.custom_tools import CustomInput
from ...core.events import Content, Event, Reasoning, ToolCallArguments, ToolCallEnd, ToolCallStart
from ...core.vocabulary import Vocabulary
from ..api.replies import finite
from .readings import Reading
from .wire import Logprobs, ToldCall, ToldCustom, ToldDelta, ToldFunction, WireLogprob


class Deltas:
    """Makes the deltas of one stream.

    input: what reads the free text of the custom call that is open, if one is.
    """

    __slots__ = ("called", "characters", "input", "role_sent")

    def __init__(self) -> None:
        self.role_sent = False
        self.called = False
        """Whether a call has begun."""
        self.input: CustomInput | None = None
        self.characters = 0
        """How long the text is so far, where that is to be told."""

    def save(self) -> tuple[bool, bool, int, list[Any] | None]:
        return self.role_sent, self.called, self.characters, None if self.input is None else self.input.save()

    def load(self, saved: list[Any]) -> None:
        self.role_sent, self.called, self.characters, input = saved
        self.input = None if input is None else CustomInput.load(input)

    def delta(self, events: Iterable[Event], reading: Reading) -> ToldDelta:
        """What is new."""
        delta = ToldDelta()
        if not self.role_sent:
            self.role_sent, delta.role = True, "assistant"
        calls: dict[int, ToldCall] = {}
        for event in events:
            kind = type(event)
            if kind is Content:
                delta.content = (delta.content or "") + event.text  # type: ignore[union-attr]
            elif kind is Reasoning:
                if reading.include_reasoning:
                    delta.reasoning = (delta.reasoning or "") + event.text  # type: ignore[union-attr]
            elif kind is ToolCallArguments:
                if self.input is None:
                    _add_arguments(calls, event.index, event.fragment)  # type: ignore[union-attr]
                else:
                    _add_input(calls, event.index, self.input.feed(event.fragment))  # type: ignore[union-attr]
            elif isinstance(event, ToolCallStart):
                self._begin(event, calls, event.name in reading.custom)
            elif isinstance(event, ToolCallEnd):
                if self.input is not None:
                    _add_input(calls, event.index, self.input.finish())
                    self.input = None
            else:
                _add_speech(delta, event.to_openai())
        if calls:
            delta.tool_calls = list(calls.values())
        return delta

    def _begin(self, event: ToolCallStart, calls: dict[int, ToldCall], custom: bool) -> None:
        self.called = True
        call = calls[event.index] = ToldCall(event.id, "custom" if custom else "function", event.index)
        if custom:
            self.input, call.custom = CustomInput(), ToldCustom(event.name, "")
        else:
            self.input, call.function = None, ToldFunction(event.name, "")


def _add_arguments(calls: dict[int, ToldCall], index: int, text: str) -> None:
    call = calls.get(index)
    if call is None:
        if text:
            calls[index] = ToldCall(None, None, index, ToldFunction(None, text))
    elif call.function is not UNSET:
        call.function.arguments += text


def _add_input(calls: dict[int, ToldCall], index: int, text: str) -> None:
    call = calls.get(index)
    if call is None:
        if text:
            calls[index] = ToldCall(None, None, index, custom=ToldCustom(None, text))
    elif call.custom is not UNSET:
        call.custom.input += text


def _add_speech(delta: ToldDelta, more: dict[str, Any] | None) -> None:
    """Speech: its text and its codes, each in the order in which they came."""
    for key, text in (more or {}).get("tts_content", {}).items():
        if delta.tts_content is UNSET:
            delta.tts_content = {}
        delta.tts_content[key] = delta.tts_content.get(key, "") + text


def chat_logprobs(logprobs: Logprobs | None, vocabulary: Vocabulary) -> dict[str, Any] | None:
    """Logprobs of ids as OpenAI's API tells them, with the text and the bytes of each token."""
    if logprobs is None:
        return None
    if logprobs.content is None:
        return {"content": None}
    return {
        "content": [
            {**_told(each, vocabulary), "top_logprobs": [_told(top, vocabulary) for top in each.top_logprobs]}
            for each in logprobs.content
        ]
    }


def text_logprobs(logprobs: Logprobs | None, vocabulary: Vocabulary, offset: int) -> dict[str, Any] | None:
    """The same in the older dialect. `offset` is how long the text before it is."""
    reply = chat_logprobs(logprobs, vocabulary)
    if reply is None:
        return None
    entries = reply["content"] or ()
    offsets = []
    for entry in entries:
        offsets.append(offset)
        offset += len(entry["token"])
    return {
        "text_offset": offsets,
        "token_logprobs": [entry["logprob"] for entry in entries],
        "tokens": [entry["token"] for entry in entries],
        "top_logprobs": [
            {top["token"]: top["logprob"] for top in entry["top_logprobs"]} if entry["top_logprobs"] else None
            for entry in entries
        ],
    }


def _told(one: WireLogprob, vocabulary: Vocabulary) -> dict[str, Any]:
    text = vocabulary.token_bytes(one.token_id) or b""
    return {"token": text.decode("utf-8", "replace"), "logprob": finite(one.logprob), "bytes": list(text)}
