"""Moonshine on ONNX Runtime, one step at a time. The caller chooses the tokens and decides when to stop.

The encoder reads raw samples of any length and has no mask for padding. So recordings of different lengths cannot be
rows of one batch: each is decoded by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engines.base import Unsupported
from ..onnx import Device
from ..onnx.runtime import Floats, Runtime, Session, Values
from .files import MoonshineFiles

SHORTEST = 1_700
"""The fewest samples that the encoder takes, a tenth of a second. Shorter chunks are padded with silence."""

_SAMPLES, _HIDDEN, _BRANCH = "input_values", "encoder_hidden_states", "use_cache_branch"
_PAST, _PRESENT = "past_key_values.", "present."
_HEADS = 8  # of all Moonshines


@dataclass
class MoonshineState:
    """An output in progress. `MoonshineModel.step` changes it."""

    hidden: Any = field(repr=False)
    """The encoder's output."""
    past: Values = field(repr=False)
    logits: Floats = field(repr=False)
    """The logits of the next token: (vocabulary,)."""


class MoonshineModel:
    """A loaded Moonshine. Use it from one thread at a time."""

    def __init__(self, files: MoonshineFiles, *, threads: int | None = None, device: Device = "auto") -> None:
        """Load a model. Raises `EngineDown` if that fails.

        threads: how many threads compute; by default, as many as there are cores.
        """
        self._runtime = Runtime(threads, device)
        self._encoder = self._runtime.session(files.encoder, arena=False)
        self._decoder = self._runtime.session(files.decoder)
        for session, known in ((self._encoder, (_SAMPLES,)), (self._decoder, (_HIDDEN, "input_ids", _PAST, _BRANCH))):
            _check(session, known)

    def begin(self, samples: NDArray[Any], prompt: tuple[int, ...]) -> MoonshineState:
        """Encode a recording, and read the prompt."""
        sound = np.zeros((1, max(len(samples), SHORTEST)), np.float32)
        sound[0, : len(samples)] = samples
        [hidden] = self._encoder.run({_SAMPLES: self._runtime.value(sound)}, ["last_hidden_state"])
        width = hidden.shape()[-1]
        nothing = self._runtime.value(np.zeros((0, _HEADS, 1, width // _HEADS), np.float32))
        past = {name: nothing for name in self._decoder.inputs if name.startswith(_PAST)}
        state = MoonshineState(hidden, past, np.zeros(0, np.float32))
        self._read(state, prompt, first=True)
        return state

    def step(self, state: MoonshineState, token: int) -> None:
        """Read the next token."""
        self._read(state, (token,), first=False)

    def _read(self, state: MoonshineState, tokens: tuple[int, ...], *, first: bool) -> None:
        # The keys and values of cross-attention come from the first run, and stay the same.
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
            raise Unsupported(f"this Moonshine has an unknown input, {name}: take another export of the model")
