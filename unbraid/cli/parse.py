"""`unbraid parse`: a model's raw output, parsed as it comes in. With `--dataset`, files of outputs, row by row."""

from __future__ import annotations

import argparse
import codecs
import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from .. import Event, Format, Parser, Tools, UnbraidError, guess
from ..datasets.job import JobProgress, texts_of
from ..datasets.job import run as run_job
from ..datasets.rows import ERROR, ON_ERROR, Parsing
from ..formats import resolve
from .detect import MOST_ROWS, NO_MARKUP, only_column
from .options import STDIN, add_color, add_format, has_format, read_format, read_json, read_tools, unreadable
from .view import View

SUMMARY = "take a model's raw output apart"
EXAMPLES = """\
  unbraid parse --format qwen3 output.txt
  unbraid parse output.txt
  some-model | unbraid parse --format step-audio-2 --events
  unbraid parse --format hermes --tools tools.json --json output.txt
  unbraid parse --format qwen3 --dataset outputs.parquet --column output --out parsed.parquet
"""
_MOST_READ = 64 * 1024
_EVERY = 10.0
"""Seconds between two lines of progress, if stderr is no terminal."""
_OFTEN = 0.2
"""Seconds between two updates of the line if stderr is a terminal."""


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
    _add_dataset(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.dataset is not None or arguments.out is not None:
        return _run_dataset(arguments)
    pieces = _pieces(arguments.file)
    if not has_format(arguments):
        text = "".join(pieces)
        pieces = iter([text])
    parser = Parser(
        read_format(arguments) if has_format(arguments) else _guessed([text]),
        tools=None if arguments.tools is None else read_tools(arguments.tools),
        unknown_tools=arguments.unknown_tools,
        prompt=arguments.prompt,
        separate_reasoning=not arguments.keep_reasoning,
        calls_in_reasoning=arguments.calls_in_reasoning,
        # Only the view can do without: events name the raw text of a broken call, and that is kept with the message.
        keep_message=arguments.json or arguments.events,
    )
    batches = _events(parser, pieces)
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


def _guessed(texts: Iterable[str]) -> Format:
    """The format that explains the texts best. Says which on standard error."""
    guesses = guess(texts)
    if not guesses or guesses[0].sure == "partly":
        nearest = f"{guesses[0].name} explains only a part of it; " if guesses else ""
        raise UnbraidError(f"which format? {nearest or NO_MARKUP + '; '}give --format NAME, see `unbraid formats`")
    best = guesses[0]
    print(f"unbraid: reading it as {best.name} ({best.sure}); give --format to choose", file=sys.stderr)
    return best.format


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


def _add_dataset(command: argparse.ArgumentParser) -> None:
    dataset = command.add_argument_group(
        "dataset",
        "files or a folder of Parquet or JSON lines (.gz, .zst too), one output a row; a run that was ended goes on",
    )
    dataset.add_argument("--dataset", metavar="PATH", help="parse each row of it, in place of one output")
    dataset.add_argument("--out", metavar="PATH", help="where the same rows go, with the columns that are found")
    dataset.add_argument("--column", metavar="NAME", help="where the outputs are; default: the only column of text")
    dataset.add_argument("--prefix", metavar="TEXT", default="", help="what the names of the new columns begin with")
    dataset.add_argument("--tokenizer", metavar="PATH", help="the model's tokenizer, where outputs are token ids")
    dataset.add_argument(
        "--end-of-turn", action="store_true", help="the outputs ended, and lack the token that says so"
    )
    dataset.add_argument(
        "--on-error",
        choices=ON_ERROR,
        default="keep",
        help="a row that cannot be parsed: keep it, with the reason in the column `error`; skip it; or fail, and end "
        "the job (default: keep)",
    )
    dataset.add_argument("--processes", metavar="N", type=_count, help="how many parse; default: one for each core")


def _run_dataset(arguments: argparse.Namespace) -> int:
    if arguments.dataset is None or arguments.out is None:
        raise UnbraidError("a dataset needs both: --dataset with what to parse, and --out with where it goes")
    if arguments.file != STDIN or arguments.json or arguments.events:
        raise UnbraidError("with --dataset, leave out FILE, --json and --events: --out gets all of it")
    source = Path(arguments.dataset)
    column = arguments.column or only_column(source)
    parsing = Parsing(
        read_format(arguments) if has_format(arguments) else _guessed(islice(texts_of(source, column), MOST_ROWS)),
        column,
        arguments.prefix,
        None if arguments.tools is None else _tools(arguments.tools),
        arguments.unknown_tools,
        _tokenizer(arguments.tokenizer),
        arguments.prompt,
        not arguments.keep_reasoning,
        arguments.calls_in_reasoning,
        arguments.end_of_turn,
        arguments.on_error,
    )
    line = _JobLine()
    done = run_job(source, Path(arguments.out), parsing, processes=arguments.processes, progress=line.show)
    line.end()
    for reason in (done.counts + done.kept).reasons:
        print(f"unbraid: {reason}", file=sys.stderr)
    print("\n".join(_summary(done, parsing)))
    return 0


_BAD = {"keep": "kept, with the reason in the column {error!r}", "skip": "left out", "fail": ""}


def _summary(done: JobProgress, parsing: Parsing) -> Iterator[str]:
    """What a job did, in lines: rows, the format, calls, and broken calls by kind."""
    counts = done.counts + done.kept
    earlier = f", {done.kept.rows:,} of them by an earlier run" if done.kept.rows else ""
    yield f"rows: {counts.rows:,}, read as {resolve(parsing.format).name}{earlier}"
    if counts.empty:
        yield f"- without an output: {counts.empty:,}"
    if counts.bad:
        yield f"- bad: {counts.bad:,}, {_BAD[parsing.on_error].format(error=parsing.prefix + ERROR)}"
    yield f"- with calls: {counts.with_calls:,}"
    yield f"- with diagnostics: {counts.with_diagnostics:,}"
    yield f"calls: {counts.calls:,}"
    if counts.broken:
        kinds = ", ".join(f"{kind} {number:,}" for kind, number in sorted(counts.broken.items()))
        yield f"broken calls: {sum(counts.broken.values()):,} ({kinds})"


def _tools(path: str) -> Any:
    """The definitions of tools, checked. They are sent to other processes."""
    definitions = read_json(path)
    try:
        Tools(definitions)
    except UnbraidError as error:
        raise UnbraidError(f"{path}: {error}") from error
    return definitions


def _tokenizer(spec: str | None) -> object | None:
    if spec is None:
        return None
    from ..templates import encoder
    from ..templates.sources import load_tokenizer

    return encoder(load_tokenizer(spec).tokenizer).vocabulary


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes: give 1 or more")
    return int(text)


class _JobLine:
    """Progress on standard error: one line that changes on a terminal, elsewhere a line now and then."""

    def __init__(self) -> None:
        self._began = self._shown = time.monotonic()
        self._live = sys.stderr.isatty()

    def show(self, progress: JobProgress) -> None:
        now = time.monotonic()
        if now - self._shown < (_OFTEN if self._live else _EVERY):
            return
        self._shown = now
        speed = progress.counts.rows / (now - self._began)
        line = f"{100 * progress.share:.1f} %, {progress.counts.rows:,} rows, {speed:,.0f} a second"
        print(f"\r{line} " if self._live else line, end="" if self._live else "\n", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
