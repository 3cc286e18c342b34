"""Files of JSON lines, as they are or compressed (`.jsonl.gz`, `.jsonl.zst`).

A line stays as it is, byte for byte; the new keys stand at the end of its object. A line that has no room for them,
because it is no object or has such keys, is kept as a text: `{"error": "in.jsonl, line 2: …", "line": "{…"}`.
"""

from __future__ import annotations

import gzip
import io
import json
import shutil
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from ..errors import UnbraidError
from .rows import ERROR, Parsing, Part, RowCounts, damaged, is_ids

SUFFIXES = tuple(kind + packed for kind in (".jsonl", ".ndjson") for packed in ("", ".gz", ".zst"))
_LOOKED_AT = 100
_LINE = "line"
"""The key of a line that is kept as a text."""


@contextmanager
def _reading(path: Path) -> Iterator[tuple[Any, Any]]:
    """A file of lines, decompressed, and the file on disk below it. Raises `UnbraidError` if it is damaged."""
    with path.open("rb") as packed:
        try:
            with closing(_unpacked(packed, path.suffix)) as file:
                yield file, packed
        except (OSError, EOFError, zlib.error) as error:
            raise damaged(path, error) from error


def _unpacked(file: Any, suffix: str) -> Any:
    if suffix == ".gz":
        return gzip.open(file)
    if suffix == ".zst":
        pa = _arrow()
        return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd"))
    return file


def _writing(path: Path) -> Any:
    """A file to write to, compressed as its name says."""
    if path.suffix == ".gz":
        return gzip.open(path, "wb")
    return _arrow().output_stream(str(path), compression="zstd") if path.suffix == ".zst" else path.open("wb")


def _arrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise UnbraidError(
            f"files that end with .zst need pyarrow ({error}): pip install 'unbraid[datasets]'"
        ) from error
    return pyarrow


def columns(path: Path) -> list[str]:
    """The keys that hold text in the first lines."""
    return list(dict.fromkeys(key for row in _first(path) for key, value in row.items() if isinstance(value, str)))


def _first(path: Path) -> list[dict[str, Any]]:
    """The objects in the first lines."""
    with _reading(path) as (file, _):
        return [row for line in islice(file, _LOOKED_AT) if isinstance(row := _read(line), dict)]


def texts(path: Path, column: str) -> Iterator[str]:
    """The texts in a column."""
    with _reading(path) as (file, _):
        yield from texts_in(file, column)


def texts_in(lines: Iterable[bytes], column: str) -> Iterator[str]:
    """The texts under a key of JSON lines. Lines without it, or that are no objects, are left out."""
    for line in lines:
        row = _read(line)
        if isinstance(row, dict) and isinstance(text := row.get(column), str):
            yield text


def check(path: Path, parsing: Parsing) -> None:
    """Raise `UnbraidError` if no row has the column; and, as far as the first lines tell, if all have a new one
    already, or ids that nothing can read."""
    rows = _first(path)
    if not rows:
        return
    names = dict.fromkeys(key for row in rows for key in row)
    if parsing.column not in names and not _has(path, parsing.column):
        parsing.check_column(names, str(path))
    where = f"{path}, in its first {_LOOKED_AT} lines,"
    parsing.check_room(set.intersection(*map(set, rows)), where)
    outputs = [row[parsing.column] for row in rows if row.get(parsing.column) is not None]
    if outputs and parsing.tokenizer is None and all(map(is_ids, outputs)):
        raise UnbraidError(f"{where} {parsing.wants_tokenizer}")


def _has(path: Path, column: str) -> bool:
    """Whether any row has the column. Reads as far as the first that does."""
    with _reading(path) as (file, _):
        return any(isinstance(row := _read(line), dict) and column in row for line in file)


def parts(path: Path, size: int) -> Iterator[Part]:
    """The parts of a file, of about `size` bytes each."""
    total = max(1, path.stat().st_size)
    first = 1
    with _reading(path) as (file, packed):
        while lines := file.readlines(size):
            yield Part(first, len(lines), min(1.0, packed.tell() / total), b"".join(lines), str(path))
            first += len(lines)


def parse_part(part: Part, parsing: Parsing, target: Path) -> RowCounts:
    """Parse a part, and write it to a file of its own."""
    rows = []
    with closing(_writing(target)) as file:
        for number, line in enumerate(part.data.split(b"\n")[: part.rows], part.first):
            if line.strip():
                values, line = _parsed(line, parsing, f"{part.source}, line {number}", number)
                rows.append(values)
                if parsing.leaves_out(values):
                    continue
            file.write(line + b"\n")
    return RowCounts.of(rows)


def _parsed(line: bytes, parsing: Parsing, where: str, seed: int) -> tuple[dict[str, Any], bytes]:
    """The values of a line, and the line with them."""
    row = _read(line)
    if not isinstance(row, dict):
        values = parsing.bad(f"{where}: {row}")
        return values, _as_text(line, parsing, values)
    try:
        parsing.check_room(row, "the row")
    except UnbraidError as error:
        values = parsing.bad(f"{where}: {error}")
        return values, _as_text(line, parsing, values)
    values = parsing.row(row.get(parsing.column), where, seed)
    return values, _added(line, {name: values.get(column) for column, name in parsing.names.items()}, bool(row))


def put_together(source: Path, parsing: Parsing, part_files: Sequence[Path], target: Path) -> None:
    """Write one file of all parts."""
    if source.suffix == ".zst":  # one frame, as many readers stop after the first
        with closing(_writing(target)) as whole:
            for path in part_files:
                with _reading(path) as (part, _):
                    shutil.copyfileobj(part, whole)
        return
    if not part_files:
        _writing(target).close()  # nothing, but compressed
        return
    with target.open("wb") as plain:
        for path in part_files:
            with path.open("rb") as part:
                shutil.copyfileobj(part, plain)


def _read(line: bytes) -> dict[str, Any] | str:
    """The object in a line, or the reason why the line has none."""
    try:
        row = json.loads(line.decode("utf-8-sig", "surrogatepass"))  # of bytes, Python would take UTF-16 too
    except (ValueError, RecursionError) as error:
        return f"no JSON: {error}"
    return row if isinstance(row, dict) else f"must be a JSON object, not {type(row).__name__}"


def _as_text(line: bytes, parsing: Parsing, values: dict[str, Any]) -> bytes:
    """A line that new keys cannot be added to. Bytes that are no UTF-8 become lone surrogates, as Python has them."""
    return json.dumps(
        {parsing.prefix + ERROR: values[ERROR], parsing.prefix + _LINE: line.decode("utf-8", "surrogateescape")}
    ).encode()


def _added(line: bytes, values: dict[str, Any], comma: bool) -> bytes:
    """The line of an object with more keys."""
    try:
        more = json.dumps(values, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half of a surrogate pair: only an escape can write it
        more = json.dumps(values).encode()
    end = len(line.rstrip())
    return line[: end - 1] + b", " * comma + more[1:] + line[end:]
