"""Truncated files: whether a file ends before its last part, where FFmpeg does not notice.

FFmpeg takes a truncated ogg or wav file for a short one. An interrupted upload would give half a transcript without a
warning.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from .sources import AudioSource

_LONGEST_PAGE = 65_307  # of Ogg
_MOST_CHUNKS = 1_000
_NO_SIZE = (0, 0xFFFF_FFFF)  # in the header of a wav that was written to a pipe


def counts_frames(file: AudioSource, format: str) -> bool:
    """Whether this is an mp3 whose first frame counts all frames. FFmpeg estimates the length of others."""
    if format != "mp3":
        return False
    with _from_start(file):
        head = file.read(10)
        if head[:3] == b"ID3" and len(head) == 10:
            file.seek(10 + sum((byte & 0x7F) << shift for byte, shift in zip(head[6:], (21, 14, 7, 0), strict=True)))
        head += file.read(4096)
        return b"Xing" in head or b"Info" in head


def is_truncated(file: AudioSource, format: str) -> bool:
    """Whether the file ends before its last page or chunk does."""
    with _from_start(file):
        return (format == "ogg" and _ogg_is_truncated(file)) or (format == "wav" and _wav_is_truncated(file))


def _ogg_is_truncated(file: AudioSource) -> bool:
    file.seek(max(0, file.size - _LONGEST_PAGE))
    tail = file.read(_LONGEST_PAGE)
    at = tail.rfind(b"OggS")
    if not 0 <= at < len(tail) - 26:
        return True
    sizes = tail[at + 27 : at + 27 + tail[at + 26]]
    return at + 27 + tail[at + 26] + sum(sizes) > len(tail)


def _wav_is_truncated(file: AudioSource) -> bool:
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
def _from_start(file: AudioSource) -> Iterator[None]:
    """Read the file from its start, and put its position back afterwards."""
    at = file.tell()
    file.seek(0)
    try:
        yield
    finally:
        file.seek(at)
