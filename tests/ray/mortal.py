"""An engine's replica that dies in the middle of an output when it is told to: by its own hand, as if its process had
been killed then, or because its engine breaks down. It also tells when an output was given up before its end."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

from unbraid.engines import Engine, EngineDown, EngineFailed, Finish, Generation, Piece
from unbraid.ray.replicas import EngineReplica
from unbraid.server.settings import Settings

ORDER = "UNBRAID_TEST_DEATH"
"""The variable that names a file. If there is one, it says after how many tokens of an output the replica is to die;
with `BREAK` after the number, the engine breaks down instead."""
BREAK = "break"
GIVEN_UP = ".given-up"
"""What the name of the file ends with that says so."""


class MortalReplica(EngineReplica):
    """A replica with a mortal engine."""

    async def __init__(self, settings: Settings) -> None:  # type: ignore[misc]  # Ray waits for it
        await super().__init__(settings)
        self._runs = self._engine = MortalEngine(self._engine)


class MortalEngine:
    """Dies once for each order."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._down = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        await self.check()
        count, ended = 0, False
        try:
            async with aclosing(self._engine.generate(request)) as outputs:
                async for output in outputs:
                    count += len(output.ids) if isinstance(output, Piece) else 0
                    ended = ended or not isinstance(output, Piece)
                    yield output
                    self._obey(count)
        finally:
            if not ended:
                Path(os.environ[ORDER] + GIVEN_UP).touch()

    async def check(self) -> None:
        if self._down:
            raise EngineDown("the engine is down, as ordered")
        await self._engine.check()

    def _obey(self, count: int) -> None:
        order = Path(os.environ[ORDER])
        with suppress(FileNotFoundError):
            tokens, *what = order.read_text().split()
            if count < int(tokens):
                return
            order.unlink()  # whoever does this is the one
            if what != [BREAK]:
                os.kill(os.getpid(), signal.SIGKILL)
            self._break()

    def _break(self) -> None:
        """vLLM's own processes can be killed. Others have none."""
        vllm = getattr(self._engine, "_llm", None)
        if vllm is None:
            self._down = True
            raise EngineFailed("the engine broke down, as ordered")
        for process in vllm.engine_core.resources.engine_manager.processes:
            os.kill(process.pid, signal.SIGKILL)
