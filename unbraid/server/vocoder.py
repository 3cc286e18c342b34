"""Vocoders: the interface for plug-ins that turn audio codes into sound, such as Step-Audio 2's `token2wav`.

    unbraid serve … --vocoder mymodule:make_vocoder

`make_vocoder()` is called once, when the server starts, and returns a `Vocoder`. The module is looked for in the
current folder, too. `examples/tones.py` is a small one. Step-Audio 2's own is `--vocoder step-audio-2:FOLDER`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, Protocol, cast

from ..errors import UnbraidError
from .token2wav import Token2WavVocoder

STEP_AUDIO_2 = "step-audio-2"


class Voice(Protocol):
    """The sound of one reply, as it comes. Its methods are called in a thread, never two at once."""

    def feed(self, codes: Sequence[int]) -> bytes:
        """The sound that these codes complete, which may be none."""
        ...

    def finish(self) -> bytes:
        """The rest of it."""
        ...


class Vocoder(Protocol):
    """Turns audio codes into sound."""

    @property
    def rate(self) -> int:
        """Samples a second."""
        ...

    @property
    def format(self) -> str:
        """What the bytes are, in the words of OpenAI's API: `pcm16` (mono samples of 16 bits, little-endian), or a
        format of files that can be joined, such as `mp3`. Realtime sessions need `pcm16`."""
        ...

    def voice(self) -> Voice:
        """For one reply. Several may speak at the same time."""
        ...


FORMATS = ("pcm16", "wav", "mp3", "opus", "aac", "flac")
"""The formats of the sound."""


def sound_fields(vocoder: Vocoder | None) -> dict[str, Any]:
    """The format and the rate of a vocoder's sound, for clients."""
    return {} if vocoder is None else {"format": vocoder.format, "sample_rate": vocoder.rate}


def load_vocoder(name: str) -> Vocoder:
    """The vocoder that `MODULE:NAME` makes, or Step-Audio 2's own in `step-audio-2:FOLDER`."""
    module, _, attribute = name.partition(":")
    if module == STEP_AUDIO_2:
        return Token2WavVocoder(attribute)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        make = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnbraidError(f"the vocoder {name!r} is not there: {error}. It is named MODULE:NAME") from error
    vocoder = make()
    if not callable(getattr(vocoder, "voice", None)):
        raise UnbraidError(f"{name} made {type(vocoder).__name__}, which is no vocoder: it has no method voice()")
    rate, format = getattr(vocoder, "rate", None), getattr(vocoder, "format", None)
    if not isinstance(rate, int) or rate < 1:
        raise UnbraidError(
            f"{name} made a vocoder whose rate is {rate!r}: it must say how many samples a second it makes"
        )
    if format not in FORMATS:
        raise UnbraidError(f"{name} made a vocoder whose format is {format!r}: it must be one of {', '.join(FORMATS)}")
    return cast(Vocoder, vocoder)
