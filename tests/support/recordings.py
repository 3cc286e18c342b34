"""Recordings, made by the recorder."""

from __future__ import annotations

import asyncio
from pathlib import Path

from unbraid.engines import Generation
from unbraid.engines.recording import Recorder
from unbraid.engines.replay import ReplayEngine, script


def recorded(folder: Path, prompt: str, *pieces: str) -> str:
    """The path of a recording of one output."""
    path = folder / "recording.jsonl"

    async def record() -> None:
        recorder = Recorder(ReplayEngine([script(*pieces, chunks=10_000)]), path)
        async for _ in recorder.generate(Generation(prompt=prompt)):
            pass
        await recorder.close()

    asyncio.run(record())
    return str(path)
