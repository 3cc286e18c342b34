"""`unbraid verify`: does a server say what its model wrote?

The exit code is 0 if no probe failed, 1 if one did, and 2 if the server could not be asked.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .. import UnbraidError
from .options import add_assignments, add_format, has_format, read_assignments, read_format, read_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..verify.attribution import Witness
    from ..verify.running import ProbeResult
    from ..verify.server import VerifiedServer

SUMMARY = "verify a running server: streams, calls, schemas, markup, reasoning, usage, errors"
EXAMPLES = """\
  unbraid verify http://127.0.0.1:8000
  unbraid verify http://127.0.0.1:8000 --api messages --html report.html
  unbraid verify http://127.0.0.1:8000 --format hermes --json new.json --baseline old.json
  unbraid verify http://127.0.0.1:8000 --tokenizer path/to/model --set temperature=1
  unbraid verify http://127.0.0.1:8000 --record traffic.jsonl --port 9000
  unbraid verify --recording traffic.jsonl --json old.json
  unbraid verify http://127.0.0.1:8000 --recording traffic.jsonl --baseline old.json
"""


def configure(command: argparse.ArgumentParser) -> None:
    command.add_argument("url", nargs="?", metavar="URL", help="the server, up to /v1")
    command.add_argument("--api", choices=("chat", "responses", "messages"), default="chat", help="which API is asked")
    command.add_argument("--model", default="", metavar="NAME", help="the first one that the server lists by default")
    command.add_argument("--key", default=os.environ.get("UNBRAID_VERIFY_KEY", ""), help="or in UNBRAID_VERIFY_KEY")
    command.add_argument("--probe", action="append", metavar="NAME", help="only this one; may be given several times")
    command.add_argument("--repeat", type=int, default=1, metavar="N", help="ask N times as often, to be surer")
    command.add_argument(
        "--max-tokens", type=int, default=512, metavar="N", help="of a reply; more for a model that reasons at length"
    )
    command.add_argument("--timeout", type=float, default=120, metavar="SECONDS", help="for one reply")
    add_assignments(command.add_argument_group("requests"), "fields", "a field of every request, such as temperature=1")
    add_format(command)
    command.add_argument(
        "--tokenizer",
        metavar="PATH",
        help="the model's folder or ORG/REPO: what it wrote is read again by ids, and prompts are compared",
    )
    output = command.add_argument_group("output")
    output.add_argument("--json", metavar="FILE", help="the report, with every exchange that shows a fault")
    output.add_argument("--junit", metavar="FILE", help="the report for a CI server")
    output.add_argument("--html", metavar="FILE", help="the report as a page")
    output.add_argument(
        "--baseline", metavar="FILE", help="a report of --json: fail on what is worse, and only on that"
    )
    traffic = command.add_argument_group("recordings")
    traffic.add_argument("--record", metavar="FILE", help="do not ask: stand before URL and record what clients ask it")
    traffic.add_argument(
        "--ids",
        action="store_true",
        help="with --record: ask chat for token ids (vLLM, unbraid), to tell whose a fault is",
    )
    traffic.add_argument("--port", type=int, default=0, help="where --record listens")
    traffic.add_argument(
        "--recording", metavar="FILE", help="check what --record wrote; with URL, what that says to the same requests"
    )
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    try:
        import httpx  # noqa: F401
        import jsonschema  # noqa: F401
    except ImportError as error:
        raise UnbraidError(f"verifying needs httpx and jsonschema ({error}): pip install 'unbraid[verify]'") from error
    if arguments.recording is None and arguments.url is None:
        raise UnbraidError("which server? Give its URL, or --recording FILE")
    if arguments.record is not None:
        return _record(arguments)
    return _report(arguments, _recorded(arguments) if arguments.recording is not None else _asked(arguments))


def _record(arguments: argparse.Namespace) -> int:
    from ..verify.recording import RecordingProxy

    with open(arguments.record, "a", encoding="utf-8") as file:
        proxy = RecordingProxy(arguments.url, file, port=arguments.port, ids=arguments.ids)
        print(f"{proxy.url} hands on to {arguments.url} and records to {arguments.record}; Ctrl-C ends it", flush=True)
        try:
            proxy.serve()
        except KeyboardInterrupt:
            return 0
    return 0


def _recorded(arguments: argparse.Namespace) -> tuple[list[ProbeResult], VerifiedServer | None]:
    from ..verify.recording import check_recording

    path = Path(arguments.recording)
    if not path.is_file():
        raise UnbraidError(f"there is no file {path}")
    if arguments.url is None:
        return [check_recording(path, _witness(arguments))], None
    server = _server(arguments)
    return [check_recording(path, _witness(arguments), server, _progress())], server


def _witness(arguments: argparse.Namespace) -> Witness:
    from .. import renderer
    from ..verify.attribution import Witness

    format = read_format(arguments) if has_format(arguments) else None
    model = None if arguments.tokenizer is None else renderer(arguments.tokenizer, format=format)
    return Witness(format, model)


def _server(arguments: argparse.Namespace) -> VerifiedServer:
    from ..verify.server import VerifiedServer

    return VerifiedServer(
        arguments.url,
        model=arguments.model,
        dialect=arguments.api,
        key=arguments.key,
        timeout=arguments.timeout,
        max_tokens=arguments.max_tokens,
        extra=read_assignments(arguments.fields),
    )


def _asked(arguments: argparse.Namespace) -> tuple[list[ProbeResult], VerifiedServer | None]:
    from ..verify.report import line
    from ..verify.running import verify

    endpoint = _server(arguments)
    print(f"{endpoint.url}, {endpoint.model}, {arguments.api} API", file=sys.stderr, flush=True)
    results = []
    options = {"probes": arguments.probe, "repeat": arguments.repeat, "tell": _progress()}
    for result in verify(endpoint, witness=_witness(arguments), **options):
        results.append(result)
        print(line(result), flush=True)
    endpoint.close()
    return results, endpoint


def _progress() -> Callable[[str], None]:
    """Shows in a terminal what is asked now, in a line that the next one overwrites."""

    def tell(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[2K{text}\r", end="", file=sys.stderr, flush=True)

    return tell


def _report(arguments: argparse.Namespace, outcome: tuple[list[ProbeResult], VerifiedServer | None]) -> int:
    from ..verify.report import as_html, as_junit, compared, line, refusals, report

    results, server = outcome
    if arguments.recording is not None:
        print(line(results[0]))
    about = {"url": arguments.recording, "model": ""} if server is None else {"url": server.url, "model": server.model}
    whole = report(results, **about, api=arguments.api, refused={} if server is None else server.refused)
    for text in refusals(whole):
        print(f"note    {text}")
    outputs = (
        (arguments.json, json.dumps(whole, ensure_ascii=False, indent=1)),
        (arguments.junit, as_junit(whole)),
        (arguments.html, as_html(whole)),
    )
    for path, text in outputs:
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
    if arguments.baseline is None:
        return 0 if whole["ok"] else 1
    changes, worse = compared(whole, read_json(arguments.baseline))
    print("\n".join(changes) or "no difference from the baseline")
    return 1 if worse else 0
