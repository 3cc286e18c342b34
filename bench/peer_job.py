"""What the two peer scripts share: read a job, time each case, print the results. Needs the standard library only."""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

BLOCK = 64  # deltas between two looks at the time limit


class Stream(Protocol):
    """One parser over one case's deltas."""

    def pump(self, start: int, stop: int) -> tuple[float, float]:
        """Feed deltas[start:stop]; seconds spent in the parser, and in all a server does for them."""

    def fold(self, *, ended: bool) -> dict[str, Any]:
        """Content, reasoning and calls so far, after the parser's end-of-stream step if the stream `ended`."""


Open = Callable[[], Stream]


def measure(open_stream: Open, count: int, repeats: int, time_limit_s: float) -> dict[str, Any]:
    """Time a fresh parser over `count` deltas, up to `repeats` times while the time limit holds."""
    passes: list[tuple[float, float]] = []
    result: dict[str, Any] = {}
    # Leaves the peer's imports out of the collector's work, as both servers do once they are up.
    gc.collect()
    gc.freeze()
    began = time.perf_counter()
    while len(passes) < repeats and (not passes or time.perf_counter() - began < time_limit_s):
        stream = open_stream()
        gc.collect()
        pass_began = time.perf_counter()
        parser_s = total_s = 0.0
        for start in range(0, count, BLOCK):
            stop = min(start + BLOCK, count)
            block_parser_s, block_total_s = stream.pump(start, stop)
            parser_s += block_parser_s
            total_s += block_total_s
            if stop < count and time.perf_counter() - pass_began > time_limit_s:
                # The cost at this point of the stream, not of the whole of it: "done" says how far that was.
                return {
                    "seconds_a_delta": block_parser_s / BLOCK,
                    "server_seconds_a_delta": block_total_s / BLOCK,
                    "mean_seconds_a_delta": parser_s / stop,
                    "truncated": True,
                    "done": stop,
                    "deltas": count,
                    "repeats": len(passes) + 1,
                    "result": stream.fold(ended=False),
                }
        passes.append((parser_s / count, total_s / count))
        if not result:
            result = stream.fold(ended=True)
    return {
        "seconds_a_delta": statistics.median(parser for parser, _ in passes),
        "server_seconds_a_delta": statistics.median(total for _, total in passes),
        "best_seconds_a_delta": min(parser for parser, _ in passes),
        "truncated": False,
        "done": count,
        "deltas": count,
        "repeats": len(passes),
        "result": result,
    }


def main(prepare: Callable[[dict[str, Any]], Open | None], versions: Callable[[], dict[str, str]]) -> None:
    """Run the job file named in argv. `prepare` answers None for a format the peer does not have."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    cases: dict[str, Any] = {}
    for case in job["cases"]:
        try:
            open_stream = prepare(case)
            if open_stream is None:
                continue
            cases[case["id"]] = measure(open_stream, len(case["deltas"]), job["repeats"], job["time_limit_s"])
        except Exception as error:
            cases[case["id"]] = {"error": f"{type(error).__name__}: {error}"}
        print(case["id"], file=sys.stderr, flush=True)
    # On a line of its own: the peers print to standard output while they are imported.
    print("\n" + json.dumps({"versions": versions(), "cases": cases}))


def fold_calls(calls: dict[int, dict[str, str]], index: int, name: str | None, arguments: str | None) -> None:
    """Add one delta of a call, the way a client of the server puts calls together."""
    call = calls.setdefault(index, {"name": "", "arguments": ""})
    call["name"] += name or ""
    call["arguments"] += arguments or ""
