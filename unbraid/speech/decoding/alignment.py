"""When each token was said: read off where in the audio a decoder looked while it wrote.

Some heads of cross-attention follow the audio in time. Their picture, tokens against frames of 20 ms, is cleaned as
OpenAI's Whisper does it, and the best path through it gives each token its beginning (dynamic time warping).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Attention = NDArray[np.float32]
"""Where some heads looked for one token: (heads, frames). What they see of a frame is a part of 1."""

FRAME = 0.02
"""Seconds."""

_WIDTH = 7  # frames over which the median is taken
_LEAST = 1e-12


def token_times(looks: list[Attention], seconds: float) -> tuple[float, ...]:
    """When each token begins, and when the last one ends.

    looks: of each token, what was looked at when it was chosen.
    seconds: how long the audio is; what comes after is padding.
    """
    if not looks:
        return (0.0,)
    frames = max(1, min(looks[0].shape[1], round(seconds / FRAME)))
    picture = np.stack([one[:, :frames] for one in looks], axis=1).astype(np.float64)
    picture /= np.maximum(picture.sum(axis=2, keepdims=True), _LEAST)
    spread = picture.std(axis=1, keepdims=True)
    picture = (picture - picture.mean(axis=1, keepdims=True)) / np.maximum(spread, _LEAST)
    begins = _begins(-_median(picture).mean(axis=0))
    return (*(round(frame * FRAME, 2) for frame in begins), round(seconds, 2))


def _median(picture: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each value as the middle one of those around it in time."""
    half = _WIDTH // 2
    if picture.shape[2] <= half:
        return picture
    padded = np.pad(picture, ((0, 0), (0, 0), (half, half)), mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, _WIDTH, axis=2)
    middle: NDArray[np.float64] = np.median(windows, axis=3)
    return middle


def _begins(cost: NDArray[np.float64]) -> list[int]:
    """The frame in which the cheapest way through `cost` (tokens, frames), from corner to corner, comes to each
    token."""
    tokens, frames = cost.shape
    total = np.full((tokens + 1, frames + 1), np.inf)
    total[0, 0] = 0.0
    came = np.zeros((tokens + 1, frames + 1), np.int8)
    # By diagonals: all cells of one depend only on the two before it.
    for diagonal in range(2, tokens + frames + 1):
        i = np.arange(max(1, diagonal - frames), min(tokens, diagonal - 1) + 1)
        j = diagonal - i
        ways = np.stack([total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]])
        best = ways.argmin(axis=0)
        total[i, j] = cost[i - 1, j - 1] + ways[best, np.arange(len(i))]
        came[i, j] = best
    begins = [0] * tokens
    token, frame = tokens, frames
    while token > 0:
        begins[token - 1] = frame - 1  # going backwards: the last time it is said is the first frame
        way = came[token, frame]
        token -= int(way != 2)
        frame -= int(way != 1)
    return begins
