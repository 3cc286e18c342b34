"""What the encoder made of the sounds in work, so that each is encoded once.

A chunk whose output fails the thresholds is decoded again, up to five times. Only the decoding differs, so what the
encoder made of it is kept for as long as somebody has the samples: an array that goes takes its entry with it. Sounds
are told apart by identity, not by content; a slice of an array is another sound.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

from ..audio.decode import Samples
from ..onnx.runtime import Floats


class Encodings:
    """The encoder's output by the array of samples.

    encode: computes it. One thread calls `of`; arrays may go in any.
    """

    def __init__(self, encode: Callable[[Samples], Floats]) -> None:
        self._encode = encode
        self._known: dict[int, tuple[weakref.ref[Samples], Floats]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, samples: Samples) -> Floats:
        key = id(samples)
        known = self._known.get(key)
        if known is not None and known[0]() is samples:
            return known[1]
        found = self._encode(samples)
        self._known[key] = weakref.ref(samples, lambda gone: self._forget(key, gone)), found
        return found

    def _forget(self, key: int, gone: weakref.ref[Samples]) -> None:
        known = self._known.get(key)
        if known is not None and known[0] is gone:  # not an entry that another array has made at the same address
            self._known.pop(key, None)
