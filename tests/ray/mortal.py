"""An engine's replica that dies by its own hand, in the middle of an output: as if its process had been killed then.
It also tells when an output was given up before its end."""

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


GIVEN_UP = ".given-up"
"""What the name of the file ends with that says so."""


class MortalReplica(EngineReplica):
    """Dies once for each order."""

    async def generate(self, request: bytes) -> AsyncGenerator[Any, None]:
        count, ended = 0, False
        try:
            async with aclosing(super().generate(request)) as outputs:
                async for output in outputs:
                    count += len(output.ids) if isinstance(output, Piece) else 0
                    ended = ended or not isinstance(output, Piece)
                    yield output
                    _obey(count)
        finally:
            if not ended:
                Path(os.environ[ORDER] + GIVEN_UP).touch()


def _obey(count: int) -> None:
    order = Path(os.environ[ORDER])
    with suppress(FileNotFoundError):
        if count >= int(order.read_text()):
            order.unlink()  # whoever does this is the one
            os.kill(os.getpid(), signal.SIGKILL)
