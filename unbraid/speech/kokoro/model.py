"""Kokoro on ONNX Runtime: the tokens of a sentence to its sound, in one run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...engines.base import Unsupported
from ..onnx.runtime import Floats, Runtime
from .files import KokoroFiles
from .notation import LONGEST

RATE = 24_000
FRAME = 600
"""The samples of one frame: what the model counts in."""
_TOKENS = ("input_ids", "tokens")  # newer exports, older ones
_BOUND = 0  # the token before and after all others


class KokoroModel:
    """A loaded Kokoro. Use it from one thread at a time: it has no locks."""

    def __init__(self, files: KokoroFiles, *, threads: int | None = None) -> None:
        """Load a model, in a few seconds. Raises `EngineDown` if that fails."""
        self._runtime = Runtime(threads)
        self._session = self._runtime.session(files.model, arena=False)
        inputs = self._session.inputs
        self._tokens = next((name for name in _TOKENS if name in inputs), "")
        if set(inputs) != {self._tokens, "style", "speed"} or len(self._session.outputs) < 1:
            raise Unsupported(f"{files.model.name} is no Kokoro: its inputs are {', '.join(inputs)}")

    def speak(self, tokens: Sequence[int], style: Floats, speed: float) -> Floats:
        """The sound of some tokens, at `RATE`.

        style: that of the voice: (510, 256), a row for each number of tokens.
        """
        if not 1 <= len(tokens) <= LONGEST:
            raise Unsupported(f"Kokoro takes 1 to {LONGEST} tokens at once, not {len(tokens)}")
        feeds = {
            self._tokens: np.array([[_BOUND, *tokens, _BOUND]], np.int64),
            "style": np.array(style[len(tokens) - 1 : len(tokens)], self._session.dtype("style")),
            "speed": np.array([speed], self._session.dtype("speed")),
        }
        values = {name: self._runtime.value(array) for name, array in feeds.items()}
        [made] = self._session.run(values, self._session.outputs[:1])
        return np.array(made.numpy(), np.float32).reshape(-1)
