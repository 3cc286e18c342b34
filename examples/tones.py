"""A vocoder that turns audio codes into tones: a tenth of a second each, the higher the code the higher the tone.

    unbraid serve --replay examples/step-audio-2.jsonl --format step-audio-2 --vocoder examples.tones:make_vocoder

Real ones (Step-Audio 2's `token2wav`) have the same shape, and a model inside.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

CODES = 6561  # of Step-Audio 2
LOWEST, OCTAVES = 110.0, 4.0
SECONDS = 0.1


class ToneVoice:
    """The sound of one reply."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._phase = 0.0  # it goes on from one tone to the next, so that nothing clicks

    def feed(self, codes: Sequence[int]) -> bytes:
        return b"".join(map(self._tone, codes))

    def finish(self) -> bytes:
        return b""

    def _tone(self, code: int) -> bytes:
        turn = 2 * math.pi * LOWEST * 2 ** (OCTAVES * code / CODES) / self._rate
        count = round(SECONDS * self._rate)
        samples = [round(12_000 * math.sin(self._phase + turn * at)) for at in range(count)]
        self._phase = (self._phase + turn * count) % (2 * math.pi)
        return struct.pack(f"<{count}h", *samples)


class Tones:
    """See `unbraid.server.vocoder.Vocoder`."""

    rate = 24_000
    format = "pcm16"

    def voice(self) -> ToneVoice:
        return ToneVoice(self.rate)


def make_vocoder() -> Tones:
    return Tones()
