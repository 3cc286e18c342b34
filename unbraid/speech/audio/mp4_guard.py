"""What an mp4 file makes the decoder remember, told before the decoder sees it.

FFmpeg makes an entry of some 35 bytes for each sample that an mp4's tables promise, whether or not the file has it. A
file of 600 bytes can promise eighty million, which took 2.8 GB and 9 s.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from ..errors import BadAudio
from .sources import Source

MOST_SAMPLES = 4_000_000
"""Samples of a file in all: a day of AAC, or ten hours of video at sixty frames a second with its sound."""

_MOST_BOXES = 100_000  # at the top: an hour has some thousand fragments, of two boxes each
_PIECE = 1 << 20
_TABLES = re.compile(rb"stsz|stz2|trun")
_TABLE = 16  # a table's beginning: its tag, version and flags, and two numbers
_CONVERT = "convert it to flac or mp3 first"


def check_boxes(source: Source) -> None:
    """Raises `BadAudio` for more samples than a recording has.

    The tables are looked for byte by byte in all that is not sound itself: no way of nesting boxes hides one.
    """
    promised = 0
    for piece in _outside_of_sound(source):
        if b"cmov" in piece:
            raise BadAudio(f"{source.name} has a compressed header, as old QuickTime files have: {_CONVERT}")
        promised += sum(_promised(piece, source.size))
        if promised > MOST_SAMPLES:
            raise BadAudio(
                f"{source.name} is no recording, or a damaged one, for it promises more samples than any has: if it "
                f"does have them, {_CONVERT}"
            )


def _promised(piece: bytes, size: int) -> Iterator[int]:
    whole = piece.ljust(len(piece) + _TABLE, b"\0")
    for table in _TABLES.finditer(piece, 0, _PIECE - _TABLE):
        first, second = struct.unpack_from(">II", whole, table.start() + 8)
        if table[0] == b"trun":
            yield first
        elif table[0] == b"stz2" or not first or first * second > size:
            yield second
        # Else all samples have one size and the file can hold them: plain PCM, which needs an entry for many together.


def _outside_of_sound(source: Source) -> Iterator[bytes]:
    """All boxes but `mdat`, in pieces of which each begins with the end of the one before: no table is cut in two."""
    start = 0
    for _ in range(_MOST_BOXES):
        source.seek(start)
        header = source.read(16)
        if len(header) < 8:
            return
        size, tag = struct.unpack_from(">I4s", header)
        if size == 1 and len(header) == 16:
            (size,) = struct.unpack_from(">Q", header, 8)
        if size < 8:  # the rest of the file, or nothing that makes sense
            size = source.size - start
        end = min(start + size, source.size)
        while start < end and tag != b"mdat":
            source.seek(start)
            yield source.read(min(end - start, _PIECE))
            start += _PIECE - _TABLE
        start = end
    raise BadAudio(f"{source.name} has more parts than any recording has: {_CONVERT}")
