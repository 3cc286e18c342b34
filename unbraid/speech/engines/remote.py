"""What listeners share whose models are on servers elsewhere: the replicas, their state, and how output is passed on.

A listener of this kind makes a `Generation` of a request, and has `_heard` yield what the servers answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from ...engines.base import EngineFailed, Generation, Load, Piece
from ...engines.routing import Replica
from ...engines.server import Servers
from ..listening import ListenEnd


class RemoteListener:
    """One or more servers with the same model.

    parallel: how many chunks of a recording are asked for at once.
    """

    def __init__(self, servers: Servers, parallel: int) -> None:
        self._servers = servers
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

    async def _heard(self, generation: Generation) -> AsyncGenerator[Piece | ListenEnd, None]:
        """What the servers answer, piece by piece."""
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
