"""The shapes of chat replies: a whole one, and the chunks of one that is streamed."""

from __future__ import annotations

import base64
import math
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ...core.events import Content, Event, Reasoning, ToolCallArguments
from ...core.message import Message
from ...engines import TokenLogprob
from ..turn import Update

_encode = msgspec.json.encode
_LEAST_LOGPROB = -9999.0
"""What OpenAI's API says of a token that is as good as impossible."""
_HOUR = 3600

DONE = b"data: [DONE]\n\n"


def frame(body: Any) -> bytes:
    """A server-sent event."""
    return b"data: " + _encode(body) + b"\n\n"


class Head:
    """What all parts of one reply begin with."""

    def __init__(self, model: str, kind: str = "chatcmpl") -> None:
        self.id = f"{kind}-{secrets.token_hex(12)}"
        self.created = int(time.time())
        self.model = model

    def fields(self, object: str) -> dict[str, Any]:
        return {"id": self.id, "object": object, "created": self.created, "model": self.model}


def logprobs_of(logprobs: Iterable[TokenLogprob]) -> list[dict[str, Any]]:
    return [{**_logprob(one), "top_logprobs": [_logprob(other) for other in one.top]} for one in logprobs]


def _logprob(one: TokenLogprob) -> dict[str, Any]:
    return {"token": one.bytes.decode("utf-8", "replace"), "logprob": finite(one.logprob), "bytes": list(one.bytes)}


def finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else _LEAST_LOGPROB


class ChatChunks:
    """Writes the chunks of a streamed reply. What does not change is written once."""

    def __init__(
        self, head: Head, choices: int, reasoning_keys: Sequence[str], *, with_usage: bool, with_logprobs: bool
    ) -> None:
        fields = _encode(head.fields("chat.completion.chunk"))[:-1]
        self._head = b"data: " + fields
        self._starts = [b'%b,"choices":[{"index":%d,"delta":' % (self._head, choice) for choice in range(choices)]
        self._usage = b',"usage":null' if with_usage else b""
        self._close = b"}]" + self._usage + b"}\n\n"
        self._open = b',"logprobs":null,"finish_reason":null' + self._close
        self._with_logprobs = with_logprobs
        self._pending: list[list[TokenLogprob]] = [[] for _ in range(choices)]
        """Logprobs of tokens that have not shown themselves yet."""
        self._reasoning = [
            b'{"%b":' % reasoning_keys[0].encode(),
            *(b',"%b":' % k.encode() for k in reasoning_keys[1:]),
        ]
        self._audio_id = f"audio_{head.id[-12:]}"

    def first(self) -> bytes:
        """The role of each choice."""
        delta = b'{"role":"assistant","content":""}'
        return b"".join(start + delta + self._open for start in self._starts)

    def update(self, update: Update) -> bytes:
        """The chunks for what is new."""
        start = self._starts[update.choice]
        if update.logprobs and self._with_logprobs:
            self._pending[update.choice] += update.logprobs
        if not self._with_logprobs and not update.sound and update.end is None:
            said = b""
            for event in update.events:
                if delta := self._delta(event):
                    said += start + delta + self._open
            return said
        deltas = [delta for event in update.events if (delta := self._delta(event))]
        if update.sound:
            deltas.append(_encode({"audio": {"id": self._audio_id, "data": base64.b64encode(update.sound).decode()}}))
        return b"".join(self._rest(start, deltas, update))

    def _rest(self, start: bytes, deltas: list[bytes], update: Update) -> list[bytes]:
        """Chunks that say more than a delta: logprobs come with the first, the finish reason with one of its own."""
        if update.end is not None:
            deltas.append(b"{}")
        chunks = []
        for at, delta in enumerate(deltas):
            last = update.end is not None and at == len(deltas) - 1
            said = self._take_logprobs(update.choice)
            reason = _encode(update.end) if last else b"null"
            chunks.append(b'%b%b,"logprobs":%b,"finish_reason":%b%b' % (start, delta, said, reason, self._close))
        return chunks

    def _take_logprobs(self, choice: int) -> bytes:
        pending = self._pending[choice]
        if not pending:
            return b"null"
        self._pending[choice] = []
        return _encode({"content": logprobs_of(pending), "refusal": None})

    def _delta(self, event: Event) -> bytes | None:
        kind = type(event)
        if kind is Content:
            return b'{"content":%b}' % _encode(event.text)  # type: ignore[union-attr]
        if kind is ToolCallArguments:
            written = _encode(event.fragment)  # type: ignore[union-attr]
            return b'{"tool_calls":[{"index":%d,"function":{"arguments":%b}}]}' % (event.index, written)  # type: ignore[union-attr]
        if kind is Reasoning:
            text = _encode(event.text)  # type: ignore[union-attr]
            return b"".join([key + text for key in self._reasoning]) + b"}"
        said = event.to_openai()
        return _encode(said) if said else None

    def usage(self, usage: Mapping[str, Any]) -> bytes:
        return b'%b,"choices":[],"usage":%b}\n\n' % (self._head, _encode(usage))


def chat_choice(
    head: Head,
    choice: int,
    message: Message,
    reason: str,
    reasoning_keys: Sequence[str],
    logprobs: Sequence[TokenLogprob] | None,
    sound: bytes,
) -> dict[str, Any]:
    """One choice of a whole reply."""
    written = message.to_openai()
    reasoning = written.pop("reasoning_content")
    written |= dict.fromkeys(reasoning_keys, reasoning)
    written["refusal"] = None
    if not message.parts:
        written["content"] = ""
    if sound:
        written["audio"] = {
            "id": f"audio_{head.id[-12:]}",
            "data": base64.b64encode(sound).decode(),
            "transcript": "".join(speech.text for speech in message.speech),
            "expires_at": head.created + _HOUR,
        }
    said = None if logprobs is None else {"content": logprobs_of(logprobs), "refusal": None}
    return {"index": choice, "message": written, "logprobs": said, "finish_reason": reason}
