"""Files as FFmpeg reads them: seekable, of known size, with a bound on the total of all reads.

FFmpeg never opens a file itself: it would take a name for a URL. Crafted files can send it around in circles; the bound
ends that.
"""

from __future__ import annotations

import os
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
        wanted = self.size if count < 0 else count
        parts: list[bytes] = []
        try:
            while wanted > 0 and (part := self._file.read(wanted)):  # raw files may give fewer
                parts.append(part[:wanted])
                wanted -= len(parts[-1])
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
