"""The search for speech in long recordings: in steps, in turns, and no further than somebody waits for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import numpy as np

from unbraid.fairness import Client, client
from unbraid.speech.audio.chunking import LONGEST, Chunk, cut_in_steps, cut_runs
from unbraid.speech.audio.decode import RATE, Samples
from unbraid.speech.audio.vad import FRAME, SpeechSpans
from unbraid.speech.options import VadOptions
from unbraid.speech.transcriber import _SCANS, _Scanner

from ..support.in_loop import in_loop
from ..support.waiting import until

CHUNK = Chunk(0.0, np.zeros(FRAME, np.float32))


class Loud:
    """A detector that takes what is loud for speech."""

    def feed(self, samples: Samples) -> Samples:
        loudest: Samples = np.abs(samples.reshape(-1, FRAME)).max(axis=1)
        return loudest


def spans(*seconds: tuple[float, float]) -> SpeechSpans:
    """A recording: so many seconds, as loud as that, one after the other."""
    blocks = (np.full(RATE, loud, np.float32) for length, loud in seconds for _ in range(round(length)))
    return SpeechSpans(blocks, Loud(), VadOptions())  # type: ignore[arg-type]


def test_hours_of_silence_are_many_steps() -> None:
    speech = spans((3600.0, 0.0))
    steps = list(cut_in_steps(speech, LONGEST, speech.spans))
    assert set(steps) == {None}
    assert 110 < len(steps) <= 120
    assert speech.seconds == 3600.0


def test_steps_change_no_chunk() -> None:
    recording = ((100.0, 0.0), (40.0, 1.0), (95.0, 0.0), (3.0, 1.0), (50.0, 0.0))
    plain, stepped = spans(*recording), spans(*recording)
    chunks = list(cut_runs(plain, spans=plain.spans))
    steps = list(cut_in_steps(stepped, LONGEST, stepped.spans))
    assert None in steps
    assert [(one.start, len(one.samples), one.joints) for one in chunks] == [
        (one.start, len(one.samples), one.joints) for one in steps if one is not None
    ]


class Steps:
    """A recording that never ends, in which nobody speaks. It counts its steps."""

    def __init__(self, log: list[str], name: str, last: Chunk | None = None) -> None:
        self._log, self._name, self._last = log, name, last

    def __iter__(self) -> Iterator[Chunk | None]:
        while True:
            self._log.append(self._name)
            yield self._last


@in_loop
async def test_who_leaves_has_no_further_step() -> None:
    scanner, log = _Scanner(), list[str]()
    scanning = asyncio.create_task(scanner.next(iter(Steps(log, "a"))))
    await until(lambda: len(log) > 3)
    scanning.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await scanning
    count = len(log)
    assert await scanner.next(iter(Steps(log, "b", CHUNK))) is CHUNK
    assert log[count:] == ["b"]


@in_loop
async def test_a_client_with_many_recordings_costs_another_few_steps() -> None:
    scanner, log = _Scanner(), list[str]()

    async def scan(name: str, last: Chunk | None = None) -> Chunk | None:
        client.set(Client(name))
        return await scanner.next(iter(Steps(log, name, last)))

    greedy = [asyncio.create_task(scan("greedy")) for _ in range(20)]
    await until(lambda: len(log) > 20)
    for _ in range(5):
        before = len(log)
        assert await asyncio.create_task(scan("quiet", CHUNK)) is CHUNK
        # One step of each thread may be under way, and each may begin one more before the turn is known.
        assert log.index("quiet", before) - before <= 3 * _SCANS
    for task in greedy:
        task.cancel()
    await asyncio.gather(*greedy, return_exceptions=True)
