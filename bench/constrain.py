"""What a constraint costs: to make it, to compile it, and a step of it, on real vocabularies.

    python bench/constrain.py            # 1, 10 and 100 tools
    python bench/constrain.py --quick    # 1 and 10 tools, and fewer runs

`build` is our own work: the constraint and the Lark grammar that `masks` compiles. `compile` is llguidance's, the first
time it sees the grammar; `first mask` is the first call of `allowed`. All three are the median of several requests,
each with schemas that nothing has seen before; by then the tokenizer is set up. `seen before` is a whole request,
`constraint` and `masks`, with tools that are known already: the best of several runs.

A step is `allowed` and `advance`. The same output is walked under several grammars, and each of its steps counts with
its best time (what disturbs a machine only ever adds). llguidance makes its automata as they are needed: `new` is the
first walk under a grammar, `known` the second.

Where xgrammar is installed it does the same with our structural tags, in the same run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import constrain_cases
import constrain_runs
import constrain_xgrammar
import pytest
from constrain_runs import Found, Request, Steps

from tests.support import real_tokenizers

FIRST_MASK_MS = 5.0
STEP_US = 100.0
TARGET_TOOLS = 10
COLUMNS = f"{'median':>7} {'mean':>7} {'p99':>7} {'max':>7}"


def kind(request: Request) -> str:
    tools = f"{request.tools:3} {'tool' if request.tools == 1 else 'tools'}, " if request.tools else ""
    return tools + request.tool_choice


def show(found: Found) -> None:
    """One table a vocabulary: requests, steps, and the peer's share."""
    print(f"\n{found.name}, {found.tokens} tokens; set up once in {found.set_up:.0f} ms\n")
    print(f"{'request (ms)':30} {'build':>8} {'compile':>8} {'first mask':>11} {'all three':>10} {'seen before':>12}")
    for request in found.requests:
        print(
            f"  {kind(request):28} {request.build:8.2f} {request.compile:8.2f} {request.first_mask:11.3f} "
            f"{request.whole:10.2f} {request.seen_before / 1e3:12.3f}"
        )
    if found.token_sets is not None:
        sets = found.token_sets
        print(f"  {'as token sets, no library':28} {sets.build:8.2f} {'-':>8} {sets.step / 1e3:11.4f}")
    print(f"\n{'step (µs)':34} {'':>7} {'-- new grammar --':>31} {'-- known --':>31}")
    print(f"{'':34} {'steps':>7} {COLUMNS} {COLUMNS}")
    for request in found.requests:
        for name, new in request.new.items():
            print(f"  {kind(request) + ': ' + name:32} {new.steps:7} {_steps(new)} {_steps(request.known[name])}")
    if found.token_sets is not None:
        print(f"  {'as token sets, no library':32} {'':7} {found.token_sets.step:7.1f}")
    if found.xgrammar_set_up is not None:
        _show_xgrammar(found, found.xgrammar_set_up)


def _steps(steps: Steps) -> str:
    return f"{steps.median:7.1f} {steps.mean:7.1f} {steps.p99:7.0f} {steps.max:7.0f}"


def _show_xgrammar(found: Found, set_up: float) -> None:
    """xgrammar's times, and how many times ours they are. Its steps are those under a new grammar."""
    print(f"\nxgrammar (and how many times ours); set up once in {_beside(set_up, found.set_up, 0)} ms\n")
    print(f"{'':30} {'compile (ms)':>18} {'first mask (ms)':>18} {'median step (µs)':>18} {'mean step (µs)':>18}")
    for ours, theirs in zip(found.requests, found.xgrammar, strict=True):
        compile = _beside(theirs.compile, ours.compile, 1)
        first = _beside(theirs.first_mask, ours.first_mask, 3)
        for name, new in theirs.new.items():
            median = _beside(new.median, ours.new[name].median, 1)
            mean = _beside(new.mean, ours.new[name].mean, 1)
            print(f"  {kind(ours) + ': ' + name:28} {compile:>18} {first:>18} {median:>18} {mean:>18}")
            compile = first = ""


def _beside(theirs: float, ours: float, digits: int) -> str:
    return f"{theirs:.{digits}f} ({theirs / ours:.2g}×)"


def verdicts(all_found: Iterable[Found]) -> list[str]:
    """A line for each target on each vocabulary."""
    lines = []
    for found in all_found:
        for request in found.requests:
            if request.tools in (0, TARGET_TOOLS):
                which = kind(request).strip()
                lines.append(_verdict(f"first mask, {which}", found, request.first_mask, FIRST_MASK_MS, "ms"))
                lines.append(_verdict(f"with build and compile, {which}", found, request.whole, FIRST_MASK_MS, "ms"))
        slowest, where = max((steps.median, where) for steps, where in _all_steps(found))
        lines.append(_verdict(f"median step, at worst ({where})", found, slowest, STEP_US, "µs"))
    return lines


def _all_steps(found: Found) -> Iterable[tuple[Steps, str]]:
    for request in found.requests:
        for walked, age in ((request.new, "new"), (request.known, "known")):
            for name, steps in walked.items():
                yield steps, f"{kind(request).strip()}, {name}, {age}"


def _verdict(what: str, found: Found, value: float, limit: float, unit: str) -> str:
    met = "met    " if value < limit else "not met"
    return f"  {met}  {value:8.2f} {unit} < {limit:.0f} {unit}   {found.name}: {what}"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="1 and 10 tools, fewer runs")
    arguments.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = arguments.parse_args()
    counts, repeats = ((1, 10), 3) if options.quick else ((1, 10, 100), 7)

    xgrammar = constrain_xgrammar.find()
    if xgrammar is None:
        print("xgrammar: not installed")
    found: list[Found] = []
    for model in constrain_cases.MODELS:
        try:
            found.append(constrain_runs.model(model, counts, repeats, xgrammar))
        except pytest.skip.Exception as missing:
            print(f"{model.name}: not measured, {missing}")
            continue
        show(found[-1])
    try:
        found.append(constrain_runs.whisper(real_tokenizers.whisper, repeats))
        show(found[-1])
    except pytest.skip.Exception as missing:
        print(f"Whisper: not measured, {missing}")

    print("\ntargets\n", *verdicts(found), sep="\n")
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in found], indent=1))


if __name__ == "__main__":
    main()
