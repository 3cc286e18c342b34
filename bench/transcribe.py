"""Transcribing beside faster-whisper and whisper.cpp: what is heard, when it was said, and what it costs.

    python bench/transcribe.py                      # with the peers in environments of their own (made once)
    python bench/transcribe.py --everything         # more and longer recordings; hours
    python bench/transcribe.py --quick              # two recordings of each kind, tiny alone
    python bench/transcribe.py --only heard --model whisper-base
    python bench/transcribe.py --only heard --groups joints --apart   # what beams do, and the text before
    python bench/transcribe.py --only heard --cached   # the others' answers of the last run, where there are any
    python bench/transcribe.py --only first language   # what detection costs, and the first request of a process

`heard` gives all systems the same recordings (`transcribe_sounds.py`), one after the other, each at its own defaults
and at equal settings (`transcribe_systems.py`); nobody is told the language. Times of words are asked for where there
are pauses or joints; `transcribe_score.py` has the columns.

`language` compares the ways to know a language. `fused` is ours: it is detected in the request that transcribes.
`fixed` is being given it. `two passes` is what vLLM does (seen in 0.32): a request for one token, then one with that
language, each with a pass of the encoder of its own. All three write the same tokens, which is checked. A round
measures the three one after the other; the ratio is the median over the rounds' ratios, in brackets the interval that
its true value is in 19 times of 20.

`first` compares the first request with the tenth of the same process, which was started for it; nothing is warmed up.

Everything has two threads, if not told otherwise. On a busy machine take one: whisper.cpp's threads wait for each other
busily, and take ten times as long where others have the processor.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import peers
import pytest
import transcribe_language
from peers import PeerMissing
from transcribe_language import Compared, Row
from transcribe_score import Heard, Score
from transcribe_sounds import GROUPS, JOINTS, SENTENCES, TIMED, Sound, sounds
from transcribe_systems import TINY, Answers, System, Worker, systems

from tests.speech.whisper.whisper_models import files

MODELS = (TINY, "whisper-base")
PARTS = ("heard", "language", "first")
AT_ONCE = 4
REQUESTS = 10
FUSED = 1.02


# --- What is heard ---------------------------------------------------------------------------------------------------


class Field:
    """All systems with one model, each in a process of its own that is started when it is first needed."""

    def __init__(self, model: str, options: argparse.Namespace, stack: ExitStack, answers: Answers) -> None:
        wanted = options.systems
        known = systems(model, apart=options.apart)
        self.scores = {one: Score(one.name) for one in known if any(part in one.name for part in wanted)}
        self.versions: dict[str, str] = {}
        self._workers: dict[System, Worker] = {}
        self._model, self._threads, self._cached = model, options.threads, options.cached
        self._stack, self._answers = stack, answers

    def hear(self, sound: Sound, turn: int) -> None:
        """The systems take turns, each sound beginning with another one."""
        order = list(self.scores)
        for system in order[turn % len(order) :] + order[: turn % len(order)]:
            try:
                answer = self._ask(system, sound, words=sound.group in TIMED)
            except PeerMissing as missing:
                print(f"going on without {system.name}: {missing}", file=sys.stderr)
                del self.scores[system]
            else:
                self.scores[system].answers.append((sound, answer))

    def _ask(self, system: System, sound: Sound, *, words: bool) -> Heard:
        asked = self._model, system, sound.sha256, words
        known = self._answers.get(*asked) if self._cached and system.peer is not None else None
        if known is None:
            known = self._worker(system).hear(sound.path, words=words)
            self._answers.put(*asked, known)
        return known

    def _worker(self, system: System) -> Worker:
        if system not in self._workers:
            worker, _ = self._stack.enter_context(Worker.started(system, self._threads))
            worker.hear(next(iter(sounds(peers.ROOT / "sounds", quick=True))).path)  # all that is made once is made
            self._workers[system] = worker
            self.versions |= worker.versions
        return self._workers[system]


def heard(model: str, options: argparse.Namespace) -> list[Score]:
    answers = Answers(peers.ROOT / "answers")
    with ExitStack() as stack:
        field = Field(model, options, stack, answers)
        chosen = {"quick": options.quick, "everything": options.everything, "groups": options.groups}
        for turn, sound in enumerate(sounds(peers.ROOT / "sounds", **chosen)):
            field.hear(sound, turn)
    print(f"{model}; {', '.join(f'{name} {version}' for name, version in field.versions.items())}; {load()}\n")
    scores = list(field.scores.values())
    rows = [list(score.cells()) for score in scores]
    table([head for head, _ in rows[0]], *([cell for _, cell in row] for row in rows))
    return scores


# --- The first request of a process ----------------------------------------------------------------------------------


def first(threads: int, processes: int) -> dict[str, list[list[float]]]:
    """Seconds of each request, of each process that was started for it."""
    sound = next(iter(sounds(peers.ROOT / "sounds", quick=True)))
    found: dict[str, list[list[float]]] = {}
    ready: dict[str, list[float]] = {}
    for _ in range(processes):
        for system in systems(TINY):
            if not system.name.endswith("defaults"):
                continue
            try:
                with Worker.started(system, threads) as (worker, seconds):
                    times = [worker.hear(sound.path).seconds for _ in range(REQUESTS)]
            except PeerMissing as missing:
                print(f"going on without {system.name}: {missing}", file=sys.stderr)
                continue
            found.setdefault(system.name, []).append(times)
            ready.setdefault(system.name, []).append(seconds)
    head = ("system", "ready (s)", "request 1 (ms)", "2", f"{REQUESTS}", f"1 / {REQUESTS}", "processes")
    rows = [
        [
            *(name, f"{median(ready[name]):.2f}"),
            *(f"{median(one[at] for one in times) * 1e3:,.0f}" for at in (0, 1, REQUESTS - 1)),
            *(f"{median(one[0] / one[-1] for one in times):.2f}", f"{len(times)}"),
        ]
        for name, times in found.items()
    ]
    table(head, *rows)
    return found


# --- The language ----------------------------------------------------------------------------------------------------


async def languages(model: str, rounds: int, options: argparse.Namespace) -> list[Row]:
    bench = transcribe_language.Bench(model, transcribe_language.Engine(files(model), options.threads))
    every = list(sounds(peers.ROOT / "sounds", everything=True))
    short = [one for one in every if one.group == SENTENCES][:6]
    kinds = [
        [bench.chunks([one]) for one in short],
        [bench.chunks(short[:AT_ONCE]), bench.chunks(short[-AT_ONCE:])],
        [bench.recording(next(one for one in every if one.group == JOINTS))],
    ]
    for cases in kinds:
        await bench.measure(cases, rounds)
    added = bench.added() * 1e3
    await bench.engine.close()
    rows = [Row.of(model, cases) for cases in kinds]
    head = (
        "what is heard",
        "fixed (ms)",
        "fused / fixed",
        "CPU",
        "two passes / fixed",
        "CPU",
        "pairs",
        "in batches of",
    )
    table(head, *(_language_cells(row) for row in rows))
    share = added / rows[0].fixed.milliseconds
    print(f"{model}: by its parts, detecting adds {added:.2f} ms to a chunk, {share:.2%} of it\n")
    print("\n".join(_verdict(row) for row in rows), "\n")
    return rows


def _language_cells(row: Row) -> list[str]:
    batches = ", ".join(map(str, row.batches))
    compared = [cell for one in (row.fused, row.twice) for cell in _compared(one)]
    return [f"{row.model}, {row.name}", f"{row.fixed.milliseconds:,.0f}", *compared, f"{row.pairs}", batches]


def _compared(one: Compared) -> Iterator[str]:
    yield f"{one.ratio:.3f} ({one.low:.3f} … {one.high:.3f})"
    yield f"{one.cpu:.3f}"


def _verdict(row: Row) -> str:
    met = "met    " if row.fused.ratio <= FUSED else "not met"
    clear = "" if row.fused.high <= FUSED or row.fused.low > FUSED else ", too noisy to be sure"
    which = f"{row.model}, {row.name}{clear}"
    return f"  {met}  {row.fused.ratio:.3f} ≤ {FUSED} times the time of a fixed language: {which}"


# --- The command -----------------------------------------------------------------------------------------------------


def table(*rows: Sequence[str]) -> None:
    """Markdown. The first row is the head; all columns but the first are numbers."""
    head, *others = rows
    print(f"| {' | '.join(head)} |", f"| --- |{' ---: |' * (len(head) - 1)}", sep="\n")
    for row in others:
        print(f"| {' | '.join(row)} |")
    print(flush=True)


def machine() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} processors, Python {platform.python_version()}"


def load() -> str:
    return f"load of the machine: {os.getloadavg()[0]:.1f}"


def measure(options: argparse.Namespace) -> dict[str, object]:
    measured: dict[str, object] = {}
    models = [options.model] if options.model else MODELS[: 1 if options.quick else None]
    print(f"{machine()}; threads: {options.threads}; {load()}\n", flush=True)
    for model in models:
        if "heard" in options.only:
            measured[f"heard, {model}"] = [
                [(sound.group, sound.name, vars(answer)) for sound, answer in score.answers]
                for score in heard(model, options)
            ]
        if "language" in options.only:
            rounds = 3 if options.quick else 12 if model == TINY else 6
            rows = asyncio.run(languages(model, rounds, options))
            measured[f"language, {model}"] = [asdict(row) for row in rows]
    if "first" in options.only:
        measured["first"] = first(options.threads, 2 if options.quick else 5)
    return measured


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="two recordings of each kind, fewer rounds, tiny alone")
    arguments.add_argument("--everything", action="store_true", help="more and longer recordings, which take hours")
    arguments.add_argument("--model", choices=MODELS, help="this model only")
    arguments.add_argument("--only", choices=PARTS, nargs="+", default=PARTS, help="measure this only")
    arguments.add_argument("--systems", nargs="+", default=("",), help="only those with one of these in their name")
    arguments.add_argument("--groups", choices=GROUPS, nargs="+", default=GROUPS, help="only these recordings")
    arguments.add_argument("--apart", action="store_true", help="also beams and the text before, each by itself")
    arguments.add_argument("--cached", action="store_true", help="take the others' answers from the last run")
    arguments.add_argument("--threads", type=int, default=2, help="how many threads each system computes with")
    arguments.add_argument("--json", type=Path, help="also write the numbers and the answers to this file")
    options = arguments.parse_args()
    try:
        measured = measure(options)
    except pytest.skip.Exception as missing:
        raise SystemExit(f"nothing is measured: {missing}") from None
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1))


if __name__ == "__main__":
    main()
