"""`unbraid detect`: which format a model writes, by its chat template."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .. import UnbraidError
from .. import detect as detect_format

if TYPE_CHECKING:
    from ..templates.detection import Detection

SUMMARY = "find the format that a model's chat template speaks"
EXAMPLES = """\
  unbraid detect path/to/model
  unbraid detect template.jinja --json
"""
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
        metavar="FILE|MODEL_DIR",
        help="a chat template, a tokenizer_config.json, a GGUF file, or the folder of a model",
    )
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    path = Path(arguments.model).expanduser()
    if not path.exists():
        raise UnbraidError(f"there is no file or folder {path}")
    detection = detect_format(path)
    if arguments.json:
        print(json.dumps(detection.to_json(), ensure_ascii=False, indent=2))
    elif detection.verified:
        print(_verdict(detection))
    else:
        print(f"unbraid: {path}: {detection.problem}", file=sys.stderr)
    return 0 if detection.verified else 2


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
