"""The events that a client is sent, each with an id.

They go out one after the other and wait for the client to read: nothing is queued here. The names are those of the
present API. A client that asks for the beta (`OpenAI-Beta: realtime=v1`) gets the names of the beta.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.types import Send

from ..errors import ApiError
from ..observing.exchange import random_id

_BETA: Mapping[str, str | None] = {
    "conversation.item.added": "conversation.item.created",
    "conversation.item.done": None,
    "response.output_text.delta": "response.text.delta",
    "response.output_text.done": "response.text.done",
    "response.output_audio.delta": "response.audio.delta",
    "response.output_audio.done": "response.audio.done",
    "response.output_audio_transcript.delta": "response.audio_transcript.delta",
    "response.output_audio_transcript.done": "response.audio_transcript.done",
}
"""What the beta calls events, where otherwise; None for those that it does not have."""


def new_id(kind: str) -> str:
    return f"{kind}_{random_id()}"


class EventWriter:
    """Sends events over one connection."""

    def __init__(self, send: Send, *, beta: bool = False) -> None:
        self._send = send
        self.beta = beta

    async def event(self, kind: str, **fields: Any) -> None:
        name = _BETA.get(kind, kind) if self.beta else kind
        if name is not None:
            await self.raw({"type": name, "event_id": new_id("event"), **fields})

    async def error(self, error: ApiError, event_id: object = None) -> None:
        """`event_id`: of the client's event that was wrong."""
        fields = error.body()["error"]
        await self.event("error", error={**fields, "event_id": event_id if isinstance(event_id, str) else None})

    async def raw(self, message: Mapping[str, Any]) -> None:
        """A message as it is."""
        await self._send({"type": "websocket.send", "text": msgspec.json.encode(message).decode()})

    async def close(self, code: int, reason: str) -> None:
        await self._send({"type": "websocket.close", "code": code, "reason": reason})
