"""Chunking: long recordings in pieces that a model can take, cut where nobody speaks.

Whisper takes thirty seconds at a time. A cut in the middle of a word loses that word, so each cut is made at the
quietest point of a chunk's last seconds. Where pauses were left out (`unbraid.speech.vad`), a chunk holds what is on
both sides, and knows the times of both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UnbraidError
from .decode import RATE

LONGEST = 30.0
"""Seconds that Whisper takes at once."""
_SEARCH = 5.0  # seconds at the end of a chunk in which it is cut

_STEP = 0.01  # seconds over which the energy is measured
_WINDOW = 21  # steps over which it is smoothed: longer than the silence before a t or a k, shorter than a pause
_ALIKE = 2.0  # energies within 3 dB count as equally quiet
_FLOOR = 1e-10  # the energy, at full scale 1, below which all is silence: the resolution of 16 bits
_FRAME = 0.03
_FAR = 20.0  # seconds: what comes after such a pause is a chunk of its own, and may be in another language
_WORTH = 1 / 3  # of the longest chunk: the shortest that is cut at a pause
_STEADY = 1.0  # seconds: the least that can be called steady
_BANDS = 200.0, 4000.0, 15  # Hz from, to, and how many: where speech has its energy
_LIFTED, _LIFT = 3, 6.0  # so many bands lie so many decibels higher at times, where somebody speaks
_SILENT = 3e-4  # -70 dB of full scale: badly recorded speech has 30 dB more, a quiet room 10


Spans = tuple[tuple[float, float], ...]
"""Stretches of time: from, to, in seconds."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Samples that follow each other in the recording."""

    start: int
    """The samples of the recording before them."""
    samples: NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """A piece of a recording; or several with what was between them left out."""

    start: float
    """Seconds from the start of the recording: exactly the samples before it, divided by their rate."""
    samples: NDArray[Any]
    joints: Spans = ()
    """Where something was left out: the seconds of the chunk, and those of the recording that go on there."""
    speech: Spans | None = None
    """Where somebody speaks, in seconds of the chunk. None if that is not known."""
    talk: Spans = ()
    """The same, divided at each pause; empty if that is not known."""

    @property
    def seconds(self) -> float:
        return len(self.samples) / RATE

    def time(self, seconds: float, *, ends: bool = False) -> float:
        """The time of the recording at a time of the chunk.

        ends: whether something ends there. At a joint it ends before what was left out.
        """
        at, time = 0.0, self.start
        for begin, there in self.joints:
            if seconds < begin or (ends and seconds == begin):
                break
            at, time = begin, there
        return time + seconds - at

    def speech_after(self, seconds: float) -> float:
        """How long somebody speaks after a time of the chunk; all of it may be speech where that is not known."""
        spans = ((0.0, self.seconds),) if self.speech is None else self.speech
        return sum(max(0.0, end - max(begin, seconds)) for begin, end in spans)

    def quietest(self, begin: float, end: float) -> float:
        """Where it is quietest between two times of the chunk. At the end, if they are too close to tell."""
        return _quietest(self.samples[: round(end * RATE)], round(begin * RATE), RATE) / RATE

    def after(self, seconds: float) -> Chunk:
        """The rest of the chunk."""
        first = round(seconds * RATE)
        at = first / RATE
        speech = None if self.speech is None else _shifted(self.speech, at)
        joints = tuple((begin - at, there) for begin, there in self.joints if begin > at)
        return Chunk(self.time(at), self.samples[first:], joints, speech, _shifted(self.talk, at))

    def until(self, seconds: float) -> Chunk:
        """The chunk up to a time."""
        last = round(seconds * RATE)
        end = last / RATE
        speech = None if self.speech is None else _cut_off(self.speech, end)
        joints = tuple((begin, there) for begin, there in self.joints if begin < end)
        return Chunk(self.start, self.samples[:last], joints, speech, _cut_off(self.talk, end))


def _shifted(spans: Spans, seconds: float) -> Spans:
    return tuple((max(0.0, begin - seconds), end - seconds) for begin, end in spans if end > seconds)


def _cut_off(spans: Spans, seconds: float) -> Spans:
    return tuple((begin, min(end, seconds)) for begin, end in spans if begin < seconds)


