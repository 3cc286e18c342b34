"""The file of Silero's voice activity detector: found in the cache, or fetched from PyPI.

The package `silero-vad` (MIT) needs torch. The graph in it does not, so only that file is kept, pinned by SHA-256.
"""

from __future__ import annotations

from pathlib import Path

from ...models.cache import cache_folder, keep
from ...models.pinned import PinnedPackage, take_files
from ...models.progress import Progress, bar

_PACKAGE = PinnedPackage("pypi:silero-vad==6.2.3", 11_317_527)
_NAME = "silero_vad_16k_sequence.onnx"
_SHA256 = "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85"


def resolve_vad(*, cache: Path | None = None, progress: Progress | None = bar) -> Path:
    """The graph, fetched if need be. Raises `ModelError`.

    cache: the folder to keep files in, if not that of `cache_folder()`.
    """

    def make(place: Path) -> None:
        place.mkdir()
        take_files(_PACKAGE, {f"silero_vad/data/{_NAME}": _SHA256}, place, progress)

    return keep((cache or cache_folder()) / "models" / f"{_SHA256[:16]}-silero-vad", make) / _NAME
