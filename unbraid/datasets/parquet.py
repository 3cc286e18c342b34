"""Files of Parquet: read in parts of about the same size, however their row groups are cut, and put together again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from ..errors import UnbraidError
from .part import Part
from .row_groups import concatenate
from .rows import Counts, Parsing
from .tables import counted_table, with_columns

SUFFIXES = (".parquet", ".pq")
_ROWS = 64
"""How many are read at once. Parts end between them."""
_BUFFER = 1 << 20
"""Bytes that are read at once of each column: a row group is never in memory as a whole."""


def columns(path: Path) -> list[str]:
    """The columns that can hold outputs as text."""
    schema = _open(path).schema_arrow
    return [field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)]


def check(path: Path, parsing: Parsing) -> None:
    """Raise `UnbraidError` for a file that cannot be parsed so."""
    with_columns(_open(path).schema_arrow, parsing, str(path))


def parts(path: Path, size: int) -> Iterator[Part]:
    """The parts of a file, of about `size` bytes each."""
    with _open(path) as file:
        rows = max(1, file.metadata.num_rows)
        first, held = 0, _Held()
        for batch in file.iter_batches(batch_size=_ROWS):
            held.add(batch)
            if held.size >= size:
                yield Part(first, held.rows, (first + held.rows) / rows, held.written())
                first, held = first + held.rows, _Held()
        if held.rows:
            yield Part(first, held.rows, 1.0, held.written())


class _Held:
    """Rows that have been read. How large they are says only their content: a file may hold a long text once for many
    rows."""

    def __init__(self) -> None:
        self._batches: list[Any] = []
        self.rows = self.size = 0

    def add(self, batch: Any) -> None:
        self._batches.append(batch)
        self.rows += batch.num_rows
        self.size += batch.nbytes

    def written(self) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._batches[0].schema) as writer:
            for batch in self._batches:
                writer.write_batch(batch)
        data: bytes = sink.getvalue().to_pybytes()
        return data


def parse_part(part: Part, parsing: Parsing, target: Path) -> Counts:
    """Parse a part, and write it to a file of its own."""
    with pa.ipc.open_stream(part.data) as reader:
        table, counts = counted_table(reader.read_all(), parsing, part.first)
    pq.write_table(table, target, compression="zstd")
    return counts


def put_together(source: Path, parsing: Parsing, found: Sequence[Path], target: Path) -> None:
    """One file of all parts."""
    rows = _open(source).metadata.num_rows
    if not found:
        pq.write_table(with_columns(_open(source).schema_arrow, parsing, str(source)).empty_table(), target)
    elif concatenate(found, target) != rows or _open(target).metadata.num_rows != rows:
        raise UnbraidError(f"{source} was changed while it was parsed: start again")


def _open(path: Path) -> Any:
    try:
        return pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False)
    except (OSError, pa.ArrowException) as error:
        raise UnbraidError(f"{path} cannot be read as Parquet: {error}") from error
