"""Arrow tables with the columns of their outputs: what Ray Data calls for each batch, and a job for each part."""

from __future__ import annotations

import pyarrow as pa

from ..errors import UnbraidError
from .rows import Counts, Parsing

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
}


def with_columns(schema: pa.Schema, parsing: Parsing, where: str = "the dataset") -> pa.Schema:
    """The schema of a table once it is parsed."""
    parsing.check_names(schema.names, where)
    kind = schema.field(parsing.column).type
    if not _is_output(kind):
        message = f"{parsing.column!r} of {where} holds {kind}: name a column of text or of lists of token ids"
        raise UnbraidError(message)
    for name, added in parsing.names.items():
        schema = schema.append(pa.field(added, TYPES[name]))
    return schema


def parse_table(table: pa.Table, parsing: Parsing, first_row: int | None = None) -> pa.Table:
    """The table with the new columns."""
    return counted_table(table, parsing, first_row)[0]


def counted_table(table: pa.Table, parsing: Parsing, first_row: int | None = None) -> tuple[pa.Table, Counts]:
    """The same, and what was found. `first_row`: its number in the dataset, which makes the ids of calls
    reproducible."""
    schema = with_columns(table.schema, parsing)
    found = [
        parsing.parse(output, None if first_row is None else first_row + at)
        for at, output in enumerate(table.column(parsing.column).to_pylist())
    ]
    columns = [pa.array([row[name] for row in found], kind) for name, kind in TYPES.items()]
    return pa.Table.from_arrays([*table.columns, *columns], schema=schema), Counts.of(found)


def _is_output(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return bool(pa.types.is_integer(kind.value_type))
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind))
