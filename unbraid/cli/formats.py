"""`unbraid formats`: the list of formats. `unbraid export`: a format as JSON, for a model's repository or for another
implementation. `unbraid --version`: what is installed."""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import metadata

from .. import Format, UnbraidError, UnknownFormat, __version__, all_formats, export, find
from ..format_cases import cases
from ..formats.documents import schema
from ..formats.hub_names import HUB_NAMES
from ..formats.registry import near_names
from ..templates.detection.response_template_export import response_template

SUMMARY = "list the formats that can be parsed"
EXAMPLES = """\
  unbraid formats
  unbraid formats qwen
  unbraid formats --with speech
  unbraid formats --json
"""
_STRANDS = ("reasoning", "tools", "speech")


def configure(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "text", nargs="?", default="", metavar="TEXT", help="only those with this in one of their names"
    )
    command.add_argument(
        "--with", action="append", choices=_STRANDS, default=[], dest="strands", help="only those that have this"
    )
    command.add_argument("--json", action="store_true", help="print a JSON list")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    everything = sorted(all_formats().items(), key=lambda each: _order(each[0].name))
    formats = [
        (format, names)
        for format, names in _named(arguments.text, everything)
        if all(_has(format, strand) for strand in arguments.strands)
    ]
    if not formats:
        raise UnbraidError(f"no format is like that{_hint(arguments.text)}; `unbraid formats` lists all")
    if arguments.json:
        listed = [
            {
                "name": format.name,
                **{strand: _has(format, strand) for strand in _STRANDS},
                "other_names": names,
                "models": list(hub_names(format)),
            }
            for format, names in formats
        ]
        print(json.dumps(listed, ensure_ascii=False, indent=2))
        return 0
    rows: list[tuple[str, ...]] = [("name", *_STRANDS, "other names")]
    for format, names in formats:
        marks = ("yes" if _has(format, strand) else "-" for strand in _STRANDS)
        rows.append((format.name, *marks, ", ".join(names)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def _order(name: str) -> list[tuple[int, str]]:
    """A sort key: alphabetical, with numbers by value."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]


def _named(text: str, formats: list[tuple[Format, list[str]]]) -> list[tuple[Format, list[str]]]:
    """Formats with this text in a name; if there is none, the format of the model with this name on the hub."""
    listed = [each for each in formats if _is_named(text, (each[0].name, *each[1], *hub_names(each[0])))]
    if not listed:
        with suppress(UnknownFormat):
            listed = [each for each in formats if each[0] == find(text)]
    return listed


def _is_named(text: str, names: Iterable[str]) -> bool:
    return any(_plain(text) in _plain(name) for name in names)


def _plain(name: str) -> str:
    return re.sub(r"[\s_.-]+", "", name.lower())


def _hint(text: str) -> str:
    near = near_names(text) if text else []
    return f" (did you mean {', '.join(near)}?)" if near else ""


def hub_names(format: Format) -> tuple[str, ...]:
    """Models on the hub that write a format."""
    return HUB_NAMES.get(format.name, ())


def _has(format: Format, strand: str) -> bool:
    return getattr(format, strand) is not None


class ExportCommand:
    """`unbraid export`, as the modules of other commands have it."""

    SUMMARY = (
        "print a format as JSON, as Hugging Face's response_template, or the cases to try another implementation with"
    )
    EXAMPLES = """\
  unbraid export qwen3 > qwen3.json
  unbraid export qwen3 --cases > qwen3.jsonl
  unbraid export qwen3 --response-template
  unbraid export --schema
"""

    @classmethod
    def configure(cls, command: argparse.ArgumentParser) -> None:
        command.add_argument("format", nargs="?", metavar="FORMAT", help="its name; see `unbraid formats`")
        shape = command.add_argument_group("output").add_mutually_exclusive_group()
        shape.add_argument(
            "--cases", action="store_true", help="JSON lines: outputs, how they are cut, and what comes of them"
        )
        shape.add_argument(
            "--response-template",
            action="store_true",
            help="Hugging Face's response_template, for tokenizer_config.json; stderr says what it cannot express",
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
        if not arguments.response_template:
            print(json.dumps(export(format), ensure_ascii=False, indent=2))
            return 0
        template = response_template(format)
        print(json.dumps(template.document, ensure_ascii=False, indent=2))
        for each in template.unread:
            print(f"not read by it: {each}", file=sys.stderr)
        return 0


_BESIDE = ("vllm", "sglang", "transformers", "torch", "xgrammar")
"""Packages that unbraid does not install, and works with."""


def versions() -> Iterator[str]:
    """What `unbraid --version` prints: this version, Python's, and those of the packages of each extra."""
    yield f"unbraid {__version__}"
    yield f"Python {platform.python_version()} on {platform.system()}"
    for extra, packages in _extras().items():
        listed = {name: _version(name) for name in packages}
        lacks = not all(listed.values())
        shown = ", ".join(f"{name} {version or '-'}" for name, version in listed.items())
        yield f"{extra}: {shown}" + (f" (pip install 'unbraid[{extra}]')" if lacks else "")
    beside = [f"{name} {version}" for name in _BESIDE if (version := _version(name))]
    if beside:
        yield f"beside it: {', '.join(beside)}"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _extras() -> dict[str, list[str]]:
    """The packages of each extra that users choose; none if unbraid itself is not installed."""
    try:
        requirements = metadata.requires("unbraid") or []
    except metadata.PackageNotFoundError:
        return {}
    extras: dict[str, list[str]] = {}
    for requirement in requirements:
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", requirement)
        if name and extra and name.group() != "unbraid" and extra.group(1) != "test":
            extras.setdefault(extra.group(1), []).append(name.group())
    return extras
