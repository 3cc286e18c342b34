"""A server's transcription endpoint, as a listener: each chunk is a request of its own.

All chunks are asked for in the same way, whatever is to be replied: with times, unless the server has none. So the text
is the same in all replies. Whether it has them is found out with the first chunk that it refuses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Unpack

from ...core.vocabulary import Vocabulary
from ...engines.base import Audio, EngineError, Piece, Sampling, Unsupported
from ...engines.routing import Routing
from ...engines.server import ServerOptions
from ..audio.wav import as_wav
from ..listening import ListenEnd, ListenRequest
from .endpoint_adapter import EndpointRequest
from .endpoint_server import TranscriptionServers, TranscriptionUpload
from .remote import RemoteListener

_log = logging.getLogger(__name__)
_REFUSED = (400, 404, 422, 501)  # how servers refuse a response format


class EndpointListener(RemoteListener):
    """One or more servers with OpenAI's `/v1/audio/transcriptions`; see `TranscriptionServers`."""

    vocabulary: Vocabulary | None = None

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        parallel: int = 4,
        routing: Routing | None = None,
        **options: Unpack[ServerOptions],
    ) -> None:
        super().__init__(TranscriptionServers(urls, routing=routing, **options), parallel)
        self._timed = True
        """Whether the server gives times, as far as is known."""

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
            timestamps=request.timestamps and self._timed,
        )
        begun = False
        try:
            async with aclosing(self._heard(upload)) as outputs:
                async for output in outputs:
                    begun = True
                    yield output
            return
        except EngineError as error:
            if begun or not upload.timestamps or (error.status or 0) not in _REFUSED:
                raise
            refused = error
        try:
            async with aclosing(self._heard(replace(upload, timestamps=False))) as outputs:
                async for output in outputs:
                    if self._timed:
                        self._timed = False
                        _log.info("the server that transcribes gives no times: chunks are segments (%s)", refused)
                    yield output
        except EngineError as error:
            raise refused from error  # the times were not to blame
