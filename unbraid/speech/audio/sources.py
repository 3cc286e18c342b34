"""Files as FFmpeg may read them: with a bound on the total of all reads, checked before, and known to be whole.

FFmpeg never opens a file itself: it would take a name for a URL. Crafted files can send it around in circles; the bound
of `AudioSource` ends that.

FFmpeg allocates an entry of some 35 bytes for each sample that the tables of an mp4 file claim, whether or not the file
holds it. A file of 600 bytes can claim eighty million samples, which took 2.8 GB and 9 s. `check_mp4` counts first.

FFmpeg takes a truncated ogg or wav file for a short one. An interrupted upload would give half a transcript without a
warning. `is_truncated` tells.
"""

from __future__ import annotations

import os
import re
import struct
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from ..errors import BadAudio, TooMuchAudio

_COPY = 1 << 20
_IN_MEMORY = 8 << 20
_READS = 16  # times that a file may be read; ordinary ones are read once or twice
_SPARE_READS = 32 << 20

MOST_SAMPLES = 4_000_000
"""The most samples of a file: a day of AAC, or ten hours of video at sixty frames a second with its sound."""

_MOST_BOXES = 100_000  # at the top level: an hour has some thousand fragments, of two boxes each
_PIECE = 1 << 20
_TABLES = re.compile(rb"stsz|stz2|trun")
_TABLE = 16  # bytes of a table's header: its tag, version and flags, and two numbers
_CONVERT = "convert it to flac or mp3 first"

_LONGEST_PAGE = 65_307  # of Ogg
_MOST_CHUNKS = 1_000
_NO_SIZE = (0, 0xFFFF_FFFF)  # in the header of a wav that was written to a pipe


class AudioSource:
    """A file with bounded reads.

    An error of the file itself is kept in `failure`: FFmpeg hides it, and it is not the recording's fault.
    """

    def __init__(self, file: BinaryIO, name: str, size: int) -> None:
        self.name = name
        self.size = size
        self.failure: Exception | None = None
        self._file = file
        self._left = size * _READS + _SPARE_READS

    def read(self, count: int = -1) -> bytes:
        """`count` bytes, and fewer only at the end; never more, because FFmpeg copies all it gets."""
        left = self.size if count < 0 else count
        parts: list[bytes] = []
        try:
            while left > 0 and (part := self._file.read(left)):  # raw files may give fewer
                parts.append(part[:left])
                left -= len(parts[-1])
        except Exception as error:
            self.failure = error
            raise
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self._left -= len(data)
        if self._left < 0:
            raise BadAudio(f"{self.name} refers back to itself without end: it is damaged; convert it to wav or flac")
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Seek. Returns -1 for a place before the start, where damaged files send FFmpeg: that is a refusal to it.
        PyAV would keep an exception and raise it later, maybe for another file."""
        try:
            start = {os.SEEK_CUR: self._file.tell(), os.SEEK_END: self.size}.get(whence, 0)
            return self._file.seek(start + offset) if start + offset >= 0 else -1
        except Exception as error:
            self.failure = error
            raise

    def tell(self) -> int:
        return self._file.tell()


@contextmanager
def opened(source: str | Path | BinaryIO, most: int | None) -> Iterator[AudioSource]:
    """The file, at its start. Closed afterwards if it was opened here."""
    with ExitStack() as stack:
        if isinstance(source, str | Path):
            name = f"“{Path(source).name}”"
            try:
                file: BinaryIO = stack.enter_context(open(source, "rb"))
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else error
                raise BadAudio(f"{name} cannot be opened ({reason}): check its path") from error
            if not file.seekable():  # a pipe that has a name
                file = stack.enter_context(_copy(file, name, most))
        else:
            name = "the file"
            file = source if _seekable(source) else stack.enter_context(_copy(source, name, most))
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if size == 0:
            raise BadAudio(f"{name} is empty: send a recording")
        if most is not None and size > most:
            raise _too_large(name, most)
        yield AudioSource(file, name, size)


def _seekable(file: BinaryIO) -> bool:
    return file.seekable() if hasattr(file, "seekable") else hasattr(file, "seek")


def _copy(source: BinaryIO, name: str, most: int | None) -> BinaryIO:
    """The contents of a pipe, on disk if they are large: FFmpeg must seek, as an mp4 may have its header last."""
    with ExitStack() as stack:
        copy = stack.enter_context(tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY))
        while part := source.read(_COPY):
            copy.write(part)
            if most is not None and copy.tell() > most:
                raise _too_large(name, most)
        stack.pop_all()  # it stays open
    return cast(BinaryIO, copy)


def _too_large(name: str, most: int) -> TooMuchAudio:
    return TooMuchAudio(
        f"{name} is larger than {most / 1e6:,.0f} MB, which is the most that is taken: compress it, to mp3 or opus for "
        "instance, or cut it into several files"
    )


# mp4


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


# Whole files


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
