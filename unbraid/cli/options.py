"""Options that several commands share: which format, and what the model was asked."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .. import Format, Tools, UnbraidError, compose, find

FORMAT_OPTIONS = ("-f", "--format", "--reasoning-parser", "--tool-call-parser", "--audio-parser")
"""Options whose value is the name of a format."""


def near(word: str, words: Iterable[str]) -> str:
    """A hint at the word that is spelled most like this one, to follow a complaint; empty if none is."""
    import difflib  # only needed here, and slow to load

    alike = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
    return f" (did you mean {alike[0]}?)" if alike else ""


def add_format(command: argparse.ArgumentParser) -> None:
    formats = command.add_argument_group("format", "one name, or a format put together from parts of others")
    formats.add_argument(
        "-f",
        "--format",
        metavar="NAME",
        help="what the model writes, or the name of the model on the hub; see `unbraid formats`",
    )
    formats.add_argument("--reasoning-parser", metavar="NAME", help="the format that the reasoning is written in")
    formats.add_argument("--tool-call-parser", metavar="NAME", help="the format that tool calls are written in")
    formats.add_argument("--audio-parser", metavar="NAME", help="the format that speech is written in")


def has_format(arguments: argparse.Namespace) -> bool:
    """Whether a format was named."""
    return arguments.format is not None or any(_parts(arguments).values())


def _parts(arguments: argparse.Namespace) -> dict[str, str | None]:
    return {
        "reasoning": arguments.reasoning_parser,
        "tools": arguments.tool_call_parser,
        "audio": arguments.audio_parser,
    }


def add_color(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="auto: on a terminal, unless NO_COLOR is set; FORCE_COLOR asks for it anywhere",
    )


def read_format(arguments: argparse.Namespace) -> Format:
    parts = _parts(arguments)
    composed = any(name is not None for name in parts.values())
    if arguments.format is not None:
        if composed:
            raise UnbraidError("give either --format or the parsers of its parts (--reasoning-parser, …), not both")
        return find(arguments.format)
    if not composed:
        raise UnbraidError("which format? Give --format NAME; `unbraid formats` lists the names")
    return compose(**parts)


def add_assignments(group: argparse._ArgumentGroup, dest: str, help: str) -> None:
    more = f"{help}; may be given several times"
    group.add_argument("--set", action="append", default=[], metavar="NAME=JSON", dest=dest, help=more)


def read_assignments(assignments: list[str]) -> dict[str, Any]:
    """The values of `--set`, by name. A value that is no JSON is text."""
    values = {}
    for each in assignments:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise UnbraidError(f"--set takes NAME=JSON, such as temperature=0; not {each!r}")
        try:
            values[name] = json.loads(value)
        except (ValueError, RecursionError):
            values[name] = value
    return values


def read_tools(path: str) -> Tools:
    definitions = read_json(path)
    try:
        return Tools(definitions)
    except UnbraidError as error:
        raise UnbraidError(f"{path}: {error}") from error


STDIN = "-"
"""The file name for standard input."""


def read_json(path: str) -> Any:
    """The JSON in a file, or in standard input."""
    try:
        return json.loads(sys.stdin.buffer.read() if path == STDIN else Path(path).read_bytes())
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        raise UnbraidError(f"{'standard input' if path == STDIN else path} is not JSON: {error}") from error


def unreadable(path: str, error: OSError) -> UnbraidError:
    return UnbraidError(f"cannot read {path}: {error.strerror or error}")
