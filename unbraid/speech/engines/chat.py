"""Speech models behind `/v1/chat/completions`, as a listener: each chunk is a message with a recording.

    in    [{"role": "system", "content": PROMPT}, {"role": "user", "content": [{"type": "input_audio", …}]}]
    out   language English<asr_text>Ask not

That is how vLLM and SGLang serve models that listen and write as chat models do (Qwen3-ASR). Their transcription
endpoints give plain text; a chat leaves the model's own markup in it, which the family's format reads. A reply that is
to begin with given text is the server's to continue (`continue_final_message`). Checked against the sources of vLLM
0.32 and SGLang 0.5.23.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from ...engines.base import Finish, Generation, Piece
from ...engines.reader import Reader, finish_reason
from ...engines.routing import Routing
from ...engines.server import Message, Server, ServerOptions
from .adapters import SpeechChatRequest
from .remote import ChunkGeneration, RemoteListener


class ChatListener(RemoteListener):
    """One or more servers with the same model.

    family: the family of the model, whose adapter makes the requests.
    """

    takes = SpeechChatRequest

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        family: str,
        parallel: int = 4,
        routing: Routing | None = None,
        **options: Unpack[ServerOptions],
    ) -> None:
        super().__init__(urls, lambda url: _ChatServer(url, **options), parallel, routing)
        self.family = family


def _begins(generation: Generation) -> str:
    assert isinstance(generation, ChunkGeneration)
    assert isinstance(generation.request, SpeechChatRequest)
    return generation.request.begins


class _ChatServer(Server):
    path = "/v1/chat/completions"
    health = "/v1/models"
    hears = True

    def body(self, request: Generation) -> dict[str, Any]:
        [recording] = request.audio
        sound = {"data": base64.b64encode(recording.data).decode(), "format": recording.format}
        messages: list[dict[str, Any]] = []
        if request.prompt:
            messages.append({"role": "system", "content": request.prompt})
        messages.append({"role": "user", "content": [{"type": "input_audio", "input_audio": sound}]})
        body: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": request.sampling.temperature,
            "skip_special_tokens": False,  # the markup may be one
        }
        if begins := _begins(request):
            messages.append({"role": "assistant", "content": begins})
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        if request.sampling.seed is not None:
            body["seed"] = request.sampling.seed
        if request.max_tokens is not None:
            body["max_tokens"] = request.max_tokens
        return body

    def reader(self, request: Generation, body: Mapping[str, Any]) -> _ChatReader:
        return _ChatReader(_begins(request))


class _ChatReader(Reader[Message, Finish]):
    """Reads the chunks of a chat completion. What the reply was made to begin with comes before the first text."""

    def __init__(self, begins: str) -> None:
        self._begins = begins
        self._reason: str | None = None
        self._usage: Mapping[str, Any] = {}

    def read(self, message: Message) -> Piece | None:
        self._usage = message.get("usage") or self._usage
        if not message["choices"]:
            return None
        choice = message["choices"][0]
        self._reason = choice.get("finish_reason") or self._reason
        text = (choice.get("delta") or {}).get("content")
        if not text:
            return None
        text, self._begins = self._begins + text, ""
        return Piece(text=text)

    def held(self) -> list[Piece]:
        return [Piece(text=self._begins)] if self._begins else []

    def finish(self) -> Finish | None:
        if self._reason is None:
            return None
        counts = self._usage.get("prompt_tokens") or 0, self._usage.get("completion_tokens") or 0
        return Finish(finish_reason(self._reason), *counts)