def cut(
    blocks: Iterable[NDArray[Any]], *, longest: float = LONGEST, search: float = 5.0, rate: int = RATE
) -> Iterator[Chunk]:
    """The samples of `blocks`, all of them and in order, in pieces of at most `longest` seconds; see `cut_runs`."""
    return cut_runs(_following(blocks), longest=longest, search=search, rate=rate)


def _following(blocks: Iterable[NDArray[Any]]) -> Iterator[Run]:
    start = 0
    for block in blocks:
        yield Run(start, block)
        start += len(block)


def cut_runs(
    runs: Iterable[Run],
    *,
    longest: float = LONGEST,
    search: float = _SEARCH,
    rate: int = RATE,
    spans: Callable[[int, int], Spans | None] = lambda start, end: None,
) -> Iterator[Chunk]:
    """The samples of `runs`, all of them and in order, in pieces of at most `longest` seconds.

    A piece ends where something was left out before, if it is long enough then; or else at the quietest point of its
    last `search` seconds. The cuts do not depend on how the samples are divided into runs. At most one piece and one
    run are held in memory.

    spans: where somebody speaks between two samples of the recording.
    """
    if not 0 <= search <= longest or not 1 <= longest * rate < math.inf:
        raise UnbraidError(f"longest is {longest} s and search {search} s: search has to be a part of longest")
    most, least = round(longest * rate), round((longest - search) * rate)
    return (chunk for chunk in _Cutter(most, max(1, least), rate, spans).steps(runs) if chunk is not None)


def cut_in_steps(
    runs: Iterable[Run],
    longest: float,
    spans: Callable[[int, int], Spans | None],
    talk: Callable[[int, int], Spans | None] = lambda start, end: None,
) -> Iterator[Chunk | None]:
    """As `cut_runs`, with None for each empty run: where the reading of a long silence may be interrupted.

    talk: as `spans`, divided at each pause.
    """
    most, least = round(longest * RATE), round((longest - _SEARCH) * RATE)
    return _Cutter(most, max(1, least), RATE, spans, talk).steps(runs)


class _Cutter:
    """The samples that are held, and where in the recording they are from."""

    def __init__(
        self,
        most: int,
        least: int,
        rate: int,
        spans: Callable[[int, int], Spans | None],
        talk: Callable[[int, int], Spans | None] = lambda start, end: None,
    ) -> None:
        self._most, self._least, self._rate = most, least, rate
        self._spans, self._talk = spans, talk
        self._held: list[NDArray[Any]] = []
        self._count = 0
        self._places: list[tuple[int, int]] = []
        """Where something begins that follows nothing held: its place in what is held, and in the recording."""

    def steps(self, runs: Iterable[Run]) -> Iterator[Chunk | None]:
        for run in runs:
            if not len(run.samples):
                yield None
                continue
            gap = run.start - self._end if self._places else 0
            if gap > _FAR * self._rate and self._count:
                yield self._chunk(np.concatenate(self._held), 0, self._count)
                self._held, self._count, self._places = [], 0, []
            if gap or not self._places:
                self._places.append((self._count, run.start))
            self._held.append(run.samples)
            self._count += len(run.samples)
            if self._count > self._most:  # not >=: this may be the end of the recording
                whole = np.concatenate(self._held)
                at = 0
                while self._count - at > self._most:
                    end = at + self._cut(whole[at : at + self._most], at)
                    yield self._chunk(whole, at, end)
                    at = end
                self._forget(at)
                self._held = [whole[at:].copy()]
        if self._count:
            yield self._chunk(np.concatenate(self._held), 0, self._count)

    @property
    def _end(self) -> int:
        """The sample of the recording after the last one held."""
        place, start = self._places[-1]
        return start + self._count - place

    def _cut(self, samples: NDArray[Any], at: int) -> int:
        joints = [place - at for place, _ in self._places if _WORTH * self._most <= place - at <= self._most]
        return joints[-1] if joints else _quietest(samples, self._least, self._rate)

    def _forget(self, count: int) -> None:
        """The first samples are gone."""
        first = max(number for number, (place, _) in enumerate(self._places) if place <= count)
        place, start = self._places[first]
        rest = [(place - count, start) for place, start in self._places[first + 1 :]]
        self._places = [(0, start + count - place), *rest]
        self._count -= count

    def _chunk(self, whole: NDArray[Any], begin: int, end: int) -> Chunk:
        parts: list[tuple[int, int, int]] = []
        """Place in the chunk, and from where to where in the recording."""
        for number, (place, start) in enumerate(self._places):
            until = self._places[number + 1][0] if number + 1 < len(self._places) else self._count
            low, high = max(place, begin), min(until, end)
            if low < high:
                parts.append((low - begin, start + low - place, start + high - place))
        speech, talk = self._in_chunk(self._spans, parts), self._in_chunk(self._talk, parts)
        joints = tuple((place / self._rate, first / self._rate) for place, first, _ in parts[1:])
        samples = whole[begin:end].copy()  # not a view, which would keep all of the run
        return Chunk(parts[0][1] / self._rate, samples, joints, speech, talk or ())

    def _in_chunk(
        self, spans: Callable[[int, int], Spans | None], parts: Iterable[tuple[int, int, int]]
    ) -> Spans | None:
        """Spans of the recording in seconds of a chunk that is made of these parts; None if they are not known."""
        each = [(place / self._rate, spans(first, last)) for place, first, last in parts]
        if any(some is None for _, some in each):
            return None
        return tuple((at + low, at + high) for at, some in each for low, high in some or ())


