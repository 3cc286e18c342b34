"""What transcribing costs: detecting the language, the first request, and seconds of audio in a second.

    python bench/transcribe.py            # all, with the peers in environments of their own (made on the first run)
    python bench/transcribe.py --quick    # fewer rounds, and tiny alone
    python bench/transcribe.py --alone    # only unbraid
    python bench/transcribe.py --only speed --threads 1

The recordings are people's, with what they say in them; the weights are OpenAI's. Everything has two threads, if not
told otherwise. On a busy machine take one: whisper.cpp's threads wait for each other busily, and take ten times as long
where others have the processor. CPU time tells more than the clock then.

`fused` is how we detect a language: in the request that transcribes. `fixed` is being given it. `two passes` is what
vLLM does (seen in 0.32): a request for one token, then one with that language, each with a pass of the encoder of its
own. Of a long recording, vLLM asks about the first chunk only. All three write the same tokens, which is checked. A
round measures the three one after the other, so that what disturbs the machine disturbs all of them: the ratio is the
median over the rounds' ratios, in brackets the interval that its true value is in 19 times of 20. `best` has the best
time of each instead. Requests go to the engine; the long recording goes to the transcriber.

The first request is compared with the tenth of the same process, which was started for it; nothing is warmed up. The
language is detected. `ready` is from the start of the process to a model that is loaded.

The speed of a system is what it did in its best round; `time` is how many times ours it took, the median over the
rounds. The peers have the same weights but for rounding: whisper.cpp as published with 16 bits and made 8 bits of it,
faster-whisper made of the same file. All decode greedily and once, and take nothing over from chunk to chunk. `in 2
parts` is whisper.cpp's own way to do parts of a recording at once, `batched` faster-whisper's, which finds pauses with
a model of its own; we do up to four chunks at once. WER is the share of words heard wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pytest
import transcribe_language
import transcribe_speech
import transcribe_systems
from transcribe_language import Compared, Row
from transcribe_speed import REQUESTS, Field, Fresh, Speed, Task, fresh

from tests.support.real_speech import recording

FUSED = 1.02
MODELS = ("whisper-tiny", "whisper-base")
AT_ONCE = 4


async def languages(model: str, rounds: int, threads: int, folder: Path) -> tuple[list[Row], float]:
    """The rows of one model, and the milliseconds that detecting takes by its parts."""
    bench = transcribe_language.Bench(model, threads)
    sentences = transcribe_speech.sentences()
    kinds = [
        [bench.chunks([one]) for one in sentences],
        [bench.chunks(sentences[:AT_ONCE]), bench.chunks(sentences[-AT_ONCE:])],
        [bench.recording(transcribe_speech.long(folder))],
    ]
    for cases in kinds:
        await bench.measure(cases, rounds)
    added = bench.added() * 1e3
    await bench.engine.close()
    return [Row.of(model, cases) for cases in kinds], added


def table(*rows: Sequence[str]) -> None:
    """Markdown. The first row is the head; all columns but the first are numbers."""
    head, *others = rows
    print(f"| {' | '.join(head)} |", f"| --- |{' ---: |' * (len(head) - 1)}", sep="\n")
    for row in others:
        print(f"| {' | '.join(row)} |")
    print(flush=True)


def show_languages(rows: Sequence[Row], added: float) -> None:
    head = ("what is heard", "fixed (ms)", "fused", "two passes", "fused / fixed", "best", "CPU", "two passes / fixed")
    table((*head, "best", "CPU", "pairs", "in batches of"), *(_language_cells(row) for row in rows))
    share = added / rows[0].fixed.milliseconds
    print(f"{rows[0].model}: by its parts, detecting adds {added:.2f} ms to a chunk, {share:.2%} of it\n")


def _language_cells(row: Row) -> list[str]:
    times = (f"{one.milliseconds:,.0f}" for one in (row.fixed, row.fused, row.twice))
    batches = ", ".join(map(str, row.batches))
    return [f"{row.model}, {row.name}", *times, *_compared(row.fused), *_compared(row.twice), f"{row.pairs}", batches]


def _compared(one: Compared) -> Iterator[str]:
    yield f"{one.ratio:.3f} ({one.low:.3f} … {one.high:.3f})"
    yield f"{one.best:.3f}"
    yield f"{one.cpu:.3f}"


def show_fresh(found: Sequence[Fresh]) -> None:
    head = ("system", "ready (s)", "request 1 (ms)", "2", f"{REQUESTS}", "1 / 10", "2 / 10", "processes")
    rows = [
        [
            *(one.name, f"{median(one.ready):.2f}"),
            *(f"{one.request(number) * 1e3:,.0f}" for number in (1, 2, REQUESTS)),
            *(f"{one.against_last(number):.2f}" for number in (1, 2)),
            f"{len(one.ready)}",
        ]
        for one in found
    ]
    table(head, *rows)


def show_speeds(task: Task, speeds: Sequence[Speed]) -> None:
    told = "the language is given" if task.told else "the language is detected"
    times = "with times" if task.times else "without times"
    count = f"{len(task.recordings)} recordings of " if len(task.recordings) > 1 else "one recording of "
    print(f"{task.name}: {count}{task.seconds:.0f} s, {told}, {times}, {task.rounds} rounds\n")
    head = ["system", "audio s / s", "time, × ours", "CPU s / audio s", "WER", "memory (MB)"]
    ours = speeds[0]
    rows = [
        [
            *(one.name, f"{one.rate:.1f}", f"{one.times_ours(ours):.2f}", f"{one.cpu_share:.3f}"),
            *(f"{one.errors:.1%}", f"{one.memory / 1e6:,.0f}"),
            *([] if task.told else [f"{one.wrong_languages}"]),
        ]
        for one in speeds
    ]
    table(head if task.told else [*head, "wrong languages"], *rows)


def verdicts(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        met = "met    " if row.fused.ratio <= FUSED else "not met"
        clear = "" if row.fused.high <= FUSED or row.fused.low > FUSED else ", too noisy to be sure"
        which = f"{row.model}, {row.name}{clear}"
        yield f"  {met}  {row.fused.ratio:.3f} ≤ {FUSED} times the time of a fixed language: {which}"


def machine() -> str:
    names = [line.split(":")[1].strip() for line in _lines(Path("/proc/cpuinfo")) if line.startswith("model name")]
    name = names[0] if names else platform.processor()
    return f"{name}, {os.cpu_count()} processors, Python {platform.python_version()}"


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines() if path.exists() else []


def load() -> str:
    return f"load of the machine: {os.getloadavg()[0]:.1f}"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="fewer rounds, and tiny alone")
    arguments.add_argument("--alone", action="store_true", help="measure unbraid only")
    arguments.add_argument("--only", choices=("language", "first", "speed"), help="measure this only")
    arguments.add_argument("--threads", type=int, default=2, help="how many threads each system computes with")
    arguments.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = arguments.parse_args()
    try:
        with tempfile.TemporaryDirectory() as folder:
            measured = measure(options, Path(folder))
    except pytest.skip.Exception as missing:
        raise SystemExit(f"nothing is measured: {missing}") from None
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1))


def measure(options: argparse.Namespace, folder: Path) -> dict[str, object]:
    quick, threads = bool(options.quick), int(options.threads)
    wanted = (options.only,) if options.only else ("language", "first", "speed")
    rows: list[Row] = []
    measured: dict[str, object] = {}
    print(f"{machine()}; threads: {threads}; {load()}\n", flush=True)
    if "language" in wanted:
        print("## The language: fused, fixed, in two passes\n")
        for model, rounds in [(MODELS[0], 3)] if quick else zip(MODELS, (12, 6), strict=True):
            found, added = asyncio.run(languages(model, rounds, threads, folder))
            show_languages(found, added)
            rows += found
            measured[f"language, {model}"] = {"rows": [asdict(row) for row in found], "added_ms": added}
    known = [one for one in transcribe_systems.SYSTEMS if one.peer is None or not options.alone]
    systems = [
        one
        for one in known
        if one.options.get("split", 1) <= threads and not (quick and one is transcribe_systems.OURS_BASE)
    ]
    if "first" in wanted:
        print(f"## The first request of a process; {load()}\n")
        fewer = [one for one in systems if one in transcribe_systems.FRESH]
        starts = fresh(fewer, recording("en"), 2 if quick else 5, threads)
        show_fresh(starts)
        measured["first"] = [asdict(one) for one in starts]
    if "speed" in wanted:
        with Field(systems, threads) as field:
            versions = ", ".join(f"{name} {version}" for name, version in field.versions.items())
            print(f"## Seconds of audio in a second; {load()}\n\n{versions}\n")
            for task in tasks(quick, folder):
                speeds = field.measure(task, parts=len(task.recordings) == 1)
                show_speeds(task, speeds)
                measured[task.name] = [asdict(one) for one in speeds]
    if rows:
        print("targets\n", *verdicts(rows), sep="\n")
    return measured


def tasks(quick: bool, folder: Path) -> Iterator[Task]:
    short, long = transcribe_speech.short(few=quick), [transcribe_speech.long(folder)]
    yield Task("short", short, 2 if quick else 4)
    yield Task("short, any language", short, 2 if quick else 3, told=False)
    yield Task("long", long, 2 if quick else 4)
    if not quick:
        yield Task("long, with times", long, 3, times=True)


if __name__ == "__main__":
    main()
