"""Words and their times, from pieces of text whose times are known roughly.

A model tells well in which order words come and about where, and badly where the silence between them ends. So words
are first put together of pieces, and then to where the sound is.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .audio.decode import RATE, Samples

# Scripts that are written without spaces between words, by the names of their characters.
_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "MYANMAR", "KHMER")
_OPENS = "¿¡"
_OPENS_AFTER_A_SPACE = "\"'-–—"

_FRAME = 0.02  # seconds of which the energy is taken
_BRIDGED = 0.2  # seconds of quiet within a word: before a t or a k it closes the mouth
_MOST_ADDED = 0.3  # seconds by which a word may be longer than the model says
_LEVELS = 1e-3, 1e-2  # energies, as parts of the loudest, below and above which all is quiet, or nothing
_ABOVE_NOISE = 4.0


@dataclass(frozen=True, slots=True)
class Word:
    """A word, with the space and the signs around it. Or a piece of one."""

    text: str
    start: float
    """Seconds."""
    end: float
    probability: float = 0.0


def words_of(pieces: Sequence[Word]) -> list[Word]:
    """The words that pieces make up; joined, their texts are those of the pieces.

    A word begins with a space; in scripts that have none, with each piece. Signs belong to the word that they stand at,
    and take none of its time: pauses are where they are.
    """
    words: list[Word] = []
    spoken: list[int] = []
    """Of how many pieces each is made."""
    before = ""
    """Signs that belong to the next one."""
    for piece in pieces:
        if _is_sign(piece.text):
            if before or not words or _opens(piece.text):
                before += piece.text
            else:
                words[-1] = replace(words[-1], text=words[-1].text + piece.text)
        elif before or not words or piece.text[0].isspace() or _unspaced(piece.text):
            words.append(replace(piece, text=before + piece.text))
            spoken.append(1)
            before = ""
        else:
            word = words[-1]
            spoken[-1] += 1
            probability = word.probability + (piece.probability - word.probability) / spoken[-1]
            words[-1] = Word(word.text + piece.text, word.start, piece.end, probability)
    if before and words:
        words[-1] = replace(words[-1], text=words[-1].text + before)
    elif before:
        words = [Word(before, pieces[0].start, pieces[-1].end, pieces[0].probability)]
    return words


def _is_sign(text: str) -> bool:
    """Whether nothing of it is spoken."""
    return all(char.isspace() or unicodedata.category(char)[0] == "P" for char in text)


def _opens(text: str) -> bool:
    """Whether signs belong to what comes after them."""
    sign = text.strip()
    opens = _OPENS + _OPENS_AFTER_A_SPACE * text[:1].isspace()
    return bool(sign) and all(char in opens or unicodedata.category(char) in ("Ps", "Pi") for char in sign)


def _unspaced(text: str) -> bool:
    """Whether it begins with a letter of a script without spaces; not with what only changes the letter before."""
    kind = unicodedata.category(text[0])
    return kind[0] != "M" and kind != "Lm" and unicodedata.name(text[0], "").startswith(_UNSPACED)


def placed(words: Sequence[Word], samples: Samples) -> list[Word]:
    """Words where there is sound: without the silence before and after them, and up to where they fade out. Their order
    stays as it is. Where all is equally loud, nothing changes much."""
    loud = _loud(samples)
    found: list[Word] = []
    following = len(loud)
    """The frame in which the next word begins: they are gone through from the last to the first."""
    for word in reversed(words):
        start, end = _frame(word.start), _frame(word.end)
        sounds = np.flatnonzero(loud[start:end]) + start
        if len(sounds):
            stretches = np.split(sounds, np.flatnonzero(np.diff(sounds) > _frame(_BRIDGED)) + 1)
            longest = max(stretches, key=len)
            start, until = int(longest[0]), int(longest[-1]) + 1
            while until >= end and until < min(following, end + _frame(_MOST_ADDED)) and loud[until]:
                until += 1
            word = replace(word, start=round(start * _FRAME, 2), end=round(until * _FRAME, 2))
        following = start
        found.append(word)
    return found[::-1]


def _frame(seconds: float) -> int:
    return round(seconds / _FRAME)


def _loud(samples: Samples) -> NDArray[np.bool_]:
    """Which frames are louder than what is between words."""
    size = round(_FRAME * RATE)
    energies = samples[: len(samples) // size * size].reshape(-1, size).astype(np.float64).var(axis=1)
    if not len(energies):
        return np.zeros(0, np.bool_)
    loudest, noise = np.quantile(energies, 0.95), np.quantile(energies, 0.1)
    least, most = _LEVELS
    found: NDArray[np.bool_] = energies > np.clip(_ABOVE_NOISE * noise, least * loudest, most * loudest)
    return found
