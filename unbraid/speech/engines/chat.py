"""Speech models behind `/v1/chat/completions`, as a listener: each chunk is a message with a recording.

That is how vLLM and SGLang serve models that listen and write as chat models do (Qwen3-ASR). Their transcription
endpoints give plain text; a chat leaves the model's own markup in it, which the family's format reads. A reply that is
to begin with given text is the server's to continue (`continue_final_message`). Checked against the sources of vLLM
0.32 and SGLang 0.5.23.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Unpack

from ...core.vocabulary import Vocabulary
from ...engines.base import Audio, Finish, Generation, Piece, Sampling, Unsupported
from ...engines.reader import Reader, finish_reason
from ...engines.routing import Routing
from ...engines.server import Message, Server, ServerOptions, Servers
from ..audio.pcm import as_wav
from ..listening import ListenEnd, ListenRequest
from .remote import RemoteListener


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest(ListenRequest):
    """A request to a model that chats."""

    context: str = ""
    """The user's prompt: the system message."""
    begins: str = ""
    """What the reply begins with, as if the model had written it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chat(Generation):
    """A recording; the prompt is the user's."""

    begins: str = ""


class ChatListener(RemoteListener):
    """One or more servers with the same model.

    family: the family of the model, whose adapter makes the requests.
    """

    vocabulary: Vocabulary | None = None

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        family: str,
        parallel: int = 4,
        routing: Routing | None = None,
        **options: Unpack[ServerOptions],
    ) -> None:
        super().__init__(Servers(urls, lambda url: _ChatServer(url, **options), routing), parallel)
        self.family = family

    async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        """The output, piece by piece; see `Listener`."""
        if not isinstance(request, ChatRequest):
            raise Unsupported("ChatListener takes the requests of a family that chats, not those of another adapter")
        chat = _Chat(
            prompt=request.context,
            sampling=Sampling(temperature=request.temperature, seed=request.seed),
            max_tokens=request.max_tokens,
            audio=(Audio(await asyncio.to_thread(as_wav, request.samples), "wav"),),
            begins=request.begins,
        )
        if request.begins:
            yield Piece(text=request.begins)
        async with aclosing(self._heard(chat)) as outputs:
            async for output in outputs:
                yield output


class _ChatServer(Server):
    path = "/v1/chat/completions"
    health = "/v1/models"
    hears = True

    def body(self, request: Generation) -> dict[str, Any]:
        assert isinstance(request, _Chat)
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
        if request.begins:
            messages.append({"role": "assistant", "content": request.begins})
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        if request.sampling.seed is not None:
            body["seed"] = request.sampling.seed
        if request.max_tokens is not None:
            body["max_tokens"] = request.max_tokens
        return body

    def reader(self, request: Generation, body: Mapping[str, Any]) -> _ChatReader:
        return _ChatReader()


class _ChatReader(Reader[Message, Finish]):
    """Reads the chunks of a chat completion."""

    def __init__(self) -> None:
        self._reason: str | None = None
        self._usage: Mapping[str, Any] = {}

    def read(self, message: Message) -> Piece | None:
        self._usage = message.get("usage") or self._usage
        if not message["choices"]:
            return None
        choice = message["choices"][0]
        self._reason = choice.get("finish_reason") or self._reason
        text = (choice.get("delta") or {}).get("content")
        return Piece(text=text) if text else None

    def finish(self) -> Finish | None:
        if self._reason is None:
            return None
        counts = self._usage.get("prompt_tokens") or 0, self._usage.get("completion_tokens") or 0
        return Finish(finish_reason(self._reason), *counts)
