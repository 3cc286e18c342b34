"""Sound in windows: joined, it is the sound that was made at once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unbraid.speech.synthesis.speaker import Sound
from unbraid.speech.synthesis.windows import in_windows

from ...support.examples import examples

FRAME, RATE = 600, 24_000


@examples(1)
@given(frames=st.integers(1, 400), seed=st.integers(0, 99))
def test_parts_of_one_sound_are_that_sound(frames: int, seed: int) -> None:
    whole = np.random.default_rng(seed).normal(0, 0.1, frames * FRAME).astype(np.float32)
    made: list[tuple[int, int]] = []

    def make(first: int, last: int) -> Sound:
        made.append((first, last))
        return whole[first * FRAME : last * FRAME]

    parts = list(in_windows(make, frames, FRAME))
    assert np.allclose(np.concatenate(parts), whole, atol=1e-6)
    assert [last for _, last in made] == sorted({last for _, last in made})
    assert len(parts) == len(made)
    assert made[0][1] <= 64 or frames < 64, "the first is short"


@given(pitch=st.floats(80, 300), seed=st.integers(0, 99))
def test_windows_that_swing_otherwise_are_joined_without_a_gap(pitch: float, seed: int) -> None:
    """As with a voice: each window begins somewhere in a period."""
    phases = np.random.default_rng(seed)

    def make(first: int, last: int) -> Sound:
        at = np.arange((last - first) * FRAME) / RATE
        found: Sound = (0.3 * np.sin(2 * np.pi * (pitch * at + phases.random()))).astype(np.float32)
        return found

    parts = list(in_windows(make, 300, FRAME))
    assert len(parts) > 2
    sound = np.concatenate(parts)
    assert abs(len(sound) - 300 * FRAME) <= RATE // 100 * len(parts)
    assert np.abs(np.diff(sound)).max() < 1.1 * 0.3 * 2 * np.pi * pitch / RATE, "there is no click"
    loud = np.sqrt(np.convolve(sound**2, np.ones(600) / 600, "valid"))
    assert loud.min() > 0.8 * loud.max(), "nor a hole"


def test_a_joint_lies_where_it_is_quiet() -> None:
    whole = np.random.default_rng(0).normal(0, 0.1, 80 * FRAME).astype(np.float32)
    whole[28 * FRAME : 30 * FRAME] *= 0.01
    first, _ = in_windows(lambda first, last: whole[first * FRAME : last * FRAME], 80, FRAME)
    assert 28 * FRAME <= len(first) < 30 * FRAME
