"""`unbraid formats`: the list of formats."""

from __future__ import annotations

import argparse
import json

from .. import Format, all_formats

SUMMARY = "list the formats that can be parsed"
EXAMPLES = """\
  unbraid formats
  unbraid formats --json
"""
_STRANDS = ("reasoning", "tools", "speech")


def configure(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print a JSON list")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    formats = all_formats()
    if arguments.json:
        listed = [
            {"name": format.name, **{strand: _has(format, strand) for strand in _STRANDS}, "other_names": names}
            for format, names in formats.items()
        ]
        print(json.dumps(listed, ensure_ascii=False, indent=2))
        return 0
    rows: list[tuple[str, ...]] = [("name", *_STRANDS, "other names")]
    for format, names in formats.items():
        marks = ("yes" if _has(format, strand) else "-" for strand in _STRANDS)
        rows.append((format.name, *marks, ", ".join(names)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def _has(format: Format, strand: str) -> bool:
    return getattr(format, strand) is not None
