"""Runs the board: every stream through every peer that claims its format. What is done is kept, and left out next time.

A result is a line of `build/scoreboard/results.jsonl`: the cell, a key of all that it was run with, and what came of
each cut. Verdicts are not kept: they follow from the replies.
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
WORKERS = 4
"""Peers that run at the same time."""
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
    """Run what is not done yet; all of the board then, as `board.collect` takes it."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = {line["cell"]: line for line in _lines()}
    lines = []
    with ExitStack() as stack, RESULTS.open("a", encoding="utf-8") as out:
        with ThreadPoolExecutor(WORKERS) as pool:
            begun = [*pool.map(lambda name: _started(PEERS[name]), extent.peers)]
        running = [stack.enter_context(one) for one in begun if isinstance(one, Running)]
        peers = {name: _about(PEERS[name], one) for name, one in zip(extent.peers, begun, strict=True)}
        for line, verdicts in _all_lines(running, kept, extent):
            if line is not kept.get(line["cell"]):
                out.write(json.dumps(line) + "\n")
                out.flush()
            lines.append({**{key: value for key, value in line.items() if key != "replies"}, **verdicts})
    return {"peers": peers, "lines": lines, "seed": extent.seed, "machine": machine()}


def _lines() -> Iterator[dict[str, Any]]:
    if RESULTS.exists():
        for line in RESULTS.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def machine() -> str:
    cores = f"{os.cpu_count()} {platform.machine()} cores, load {os.getloadavg()[0]:.0f}"
    return f"{cores}, {platform.system()}, Python {platform.python_version()}"


def _started(peer: Peer) -> Running | str:
    """The peer, or why it is not run."""
    try:
        return Running(peer)
    except (Missing, OSError) as error:
        print(f"without {peer.title}: {error}", file=sys.stderr)
        return str(error)


def _about(peer: Peer, running: Running | str) -> dict[str, Any]:
    about = {"title": peer.title, "note": peer.note, "streams": peer.streams}
    if isinstance(running, str):
        return about | {"missing": running}
    return about | {"versions": running.versions, "claims": running.claims}


def claimed(running: list[Running], extent: Extent) -> list[str]:
    """The formats that somebody else reads, too."""
    others = [one for one in running if not one.peer.name.startswith("unbraid")] or running
    formats = sorted({name for one in others for name in one.claims} - _NOT_JUDGED.keys())
    return [name for name in formats if not extent.formats or name in extent.formats]


Judged = tuple[dict[str, Any], dict[str, Any]]
"""What is kept of a cell, and what follows from it."""


def _all_lines(running: list[Running], kept: dict[str, Any], extent: Extent) -> Iterator[Judged]:
    began = time.monotonic()
    with ThreadPoolExecutor(WORKERS) as pool:
        for name in claimed(running, extent):
            todo = [*streams(name, extent.count, seed=extent.seed)]
            fast = [*speed_streams(name)] if extent.speed and name in SPEED_FORMATS else []
            peers = [one for one in running if name in one.claims]
            for lines in pool.map(lambda one: _of_peer(one, todo, fast, kept, extent), peers):  # noqa: B023
                yield from lines
            print(f"{time.monotonic() - began:6.0f} s  {name}", file=sys.stderr, flush=True)


def _of_peer(
    running: Running, todo: list[Stream], fast: list[Stream], kept: dict[str, Any], extent: Extent
) -> list[Judged]:
    lines = [_judged(running, stream, kept, extent) for stream in todo if _reads(running, stream)]
    if running.peer.streams and running.peer.timed:
        lines += [_timed(running, stream, kept, extent) for stream in fast]
    return lines


def _reads(running: Running, stream: Stream) -> bool:
    """Whether the peer has a parser for all that the stream has."""
    meant, peer = stream.meant, running.peer
    if meant.kind in peer.leaves_out or (peer.templates and meant.source == "ours"):
        return False
    return running.claims[meant.format] or not meant.turn.reasoning


def _judged(running: Running, stream: Stream, kept: dict[str, Any], extent: Extent) -> Judged:
    job = stream.job(FOLDER / "tokenizers", CUTS, extent.seed)
    line = _line(running, stream, job, extent)
    if kept.get(line["cell"], {}).get("key") == line["key"]:
        line = kept[line["cell"]]
    else:
        line["replies"] = running.replies(job)
    replies = {cut: Reply.of(one) for cut, one in line["replies"].items()}
    return line, {
        "verdicts": {cut: asdict(judge(stream, reply)) for cut, reply in replies.items()},
        "differs": [cut for cut, reply in replies.items() if reply.settled() != replies["whole"].settled()],
        "argument_deltas": line["replies"].get("tokens", {}).get("argument_deltas", 0),
    }


def _line(running: Running, stream: Stream, job: dict[str, Any], extent: Extent) -> dict[str, Any]:
    meant, peer = stream.meant, running.peer.name
    told = job | {"tokenizer": "", "template": ""}
    key = hashlib.sha256(json.dumps([told, running.versions, running.state]).encode()).hexdigest()[:16]
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


def _timed(running: Running, stream: Stream, kept: dict[str, Any], extent: Extent) -> Judged:
    job = stream.job(FOLDER / "tokenizers", ("tokens",), extent.seed) | {"stop_s": extent.speed_s, "limit_s": 60}
    line = _line(running, stream, job, extent)
    if kept.get(line["cell"], {}).get("key") == line["key"]:
        return kept[line["cell"]], {}
    runs = [running.replies(job)["tokens"] for _ in range(5 if len(stream.ids) < 500 else 1)]
    timed = [one for one in runs if "us" in one]
    line["us"] = min((one["us"] for one in timed), default=None)
    line["deltas"] = timed[0]["deltas"] if timed else 0
    line["error"] = runs[0].get("error", "")
    return line, {}


def stream_named(name: str, seed: int = SEED) -> Stream:
    """The stream of a cell `FORMAT:KIND:NUMBER`."""
    format, kind, number = name.split(":")
    for stream in streams(format, int(number) + 1, (kind,), seed):
        if stream.meant.number == int(number):
            return stream
    raise Missing(f"no stream {name} with the seed {seed}")
