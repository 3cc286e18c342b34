"""Files of Parquet concatenated without decoding them: their row groups are copied byte by byte.

A file of Parquet is its row groups, then a footer with their offsets. So the bytes of the parts stand one after the
other, and the footer of the whole has all row groups, each with its offsets moved like its part. The footer is Thrift's
compact protocol. It is read and written here as numbers and bytes, whatever its fields mean. Only the fields that are
offsets have names (parquet.thrift of the Apache Parquet format).

The parts must have the same schema and the same writer, and no page indexes or encryption: `job` writes them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MAGIC = b"PAR1"
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS = (4, 5, 6)
_LONG = 15
"""The size in a list's header if the real size follows the header."""
_AT_ONCE = 1 << 20

Struct = dict[int, tuple[int, Any]]
"""The fields of a Thrift struct by number: type and value of each."""

# FileMetaData
_NUM_ROWS, _ROW_GROUPS = 3, 4
# RowGroup
_COLUMNS, _GROUP_OFFSET, _ORDINAL = 1, 5, 7
# ColumnChunk
_CHUNK_OFFSET, _META_DATA = 2, 3
# ColumnMetaData: pages of data, of an index, of a dictionary, and a Bloom filter
_OFFSETS = (9, 10, 11, 14)


def concatenate(parts: Sequence[Path], target: Path) -> int:
    """Write one file of all parts, and return its number of rows."""
    whole: Struct = {}
    groups: list[Struct] = []
    rows = 0
    with target.open("wb") as file:
        file.write(MAGIC)
        for path in parts:
            with path.open("rb") as part:
                footer, end = _footer(part)
                moved = file.tell() - len(MAGIC)
                part.seek(len(MAGIC))
                _copy(part, file, end - len(MAGIC))
            whole = whole or footer
            rows += footer[_NUM_ROWS][1]
            for group in footer[_ROW_GROUPS][1][1]:
                _move(group, moved)
                groups.append(group)
        whole[_NUM_ROWS] = (whole[_NUM_ROWS][0], rows)
        whole[_ROW_GROUPS] = (_LIST, (_STRUCT, groups))
        end_of_file = bytearray()
        _write_struct(end_of_file, whole)
        file.write(end_of_file + len(end_of_file).to_bytes(4, "little") + MAGIC)
    return rows


def _footer(file: Any) -> tuple[Struct, int]:
    """The footer of a file, and where it begins."""
    file.seek(-8, os.SEEK_END)
    at = file.tell()
    tail = file.read(8)
    assert tail[4:] == MAGIC
    begin = at - int.from_bytes(tail[:4], "little")
    file.seek(begin)
    return _Reader(file.read(at - begin)).struct(), begin


def _copy(source: Any, target: Any, size: int) -> None:
    while size:
        data = source.read(min(size, _AT_ONCE))
        assert data, "a part ends before its footer"
        target.write(data)
        size -= len(data)


def _move(group: Struct, by: int) -> None:
    """Add the new offset to every position in a row group."""
    group.pop(_ORDINAL, None)
    _add(group, _GROUP_OFFSET, by)
    for chunk in group[_COLUMNS][1][1]:
        if chunk[_CHUNK_OFFSET][1]:  # 0, where the writer leaves it out
            _add(chunk, _CHUNK_OFFSET, by)
        for offset in _OFFSETS:
            _add(chunk[_META_DATA][1], offset, by)


def _add(struct: Struct, field: int, by: int) -> None:
    if field in struct:
        kind, value = struct[field]
        struct[field] = kind, value + by


class _Reader:
    """Reads Thrift's compact protocol."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self) -> Struct:
        fields: Struct = {}
        field = 0
        while head := self._byte():
            kind = head & 15
            field = field + (head >> 4) if head >> 4 else self._signed()
            # A truth stands in its header.
            fields[field] = kind, (None if kind in (_TRUE, _FALSE) else self._value(kind))
        return fields

    def _value(self, kind: int) -> Any:
        if kind in _INTEGERS:
            return self._signed()
        if kind == _BINARY:
            return self._bytes(self._varint())
        if kind == _STRUCT:
            return self.struct()
        if kind in (_LIST, _SET):
            head = self._byte()
            size = head >> 4 if head >> 4 < _LONG else self._varint()
            return head & 15, [self._value(head & 15) for _ in range(size)]
        if kind == _DOUBLE:
            return self._bytes(8)
        assert kind in (_TRUE, _FALSE, _BYTE), f"Parquet's footer has no type {kind}"
        return self._byte()

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _bytes(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def _signed(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)


def _write_struct(out: bytearray, struct: Struct) -> None:
    before = 0
    for field, (kind, value) in struct.items():
        step = field - before
        if 0 < step < 16:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            _write_signed(out, field)
        before = field
        if kind not in (_TRUE, _FALSE):
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in _INTEGERS:
        _write_signed(out, value)
    elif kind == _BINARY:
        _write_varint(out, len(value))
        out += value
    elif kind == _STRUCT:
        _write_struct(out, value)
    elif kind in (_LIST, _SET):
        of, items = value
        if len(items) < _LONG:
            out.append(len(items) << 4 | of)
        else:
            out.append(_LONG << 4 | of)
            _write_varint(out, len(items))
        for item in items:
            _write_value(out, of, item)
    elif kind == _DOUBLE:
        out += value
    else:
        out.append(value)


def _write_varint(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _write_signed(out: bytearray, value: int) -> None:
    _write_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)
