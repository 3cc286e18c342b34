"""Options that several commands share: which format, and what the model was asked."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from .. import Format, Tools, UnbraidError, compose, find


def add_format(command: argparse.ArgumentParser) -> None:
    formats = command.add_argument_group("format", "one name, or a format put together from parts of others")
    formats.add_argument("-f", "--format", metavar="NAME", help="what the model writes; see `unbraid formats`")
    formats.add_argument("--reasoning-parser", metavar="NAME", help="the format that the reasoning is written in")
    formats.add_argument("--tool-call-parser", metavar="NAME", help="the format that tool calls are written in")
    formats.add_argument("--audio-parser", metavar="NAME", help="the format that speech is written in")


def read_format(arguments: argparse.Namespace) -> Format:
    parts = {
        "reasoning": arguments.reasoning_parser,
        "tools": arguments.tool_call_parser,
        "audio": arguments.audio_parser,
    }
    composed = any(name is not None for name in parts.values())
    if arguments.format is not None:
        if composed:
            raise UnbraidError("give either --format or the parsers of its parts (--reasoning-parser, …), not both")
        return find(arguments.format)
    if not composed:
        raise UnbraidError("which format? Give --format NAME; `unbraid formats` lists the names")
    return compose(**parts)


def read_tools(path: str) -> Tools:
    try:
        return Tools(read_json(path))
    except UnbraidError as error:
        raise error if str(error).startswith(path) else UnbraidError(f"{path}: {error}") from error


def read_json(path: str) -> Any:
    try:
        return json.loads(Path(path).read_bytes())
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        raise UnbraidError(f"{path} is not JSON: {error}") from error


def unreadable(path: str, error: OSError) -> UnbraidError:
    return UnbraidError(f"cannot read {path}: {error.strerror or error}")
