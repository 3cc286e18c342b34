"""Chunking: long recordings in pieces that a model can take, cut where nobody speaks.

Whisper takes thirty seconds at a time. A cut in the middle of a word loses that word, so each cut is made at the
quietest point of a chunk's last seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UnbraidError
from .decode import RATE

LONGEST = 30.0
"""Seconds that Whisper takes at once."""

_STEP = 0.01  # seconds over which the energy is measured
_WINDOW = 21  # steps over which it is smoothed: longer than the silence before a t or a k, shorter than a pause
_ALIKE = 2.0  # energies within 3 dB count as equally quiet
_FLOOR = 1e-10  # the energy, at full scale 1, below which all is silence: the resolution of 16 bits
_FRAME = 0.03
_SILENT = 3e-4  # -70 dB of full scale: badly recorded speech has 30 dB more, a quiet room 10


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """A piece of a recording."""

    start: float
    """Seconds from the start of the recording: exactly the samples before it, divided by their rate."""
    samples: NDArray[Any]


def cut(
    blocks: Iterable[NDArray[Any]], *, longest: float = LONGEST, search: float = 5.0, rate: int = RATE
) -> Iterator[Chunk]:
    """The samples of `blocks`, all of them and in order, in pieces of at most `longest` seconds.

    A piece ends at the quietest point of its last `search` seconds. The cuts do not depend on how the samples are
    divided into blocks. At most one piece and one block are held in memory.
    """
    if not 0 <= search <= longest or not 1 <= longest * rate < math.inf:
        raise UnbraidError(f"longest is {longest} s and search {search} s: search has to be a part of longest")
    most, least = round(longest * rate), round((longest - search) * rate)
    return _cut(blocks, most, max(1, least), rate)


def _cut(blocks: Iterable[NDArray[Any]], most: int, least: int, rate: int) -> Iterator[Chunk]:
    held: list[NDArray[Any]] = []
    count = start = 0
    for block in blocks:
        held.append(block)
        count += len(block)
        if count > most:  # not >=: this may be the end of the recording
            whole = np.concatenate(held)
            at = 0
            while count - at > most:
                end = at + _quietest(whole[at : at + most], least, rate)
                yield Chunk(start / rate, whole[at:end].copy())  # not a view, which would keep all of the block
                start += end - at
                at = end
            held, count = [whole[at:].copy()], count - at
    if count:
        yield Chunk(start / rate, np.concatenate(held))


def _quietest(samples: NDArray[Any], least: int, rate: int) -> int:
    """Where to cut: the middle of the longest of the quietest stretches after `least`."""
    step = max(1, round(_STEP * rate))
    steps = (len(samples) - least) // step
    if steps < _WINDOW:
        return len(samples)
    energies = _variances(samples[len(samples) - steps * step :], step)
    window = np.hanning(_WINDOW + 2)[1:-1]
    smooth = np.convolve(energies, window / window.sum(), mode="valid")  # what comes after is unknown
    quiet = smooth <= max(smooth.min() * _ALIKE, _FLOOR)
    # The stretches: where `quiet` begins and where it is over.
    edges = np.flatnonzero(np.diff(quiet, prepend=False, append=False))
    begins, ends = edges[::2], edges[1::2]
    longest = len(begins) - 1 - int(np.argmax((ends - begins)[::-1]))  # of equal ones the last
    middle = (int(begins[longest]) + int(ends[longest]) - 1) / 2 + _WINDOW / 2
    return len(samples) - steps * step + int(middle * step)


def is_silent(samples: NDArray[Any], *, rate: int = RATE) -> bool:
    """Whether there can be no speech: no frame is louder than the noise of a good recorder.

    A quiet room is usually louder than that. Samples are between -1 and 1.
    """
    frame = max(1, round(_FRAME * rate))
    padded = np.concatenate([samples, np.full(-len(samples) % frame, samples[-1] if len(samples) else 0.0)])
    return bool((_variances(padded, frame) < _SILENT**2).all())


def _variances(samples: NDArray[Any], step: int) -> NDArray[np.float64]:
    """The energy of each `step` samples, without the recorder's offset. An incomplete last step is left out."""
    whole = samples[: len(samples) // step * step].reshape(-1, step).astype(np.float64)
    variances: NDArray[np.float64] = whole.var(axis=1)
    return variances
