"""The shape of all listeners whose model is on a server elsewhere.

    listener                     its servers                        a chunk is             what comes back
    `endpoint.EndpointListener`  `/v1/audio/transcriptions`         an uploaded file       text, with times if it can
    `chat.ChatListener`          `/v1/chat/completions`             a message with sound   text with the model's markup
    `sglang.SGLangWhisper`       SGLang's `/generate`               a prompt with sound    tokens

A listener says which requests it takes (`takes`) and which kind of `Server` it talks to. Replicas, health and the end
of an output are the same for all. SGLang's writes its own `generation`, because it is asked by tokens.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import ClassVar

from ...constraints.printers.token_sets import TokenSets
from ...core.vocabulary import Vocabulary
from ...engines.base import Audio, EngineFailed, Generation, Load, Piece, Sampling, TokenLogprob, Unsupported
from ...engines.routing import Replica, Routing
from ...engines.server import Server, Servers
from ..audio.pcm import as_wav
from ..decoding.sampling import is_looping
from ..listening import ListenEnd, ListenRequest
from .adapters import TextRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkGeneration(Generation):
    """A chunk as its server is asked for it. `Server.body` reads the details off the request."""

    request: ListenRequest


class RemoteListener:
    """One or more servers with the same model; see `Listener`.

    server: makes the client of one server from its URL.
    parallel: how many chunks of a recording are asked for at once.
    """

    takes: ClassVar[type[ListenRequest]] = TextRequest
    """The requests of the family's adapter."""
    vocabulary: Vocabulary | None = None

    def __init__(
        self, urls: str | Sequence[str], server: Callable[[str], Server], parallel: int, routing: Routing | None
    ) -> None:
        self._servers = Servers(urls, server, routing)
        self.parallel = parallel

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

    def generation(self, request: ListenRequest) -> Generation:
        """What the servers are asked for. Called in a thread, because it encodes the sound."""
        return ChunkGeneration(
            prompt=request.context if isinstance(request, TextRequest) else "",
            sampling=Sampling(temperature=request.temperature, seed=request.seed),
            max_tokens=request.max_tokens,
            audio=(Audio(as_wav(request.samples), "wav"),),
            request=request,
        )

    async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        """The output, piece by piece; see `Listener`."""
        if not isinstance(request, self.takes):
            name = type(self).__name__
            raise Unsupported(f"{name} takes requests of the type {self.takes.__name__}, not those of another adapter")
        generation = await asyncio.to_thread(self.generation, request)
        async with aclosing(self._servers.generate(generation)) as outputs:
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


class ReceivedTokens:
    """The tokens of one output that another engine writes, up to where the output begins to loop.

    prefix: what the output must begin with.
    end: the token that ends it.
    """

    def __init__(self, prefix: TokenSets, end: int) -> None:
        self.all: list[TokenLogprob] = []
        self.looping = False
        """The output loops: abort the request. Further tokens are ignored."""
        self._prefix = prefix
        self._end = end
        self._text: list[int] = []
        """The tokens after the prefix."""

    def take(self, tokens: Iterable[TokenLogprob]) -> Piece:
        """Add the next tokens. Returns them, without those after the start of a loop."""
        first = len(self.all)
        for token in tokens:
            if self.looping:
                break
            if len(self.all) >= len(self._prefix.sets):
                self._text.append(token.token)
            self.all.append(token)
            self.looping = token.token != self._end and is_looping(self._text)
        taken = tuple(self.all[first:])
        return Piece(tuple(one.token for one in taken), logprobs=taken)

    @property
    def choice(self) -> dict[int, float]:
        """The first token of the prefix that was a choice between several, with its probability among them."""
        several = (number for number, tokens in enumerate(self._prefix.sets) if len(tokens) > 1)
        number = next(several, len(self.all))
        return {one.token: math.exp(one.logprob) for one in self.all[number : number + 1]}
