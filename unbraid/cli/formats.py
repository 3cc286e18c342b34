"""`unbraid formats`: the list of formats. `unbraid export`: a format as JSON, for a model's repository or for another
implementation."""

from __future__ import annotations

import argparse
import json

from .. import Format, UnbraidError, all_formats, export, find
from ..format_cases import cases
from ..formats.documents import schema

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


class ExportCommand:
    """`unbraid export`, as the modules of other commands have it."""

    SUMMARY = "print a format as JSON, the cases that another implementation of it can be tried with, or their schema"
    EXAMPLES = """\
  unbraid export qwen3 > qwen3.json
  unbraid export qwen3 --cases > qwen3.jsonl
  unbraid export --schema
"""

    @classmethod
    def configure(cls, command: argparse.ArgumentParser) -> None:
        command.add_argument("format", nargs="?", metavar="FORMAT", help="its name; see `unbraid formats`")
        shape = command.add_argument_group("output").add_mutually_exclusive_group()
        shape.add_argument(
            "--cases", action="store_true", help="JSON lines: outputs, how they are cut, and what comes of them"
        )
        shape.add_argument("--schema", action="store_true", help="the JSON Schema of exported formats")
        command.set_defaults(run=cls.run)

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        if arguments.schema:
            print(json.dumps(schema(), ensure_ascii=False, indent=2))
            return 0
        if arguments.format is None:
            raise UnbraidError("which format? `unbraid formats` lists the names")
        format = find(arguments.format)
        if arguments.cases:
            for case in cases(format):
                print(json.dumps(case, ensure_ascii=False))
            return 0
        print(json.dumps(export(format), ensure_ascii=False, indent=2))
        return 0