def _quietest(samples: NDArray[Any], least: int, rate: int) -> int:
    """Where to cut: the middle of the longest of the quietest stretches after `least`."""
    step = max(1, round(_STEP * rate))
    steps = (len(samples) - least) // step
    if steps < _WINDOW:
        return len(samples)
    energies = _variances(samples[len(samples) - steps * step :], step)
    window = np.hanning(_WINDOW + 2)[1:-1]
    smooth = np.convolve(energies, window / window.sum(), mode="valid")  # what comes after is unknown
    quiet = smooth <= max(smooth.min() * _ALIKE, _FLOOR)
    # The stretches: where `quiet` begins and where it is over.
    edges = np.flatnonzero(np.diff(quiet, prepend=False, append=False))
    begins, ends = edges[::2], edges[1::2]
    longest = len(begins) - 1 - int(np.argmax((ends - begins)[::-1]))  # of equal ones the last
    middle = (int(begins[longest]) + int(ends[longest]) - 1) / 2 + _WINDOW / 2
    return len(samples) - steps * step + int(middle * step)


def is_silent(samples: NDArray[Any], *, rate: int = RATE) -> bool:
    """Whether there can be no speech: no frame is louder than the noise of a good recorder.

    A quiet room is usually louder than that. Samples are between -1 and 1.
    """
    frame = max(1, round(_FRAME * rate))
    padded = np.concatenate([samples, np.full(-len(samples) % frame, samples[-1] if len(samples) else 0.0)])
    return bool((_variances(padded, frame) < _SILENT**2).all())


def is_steady(samples: NDArray[Any], *, rate: int = RATE) -> bool:
    """Whether the sound is the same all the time, as hiss and hum are: then nobody speaks.

    Speech lifts some bands far above their usual level, by 10 dB still where it is no louder than the noise. In noise
    the highest of a band's levels lie 4 dB above the middle one. Short sounds have too few levels to say.
    """
    frame = round(_FRAME * rate)
    if len(samples) < _STEADY * rate:
        return False
    frames = samples[: len(samples) // frame * frame].reshape(-1, frame) * np.hanning(frame)
    powers = np.abs(np.fft.rfft(frames, axis=1)) ** 2
    edges = np.linspace(_BANDS[0], _BANDS[1], _BANDS[2] + 1) * frame / rate
    bands = np.add.reduceat(powers[:, : round(edges[-1])], edges[:-1].round().astype(int), axis=1)
    levels = 10 * np.log10(bands + _FLOOR)
    usual, size = np.median(levels, axis=0), round(_STEADY / _FRAME)
    # A word in a minute of hiss is heard in its own second.
    lifts = (np.percentile(levels[at : at + size], 95, axis=0) - usual for at in range(0, len(levels) - size + 1, size))
    return all(np.sort(lift)[-_LIFTED] < _LIFT for lift in lifts)


def _variances(samples: NDArray[Any], step: int) -> NDArray[np.float64]:
    """The energy of each `step` samples, without the recorder's offset. An incomplete last step is left out."""
    whole = samples[: len(samples) // step * step].reshape(-1, step).astype(np.float64)
    variances: NDArray[np.float64] = whole.var(axis=1)
    return variances
