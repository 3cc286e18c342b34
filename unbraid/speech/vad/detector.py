"""Silero's detector on ONNX Runtime: the probability of speech in each frame of 32 ms.

    voice = VoiceDetector().listen()
    probabilities = voice.feed(samples)  # of each frame that is complete

The model carries its state from frame to frame, so each recording has a `Voice` of its own. The session is shared, and
may be used from several threads.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..onnx.runtime import Floats, Runtime
from .files import resolve_vad

FRAME = 512
"""Samples of 16 kHz."""
_CONTEXT = 64  # samples before a frame that the model reads with it
_STATE = (1, 1, 128)
_MOST = 512  # frames in one call: the longest that a call may take, and the memory it needs


class VoiceDetector:
    """The model. One processor thread is enough: it takes 1/200 of the time of the recording."""

    def __init__(self, file: Path | None = None) -> None:
        """file: what `resolve_vad` returns. It is fetched if it is not given; then `ModelError` may be raised."""
        self._runtime = Runtime(1)
        self._session = self._runtime.session(file or resolve_vad())

    def listen(self) -> Voice:
        """A new recording."""
        return Voice(self)

    def run(self, frames: Floats, hidden: Floats, cell: Floats) -> tuple[Floats, Floats, Floats]:
        """Probabilities and the new state, for (frames, context and samples)."""
        value = self._runtime.value
        feeds = {"input": value(frames), "h": value(hidden), "c": value(cell)}
        found = self._session.run(feeds, ("speech_probs", "hn", "cn"))
        probabilities, hidden, cell = (one.numpy() for one in found)
        return probabilities.reshape(-1), hidden, cell


class Voice:
    """One recording as it is read."""

    def __init__(self, detector: VoiceDetector) -> None:
        self._detector = detector
        self._hidden = self._cell = np.zeros(_STATE, np.float32)
        self._context = np.zeros(_CONTEXT, np.float32)

    def feed(self, samples: Floats) -> Floats:
        """The probability of speech in each frame. `samples` is a whole number of frames."""
        frames = samples.astype(np.float32, copy=False).reshape(-1, FRAME)
        found = [self._run(frames[at : at + _MOST]) for at in range(0, len(frames), _MOST)]
        return np.concatenate(found) if found else np.zeros(0, np.float32)

    def _run(self, frames: Floats) -> Floats:
        before = np.concatenate([self._context[None], frames[:-1, -_CONTEXT:]])
        self._context = frames[-1, -_CONTEXT:].copy()
        given = np.concatenate([before, frames], axis=1)
        found, self._hidden, self._cell = self._detector.run(given, self._hidden, self._cell)
        return found
