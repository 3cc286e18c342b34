"""A guard for mp4 files: how many samples their tables claim, checked before FFmpeg reads them.

FFmpeg allocates an entry of some 35 bytes for each sample that the tables of an mp4 file claim, whether or not the file
holds it. A file of 600 bytes can claim eighty million samples, which took 2.8 GB and 9 s.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from ..errors import BadAudio
from .sources import AudioSource

MOST_SAMPLES = 4_000_000
"""The most samples of a file: a day of AAC, or ten hours of video at sixty frames a second with its sound."""

_MOST_BOXES = 100_000  # at the top level: an hour has some thousand fragments, of two boxes each
_PIECE = 1 << 20
_TABLES = re.compile(rb"stsz|stz2|trun")
_TABLE = 16  # bytes of a table's header: its tag, version and flags, and two numbers
_CONVERT = "convert it to flac or mp3 first"


def check_mp4(source: AudioSource) -> None:
    """Raise `BadAudio` for more samples than any recording has.

    The tables are searched for byte by byte in everything but the sound itself (`mdat`), so that no nesting of boxes
    hides one.
    """
    claimed = 0
    for piece in _outside_of_sound(source):
        if b"cmov" in piece:
            raise BadAudio(f"{source.name} has a compressed header, as old QuickTime files have: {_CONVERT}")
        claimed += sum(_claimed(piece, source.size))
        if claimed > MOST_SAMPLES:
            raise BadAudio(
                f"{source.name} claims more samples than any recording has: it is damaged or no recording; if it is "
                f"one, {_CONVERT}"
            )


def _claimed(piece: bytes, size: int) -> Iterator[int]:
    whole = piece.ljust(len(piece) + _TABLE, b"\0")
    for table in _TABLES.finditer(piece, 0, _PIECE - _TABLE):
        first, second = struct.unpack_from(">II", whole, table.start() + 8)
        if table[0] == b"trun":
            yield first
        elif table[0] == b"stz2" or not first or first * second > size:
            yield second
        # Else all samples have one size and the file can hold them: PCM, for which FFmpeg needs few entries.


def _outside_of_sound(source: AudioSource) -> Iterator[bytes]:
    """All boxes but `mdat`, in pieces that overlap, so that no table header is cut in two."""
    start = 0
    for _ in range(_MOST_BOXES):
        source.seek(start)
        header = source.read(16)
        if len(header) < 8:
            return
        size, tag = struct.unpack_from(">I4s", header)
        if size == 1 and len(header) == 16:
            (size,) = struct.unpack_from(">Q", header, 8)
        if size < 8:  # 0 is the rest of the file; other values make no sense
            size = source.size - start
        end = min(start + size, source.size)
        while start < end and tag != b"mdat":
            source.seek(start)
            yield source.read(min(end - start, _PIECE))
            start += _PIECE - _TABLE
        start = end
    raise BadAudio(f"{source.name} has more parts than any recording has: {_CONVERT}")
