"""Whether files are whole, where the decoder does not tell: it takes one that breaks off for a short one."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from .sources import Source

_LONGEST_PAGE = 65_307  # of Ogg
_MOST_CHUNKS = 1_000
_NO_SIZE = (0, 0xFFFF_FFFF)  # of a wav that was written to a pipe


def counts_frames(file: Source, format: str) -> bool:
    """Whether this is an mp3 whose first frame says how many there are; otherwise its length is a guess."""
    if format != "mp3":
        return False
    with _elsewhere(file):
        head = file.read(10)
        if head[:3] == b"ID3" and len(head) == 10:
            file.seek(10 + sum((byte & 0x7F) << shift for byte, shift in zip(head[6:], (21, 14, 7, 0), strict=True)))
        head += file.read(4096)
        return b"Xing" in head or b"Info" in head


def breaks_off(file: Source, format: str) -> bool:
    """Whether the file ends before the last part that it began."""
    with _elsewhere(file):
        return (format == "ogg" and _ogg_breaks_off(file)) or (format == "wav" and _wav_breaks_off(file))


def _ogg_breaks_off(file: Source) -> bool:
    file.seek(max(0, file.size - _LONGEST_PAGE))
    tail = file.read(_LONGEST_PAGE)
    at = tail.rfind(b"OggS")
    if not 0 <= at < len(tail) - 26:
        return True
    sizes = tail[at + 27 : at + 27 + tail[at + 26]]
    return at + 27 + tail[at + 26] + sum(sizes) > len(tail)


def _wav_breaks_off(file: Source) -> bool:
    at = 12
    for _ in range(_MOST_CHUNKS):
        file.seek(at)
        header = file.read(8)
        if len(header) < 8:
            return False
        tag, size = struct.unpack("<4sI", header)
        if tag == b"data":
            return size not in _NO_SIZE and at + 8 + size > file.size
        at += 8 + size + size % 2
    return False


@contextmanager
def _elsewhere(file: Source) -> Iterator[None]:
    """For a look at the file, from its beginning, while the decoder reads it."""
    at = file.tell()
    file.seek(0)
    try:
        yield
    finally:
        file.seek(at)
