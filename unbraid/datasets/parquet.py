"""Arrow tables with the columns of their outputs, and files of Parquet made of such tables.

Ray Data calls `parse_table` for each batch, a job `parse_part` for each part. Parts have about the same size, however
the row groups of the file are cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from ..errors import UnbraidError
from .row_groups import concatenate
from .rows import ERROR, Parsing, Part, RowCounts, damaged

SUFFIXES = (".parquet", ".pq")
_ROWS = 64
"""Rows that are read at once. Parts end between them."""
_BUFFER = 1 << 20
"""Bytes of each column that are read at once: a row group is never in memory as a whole."""
_TEXT = pa.large_string()
TYPES: dict[str, pa.DataType] = {
    "content": _TEXT,
    "reasoning": _TEXT,
    "tool_calls": pa.list_(
        pa.struct(
            [("id", pa.string()), ("name", pa.string()), ("arguments", _TEXT), ("complete", pa.bool_()), ("raw", _TEXT)]
        )
    ),
    "speech": pa.list_(pa.struct([("text", _TEXT), ("codes", pa.list_(pa.int32())), ("section", pa.int32())])),
    "diagnostics": pa.list_(
        pa.struct([("kind", pa.string()), ("message", pa.string()), ("start", pa.int64()), ("end", pa.int64())])
    ),
    ERROR: pa.string(),
}


def with_columns(schema: pa.Schema, parsing: Parsing, where: str = "the dataset") -> pa.Schema:
    """The schema of a parsed table."""
    parsing.check_names(schema.names, where)
    if schema.names.count(parsing.column) > 1:
        raise UnbraidError(f"{where} has several columns {parsing.column!r}: rename all but one")
    kind = schema.field(parsing.column).type
    if not _is_output(kind):
        message = f"{parsing.column!r} of {where} holds {kind}: name a column of text or of lists of token ids"
        raise UnbraidError(message)
    if parsing.tokenizer is None and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise UnbraidError(f"{where}: {parsing.wants_tokenizer}")
    for name, added in parsing.names.items():
        schema = schema.append(pa.field(added, TYPES[name]))
    return schema


def parse_table(table: pa.Table, parsing: Parsing, first_row: int | None = None) -> pa.Table:
    """The table with the new columns."""
    return counted_table(table, parsing, first_row)[0]


def counted_table(
    table: pa.Table, parsing: Parsing, first_row: int | None = None, source: str = "the table"
) -> tuple[pa.Table, RowCounts]:
    """The table with the new columns, and its counts. `first_row`: the number of its first row in the dataset, which
    makes the ids of calls reproducible."""
    schema = with_columns(table.schema, parsing)
    rows = [
        _parsed(output, parsing, f"{source}, row {number + 1}", None if first_row is None else number)
        for number, output in enumerate(table.column(parsing.column), first_row or 0)
    ]
    if any(map(parsing.leaves_out, rows)):
        table = table.filter([not parsing.leaves_out(row) for row in rows])
    left = [row for row in rows if not parsing.leaves_out(row)]
    columns = [pa.array([row.get(name) for row in left], TYPES[name]) for name in parsing.names]
    return pa.Table.from_arrays([*table.columns, *columns], schema=schema), RowCounts.of(rows)


def _parsed(output: pa.Scalar, parsing: Parsing, where: str, seed: int | None) -> dict[str, Any]:
    """The values of one row. Arrow does not look whether a text is UTF-8 before somebody reads it."""
    try:
        value = output.as_py()
    except UnicodeDecodeError as error:
        return parsing.bad(f"{where}: {parsing.column!r} must be UTF-8: {error}")
    return parsing.row(value, where, seed)


def _is_output(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return bool(pa.types.is_integer(kind.value_type))
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind))


def columns(path: Path) -> list[str]:
    """The columns that can hold outputs as text."""
    schema = _open(path).schema_arrow
    return [field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)]


def texts(path: Path, column: str) -> Iterator[str]:
    """The texts in a column."""
    with _reading(path) as file:
        if column not in (names := columns(path)):
            raise UnbraidError(f"{path} has no column {column!r} with text: it has {', '.join(names) or 'none'}")
        for batch in file.iter_batches(batch_size=_ROWS, columns=[column]):
            for text in batch.column(0):
                with suppress(UnicodeDecodeError):
                    if text.is_valid:
                        yield text.as_py()


def check(path: Path, parsing: Parsing) -> None:
    """Raise `UnbraidError` if the file cannot be parsed with these options."""
    with_columns(_open(path).schema_arrow, parsing, str(path))


def parts(path: Path, size: int) -> Iterator[Part]:
    """The parts of a file, of about `size` bytes each."""
    with _reading(path) as file:
        rows = max(1, file.metadata.num_rows)
        first, held = 0, _Held()
        for batch in file.iter_batches(batch_size=_ROWS):
            held.add(batch)
            if held.size >= size:
                yield Part(first, held.rows, (first + held.rows) / rows, held.to_ipc(), str(path))
                first, held = first + held.rows, _Held()
        if held.rows:
            yield Part(first, held.rows, 1.0, held.to_ipc(), str(path))


class _Held:
    """Rows that have been read. Only their content tells their size: a file may hold a long text once for many rows."""

    def __init__(self) -> None:
        self._batches: list[Any] = []
        self.rows = self.size = 0

    def add(self, batch: Any) -> None:
        self._batches.append(batch)
        self.rows += batch.num_rows
        self.size += batch.nbytes

    def to_ipc(self) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._batches[0].schema) as writer:
            for batch in self._batches:
                writer.write_batch(batch)
        data: bytes = sink.getvalue().to_pybytes()
        return data


def parse_part(part: Part, parsing: Parsing, target: Path) -> RowCounts:
    """Parse a part, and write it to a file of its own."""
    with pa.ipc.open_stream(part.data) as reader:
        table, counts = counted_table(reader.read_all(), parsing, part.first, part.source)
    pq.write_table(table, target, compression="zstd")
    return counts


def put_together(source: Path, parsing: Parsing, part_files: Sequence[Path], target: Path) -> None:
    """Write one file of all parts."""
    if not part_files:
        pq.write_table(with_columns(_open(source).schema_arrow, parsing, str(source)).empty_table(), target)
        return
    rows = concatenate(part_files, target)
    changed = parsing.on_error != "skip" and rows != _open(source).metadata.num_rows
    if changed or _open(target).metadata.num_rows != rows:
        raise UnbraidError(f"{source} was changed while it was parsed: start again")


@contextmanager
def _reading(path: Path) -> Iterator[Any]:
    """A file whose rows are read. Raises `UnbraidError` if it is damaged."""
    with _open(path) as file:
        try:
            yield file
        except (OSError, pa.ArrowException) as error:
            raise damaged(path, error) from error


def _open(path: Path) -> Any:
    try:
        return pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False)
    except (OSError, pa.ArrowException) as error:
        raise UnbraidError(f"{path} cannot be read as Parquet: {error}") from error
