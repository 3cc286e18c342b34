"""`unbraid detect`: which format a model writes, by its chat template, or by what it has written (`--output`)."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from .. import Guess, UnbraidError, UnknownFormat, find, guess
from .. import detect as detect_format
from .options import STDIN, unreadable

if TYPE_CHECKING:
    from ..templates.detection import Detection

SUMMARY = "find the format that a model's chat template speaks, or that raw outputs are written in"
EXAMPLES = """\
  unbraid detect path/to/model
  unbraid detect Qwen/Qwen3-8B
  unbraid detect template.jinja --json
  unbraid detect --output output.txt
  unbraid detect --output outputs.jsonl --column output
  some-model | unbraid detect --output
"""
_MOST_SHOWN = 5
MOST_ROWS = 10_000
"""How many rows of a dataset are looked at."""
_USES = {
    "rendered": "unbraid parse --format {name}{prompt} …, or unbraid.Parser({name!r}, prompt=…)",
    "plain": "any format will do: unbraid parse --format hermes …",
}
_MADE = (
    "register it, with the names from unbraid.core.grammar and unbraid.core.notations: unbraid.register({definition})"
)


def configure(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "model",
        nargs="?",
        metavar="FILE|MODEL_DIR|ORG/REPO",
        help="a chat template, a tokenizer_config.json, a GGUF file, the folder of a model, or its name on the hub",
    )
    outputs = command.add_argument_group("outputs", "without a template: what the model has written")
    outputs.add_argument(
        "--output",
        nargs="*",
        metavar="FILE",
        help="files with one raw output each, folders of them, or datasets (.jsonl, .parquet); default: standard input",
    )
    outputs.add_argument("--column", metavar="NAME", help="where a dataset has the outputs; default: its only text")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.output is not None:
        return _run_outputs(arguments)
    if arguments.model is None:
        raise UnbraidError("detect what? Name a model's folder or template, or give what it wrote with --output FILE")
    path = find_template(arguments.model)
    detection = detect_format(path)
    if arguments.json:
        print(json.dumps(detection.to_json(), ensure_ascii=False, indent=2))
    elif detection.verified:
        print(_verdict(detection))
    else:
        print(f"unbraid: {path}: {detection.problem}", file=sys.stderr)
    return 0 if detection.verified else 2


def find_template(spec: str) -> Path:
    """The path of a model's template. Where it cannot be had, its name may still say its format."""
    from ..templates.sources import template_path

    try:
        return template_path(spec)
    except UnbraidError as error:
        try:
            name = find(spec).name
        except UnknownFormat:
            raise error from None
        raise UnbraidError(f"{error}. By its name it writes {name}: --format {name}") from error


def _run_outputs(arguments: argparse.Namespace) -> int:
    if arguments.model is not None:
        raise UnbraidError("give either a template or --output, not both")
    names = arguments.output or [STDIN]
    guesses = guess(islice((text for name in names for text in _texts(name, arguments.column)), MOST_ROWS))
    if arguments.json:
        print(json.dumps([each.to_json() for each in guesses], ensure_ascii=False, indent=2))
    elif guesses:
        print("\n".join(line for each in guesses[:_MOST_SHOWN] for line in shown_guess(each)))
    else:
        print(f"unbraid: {NO_MARKUP}", file=sys.stderr)
    return 0 if guesses else 2


NO_MARKUP = (
    "no format explains anything in this: it is plain text, or the format is not known. `unbraid detect` finds a "
    "format by the model's chat template"
)


def shown_guess(guess: Guess) -> Iterator[str]:
    """A guess in lines."""
    of = f"{guess.clean} of {guess.outputs} outputs" if guess.outputs > 1 else "the output" * (guess.clean > 0)
    yield f"{guess.name}: {guess.sure}" + (f"; reads {of} with nothing left over" if guess.clean else "")
    if guess.same:
        yield f"- read alike by {', '.join(guess.same)}"
    yield from (f"- left over: {each}" for each in guess.unexplained)


def _texts(name: str, column: str | None) -> Iterator[str]:
    """The outputs that a name on the command line stands for."""
    from ..datasets.job import suffix_of, texts_of
    from ..datasets.jsonl import texts_in

    path = Path(name)
    if name == STDIN:
        if column is None:
            yield sys.stdin.buffer.read().decode("utf-8", "replace")
        else:
            yield from texts_in(sys.stdin.buffer, column)
    elif path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.is_file() and not each.name.startswith("."))
        if not files:
            raise UnbraidError(f"the folder {path} is empty")
        for each in files:
            yield from _texts(str(each), column)
    elif suffix_of(path):
        if not path.exists():
            raise UnbraidError(f"there is no file or folder {path}")
        yield from texts_of(path, column or only_column(path))
    else:
        try:
            yield path.read_bytes().decode("utf-8", "replace")
        except OSError as error:
            raise unreadable(name, error) from error


def only_column(source: Path) -> str:
    """The column of a dataset that has text, if there is one only."""
    from ..datasets.job import columns_of

    columns = columns_of(source)
    if len(columns) != 1:
        raise UnbraidError(f"which column has the outputs? Give --column: {', '.join(columns) or 'none holds text'}")
    return columns[0]


def _verdict(detection: Detection) -> str:
    lines = [str(detection.name), *(f"- {reason}" for reason in detection.reasons)]
    definition = detection.definition
    if detection.how in _USES:
        # Where the family's format starts elsewhere by itself, the prompt says where this one does.
        prompt = "" if definition is None or detection.format is None else f" --prompt {detection.format.prompt!r}"
        lines.append(_USES[detection.how].format(name=detection.name, prompt=prompt))
    elif definition is not None:
        lines.append(_MADE.format(definition=definition))
    return "\n".join(lines)
