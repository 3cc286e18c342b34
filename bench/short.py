"""What Whisper loses and saves if its encoder reads fewer columns of a short recording than thirty seconds have.

    python bench/short.py whisper-tiny full default at_least_10 after_3 [--clips 40]

`full` is silence up to 30 s (`--full-window`), `default` what unbraid does. `at_least_N` reads N seconds, or the
recording and 3 s of silence where that is more; `after_N` reads the recording and N seconds. The recordings are short
ones of people in five languages, in an order that is always the same; each is transcribed in all ways, with unbraid's
defaults and one thread. Words are counted that are wrong, and seconds of processor time for a second of sound.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Iterator
from math import ceil
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pytest
from transcribe_score import Aligned, plain

from tests.speech.audio.detectors import detector
from tests.speech.whisper.whisper_models import files
from tests.support.real_speech import ASTERISK, NAMES, PHRASES, RATE, Recording, menus, phrase, recording
from unbraid.speech.audio.decode import Samples
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.transcriber import Transcriber
from unbraid.speech.whisper.features import FRAMES, columns_needed
from unbraid.speech.whisper.listener import WhisperEngine

_LONGEST = 26.0  # seconds
_AFTER = 3.0


def columns(rule: str, samples: Samples) -> int:
    kind, _, number = rule.rpartition("_")
    if rule in ("full", "default"):
        return FRAMES if rule == "full" else columns_needed(samples)
    seconds = len(samples) / RATE
    read = max(float(number), seconds + _AFTER) if kind == "at_least" else seconds + float(number)
    return min(FRAMES, ceil(read) * 100)


class ShortEngine(WhisperEngine):
    """A Whisper that reads as many columns as `rule` says."""

    rule = "full"

    def _columns(self, samples: Samples) -> int:
        return columns(self.rule, samples)


def recordings() -> Iterator[Recording]:
    yield from (recording(language, name) for language in ASTERISK for name in NAMES)
    yield from map(phrase, PHRASES)
    yield from menus()


async def measure(model: str, rules: list[str], count: int) -> None:
    engine = ShortEngine(files(model), threads=1)
    transcriber = Transcriber(engine, detector=detector())
    clips = [one for one in recordings() if one.seconds < _LONGEST]
    random.Random(0).shuffle(clips)
    wrong, cpu = dict.fromkeys(rules, 0), dict.fromkeys(rules, 0.0)
    said, seconds = 0, 0.0
    for clip in clips[:count]:
        said, seconds = said + len(plain(clip.transcript or "")), seconds + clip.seconds
        for engine.rule in rules:
            start = time.process_time()
            heard = await transcriber.transcribe([clip.samples], TranscriptionOptions())
            cpu[engine.rule] += time.process_time() - start
            wrong[engine.rule] += Aligned(plain(clip.transcript or ""), plain(heard.text)).errors
    await engine.close()
    print(
        f"| {model}, {len(clips[:count])} recordings | words wrong of {said} | CPU s a second |\n| --- | ---: | ---: |"
    )
    for rule in rules:
        print(f"| {rule} | {wrong[rule]} | {cpu[rule] / seconds:.2f} |")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model")
    arguments.add_argument("rules", nargs="+")
    arguments.add_argument("--clips", type=int, default=1000)
    options = arguments.parse_args()
    try:
        asyncio.run(measure(options.model, options.rules, options.clips))
    except pytest.skip.Exception as missing:
        raise SystemExit(f"nothing is measured: {missing}") from None


if __name__ == "__main__":
    main()
