"""What a delta costs: unbraid against the streaming parsers of SGLang and vLLM, on the same raw text, in one run.

    python bench/parse.py            # all, with the peers in environments of their own (made on the first run)
    python bench/parse.py --alone    # only unbraid

Every number is microseconds a delta: the time of a whole stream, the best of several runs (what disturbs a machine only
ever adds), divided by its deltas. A peer that does not get through a stream within its time limit is measured over the
last deltas that it reached; `†` and the share of the stream say so. `✗` means that the peer's result was wrong, so its
time says little.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import timeit
import tracemalloc
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import cases
import peers

import unbraid

# The names that the cases use, and ours.
FORMATS = {"qwen25": "qwen2.5", "mistral_v11": "mistral", "mistral_args": "mistral"}
REPEATS = 15


def time_unbraid(case: cases.Case) -> tuple[float, bool]:
    """Seconds a delta, and whether the result is right. As with the peers, adding the events up is not counted."""
    format = FORMATS.get(case.format, case.format)
    spent = []
    for _ in range(REPEATS):
        parser = unbraid.parser(format, tools=case.tools or None, keep_message=False)
        feed = parser.feed
        gc.collect()
        start = time.perf_counter()
        for delta in case.deltas:
            feed(delta)
        parser.finish()
        spent.append(time.perf_counter() - start)
    keeping = unbraid.parser(format, tools=case.tools or None)
    for delta in case.deltas:
        keeping.feed(delta)
    keeping.finish()
    message = keeping.message
    calls = [{"name": call.name, "arguments": call.arguments} for call in message.tool_calls]
    result = {"content": message.content, "reasoning": message.reasoning, "calls": calls}
    return min(spent) / len(case.deltas), cases.matches(case, result)


def memory_held(size: int) -> int:
    """Bytes that a parser that keeps no message holds on to after an argument of `size` characters."""
    parser = unbraid.parser("hermes", keep_message=False)
    parser.feed('<tool_call>\n{"name": "f", "arguments": {"a": "')
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(size // 16):
        parser.feed("sixteen letters.")
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return after - before


def cost(found: dict[str, Any]) -> float:
    return float(found.get("best_seconds_a_delta", found["seconds_a_delta"]))


def cell(found: dict[str, Any] | None) -> str:
    if found is None or "error" in found:
        return "-"
    text = f"{cost(found) * 1e6:.1f}"
    if found.get("truncated"):
        text += f"† {found['done'] / found['deltas']:.0%}"
    elif not found["right"]:
        text += " ✗"
    return text


def ratio(found: dict[str, Any] | None, ours: float) -> str:
    if found is None or "error" in found:
        return "-"
    return f"{cost(found) / ours:.0f}×"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--alone", action="store_true", help="measure unbraid only")
    arguments.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = arguments.parse_args()

    every = cases.build() if options.alone else peers.cases()
    answers: dict[str, Any] = {} if options.alone else peers.run(peers.job(every))
    for name, answer in answers.items():
        if "missing" in answer:
            print(f"{name}: not measured, {answer['missing']}")

    rows: list[dict[str, Any]] = []
    print("\nmicroseconds a delta (and how many times ours)\n")
    print(f"{'case':34} {'deltas':>7} {'unbraid':>8}   {'SGLang':>16} {'':>6}   {'vLLM':>16} {'':>6}")
    for case in every:
        ours, right = time_unbraid(case)
        found: dict[str, Any] = {}
        for name, answer in answers.items():
            measured = answer.get("cases", answer).get(case.id)
            if measured is not None and "seconds_a_delta" in measured:
                found[name] = measured | {"right": cases.matches(case, measured["result"])}
        sglang, vllm = found.get("sglang"), found.get("vllm")
        mark = "" if right else " ✗"
        print(
            f"{case.id:34} {len(case.deltas):7} {ours * 1e6:8.2f}{mark}   "
            f"{cell(sglang):>16} {ratio(sglang, ours):>6}   {cell(vllm):>16} {ratio(vllm, ours):>6}"
        )
        rows.append({"case": case.id, "unbraid": ours, "right": right, "sglang": sglang, "vllm": vllm})

    by_case = {row["case"]: row["unbraid"] for row in rows}
    print("\nour cost a delta at 128 kB, as a multiple of that at 1 kB:")
    for format in cases.CALL_FORMATS:
        grown = [
            f"{by_case[case] / by_case[case.replace('128k', '1k')]:.2f}"
            for case in by_case
            if case.startswith(f"{format}/call-128k")
        ]
        print(f"  {format:14} {', '.join(grown)}")

    making = min(timeit.repeat(lambda: unbraid.parser("qwen3", tools=cases.TOOLS), number=200, repeat=9)) / 200
    print(f"\nmaking a parser, with three tools: {making * 1e6:.0f} µs")

    held = [memory_held(size) for size in (1_000, 128_000, 1_024_000)]
    print(f"\nmemory held after an argument of 1 kB, 128 kB, 1 MB (no message kept): {', '.join(map(str, held))} bytes")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "memory": held}, indent=1))


if __name__ == "__main__":
    main()
