"""`unbraid parse`: a model's raw output, taken apart while it comes in."""

from __future__ import annotations

import argparse
import codecs
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ... import Event, Parser
from ..options import STDIN, add_color, add_format, read_format, read_tools, unreadable
from ..view import View
from .dataset import add_dataset, run_dataset

SUMMARY = "take a model's raw output apart"
EXAMPLES = """\
  unbraid parse --format qwen3 output.txt
  some-model | unbraid parse --format step-audio-2 --events
  unbraid parse --format hermes --tools tools.json --json output.txt
  unbraid parse --format qwen3 --dataset outputs.parquet --column output --out parsed.parquet
"""
_MOST_READ = 64 * 1024


def configure(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", nargs="?", default=STDIN, metavar="FILE", help="raw output; default: standard input")
    add_format(command)
    request = command.add_argument_group("request", "what the model was asked")
    request.add_argument("--tools", metavar="FILE", help="the request's tools, a JSON list; calls to others are text")
    request.add_argument(
        "--unknown-tools",
        choices=("text", "emit"),
        default="text",
        help="a call that is not among the tools: keep it as text, or show it as a call (default: text)",
    )
    request.add_argument("--prompt", metavar="TEXT", help="the end of the prompt, where it opened a section: '<think>'")
    request.add_argument(
        "--calls-in-reasoning",
        action=argparse.BooleanOptionalAction,
        help="whether a call inside the reasoning is a call (default: as the model was trained)",
    )
    request.add_argument("--keep-reasoning", action="store_true", help="leave reasoning in the content, with its tags")
    output = command.add_argument_group("output")
    shape = output.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print the whole message as one JSON object")
    shape.add_argument("--events", action="store_true", help="print one JSON object a line for each event, at once")
    add_color(output)
    add_dataset(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.dataset is not None or arguments.out is not None:
        return run_dataset(arguments)
    parser = Parser(
        read_format(arguments),
        tools=None if arguments.tools is None else read_tools(arguments.tools),
        unknown_tools=arguments.unknown_tools,
        prompt=arguments.prompt,
        separate_reasoning=not arguments.keep_reasoning,
        calls_in_reasoning=arguments.calls_in_reasoning,
        # Only the view can do without: events name the raw text of a broken call, and that is kept with the message.
        keep_message=arguments.json or arguments.events,
    )
    batches = _events(parser, _pieces(arguments.file))
    if arguments.json:
        for _ in batches:
            pass
        print(_as_json(parser))
    elif arguments.events:
        for events in batches:
            for event in events:
                line = {"type": type(event).__name__, **asdict(event)}
                print(json.dumps(line, ensure_ascii=False), flush=True)
    else:
        view = View(sys.stdout, sys.stderr, color=arguments.color)
        for events in batches:
            view.show(events)
        view.finish()
    return 0


def _pieces(path: str) -> Iterator[str]:
    """The text of a file, each piece as soon as it is there. Bytes that are not UTF-8 become U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    from_stdin = path == STDIN
    try:
        # Without a buffer a read returns what a pipe holds now, and does not wait for more.
        with open(0 if from_stdin else path, "rb", buffering=0, closefd=not from_stdin) as file:
            while data := file.read(_MOST_READ):
                yield decoder.decode(data)
    except OSError as error:
        raise unreadable("standard input" if from_stdin else path, error) from error
    yield decoder.decode(b"", final=True)


def _events(parser: Parser, pieces: Iterator[str]) -> Iterator[list[Event]]:
    for piece in pieces:
        yield parser.feed(piece)
    yield parser.finish()


def _as_json(parser: Parser) -> str:
    message = parser.message
    result: dict[str, Any] = {"message": message.to_openai()}
    if message.tool_calls:
        result["complete"] = [call.complete for call in message.tool_calls]
    result["diagnostics"] = [asdict(diagnostic) for diagnostic in message.diagnostics]
    return json.dumps(result, ensure_ascii=False, indent=2)
