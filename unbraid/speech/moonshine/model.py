"""Moonshine on ONNX Runtime, one step at a time: what to choose, and when to stop, is the caller's affair.

It reads samples as they are, of any length, and tells nothing of where a shorter one ends: recordings of different
lengths cannot be rows of one batch, so each is decoded by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engines.base import Unsupported
from ..whisper.decoder import Floats, Runtime, Session, Values
from .files import MoonshineFiles

SHORTEST = 1_700
"""Samples that the encoder needs, a tenth of a second; what is shorter is filled up with silence."""

_SAMPLES, _HIDDEN, _BRANCH = "input_values", "encoder_hidden_states", "use_cache_branch"
_PAST, _PRESENT = "past_key_values.", "present."
_HEADS = 8  # of all Moonshines


@dataclass
class State:
    """An output, as far as it has come. Changed by `MoonshineModel.step`."""

    hidden: Any = field(repr=False)
    """What the encoder said."""
    past: Values = field(repr=False)
    logits: Floats = field(repr=False)
    """What may come next."""


class MoonshineModel:
    """One Moonshine, loaded. Use it from one thread at a time."""

    def __init__(self, files: MoonshineFiles, *, threads: int | None = None) -> None:
        """Load a model. Raises `EngineDown` where it cannot be.

        threads: how many threads compute; as many as there are cores by default.
        """
        self._runtime = Runtime(threads)
        self._encoder = self._runtime.session(files.encoder, arena=False)
        self._decoder = self._runtime.session(files.decoder)
        for session, known in ((self._encoder, (_SAMPLES,)), (self._decoder, (_HIDDEN, "input_ids", _PAST, _BRANCH))):
            _check(session, known)

    def begin(self, samples: NDArray[Any], prompt: tuple[int, ...]) -> State:
        """Listen to a recording, and read the prompt."""
        sound = np.zeros((1, max(len(samples), SHORTEST)), np.float32)
        sound[0, : len(samples)] = samples
        [hidden] = self._encoder.run({_SAMPLES: self._runtime.value(sound)}, ["last_hidden_state"])
        width = hidden.shape()[-1]
        nothing = self._runtime.value(np.zeros((0, _HEADS, 1, width // _HEADS), np.float32))
        past = {name: nothing for name in self._decoder.inputs if name.startswith(_PAST)}
        state = State(hidden, past, np.zeros(0, np.float32))
        self._read(state, prompt, first=True)
        return state

    def step(self, state: State, token: int) -> None:
        """Read the token that was chosen."""
        self._read(state, (token,), first=False)

    def _read(self, state: State, tokens: tuple[int, ...], *, first: bool) -> None:
        # Cross-attention's keys and values come of the first run, and stay the same.
        names = [name for name in self._decoder.outputs if name.startswith(_PRESENT) and (first or ".decoder." in name)]
        feeds = {
            "input_ids": self._runtime.value(np.array([tokens], np.int64)),
            _HIDDEN: state.hidden,
            _BRANCH: self._runtime.value(np.array([not first])),
            **state.past,
        }
        logits, *present = self._decoder.run(feeds, ["logits", *names])
        for name, value in zip(names, present, strict=True):
            state.past[_PAST + name.removeprefix(_PRESENT)] = value
        state.logits = np.array(logits.numpy()[0, -1], np.float32)


def _check(session: Session, known: tuple[str, ...]) -> None:
    for name in session.inputs:
        if not name.startswith(known):
            raise Unsupported(f"this Moonshine wants {name}, which is not known here: take one that is known")
