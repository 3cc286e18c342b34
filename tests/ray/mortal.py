"""An engine's replica that dies by its own hand, in the middle of an output: as if its process had been killed then."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

from unbraid.engines import Piece
from unbraid.ray.replicas import EngineReplica

ORDER = "UNBRAID_TEST_DEATH"
"""The variable that names a file. If there is one, it says after how many tokens of an output the replica is to die."""


class MortalReplica(EngineReplica):
    """Dies once for each order."""

    async def generate(self, request: bytes) -> AsyncGenerator[Any, None]:
        count = 0
        async with aclosing(super().generate(request)) as outputs:
            async for output in outputs:
                count += len(output.ids) if isinstance(output, Piece) else 0
                yield output
                _obey(count)


def _obey(count: int) -> None:
    order = Path(os.environ[ORDER])
    with suppress(FileNotFoundError):
        if count >= int(order.read_text()):
            order.unlink()  # whoever does this is the one
            os.kill(os.getpid(), signal.SIGKILL)
