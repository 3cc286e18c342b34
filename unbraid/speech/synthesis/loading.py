"""From a name to a speaker.

Importing this module needs only the standard library: `load_speaker` imports the rest, and says what to install where
something is missing.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING

from ...errors import UnbraidError

if TYPE_CHECKING:
    from .speaker import Speaker

_PACKAGES = ("numpy", "av", "onnxruntime", "espeakng_loader")


async def load_speaker(model: str, *, queue_size: int = 64, threads: int | None = None) -> Speaker:
    """The model that speaks: `kokoro`, or a folder with one. Fetched if need be. Raises `UnbraidError`, also for
    packages that are missing."""
    return await asyncio.to_thread(_load, model, queue_size, threads)


def _load(model: str, queue_size: int, threads: int | None) -> Speaker:
    missing: list[str] = []
    for name in _PACKAGES:
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing.append(error.name or name)
    if missing:
        raise UnbraidError(f"speech needs {', '.join(missing)}, which cannot be imported: pip install 'unbraid[voice]'")
    from .kokoro import KokoroSpeaker

    return KokoroSpeaker(model, queue_size=queue_size, threads=threads)
