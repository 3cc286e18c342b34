"""The sound of one sentence in parts, so that the first is heard while the others are made.

A model has read the whole sentence; what it says then, in frames, becomes sound in windows. The first is short, and
each later one is longer by a quarter than the one before: it is made while that one is heard. A window has a few frames
of its neighbours on both sides, because the model looks at them. Two windows are joined at the quietest place near the
end of the first, where the second is moved by less than a period of the voice until both swing alike, and faded in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from .speaker import Sound

FIRST = 40
"""Frames of the first window: a second of Kokoro's."""
_GROWTH = 1.25
_BESIDE = 6
"""Frames of its neighbours that a window has on each side."""
_SEARCHED = 16
"""Frames at the end of a window in which a quiet place is looked for, with those of the neighbour."""
_LEAST = 24
"""Frames that are worth a window of their own."""
_FADE = 360
"""Samples of a joint: 15 ms of Kokoro's."""
_SHIFT = 240
"""Samples that a window is moved by at most: a period of a deep voice."""


def in_windows(make: Callable[[int, int], Sound], frames: int, size: int) -> Iterator[Sound]:
    """The sound of a sentence.

    make: the sound of the frames from one to another.
    frames: how many there are.
    size: the samples of one.
    """
    first, wanted = 0, float(FIRST)
    begun, end_of_last = 0, np.zeros(0, np.float32)
    """Where in the sentence's sound the next part begins, and how the last one would have gone on."""
    while True:
        last = begun // size + round(wanted)
        if frames - last < _LEAST:
            last = frames
        sound = make(first, last)
        if len(end_of_last):
            place = _place(end_of_last, sound, begun - first * size)
            begun = first * size + place
            sound = sound[place:].copy()
            rising = np.linspace(0, 1, _FADE, dtype=np.float32)
            sound[:_FADE] = end_of_last * (1 - rising) + sound[:_FADE] * rising
        if last == frames:
            yield sound
            return
        searched = (last - _SEARCHED) * size - begun
        cut = searched + _quietest(sound[searched : (last - _BESIDE) * size - begun])
        yield sound[:cut]
        end_of_last = sound[cut : cut + _FADE]
        begun += cut
        first = begun // size - _BESIDE
        wanted *= _GROWTH


def _quietest(sound: Sound) -> int:
    """Where the quietest stretch as long as a joint begins."""
    energy = np.convolve(sound.astype(np.float64) ** 2, np.ones(_FADE), "valid")
    return int(energy.argmin())


def _place(wanted: Sound, sound: Sound, about: int) -> int:
    """Where a sound is most like the wanted one, near a place."""
    near = sound[about - _SHIFT : about + _SHIFT + len(wanted)]
    alike = np.correlate(near, wanted, "valid")
    energy = np.convolve(near.astype(np.float64) ** 2, np.ones(len(wanted)), "valid")
    return about - _SHIFT + int((alike / np.sqrt(energy + 1e-9)).argmax())
