"""`unbraid export`: a format as JSON, for a model's repository or another implementation."""

from __future__ import annotations

import argparse
import json

from .. import UnbraidError, export, find
from ..format_cases import cases
from ..formats.documents import schema

SUMMARY = "print a format as JSON, the cases that another implementation of it can be tried with, or their schema"
EXAMPLES = """\
  unbraid export qwen3 > qwen3.json
  unbraid export qwen3 --cases > qwen3.jsonl
  unbraid export --schema
"""


def configure(command: argparse.ArgumentParser) -> None:
    command.add_argument("format", nargs="?", metavar="FORMAT", help="its name; see `unbraid formats`")
    shape = command.add_argument_group("output").add_mutually_exclusive_group()
    shape.add_argument("--cases", action="store_true", help="JSON lines: outputs, how they are cut, what comes of them")
    shape.add_argument("--schema", action="store_true", help="the JSON Schema of exported formats")
    command.set_defaults(run=run)


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
