"""Runs the board: every stream through every peer that claims its format. What is done is kept, and left out next time.

A result is a line of `build/scoreboard/results.jsonl`: the cell, what it was run with, and a verdict for each cut.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

from .corpus import SEED, a_file
from .judge import Reply, judge
from .peers import PEERS, ROOT, Missing, Peer, Running
from .streams import CUTS, Stream, stream_of, streams

FOLDER = ROOT / "build" / "scoreboard"
RESULTS = FOLDER / "results.jsonl"
SPEED_FORMATS = ("hermes", "llama-3", "qwen3-coder", "glm-4.5")
SPEED_SIZES = (40, 1_000, 16_000, 128_000)
_NOT_JUDGED = {"minimax-m2-append-think": "its reasoning is meant to stay in the answer"}


@dataclass(frozen=True)
class Extent:
    """How much of the board is run."""

    count: int = 2
    """Messages of each kind."""
    peers: tuple[str, ...] = tuple(PEERS)
    formats: tuple[str, ...] = ()
    seed: int = SEED
    speed: bool = True
    speed_s: float = 2.0


def run(extent: Extent) -> dict[str, Any]:
    """Run what is not done yet; everything that is known then, as `board.collect` takes it."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = {line["cell"]: line for line in _lines()}
    peers: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack, RESULTS.open("a", encoding="utf-8") as out:
        running = [one for name in extent.peers if (one := _started(PEERS[name], peers, stack)) is not None]
        for line in _new_lines(running, kept, extent):
            kept[line["cell"]] = line
            out.write(json.dumps(line) + "\n")
            out.flush()
    names = [name for name in extent.peers if "versions" in peers[name]]
    lines = [line for line in kept.values() if line["seed"] == extent.seed and line["peer"] in names]
    lines = [line for line in lines if _reads(peers[line["peer"]]["claims"], line)]
    return {"peers": peers, "lines": lines, "seed": extent.seed, "machine": machine()}


def _reads(claims: dict[str, bool], line: dict[str, Any]) -> bool:
    """Whether the peer has a parser for all that the stream has."""
    return line["format"] in claims and (claims[line["format"]] or "us" in line or not line.get("reasons", True))


def _lines() -> Iterator[dict[str, Any]]:
    if RESULTS.exists():
        for line in RESULTS.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def machine() -> str:
    return f"{os.cpu_count()} {platform.machine()} cores, {platform.system()}, Python {platform.python_version()}"


def _started(peer: Peer, peers: dict[str, dict[str, Any]], stack: ExitStack) -> Running | None:
    peers[peer.name] = {"title": peer.title, "note": peer.note}
    try:
        running = stack.enter_context(Running(peer))
    except (Missing, OSError) as error:
        peers[peer.name]["missing"] = str(error)
        print(f"without {peer.title}: {error}", file=sys.stderr)
        return None
    peers[peer.name] |= {"versions": running.versions, "claims": running.claims}
    return running


def claimed(running: list[Running], extent: Extent) -> list[str]:
    """The formats that somebody else reads, too."""
    others = [one for one in running if not one.peer.name.startswith("unbraid")] or running
    formats = sorted({name for one in others for name in one.claims} - _NOT_JUDGED.keys())
    return [name for name in formats if not extent.formats or name in extent.formats]


def _new_lines(running: list[Running], kept: dict[str, Any], extent: Extent) -> Iterator[dict[str, Any]]:
    began = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        for name in claimed(running, extent):
            todo = [*streams(name, extent.count, seed=extent.seed)]
            fast = [*speed_streams(name)] if extent.speed and name in SPEED_FORMATS else []
            peers = [one for one in running if name in one.claims]
            for lines in pool.map(lambda one: _of_peer(one, todo, fast, kept, extent), peers):  # noqa: B023
                yield from lines
            print(f"{time.monotonic() - began:6.0f} s  {name}", file=sys.stderr, flush=True)


def _of_peer(
    running: Running, todo: list[Stream], fast: list[Stream], kept: dict[str, Any], extent: Extent
) -> list[dict[str, Any]]:
    reads = [one for one in todo if running.claims[one.meant.format] or not one.meant.turn.reasoning]
    lines = [_judged(running, stream, kept, extent) for stream in reads]
    lines += [_timed(running, stream, kept, extent) for stream in fast]
    return [line for line in lines if line is not None]


def _judged(running: Running, stream: Stream, kept: dict[str, Any], extent: Extent) -> dict[str, Any] | None:
    job = stream.job(FOLDER / "tokenizers", CUTS, extent.seed)
    line = _line(running, stream, job, extent)
    if (before := kept.get(line["cell"], {})).get("key") == line["key"]:
        return None if "reasons" in before else before | {"reasons": line["reasons"]}
    fields = running.replies(job)
    replies = {cut: Reply.of(one) for cut, one in fields.items()}
    line["verdicts"] = {cut: asdict(judge(stream, reply)) for cut, reply in replies.items()}
    line["differs"] = [cut for cut, reply in replies.items() if reply.settled() != replies["whole"].settled()]
    line["argument_deltas"] = fields.get("tokens", {}).get("argument_deltas", 0)
    return line


def _line(running: Running, stream: Stream, job: dict[str, Any], extent: Extent) -> dict[str, Any]:
    meant, peer = stream.meant, running.peer.name
    key = hashlib.sha256(json.dumps([job | {"tokenizer": ""}, running.versions]).encode()).hexdigest()[:16]
    return {
        "cell": f"{peer}:{meant.name}",
        "peer": peer,
        "format": meant.format,
        "kind": meant.kind,
        "source": meant.source,
        "seed": extent.seed,
        "tokens": len(stream.ids),
        "reasons": bool(meant.turn.reasoning),
        "key": key,
    }


# Speed


def speed_streams(name: str) -> Iterator[Stream]:
    """One call with an argument of each size."""
    for size in SPEED_SIZES:
        meant = a_file(name, f"speed-{size}", size)
        stream = stream_of(meant) if meant is not None else None
        if stream is not None:
            yield stream


def _timed(running: Running, stream: Stream, kept: dict[str, Any], extent: Extent) -> dict[str, Any] | None:
    job = stream.job(FOLDER / "tokenizers", ("tokens",), extent.seed) | {"stop_s": extent.speed_s, "limit_s": 60}
    line = _line(running, stream, job, extent)
    if not running.peer.streams or kept.get(line["cell"], {}).get("key") == line["key"]:
        return None
    runs = [running.replies(job)["tokens"] for _ in range(5 if len(stream.ids) < 500 else 1)]
    timed = [one for one in runs if "us" in one]
    line["us"] = min((one["us"] for one in timed), default=None)
    line["deltas"] = timed[0]["deltas"] if timed else 0
    line["error"] = runs[0].get("error", "")
    return line


def stream_named(name: str, seed: int = SEED) -> Stream:
    """The stream of a cell `FORMAT:KIND:NUMBER`."""
    format, kind, number = name.split(":")
    for stream in streams(format, int(number) + 1, (kind,), seed):
        if stream.meant.number == int(number):
            return stream
    raise Missing(f"no stream {name} with the seed {seed}")
