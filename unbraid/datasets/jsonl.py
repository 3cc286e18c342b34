"""Files of JSON lines. A line stays as it is, byte for byte; the new keys stand at the end of its object."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from ..errors import UnbraidError
from .rows import Parsing, Part, RowCounts

SUFFIXES = (".jsonl", ".ndjson")
_LOOKED_AT = 100


def columns(path: Path) -> list[str]:
    """The keys that hold text in the first lines."""
    keys: dict[str, None] = {}
    with path.open("rb") as file:
        for number, line in enumerate(islice(file, _LOOKED_AT), 1):
            row = _read(line, f"line {number} of {path}") if line.strip() else {}
            keys |= dict.fromkeys(key for key, value in row.items() if isinstance(value, str))
    return list(keys)


def texts(path: Path, column: str) -> Iterator[str]:
    """The texts in a column."""
    with path.open("rb") as file:
        yield from texts_in(file, column, str(path))


def texts_in(lines: Iterable[bytes], column: str, where: str) -> Iterator[str]:
    """The texts under a key of JSON lines. Lines without it, or with something else there, are left out."""
    for number, line in enumerate(lines, 1):
        text = _read(line, f"line {number} of {where}").get(column) if line.strip() else None
        if isinstance(text, str):
            yield text


def check(path: Path, parsing: Parsing) -> None:
    """Nothing to check: a wrong line raises when it is parsed."""


def parts(path: Path, size: int) -> Iterator[Part]:
    """The parts of a file, of about `size` bytes each."""
    total = max(1, path.stat().st_size)
    first, at = 1, 0
    with path.open("rb") as file:
        while lines := file.readlines(size):
            data = b"".join(lines)
            at += len(data)
            yield Part(first, len(lines), at / total, data)
            first += len(lines)


def parse_part(part: Part, parsing: Parsing, target: Path) -> RowCounts:
    """Parse a part, and write it to a file of its own."""
    rows, lines = [], []
    for number, line in enumerate(part.data.split(b"\n")[: part.rows], part.first):
        if not line.strip():
            lines.append(line)
            continue
        row = _read(line, f"line {number}")
        parsing.check_names(row, f"line {number}")
        try:
            values = parsing.parse(row[parsing.column], number)
        except UnbraidError as error:
            raise UnbraidError(f"line {number}: {error}") from error
        rows.append(values)
        lines.append(_added(line, {parsing.prefix + name: value for name, value in values.items()}))
    target.write_bytes(b"".join(line + b"\n" for line in lines))
    return RowCounts.of(rows)


def put_together(source: Path, parsing: Parsing, part_files: Sequence[Path], target: Path) -> None:
    """Write one file of all parts."""
    with target.open("wb") as whole:
        for path in part_files:
            with path.open("rb") as part:
                shutil.copyfileobj(part, whole)


def _read(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UnbraidError(f"{where} is no JSON: {error}") from error
    if not isinstance(row, dict):
        raise UnbraidError(f"{where} must be a JSON object, not {type(row).__name__}")
    return row


def _added(line: bytes, values: dict[str, Any]) -> bytes:
    """The line of an object that has keys, with more keys."""
    try:
        more = json.dumps(values, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half of a surrogate pair: only an escape can write it
        more = json.dumps(values).encode()
    end = len(line.rstrip())
    return line[: end - 1] + b", " + more[1:] + line[end:]
