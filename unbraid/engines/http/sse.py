"""Server-sent events, read: bytes that are cut anywhere in, the data of whole events out. (They are written by
`server.api.sse`.)"""

from __future__ import annotations


class EventReader:
    """Takes bytes as they come and gives the data of each event that they complete.

    As the standard has it: lines end with CR, LF or both, the data lines of one event are joined by newlines, comments
    and all other fields are skipped, and an event that is not complete at the end is none.
    """

    __slots__ = ("_data", "_line", "_skip", "_started")

    def __init__(self) -> None:
        self._line = b""
        """The beginning of a line whose end has not come."""
        self._data: list[bytes] = []
        self._skip = False
        """The last byte was CR: a LF right after it ends no other line."""
        self._started = False

    def feed(self, chunk: bytes) -> list[str]:
        """The data of the events that end in `chunk`."""
        if not chunk:
            return []
        whole = self._line + self._plain(chunk)
        if not self._started:
            if len(whole) < len(_MARK) and _MARK.startswith(whole):  # it may still be a byte order mark
                self._line = whole
                return []
            self._started = True
            whole = whole.removeprefix(_MARK)
        *lines, self._line = whole.split(b"\n")
        found = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif line == b"data":
                self._data.append(b"")
            elif not line and self._data:
                found.append(b"\n".join(self._data).decode("utf-8", "replace"))
                self._data.clear()
        return found

    def _plain(self, chunk: bytes) -> bytes:
        """`chunk` with LF for every end of a line."""
        if self._skip and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            if not chunk:
                self._skip = False
                return chunk
        self._skip = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in chunk else chunk


_MARK = b"\xef\xbb\xbf"
