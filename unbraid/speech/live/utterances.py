"""Utterances: where somebody begins and ends to speak in a stream, by the voice activity detector.

    utterances = UtteranceDetector(detector.listen(), UtteranceOptions())
    for event in utterances.feed(samples):
        ...  # Started, SpokenSound, Quiet, Stopped

Sound that belongs to no utterance is not kept, but for as much as may be put before the next one (`padding`): an hour
of silence holds nothing. An utterance is all samples from its `Started` to its `Stopped`, in the `SpokenSound` events
between them, with the pause that ended it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..audio.decode import RATE, Samples
from ..audio.vad import FRAME, LEAST, SpeechProbabilities, is_speech

_QUIET = 6  # frames without speech after which a word is over


@dataclass(frozen=True, slots=True, kw_only=True)
class UtteranceOptions:
    """When an utterance begins and ends. The defaults are OpenAI's."""

    threshold: float = 0.5
    padding: float = 0.3
    """Seconds before the first speech that belong to an utterance."""
    silence: float = 0.5
    """Seconds without speech that end it."""


@dataclass(frozen=True, slots=True)
class Started:
    """Somebody begins to speak."""

    seconds: float
    """Of the stream: where the utterance begins, with its padding."""


@dataclass(frozen=True, slots=True, eq=False)
class SpokenSound:
    """Sound of the utterance."""

    samples: Samples
    silent: bool = False
    """Whether nobody speaks in it."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """A pause, which may be the end: whatever was said before it is whole."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The utterance is over."""

    seconds: float
    """Of the stream: where it ends."""


UtteranceEvent = Started | SpokenSound | Quiet | Stopped


class UtteranceDetector:
    """One stream."""

    def __init__(self, frames: SpeechProbabilities, options: UtteranceOptions) -> None:
        self._frames = frames
        self._rest: Samples = np.zeros(0, np.float32)
        """Less than a frame."""
        self._read = 0
        """The samples of whole frames so far."""
        self._begin(options)

    def _begin(self, options: UtteranceOptions) -> None:
        self.options = options
        self._before: deque[Samples] = deque(maxlen=max(LEAST, round(options.padding * RATE / FRAME) + LEAST))
        """The last frames, while nobody speaks."""
        self._talking = False
        self._run = 0
        """The frames of speech in a row, or of silence within an utterance."""
        self.open = False
        """Whether there is an utterance."""

    @property
    def seconds(self) -> float:
        return (self._read + len(self._rest)) / RATE

    def change(self, options: UtteranceOptions) -> None:
        """Go on with other options. An utterance that is open stays open."""
        before, self.options = self._before, options
        self._before = deque(before, maxlen=max(LEAST, round(options.padding * RATE / FRAME) + LEAST))

    def end(self) -> None:
        """The utterance is over, whatever the detector says: what follows is another one."""
        self._begin(self.options)

    def feed(self, samples: Samples) -> Iterator[UtteranceEvent]:
        held = np.concatenate([self._rest, samples])
        whole = len(held) // FRAME * FRAME
        self._rest = held[whole:]
        probabilities = self._frames.feed(held[:whole])
        spoken: list[Samples] = []
        """Sound of an utterance that is not told yet."""
        silent = True
        for at, probability in enumerate(probabilities):
            frame = held[at * FRAME : (at + 1) * FRAME]
            self._read += FRAME
            self._talking = is_speech(probability, self.options.threshold, self._talking)
            if not self.open:
                self._before.append(frame)
                self._run = self._run + 1 if self._talking else 0
                if self._run >= LEAST:
                    spoken, silent = [*self._before], False
                    yield Started((self._read - sum(map(len, spoken))) / RATE)
                    self._before.clear()
                    self.open, self._run = True, 0
                continue
            spoken.append(frame)
            silent = silent and not self._talking
            self._run = 0 if self._talking else self._run + 1
            last = max(1, round(self.options.silence * RATE / FRAME))
            ends = self._run >= last
            if self._run == min(last, _QUIET) or ends:
                yield SpokenSound(np.concatenate(spoken), silent)
                spoken, silent = [], True
            if self._run == min(last, _QUIET):
                yield Quiet()
            if ends:
                self.end()
                yield Stopped(self._read / RATE)
        if spoken:
            yield SpokenSound(np.concatenate(spoken), silent)

    def flush(self) -> Samples:
        """What is left of an utterance that ends now: less than a frame."""
        rest, self._rest = self._rest, np.zeros(0, np.float32)
        self._read += len(rest)
        return rest
