"""The speech of a recording: its samples without the long stretches in which nobody speaks.

    speech = Speech(blocks, detector.listen(), VoiceOptions())
    for run in speech:  # a place in the recording, and samples that follow each other there
        ...
    speech.spans(run.start, run.start + len(run.samples))  # where somebody speaks in it

A frame is speech from the threshold on, and until the probability is clearly below it (hysteresis). Around speech some
padding is kept, and pauses shorter than `VoiceOptions.pause` are kept whole, so that no word is cut. What is left out
is neither held nor counted. Without a detector, all is kept and nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..audio.chunking import Run, Spans
from ..audio.decode import RATE
from ..options import VoiceOptions
from .detector import FRAME, Voice

_BELOW = 0.15  # how far below the threshold speech ends
_LEAST = 3  # frames of speech in a stretch: what is shorter is a click
_JOINED = 0.3  # seconds between two spans that count as one
_EDGE = 0.1  # seconds that are added to a span on both sides: the model is late by about as much

Samples = NDArray[Any]


class Speech:
    """One recording, read once. `read` is how many samples of it have been read."""

    def __init__(self, blocks: Iterable[Samples], voice: Voice | None, options: VoiceOptions | None) -> None:
        self.read = 0
        self._blocks = blocks
        self._voice = voice if options is not None else None
        self._options = options or VoiceOptions()
        self._talking = bytearray()
        """Of each frame of the recording, whether it is speech."""

    @property
    def seconds(self) -> float:
        """How much has been read."""
        return self.read / RATE

    def __iter__(self) -> Iterator[Run]:
        return self._all() if self._voice is None else self._kept(self._voice)

    def _all(self) -> Iterator[Run]:
        for block in self._blocks:
            if len(block):
                yield Run(self.read, block)
                self.read += len(block)

    def _kept(self, voice: Voice) -> Iterator[Run]:
        options = self._options
        stretches = _Stretches(round(options.padding * RATE / FRAME), round(options.pause * RATE / FRAME))
        talking = False
        for samples in self._frames():
            full = len(samples) // FRAME * FRAME
            last = np.concatenate([samples[full:], np.zeros(-len(samples) % FRAME, samples.dtype)])
            probabilities = voice.feed(np.concatenate([samples[:full], last]))
            for at, probability in enumerate(probabilities):
                talking = bool(probability >= options.threshold - (_BELOW if talking else 0.0))
                self._talking.append(talking)
                start = at * FRAME
                stretches.add(talking, Run(self.read + start, samples[start : start + FRAME]))
            self.read += len(samples)
            yield from stretches.taken()
        stretches.end()
        yield from stretches.taken()

    def _frames(self) -> Iterator[Samples]:
        """The samples in blocks of whole frames; the last one may end with a part of a frame."""
        held: list[Samples] = []
        count = 0
        for block in self._blocks:
            held.append(block)
            count += len(block)
            if count >= FRAME:
                whole = np.concatenate(held)
                full = count // FRAME * FRAME
                yield whole[:full]
                held, count = [whole[full:]], count - full
        if count:
            yield np.concatenate(held)

    def spans(self, start: int, end: int) -> Spans | None:
        """Where somebody speaks between two samples, in seconds after the first. None without a detector."""
        if self._voice is None:
            return None
        first = start // FRAME
        flags = np.frombuffer(bytes(self._talking[first : -(-end // FRAME)]), np.int8)
        edges = np.flatnonzero(np.diff(flags, prepend=0, append=0))
        found: list[tuple[float, float]] = []
        for begin, until in zip(edges[::2], edges[1::2], strict=True):
            low = max(0.0, ((first + int(begin)) * FRAME - start) / RATE - _EDGE)
            high = min((end - start) / RATE, ((first + int(until)) * FRAME - start) / RATE + _EDGE)
            if found and low - found[-1][1] < _JOINED:
                low = found.pop()[0]
            found.append((low, high))
        return tuple(found)


@dataclass
class _Stretches:
    """Which frames are kept: those of speech, the padding around them, and pauses that are short."""

    padding: int
    pause: int
    _ready: list[Run] = field(default_factory=list)
    _stretch: list[Run] = field(default_factory=list)
    """A stretch of which it is not certain that it is more than a click."""
    _spoken: int = 0
    """The frames of speech in the stretch."""
    _quiet: list[Run] = field(default_factory=list)
    """The frames since the last speech, or the last of them."""
    _open: bool = False
    """Whether the pause since the last speech may still be a short one."""

    def add(self, talking: bool, frame: Run) -> None:
        if talking:
            self._stretch += self._quiet if self._open else self._quiet[max(0, len(self._quiet) - self.padding) :]
            self._stretch.append(frame)
            self._quiet = []
            self._open = True
            self._spoken += 1
        else:
            self._quiet.append(frame)
            if self._open and len(self._quiet) > max(self.pause, 2 * self.padding):
                self.end()
            if not self._open and len(self._quiet) > 2 * self.padding + 64:
                del self._quiet[: len(self._quiet) - self.padding]
        if self._spoken >= _LEAST:
            self._ready += self._stretch
            self._stretch = []

    def end(self) -> None:
        """The stretch is over: what follows is another one."""
        if self._spoken >= _LEAST:
            self._ready += self._stretch + self._quiet[: self.padding]
            self._quiet = self._quiet[self.padding :]
        self._stretch, self._spoken, self._open = [], 0, False

    def taken(self) -> Iterator[Run]:
        """The frames that are certain, those that follow each other joined."""
        ready, self._ready = self._ready, []
        at = 0
        while at < len(ready):
            last = at
            while last + 1 < len(ready) and ready[last + 1].start == ready[last].start + len(ready[last].samples):
                last += 1
            yield Run(ready[at].start, np.concatenate([run.samples for run in ready[at : last + 1]]))
            at = last + 1
