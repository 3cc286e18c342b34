"""The speaker protocol: a text goes in, stretches of sound come out, one after the other.

It is `listening` the other way round. A speaker says which voices it has and at which rate it makes samples; what a
reply is encoded as is no business of its own (`encoding`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...engines.base import Load
from ...errors import UnbraidError

Sound = NDArray[np.float32]
"""Mono samples from -1 to 1."""

SLOWEST, FASTEST = 0.25, 4.0
"""The speeds that OpenAI's API has."""


class CannotSpeak(UnbraidError):
    """What a request asks cannot be spoken: an unknown voice, or a text with nothing to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakRequest:
    """What is to be spoken, and how."""

    text: str
    voice: str
    speed: float = 1.0
    soon: bool = False
    """Whether somebody waits for the first sound: the first sentence may then come in parts."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """A stretch of speech: a sentence, a few short ones, or a part of one."""

    sound: Sound
    read: int
    """How many tokens the model read for it."""
    made: int
    """How many frames it made."""
    total: int = 0
    """How many samples the sentence has in all, about, where this is the first part of one."""


class Speaker(Protocol):
    """A model that speaks."""

    @property
    def model(self) -> str:
        """The name of the model."""
        ...

    @property
    def rate(self) -> int:
        """Samples a second."""
        ...

    @property
    def voices(self) -> tuple[str, ...]:
        """The names of its voices; the first is the default."""
        ...

    @property
    def load(self) -> Load: ...

    def check_request(self, request: SpeakRequest) -> None:
        """Raise `CannotSpeak` for what can be seen to be wrong before anything is spoken."""
        ...

    def speak(self, request: SpeakRequest) -> AsyncGenerator[Spoken, None]:
        """The speech, a sentence at a time or less. Closing it gives up the rest. Raises `CannotSpeak` before
        the first sound, if there is nothing in the text that can be spoken."""
        ...

    async def close(self) -> None:
        """Release everything."""
        ...
