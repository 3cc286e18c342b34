"""Token times by dynamic time warping: when each token was said, from the decoder's cross-attention.

Some heads of cross-attention follow the audio in time. Their weights, tokens against frames of 20 ms, are normalised
and smoothed as OpenAI's Whisper does it. The cheapest monotonic path through them gives the frame in which each token
begins.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..audio.chunking import Spans

Attention = NDArray[np.float32]
"""The cross-attention of some heads at one token: (heads, frames). The weights of a head sum to 1."""

FRAME = 0.02
"""Seconds."""

_WIDTH = 7  # frames over which the median is taken
_LEAST = 1e-12


def token_times(attention: Sequence[Attention], seconds: float, speech: Spans | None = None) -> tuple[float, ...]:
    """When each token begins, and when the last one ends.

    attention: of each token, when it was chosen.
    seconds: the length of the audio; the frames after it are padding.
    speech: where somebody speaks. Other frames are left out before the path is searched, so that no noise, however
        long, can draw a word to it.
    """
    if not attention:
        return (0.0,)
    frames = _frames_of(speech, max(1, min(attention[0].shape[1], round(seconds / FRAME))))
    weights = np.stack([one[:, frames] for one in attention], axis=1).astype(np.float64)
    weights /= np.maximum(weights.sum(axis=2, keepdims=True), _LEAST)
    spread = weights.std(axis=1, keepdims=True)
    weights = (weights - weights.mean(axis=1, keepdims=True)) / np.maximum(spread, _LEAST)
    begins = _warp(-_median(weights).mean(axis=0, dtype=np.float64))
    return (*(round(float(frames[at]) * FRAME, 2) for at in begins), round(seconds, 2))


def _frames_of(speech: Spans | None, count: int) -> NDArray[np.int64]:
    """The frames of speech among the first `count`; all of them if there are none."""
    chosen = np.zeros(count, np.bool_)
    for begin, end in speech or ():
        chosen[max(0, round(begin / FRAME)) : round(end / FRAME)] = True
    return np.flatnonzero(chosen) if chosen.any() else np.arange(count)


def _median(weights: NDArray[np.float64]) -> NDArray[np.float32]:
    """A median filter over the frames: the neighbours of all frames are sorted at once, as far as their middle."""
    half = _WIDTH // 2
    weights32 = weights.astype(np.float32)
    frames = weights.shape[2]
    if frames <= half:
        return weights32
    padded = np.pad(weights32, ((0, 0), (0, 0), (half, half)), mode="reflect")
    near = [padded[:, :, at : at + frames] for at in range(_WIDTH)]
    for last in range(_WIDTH - 1, half - 1, -1):
        for at in range(last):
            near[at], near[at + 1] = np.minimum(near[at], near[at + 1]), np.maximum(near[at], near[at + 1])
    return near[half]


def _warp(cost: NDArray[np.float64]) -> list[int]:
    """The frame in which the cheapest path through `cost` (tokens, frames), from corner to corner, reaches each
    token."""
    tokens, frames = cost.shape
    total = np.full((tokens + 1, frames + 1), np.inf)
    total[0, 0] = 0.0
    came_from = np.zeros((tokens + 1, frames + 1), np.int8)
    # By antidiagonals: the cells of one depend only on the two before it, so numpy computes them at once.
    for diagonal in range(2, tokens + frames + 1):
        i = np.arange(max(1, diagonal - frames), min(tokens, diagonal - 1) + 1)
        j = diagonal - i
        ways = np.stack([total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]])
        best = ways.argmin(axis=0)
        total[i, j] = cost[i - 1, j - 1] + ways[best, np.arange(len(i))]
        came_from[i, j] = best
    begins = [0] * tokens
    token, frame = tokens, frames
    while token > 0:
        begins[token - 1] = frame - 1  # backwards: the value that stays is the first frame of the token
        way = came_from[token, frame]
        token -= int(way != 2)
        frame -= int(way != 1)
    return begins
