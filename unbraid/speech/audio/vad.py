"""Voice activity: where in a recording somebody speaks, by Silero's model on ONNX Runtime.

    detector = SpeechDetector()
    detector.listen().feed(samples)  # the probability of speech in each frame of 32 ms

    speech = SpeechSpans(blocks, detector.listen(), VadOptions())
    for run in speech:  # a place in the recording, and samples that follow each other there
        ...
    speech.spans(run.start, run.start + len(run.samples))  # where somebody speaks in it: ((0.4, 2.9), (3.3, 7.1))

`SpeechSpans` leaves out the long stretches in which nobody speaks. A frame is speech from the threshold on, and until
the probability is clearly below it (hysteresis). Around speech some padding is kept, and pauses shorter than
`VadOptions.pause` are kept whole, so that no word is cut. What is left out is neither held nor counted. While nobody
speaks, an empty run comes every half minute, so that whoever reads may stop there. Without a detector, all is kept and
nothing is known.

The model carries its state from frame to frame, so each recording has a `SpeechProbabilities` of its own. The session
is shared, and may be used from several threads. The package `silero-vad` (MIT) needs torch. The graph in it does not,
so only that file is kept, pinned by SHA-256.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...models.cache import cache_folder, keep
from ...models.pinned import PinnedPackage, take_files
from ...models.progress import Progress, bar
from ..onnx.runtime import Floats, Runtime
from ..options import VadOptions
from .chunking import Run, Spans
from .decode import RATE, Samples

FRAME = 512
"""Samples of 16 kHz."""
_CONTEXT = 64  # samples before a frame that the model reads with it
_STATE = (1, 1, 128)
_MOST = 512  # frames in one call: the longest that a call may take, and the memory it needs
_BELOW = 0.15  # how far below the threshold speech ends
LEAST = 3
"""Frames of speech in a stretch: what is shorter is a click."""
_STEP = 30.0  # seconds without speech after which an empty run comes
_JOINED = 0.3  # seconds between two spans that count as one
_EDGE = 0.1  # seconds that are added to a span on both sides: the model is late by about as much
_PAUSE = 6  # frames without speech that are a pause between two sentences; within one, breath is taken in fewer

_PACKAGE = PinnedPackage("pypi:silero-vad==6.2.3", 11_317_527)
_NAME = "silero_vad_16k_sequence.onnx"
_SHA256 = "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85"


def resolve_vad(*, cache: Path | None = None, progress: Progress | None = bar) -> Path:
    """The graph, fetched if need be. Raises `ModelError`.

    cache: the folder to keep files in, if not that of `cache_folder()`.
    """

    def make(place: Path) -> None:
        place.mkdir()
        take_files(_PACKAGE, {f"silero_vad/data/{_NAME}": _SHA256}, place, progress)

    return keep((cache or cache_folder()) / "models" / f"{_SHA256[:16]}-silero-vad", make) / _NAME


class SpeechDetector:
    """The model. One processor thread is enough: it takes 1/200 of the time of the recording."""

    def __init__(self, file: Path | None = None) -> None:
        """file: what `resolve_vad` returns. It is fetched if it is not given; then `ModelError` may be raised."""
        self._runtime = Runtime(1)
        self._session = self._runtime.session(file or resolve_vad())

    def listen(self) -> SpeechProbabilities:
        """A new recording."""
        return SpeechProbabilities(self)

    def run(self, frames: Floats, hidden: Floats, cell: Floats) -> tuple[Floats, Floats, Floats]:
        """Probabilities and the new state, for (frames, context and samples)."""
        value = self._runtime.value
        feeds = {"input": value(frames), "h": value(hidden), "c": value(cell)}
        outputs = self._session.run(feeds, ("speech_probs", "hn", "cn"))
        probabilities, hidden, cell = (one.numpy() for one in outputs)
        return probabilities.reshape(-1), hidden, cell


class SpeechProbabilities:
    """One recording as it is read."""

    def __init__(self, detector: SpeechDetector) -> None:
        self._detector = detector
        self._hidden = self._cell = np.zeros(_STATE, np.float32)
        self._context = np.zeros(_CONTEXT, np.float32)

    def feed(self, samples: Floats) -> Floats:
        """The probability of speech in each frame. `samples` is a whole number of frames."""
        frames = samples.astype(np.float32, copy=False).reshape(-1, FRAME)
        parts = [self._run(frames[at : at + _MOST]) for at in range(0, len(frames), _MOST)]
        return np.concatenate(parts) if parts else np.zeros(0, np.float32)

    def _run(self, frames: Floats) -> Floats:
        before = np.concatenate([self._context[None], frames[:-1, -_CONTEXT:]])
        self._context = frames[-1, -_CONTEXT:].copy()
        inputs = np.concatenate([before, frames], axis=1)
        probabilities, self._hidden, self._cell = self._detector.run(inputs, self._hidden, self._cell)
        return probabilities


def is_speech(probability: float, threshold: float, before: bool) -> bool:
    """Whether a frame is speech: from the threshold on, and until the probability is clearly below it (hysteresis).

    before: whether the frame before it is.
    """
    return bool(probability >= threshold - (_BELOW if before else 0.0))


class SpeechSpans:
    """One recording, read once, without the long stretches in which nobody speaks. `read` is how many samples of it
    have been read.

    frames: the probabilities of speech; None without a detector.
    """

    def __init__(
        self, blocks: Iterable[Samples], frames: SpeechProbabilities | None, options: VadOptions | None
    ) -> None:
        self.read = 0
        self._blocks = blocks
        self._probabilities = frames if options is not None else None
        self._options = options or VadOptions()
        self._talking = bytearray()
        """Of each frame of the recording, whether it is speech."""

    @property
    def seconds(self) -> float:
        """How much has been read."""
        return self.read / RATE

    def __iter__(self) -> Iterator[Run]:
        return self._all() if self._probabilities is None else self._kept(self._probabilities)

    def _all(self) -> Iterator[Run]:
        for block in self._blocks:
            if len(block):
                yield Run(self.read, block)
                self.read += len(block)

    def _kept(self, frames: SpeechProbabilities) -> Iterator[Run]:
        options = self._options
        stretches = _Stretches(round(options.padding * RATE / FRAME), round(options.pause * RATE / FRAME))
        talking, since = False, 0
        for samples in self._frames():
            full = len(samples) // FRAME * FRAME
            last = np.concatenate([samples[full:], np.zeros(-len(samples) % FRAME, samples.dtype)])
            probabilities = frames.feed(np.concatenate([samples[:full], last]))
            for at, probability in enumerate(probabilities):
                talking = is_speech(probability, options.threshold, talking)
                self._talking.append(talking)
                start = at * FRAME
                stretches.add(talking, Run(self.read + start, samples[start : start + FRAME]))
            self.read += len(samples)
            kept = list(stretches.taken())
            yield from kept
            since = 0 if kept else since + len(samples)
            if since >= _STEP * RATE:
                since = 0
                yield Run(self.read, samples[:0])
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
        return self._spans(start, end, _EDGE, _JOINED)

    def talk(self, start: int, end: int) -> Spans | None:
        """The same, divided at each pause, however short, and without the edges."""
        return self._spans(start, end, 0.0, _PAUSE * FRAME / RATE)

    def _spans(self, start: int, end: int, edge: float, joined: float) -> Spans | None:
        if self._probabilities is None:
            return None
        first = start // FRAME
        flags = np.frombuffer(bytes(self._talking[first : -(-end // FRAME)]), np.int8)
        edges = np.flatnonzero(np.diff(flags, prepend=0, append=0))
        spans: list[tuple[float, float]] = []
        for begin, until in zip(edges[::2], edges[1::2], strict=True):
            low = max(0.0, ((first + int(begin)) * FRAME - start) / RATE - edge)
            high = min((end - start) / RATE, ((first + int(until)) * FRAME - start) / RATE + edge)
            if spans and low - spans[-1][1] < joined:
                low = spans.pop()[0]
            spans.append((low, high))
        return tuple(spans)


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
        if self._spoken >= LEAST:
            self._ready += self._stretch
            self._stretch = []

    def end(self) -> None:
        """The stretch is over: what follows is another one."""
        if self._spoken >= LEAST:
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
