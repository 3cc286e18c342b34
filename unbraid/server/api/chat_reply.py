"""The reply in OpenAI's chat dialect: whole choices, and the chunks of a stream.

Calls of custom tools are told with their free text, which is taken out of the arguments that the model writes.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence, Set
from functools import cache
from typing import Any, Literal, NotRequired, TypedDict

import msgspec

from ...core.custom_tools import CustomInput, input_of
from ...core.events import Content, Event, Reasoning, ToolCallArguments, ToolCallEnd, ToolCallStart
from ...core.message import Message, ToolCall
from ...engines import TokenLogprob
from ..generation.updates import Update, Usage
from .replies import FinishReason, Head, TokenUsage, logprobs_of, usage_of, usage_so_far

_encode = msgspec.json.encode
_HOUR = 3600
Frame = tuple[bytes, ...]
"""What stands around a text that is told. A text that is told twice has a part in between."""


class SpeechContent(TypedDict):
    tts_text: str
    tts_audio: str


class ChatMessage(TypedDict):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: NotRequired[str | None]
    reasoning: NotRequired[str | None]
    tool_calls: NotRequired[list[dict[str, Any]]]
    tts_content: NotRequired[SpeechContent]
    audio: NotRequired[dict[str, Any]]


class ChatChoice(TypedDict):
    index: int
    message: ChatMessage
    logprobs: dict[str, Any] | None
    finish_reason: FinishReason
    token_ids: NotRequired[Sequence[int]]


class ChatCompletion(TypedDict):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: TokenUsage
    prompt_token_ids: NotRequired[Sequence[int]]


def chat_choice(
    head: Head,
    choice: int,
    message: Message,
    reason: str,
    reasoning_keys: Sequence[str],
    logprobs: Sequence[msgspec.Raw] | None,
    sound: bytes,
    ids: Sequence[int] | None,
    custom_tools: Set[str],
) -> ChatChoice:
    """One choice of a whole reply."""
    content: str | None = message.content or None
    if not message.parts:
        content = ""
    elif message.tool_calls and not message.content.strip():
        content = None  # whitespace before a call is no answer
    fields: ChatMessage = {"role": "assistant", "content": content, "refusal": None}
    if "reasoning_content" in reasoning_keys:
        fields["reasoning_content"] = message.reasoning or None
    if "reasoning" in reasoning_keys:
        fields["reasoning"] = message.reasoning or None
    if message.tool_calls:
        fields["tool_calls"] = [_call(call, call.name in custom_tools) for call in message.tool_calls]
    if message.speech:
        fields["tts_content"] = message.to_openai()["tts_content"]
    if sound:
        fields["audio"] = {
            "id": f"audio_{head.id[-12:]}",
            "data": base64.b64encode(sound).decode(),
            "transcript": "".join(speech.text for speech in message.speech),
            "expires_at": head.created + _HOUR,
        }
    told_logprobs = None if logprobs is None else {"content": logprobs, "refusal": None}
    reply: ChatChoice = {"index": choice, "message": fields, "logprobs": told_logprobs, "finish_reason": reason}
    if ids is not None:
        reply["token_ids"] = ids
    return reply


def _call(call: ToolCall, is_custom: bool) -> dict[str, Any]:
    if not is_custom:
        return call.to_openai()
    return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": input_of(call.arguments)}}


@cache
def _deltas_of(reasoning_keys: tuple[str, ...]) -> dict[type[Event], Frame]:
    """What stands around the text of a delta."""
    keys = [b'"%b":' % key.encode() for key in reasoning_keys]
    reasoning = (b"{" + keys[0], *(b"," + key for key in keys[1:]), b"}")
    return {Content: (b'{"content":', b"}"), Reasoning: reasoning}


class ChatChunks:
    """Writes the chunks of a streamed reply. What does not change is written once.

    usage: told at the end, where it is given.
    prompt_ids: the tokens of the prompt, where token ids are told.
    counted_from: how many tokens the prompt has, where each chunk tells the counts so far.
    custom_tools: the names of the tools whose input is free text.
    sound: what is told of each part of the sound, beside its bytes.
    """

    def __init__(
        self,
        head: Head,
        choices: int,
        reasoning_keys: Sequence[str],
        *,
        usage: Usage | None,
        with_logprobs: bool,
        prompt_ids: Sequence[int] | None = None,
        counted_from: int | None = None,
        custom_tools: Set[str] = frozenset(),
        sound: Mapping[str, Any] | None = None,
    ) -> None:
        self._head = b"data: " + _encode(head.fields("chat.completion.chunk"))[:-1]
        self._starts = [self._head + b',"choices":[{"index":%d,"delta":' % choice for choice in range(choices)]
        self._usage = usage
        self._close = b"}]}\n\n" if usage is None else b'}],"usage":null}\n\n'
        self._open = b',"logprobs":null,"finish_reason":null' + self._close
        self._with_logprobs = with_logprobs
        self._prompt_ids = prompt_ids
        self._counted_from = counted_from
        self._counts = [0] * choices
        """The tokens of each choice so far."""
        self._is_plain = not with_logprobs and prompt_ids is None and counted_from is None
        """Whether chunks have a delta and nothing else: no logprobs, ids or counts."""
        self._pending: list[list[TokenLogprob]] = [[] for _ in range(choices)]
        """Logprobs whose text is still held back."""
        self._pending_ids: list[tuple[int, ...]] = [()] * choices
        """Token ids whose text is still held back."""
        self._deltas = _deltas_of(tuple(reasoning_keys))
        self._chunks: list[dict[type[Event], Frame]] = [{} for _ in range(choices)]
        """The frames of chunks that have only a delta, by choice: those that were needed so far."""
        self._arguments: dict[tuple[int, int], Frame] = {}
        """The frames of chunks with the arguments of a call, by choice and number."""
        self._sound = sound or {}
        self._audio_id = f"audio_{head.id[-12:]}"
        self._custom_tools = custom_tools
        self._inputs: dict[tuple[int, int], CustomInput] = {}
        """The custom calls that are open, by choice and number."""

    def first(self) -> bytes:
        """The role of each choice."""
        delta = b'{"role":"assistant","content":""}'
        if self._is_plain:
            return b"".join([start + delta + self._open for start in self._starts])
        chunks = [self._chunk(choice, delta, b"null", b"null", ()) for choice in range(len(self._starts))]
        if self._prompt_ids is not None:  # in the first of all chunks
            chunks[0] = b'%b,"prompt_token_ids":%b}\n\n' % (chunks[0][:-3], _encode(self._prompt_ids))
        return b"".join(chunks)

    def update(self, update: Update) -> bytes:
        """The chunks for what is new."""
        if self._is_plain and not update.sound and update.end is None:
            events = update.events
            if len(events) != 1:
                return b"".join([self._plain(event, update.choice) for event in events])
            event = events[0]
            if type(event) is ToolCallArguments:
                frame = self._arguments.get((update.choice, event.index))
                return self._plain(event, update.choice) if frame is None else _encode(event.fragment).join(frame)
            frame = self._chunks[update.choice].get(type(event))
            return self._plain(event, update.choice) if frame is None else _encode(event.text).join(frame)  # type: ignore[union-attr]
        if update.logprobs and self._with_logprobs:
            self._pending[update.choice] += update.logprobs
        deltas = [delta for event in update.events if (delta := self._delta(event, update.choice))]
        if update.sound:
            deltas.append(
                _encode(
                    {"audio": {"id": self._audio_id, **self._sound, "data": base64.b64encode(update.sound).decode()}}
                )
            )
        return b"".join(self._rest(deltas, update))

    def _plain(self, event: Event, choice: int) -> bytes:
        """The chunk of one event that has only a delta. For the most frequent events only the text is encoded anew."""
        kind = type(event)
        if kind in self._deltas:
            frame = self._chunks[choice].get(kind)
            if frame is None:
                frame = self._chunks[choice][kind] = self._whole(choice, self._deltas[kind])
            return _encode(event.text).join(frame)  # type: ignore[union-attr]
        delta = self._delta(event, choice)
        return self._starts[choice] + delta + self._open if delta else b""

    def _whole(self, choice: int, delta: Frame) -> Frame:
        return (self._starts[choice] + delta[0], *delta[1:-1], delta[-1] + self._open)

    def _rest(self, deltas: list[bytes], update: Update) -> list[bytes]:
        """Chunks with more than a delta. Logprobs and token ids go with the first; the finish reason has a chunk of its
        own."""
        self._counts[update.choice] += len(update.ids)
        self._pending_ids[update.choice] += update.ids
        if update.end is not None:
            deltas.append(b"{}")
        chunks = []
        for at, delta in enumerate(deltas):
            last = update.end is not None and at == len(deltas) - 1
            logprobs = self._take_logprobs(update.choice)
            reason = _encode(update.end) if last else b"null"
            chunks.append(self._chunk(update.choice, delta, logprobs, reason, self._pending_ids[update.choice]))
            self._pending_ids[update.choice] = ()
        return chunks

    def _chunk(self, choice: int, delta: bytes, logprobs: bytes, reason: bytes, new: Sequence[int]) -> bytes:
        ids = b"" if self._prompt_ids is None else b',"token_ids":%b' % _encode(new)
        close = self._close
        if self._counted_from is not None:
            usage = _encode(usage_so_far(self._counted_from, self._counts[choice]))
            close = b'}],"usage":%b}\n\n' % usage
        parts = (self._starts[choice], delta, logprobs, reason, ids, close)
        return b'%b%b,"logprobs":%b,"finish_reason":%b%b%b' % parts

    def _take_logprobs(self, choice: int) -> bytes:
        pending = self._pending[choice]
        if not pending:
            return b"null"
        self._pending[choice] = []
        return _encode({"content": logprobs_of(pending), "refusal": None})

    def _delta(self, event: Event, choice: int) -> bytes | None:
        kind = type(event)
        if self._custom_tools and isinstance(event, ToolCallStart | ToolCallArguments | ToolCallEnd):
            begins = kind is ToolCallStart and event.name in self._custom_tools  # type: ignore[union-attr]
            if begins or (choice, event.index) in self._inputs:
                return self._custom_delta(event, choice)
        if kind in self._deltas:
            return _encode(event.text).join(self._deltas[kind])  # type: ignore[union-attr]
        if kind is ToolCallArguments:
            delta = b'{"tool_calls":[{"index":%d,"function":{"arguments":' % event.index, b"}}]}"  # type: ignore[union-attr]
            self._arguments[choice, event.index] = self._whole(choice, delta)  # type: ignore[union-attr]
            return _encode(event.fragment).join(delta)  # type: ignore[union-attr]
        said = event.to_openai()
        return _encode(said) if said else None

    def _custom_delta(self, event: ToolCallStart | ToolCallArguments | ToolCallEnd, choice: int) -> bytes | None:
        """The delta of a custom call, whose input is free text."""
        call: dict[str, Any] = {"index": event.index}
        if isinstance(event, ToolCallStart):
            self._inputs[choice, event.index] = CustomInput()
            call |= {"id": event.id, "type": "custom", "custom": {"name": event.name, "input": ""}}
        else:
            ended = isinstance(event, ToolCallEnd)
            decoder = self._inputs.pop((choice, event.index)) if ended else self._inputs[choice, event.index]
            text = decoder.finish() if isinstance(event, ToolCallEnd) else decoder.feed(event.fragment)
            if not text:
                return None
            call["custom"] = {"input": text}
        return _encode({"tool_calls": [call]})

    def last(self) -> bytes:
        if self._usage is None:
            return b""
        return b'%b,"choices":[],"usage":%b}\n\n' % (self._head, _encode(usage_of([self._usage])))
