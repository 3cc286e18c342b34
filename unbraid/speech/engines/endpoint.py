"""A server's transcription endpoint, as a listener: each chunk is a request of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Unpack

from ...core.vocabulary import Vocabulary
from ...engines.base import Audio, EngineFailed, Load, Piece, Sampling, Unsupported
from ...engines.routing import Replica, Routing
from ...engines.server import ServerOptions
from ..audio.wav import as_wav
from ..listening import ListenEnd, ListenRequest
from .endpoint_adapter import EndpointRequest
from .endpoint_server import TranscriptionServers, TranscriptionUpload


class EndpointListener:
    """One or more servers with OpenAI's `/v1/audio/transcriptions`; see `TranscriptionServers`.

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

    @property
    def replicas(self) -> Sequence[Replica]:
        """The servers, and how they are."""
        return self._servers.replicas

    async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        """The output, piece by piece; see `Listener`."""
        if not isinstance(request, EndpointRequest):
            raise Unsupported("EndpointListener takes the requests of EndpointAdapter, not those of a model's adapter")
        upload = TranscriptionUpload(
            prompt=request.context,
            sampling=Sampling(temperature=request.temperature, seed=request.seed),
            audio=(Audio(await asyncio.to_thread(as_wav, request.samples), "wav"),),
            task=request.task,
            language=request.language,
            timestamps=request.timestamps,
        )
        async with aclosing(self._servers.generate(upload)) as outputs:
            async for output in outputs:
                if isinstance(output, Piece):
                    yield output
                elif output.reason == "abort":
                    raise EngineFailed("the server aborted the output")
                else:
                    yield ListenEnd(output.reason, output.prompt_tokens, output.completion_tokens)

    async def check(self) -> None:
        """Return if the servers can take requests now; raise `EngineDown` if not."""
        await self._servers.check()

    async def close(self) -> None:
        await self._servers.close()
