"""Vocoders: the interface for plug-ins that turn audio codes into sound, such as Step-Audio 2's `token2wav`.

    unbraid serve … --vocoder mymodule:make_vocoder

`make_vocoder()` is called once, when the server starts, and returns a `Vocoder`.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Protocol, cast

from ..errors import UnbraidError


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

    def voice(self) -> Voice:
        """For one reply. Several may speak at the same time."""
        ...


def load_vocoder(name: str) -> Vocoder:
    """What `MODULE:NAME` makes."""
    module, _, attribute = name.partition(":")
    try:
        make = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnbraidError(f"the vocoder {name!r} is not there: {error}. It is named MODULE:NAME") from error
    vocoder = make()
    if not callable(getattr(vocoder, "voice", None)):
        raise UnbraidError(f"{name} made {type(vocoder).__name__}, which is no vocoder: it has no method voice()")
    return cast(Vocoder, vocoder)
