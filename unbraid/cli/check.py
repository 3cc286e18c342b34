"""`unbraid check`: do a template and a format agree, and does a recorded output keep the laws? That the laws hold does
not say that the format is the right one: a warning tells of markers of other formats, and of calls that stayed text.

The exit code is 0 if all is well, 1 if not, and 2 if the input could not be used.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .. import Format, UnbraidError
from ..guessing import overlooked
from ..stream_checks import Pieces, check_stream
from .detect import find_template
from .options import add_format, has_format, read_format, read_tools, unreadable

SUMMARY = "check that a template and a format agree, or that recorded output keeps the laws"
EXAMPLES = """\
  unbraid check path/to/model
  unbraid check Qwen/Qwen3-8B --format qwen3
  unbraid check template.jinja --format qwen3
  unbraid check recording.jsonl --format hermes --tools tools.json
  unbraid check output.txt --format step-audio-2 --json
"""
_TEMPLATES = (".jinja", ".j2", ".json", ".gguf")


def configure(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "file",
        metavar="TEMPLATE|RECORDING",
        help="a chat template, a tokenizer_config.json, a GGUF file, a model's folder or ORG/REPO; or what "
        "`unbraid serve --record` wrote, or a file with raw output",
    )
    add_format(command)
    request = command.add_argument_group("recordings")
    request.add_argument("--tools", metavar="FILE", help="the request's tools, a JSON list; calls to others are text")
    request.add_argument("--tokenizer", metavar="PATH", help="a folder, a file or ORG/REPO, where ids were recorded")
    request.add_argument("--strict", action="store_true", help="a diagnostic or a warning counts as a failure")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    path = find_template(arguments.file)
    if path.is_dir() or path.suffix in _TEMPLATES:
        verdict = _check_template(path, read_format(arguments) if has_format(arguments) else None)
    else:
        verdict = _check_outputs(path, arguments)
    if arguments.json:
        print(json.dumps(verdict, ensure_ascii=False, indent=2))
    else:
        _show(verdict)
    return 0 if verdict["ok"] else 1


def _check_template(path: Path, format: Format | None) -> dict[str, Any]:
    from ..templates.detection import detect, judge

    detection = detect(path) if format is None else judge(path, format)
    return {"ok": detection.verified, "format": detection.name, "reasons": list(detection.reasons)}


def _check_outputs(path: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    format = read_format(arguments)
    options: dict[str, Any] = {"tools": None if arguments.tools is None else read_tools(arguments.tools)}
    if arguments.tokenizer is not None:
        from ..templates import load_tokenizer

        options["tokenizer"] = load_tokenizer(arguments.tokenizer).tokenizer
    outputs = []
    for name, pieces, prompt in _outputs(path):
        if not all(isinstance(piece, str) for piece in pieces) and arguments.tokenizer is None:
            raise UnbraidError(f"{path} has token ids: name the model's tokenizer with --tokenizer")
        message, broken = check_stream(format, pieces, prompt=prompt, **options)
        diagnostics = [asdict(each) for each in message.diagnostics]
        warnings = overlooked(format, message)
        ok = not broken and not (arguments.strict and (diagnostics or warnings))
        output = {"output": name, "ok": ok, "broken": broken, "diagnostics": diagnostics, "warnings": warnings}
        outputs.append(output)
    return {"ok": all(each["ok"] for each in outputs), "format": format.name, "outputs": outputs}


def _outputs(path: Path) -> Iterator[tuple[str, Pieces, str | tuple[int, ...] | None]]:
    """The outputs in a file: name, pieces, prompt."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(str(path), error) from error
    if not data.lstrip().startswith(b'{"unbraid"'):
        yield str(path), [data.decode("utf-8", "replace")], None
        return
    from ..engines.recording import read_recording

    recording = read_recording(path)
    for number, (request, script) in enumerate(zip(recording.requests, recording.scripts, strict=True)):
        pieces: list[Any] = [step.piece.ids or step.piece.text or "" for step in script.steps]
        yield f"request {number}", pieces, request.prompt


def _show(verdict: dict[str, Any]) -> None:
    print(f"{'ok' if verdict['ok'] else 'not ok'}: {verdict['format'] or 'no format'}")
    for reason in verdict.get("reasons", ()):
        print(f"- {reason}")
    for output in verdict.get("outputs", ()):
        print(f"- {output['output']}: {'ok' if output['ok'] else 'not ok'}")
        for broken in output["broken"]:
            print(f"  - {broken}")
        for each in output["diagnostics"]:
            print(f"  - {each['kind']} at {each['start']}: {each['message']}")
        for warning in output["warnings"]:
            print(f"  - warning: {warning}")
