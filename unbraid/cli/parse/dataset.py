"""`unbraid parse --dataset`: files of recorded outputs, each row taken apart, by several processes."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from ... import Tools, UnbraidError
from ...datasets.job import Progress, columns_of
from ...datasets.job import run as run_job
from ...datasets.rows import Parsing
from ..options import STDIN, read_format, read_json

_EVERY = 10.0
"""Seconds between two lines of progress, where it is no terminal."""
_OFTEN = 0.2


def add_dataset(command: argparse.ArgumentParser) -> None:
    dataset = command.add_argument_group(
        "dataset", "a file or a folder of Parquet or JSON lines, one output a row; a run that was ended goes on"
    )
    dataset.add_argument("--dataset", metavar="PATH", help="parse each row of it, in place of one output")
    dataset.add_argument("--out", metavar="PATH", help="where the same rows go, with the columns that are found")
    dataset.add_argument("--column", metavar="NAME", help="where the outputs are; default: the only column of text")
    dataset.add_argument("--prefix", metavar="TEXT", default="", help="what the names of the new columns begin with")
    dataset.add_argument("--tokenizer", metavar="PATH", help="the model's tokenizer, where outputs are token ids")
    dataset.add_argument(
        "--end-of-turn", action="store_true", help="the outputs ended, and lack the token that says so"
    )
    dataset.add_argument("--processes", metavar="N", type=_count, help="how many parse; default: one for each core")


def run_dataset(arguments: argparse.Namespace) -> int:
    if arguments.dataset is None or arguments.out is None:
        raise UnbraidError("a dataset needs both: --dataset with what to parse, and --out with where it goes")
    if arguments.file != STDIN or arguments.json or arguments.events:
        raise UnbraidError("with --dataset, leave out FILE, --json and --events: --out gets all of it")
    source = Path(arguments.dataset)
    parsing = Parsing(
        read_format(arguments),
        arguments.column or _only_column(source),
        arguments.prefix,
        None if arguments.tools is None else _tools(arguments.tools),
        arguments.unknown_tools,
        _tokenizer(arguments.tokenizer),
        arguments.prompt,
        not arguments.keep_reasoning,
        arguments.calls_in_reasoning,
        arguments.end_of_turn,
    )
    shown = _Shown()
    done = run_job(source, Path(arguments.out), parsing, processes=arguments.processes, progress=shown.tell)
    shown.end()
    found = done.counts
    told = f"{found.rows:,} rows: {found.with_calls:,} with calls, {found.with_diagnostics:,} with diagnostics"
    print(told + (f"; {done.kept:,} rows were there already" if done.kept else ""))
    return 0


def _tools(path: str) -> Any:
    """The definitions of tools, which are right. They are sent to other processes."""
    found = read_json(path)
    try:
        Tools(found)
    except UnbraidError as error:
        raise UnbraidError(f"{path}: {error}") from error
    return found


def _only_column(source: Path) -> str:
    found = columns_of(source)
    if len(found) != 1:
        raise UnbraidError(f"which column has the outputs? Give --column: {', '.join(found) or 'none holds text'}")
    return found[0]


def _tokenizer(spec: str | None) -> object | None:
    if spec is None:
        return None
    from ...templates import encoder
    from ...templates.tokenizer_files import load_tokenizer

    return encoder(load_tokenizer(spec).tokenizer).vocabulary


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes: give 1 or more")
    return int(text)


class _Shown:
    """Progress on standard error: one line that changes on a terminal, and now and then a line elsewhere."""

    def __init__(self) -> None:
        self._began = self._told = time.monotonic()
        self._live = sys.stderr.isatty()

    def tell(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._told < (_OFTEN if self._live else _EVERY):
            return
        self._told = now
        speed = progress.counts.rows / (now - self._began)
        line = f"{100 * progress.share:.1f} %, {progress.counts.rows:,} rows, {speed:,.0f} a second"
        print(f"\r{line} " if self._live else line, end="" if self._live else "\n", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
