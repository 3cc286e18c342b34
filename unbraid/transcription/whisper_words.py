"""When each word was said: read off where in the audio the decoder looked while it wrote.

Some heads of cross-attention follow the audio in time. Their picture, tokens against frames of 20 ms, is cleaned as
OpenAI's Whisper does it, and the best path through it gives each token its beginning (dynamic time warping).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .whisper_tokens import STEP

Floats = NDArray[np.float32]

_SCRIPTS = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "MYANMAR")
_WIDTH = 7  # frames over which the median is taken
_BEFORE = set("\"'“¿([{-")
_AFTER = set("\"'.。,，!！?？:：”)]}、")


@dataclass(frozen=True, slots=True)
class Word:
    """A word and its times, in seconds."""

    text: str
    start: float
    end: float
    probability: float = 0.0


def token_times(attention: Floats, seconds: float) -> list[float]:
    """When each token begins, and when the last one ends.

    attention: (heads, tokens, frames), of the tokens of the text and of the one that ends it.
    seconds: how long the audio is; what comes after is padding.
    """
    frames = max(1, min(attention.shape[2], round(seconds / STEP)))
    picture = attention[:, :, :frames].astype(np.float64)
    spread = picture.std(axis=1, keepdims=True)
    picture = (picture - picture.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1.0)
    columns, rows = _path(-_median(picture).mean(axis=0))
    first = np.flatnonzero(np.diff(columns, prepend=-1))
    return [float(round(rows[at] * STEP, 2)) for at in first]


def _median(picture: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each value as the middle one of those around it in time."""
    half = _WIDTH // 2
    if picture.shape[2] <= half:
        return picture
    padded = np.pad(picture, ((0, 0), (0, 0), (half, half)), mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, _WIDTH, axis=2)
    middle: NDArray[np.float64] = np.median(windows, axis=3)
    return middle


def _path(cost: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The cheapest way through `cost` (tokens, frames) from corner to corner: the tokens and the frames on it."""
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
    at_i, at_j = tokens, frames
    found: list[tuple[int, int]] = []
    while at_i > 0 and at_j > 0:
        found.append((at_i - 1, at_j - 1))
        way = came[at_i, at_j]
        at_i -= way != 2
        at_j -= way != 1
    path = np.array(found[::-1], np.int64)
    return path[:, 0], path[:, 1]


def words_of(pieces: Sequence[bytes], times: Sequence[float], logprobs: Sequence[float]) -> list[Word]:
    """The words that tokens spell. `times` has one more than there are `pieces`: the end of the last.

    A word begins where a token begins with a space; in languages that write none, with each character that is whole.
    Signs belong to the word that they stand at.
    """
    groups: list[list[int]] = []
    pending = b""
    start = 0
    for at, piece in enumerate(pieces):
        pending += piece
        try:
            text = pending.decode()
        except UnicodeDecodeError:
            continue  # the character goes on in the next token
        if not groups or text[:1].isspace() or _alone(text):
            groups.append([])
        groups[-1] += range(start, at + 1)
        pending, start = b"", at + 1
    if pending and groups:
        groups[-1] += range(start, len(pieces))
    found = [_word(group, pieces, times, logprobs) for group in groups]
    return _with_signs(found)


def _alone(text: str) -> bool:
    """Whether the text is of a language that puts no spaces between words."""
    return any(unicodedata.name(char, "").startswith(_SCRIPTS) for char in text)


def _word(group: Sequence[int], pieces: Sequence[bytes], times: Sequence[float], logprobs: Sequence[float]) -> Word:
    text = b"".join(pieces[at] for at in group).decode("utf-8", "replace")
    likely = float(np.exp(np.mean([logprobs[at] for at in group])))
    return Word(text, times[group[0]], times[group[-1] + 1], likely)


def _with_signs(words: list[Word]) -> list[Word]:
    """Words of nothing but signs joined to their neighbours."""
    joined: list[Word] = []
    opening = ""
    begin: float | None = None
    for word in words:
        sign = word.text.strip()
        if sign and all(char in _BEFORE for char in sign) and word.text[:1].isspace():
            opening, begin = opening + word.text, word.start if begin is None else begin
        elif sign and all(char in _AFTER for char in sign) and joined:
            last = joined[-1]
            joined[-1] = Word(last.text + word.text, last.start, last.end, last.probability)
        else:
            joined.append(Word(opening + word.text, word.start if begin is None else begin, word.end, word.probability))
            opening, begin = "", None
    if opening and joined:
        joined[-1] = Word(joined[-1].text + opening, joined[-1].start, joined[-1].end, joined[-1].probability)
    return joined
