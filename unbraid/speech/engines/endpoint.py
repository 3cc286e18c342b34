"""A server's own endpoint as a listener: each chunk is a request for itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Unpack

from ...core.vocabulary import Vocabulary
from ...engines.base import Audio, EngineFailed, Load, Piece, Sampling, Unsupported
from ...engines.routing import Routing
from ...engines.server import ServerOptions
from ..audio.wav import as_wav
from ..listening import ListenEnd, ListenRequest
from .endpoint_adapter import EndpointHearing
from .endpoint_server import Dictation, TranscriptionServers


class EndpointListener:
    """What transcribes on one or more servers with OpenAI's `/v1/audio/transcriptions`; see `TranscriptionServers`.

    parallel: how many chunks of a recording are asked for at once.
    """

    vocabulary: Vocabulary | None = None

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        parallel: int = 4,
        routing: Routing | None = None,
        **options: Unpack[ServerOptions],
    ) -> None:
        self.parallel = parallel
        self._servers = TranscriptionServers(urls, routing=routing, **options)

    @property
    def model(self) -> str:
        return self._servers.model

    @property
    def load(self) -> Load:
        return self._servers.load

    async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        """The output, piece by piece; see `Listener`."""
        if not isinstance(request, EndpointHearing):
            raise Unsupported("an endpoint is asked by EndpointAdapter, not by the adapter of a model")
        asked = Dictation(
            prompt=request.context,
            sampling=Sampling(temperature=request.temperature, seed=request.seed),
            audio=(Audio(await asyncio.to_thread(as_wav, request.samples), "wav"),),
            task=request.task,
            language=request.language,
            timestamps=request.timestamps,
        )
        async with aclosing(self._servers.generate(asked)) as outputs:
            async for output in outputs:
                if isinstance(output, Piece):
                    yield output
                elif output.reason == "abort":
                    raise EngineFailed("the server broke off in the middle of an output")
                else:
                    yield ListenEnd(output.reason, output.prompt_tokens, output.completion_tokens)

    async def check(self) -> None:
        """Return if the servers can take requests now; raise `EngineDown` if not."""
        await self._servers.check()

    async def close(self) -> None:
        await self._servers.close()
