"""How long a word takes from its end to its text, live: by us, and by LocalAgreement as in `whisper_streaming`.

    python bench/live.py                # tiny and base, one talker and four
    python bench/live.py --quick        # tiny alone, less of it

People's recordings are spoken at their own pace, a tenth of a second at a time, to one model on one core. Both methods
have the same weights, the same graphs and the same listener, in one run. Time is virtual (`live_clock`): work takes
its CPU time, so that other work on the machine makes no difference. A word ends where the whole recording, transcribed
at once with times of words, has it; its text is there when it was sent as final. Words that a method gets wrong are
counted (`wrong`), and have no latency. `passes` is how often a second of speech was listened to.

`whisper_streaming` is not on PyPI; its method is written here after its paper
(`live_local_agreement`), with its defaults: a pass each second, a buffer of 15 s, the language given. We detect it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from live_clock import TimedListener, run
from live_local_agreement import LocalAgreement

from tests.speech.audio.detectors import detector
from tests.speech.whisper.whisper_models import files
from tests.speech.word_errors import word_errors, words
from tests.support.real_speech import RATE, Recording, recording
from unbraid.speech.live.transcription import LiveTranscription
from unbraid.speech.live.utterances import Quiet, SpokenSound, Stopped, UtteranceDetector, UtteranceOptions
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.transcriber import Transcriber
from unbraid.speech.whisper.listener import WhisperEngine

NAMES = ("jfk", "demo-congrats", "demo-abouttotry", "demo-nogo")
_BLOCK = 0.1
_FOUR = 4


@dataclass
class Told:
    """A word, and when it was told."""

    word: str
    at: float


@dataclass
class Row:
    """One method, one model."""

    method: str
    model: str
    talkers: int
    latencies: list[float]
    wrong: int
    said: int
    passes: float
    cpu: float

    def line(self) -> str:
        p50, p95 = np.quantile(self.latencies, [0.5, 0.95]) if self.latencies else (float("nan"), float("nan"))
        wrong = f"{100 * self.wrong / self.said:.1f} %"
        cells = (self.method, self.model, self.talkers, f"{p50:.2f}", f"{p95:.2f}", wrong)
        return f"| {' | '.join(map(str, cells))} | {self.passes:.2f} | {self.cpu:.2f} |"


async def ends_of_words(transcriber: Transcriber, spoken: Recording) -> list[tuple[str, float]]:
    """Each word that is said, with its end."""
    whole = await transcriber.transcribe([spoken.samples], TranscriptionOptions(words=True, timestamps=True))
    found = [word for segment in whole.segments for word in segment.words]
    return [(key, word.end) for word in found for key in words(word.text)]


async def ours(transcriber: Transcriber, spoken: Recording, told: list[Told]) -> tuple[str, int]:
    """As the server does where the client says when it is done: one utterance, without the silence in it."""
    loop = asyncio.get_running_loop()
    turns = UtteranceDetector(detector().listen(), UtteranceOptions())
    hearing = LiveTranscription(transcriber, TranscriptionOptions())

    async def hear() -> None:
        async for text in hearing.words():
            told.extend(Told(word, loop.time()) for word in words(text))

    task = asyncio.create_task(hear())
    async for samples in paced(spoken):
        for event in turns.feed(samples):
            if isinstance(event, SpokenSound):
                hearing.add(event.samples, silent=event.silent)
            elif isinstance(event, Quiet | Stopped):
                hearing.pause()
    hearing.end()
    await task
    return hearing.text, hearing.passes


async def local_agreement(transcriber: Transcriber, spoken: Recording, told: list[Told]) -> tuple[str, int]:
    loop = asyncio.get_running_loop()
    method = LocalAgreement(transcriber)

    async def hear() -> None:
        async for text in method.words():
            told.extend(Told(word, loop.time()) for word in words(text))

    task = asyncio.create_task(hear())
    async for samples in paced(spoken):
        method.add(samples)
    method.end()
    await task
    return method.text, method.passes


async def paced(spoken: Recording) -> Any:
    """The recording as it is spoken."""
    loop = asyncio.get_running_loop()
    begun, size = loop.time(), round(_BLOCK * RATE)
    samples = spoken.samples
    for at in range(0, len(samples), size):
        await asyncio.sleep(max(0.0, begun + min(len(samples), at + size) / RATE - loop.time()))
        yield samples[at : at + size]


def latencies(said: list[tuple[str, float]], told: list[Told], begun: float) -> list[float]:
    """For each word that was told as it was said: how long after its end. Words are matched in order (the longest
    common subsequence)."""
    rows, columns = len(said), len(told)
    best = np.zeros((rows + 1, columns + 1), int)
    for i in range(rows - 1, -1, -1):
        for j in range(columns - 1, -1, -1):
            same = said[i][0] == told[j].word
            best[i, j] = best[i + 1, j + 1] + 1 if same else max(best[i + 1, j], best[i, j + 1])
    found, i, j = [], 0, 0
    while i < rows and j < columns:
        if said[i][0] == told[j].word:
            found.append(told[j].at - begun - said[i][1])
            i, j = i + 1, j + 1
        elif best[i + 1, j] >= best[i, j + 1]:
            i += 1
        else:
            j += 1
    return found


async def measured(
    name: str, method: Callable[..., Any], model: str, listener: TimedListener, spoken: list[Recording], talkers: int
) -> Row:
    """All recordings, so many at once."""
    loop = asyncio.get_running_loop()
    transcriber = Transcriber(listener, detector=detector())
    ends = [await ends_of_words(transcriber, one) for one in spoken]
    row = Row(name, model, talkers, [], 0, 0, 0.0, 0.0)
    spent, seconds = listener.spent, 0.0
    for first in range(0, len(spoken), talkers):
        begun = loop.time()
        group = range(first, min(len(spoken), first + talkers))
        told: dict[int, list[Told]] = {at: [] for at in group}
        texts = await asyncio.gather(*(method(transcriber, spoken[at], told[at]) for at in group))
        for at, (text, passes) in zip(group, texts, strict=True):
            row.latencies += latencies(ends[at], told[at], begun)
            row.wrong += word_errors(spoken[at].transcript or "", text)
            row.said += len(words(spoken[at].transcript or ""))
            row.passes += passes
            seconds += spoken[at].seconds
    row.passes /= seconds
    row.cpu = (listener.spent - spent) / seconds
    return row


async def main(models: list[str], names: tuple[str, ...]) -> None:
    print("| method | model | talkers | p50 s | p95 s | wrong | passes a second | CPU s a second |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    spoken = [recording("en", name) for name in names]
    for model in models:
        listener = TimedListener(WhisperEngine(files(model), threads=1))
        for talkers in (1, _FOUR):
            for name, method in (("unbraid", ours), ("LocalAgreement", local_agreement)):
                row = await measured(name, method, model, listener, spoken, talkers)
                print(row.line(), flush=True)
        await listener.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny alone, with two recordings")
    quick = parser.parse_args().quick
    run(main(["whisper-tiny"] if quick else ["whisper-tiny", "whisper-base"], NAMES[:2] if quick else NAMES))
