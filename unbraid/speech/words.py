"""Word timestamps: words from the tokens of an output, with times corrected by the sound.

Cross-attention gives the order of words and their approximate place, but is inexact about the silence between them. So
`join_words` first makes words of timed pieces of text, then `fit_to_sound` trims and extends them by the energy of the
samples.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .audio.chunking import Spans
from .audio.decode import RATE, Samples
from .languages import is_unspaced
from .transcript import Word

_OPENS = "¿¡"
_OPENS_AFTER_A_SPACE = "\"'-–—"

_FRAME = 0.02  # seconds over which the energy is measured
_BRIDGED = 0.2  # seconds of quiet within a word: the closure before a t or a k
_MOST_ADDED = 0.3  # seconds by which a word may exceed the model's time
_SHORTEST = 0.04  # seconds of a word
_MOST_BEFORE = 0.7  # seconds by which it may begin earlier
_LEVELS = 1e-3, 1e-2  # the least and the greatest threshold of quiet, relative to the loudest energy
_ABOVE_NOISE = 4.0


def join_words(pieces: Sequence[Word]) -> list[Word]:
    """Join pieces to words. No text is lost: the words joined are the pieces joined.

    A word begins with a space; in scripts without spaces, with each piece. Punctuation belongs to the word that it
    touches, but adds nothing to its time, because pauses are where punctuation is.
    """
    words: list[Word] = []
    counts: list[int] = []
    """How many pieces each word is made of."""
    before = ""
    """Punctuation that belongs to the next word."""
    for piece in pieces:
        if _is_punctuation(piece.text):
            if before or not words or _opens(piece.text):
                before += piece.text
            else:
                words[-1] = replace(words[-1], text=words[-1].text + piece.text)
        elif before or not words or piece.text[0].isspace() or is_unspaced(piece.text):
            words.append(replace(piece, text=before + piece.text))
            counts.append(1)
            before = ""
        else:
            word = words[-1]
            counts[-1] += 1
            probability = word.probability + (piece.probability - word.probability) / counts[-1]
            words[-1] = Word(word.text + piece.text, word.start, piece.end, probability)
    if before and words:
        words[-1] = replace(words[-1], text=words[-1].text + before)
    elif before:
        words = [Word(before, pieces[0].start, pieces[-1].end, pieces[0].probability)]
    return words


def _is_punctuation(text: str) -> bool:
    """Whether the text has no letters or digits, only punctuation and spaces."""
    return all(char.isspace() or unicodedata.category(char)[0] == "P" for char in text)


def _opens(text: str) -> bool:
    """Whether punctuation belongs to the word after it."""
    signs = text.strip()
    opens = _OPENS + _OPENS_AFTER_A_SPACE * text[:1].isspace()
    return bool(signs) and all(char in opens or unicodedata.category(char) in ("Ps", "Pi") for char in signs)


def fit_to_sound(words: Sequence[Word], samples: Samples, speech: Spans | None = None) -> list[Word]:
    """Move the times of words to where the sound is: without silence at either end, and extended until the word fades
    out. The order stays. Little changes where all is equally loud.

    speech: where somebody speaks. Sound outside of it is noise.
    """
    loud = _loud(samples) & _within(speech, len(samples))
    fitted: list[Word] = []
    following = len(loud)
    """The frame in which the next word begins; the loop goes backwards."""
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
        fitted.append(word)
    return _with_length(_from_the_onset(fitted[::-1], loud))


def _from_the_onset(words: list[Word], loud: NDArray[np.bool_]) -> list[Word]:
    """Extend words backwards over sound that belongs to none: after a pause, attention is late to a word."""
    extended: list[Word] = []
    for word in words:
        start, least = (
            _frame(word.start),
            max(_frame(extended[-1].end) if extended else 0, _frame(word.start - _MOST_BEFORE)),
        )
        begin = start
        while least < begin <= len(loud) and loud[begin - 1]:
            begin -= 1
        extended.append(word if begin == start else replace(word, start=round(begin * _FRAME, 2)))
    return extended


def _with_length(words: list[Word]) -> list[Word]:
    """Words that share their frame with a neighbour get a part of its time: no word takes none."""
    result = list(words)
    for at, word in enumerate(result):
        if word.end > word.start:
            continue
        before, after = result[at - 1] if at else None, result[at + 1] if at + 1 < len(result) else None
        if after is not None and after.start - word.start >= _SHORTEST:
            result[at] = replace(word, end=round(word.start + _SHORTEST, 2))
        elif after is not None and after.end - word.start >= 2 * _SHORTEST:
            middle = round(max(word.start, after.start) + _SHORTEST, 2)
            result[at], result[at + 1] = replace(word, end=middle), replace(after, start=middle)
        elif before is not None and before.end - before.start >= 2 * _SHORTEST:
            middle = round(min(word.start, before.end) - _SHORTEST, 2)
            result[at - 1], result[at] = replace(before, end=middle), replace(word, start=middle)
    return result


def _within(speech: Spans | None, count: int) -> NDArray[np.bool_]:
    """Which frames are speech; all of them if that is not known."""
    frames = count // round(_FRAME * RATE)
    spoken = np.full(frames, not speech)
    for begin, end in speech or ():
        spoken[_frame(begin) : _frame(end)] = True
    return spoken


def _frame(seconds: float) -> int:
    return round(seconds / _FRAME)


def _loud(samples: Samples) -> NDArray[np.bool_]:
    """Which frames are louder than the noise between words."""
    size = round(_FRAME * RATE)
    energies = samples[: len(samples) // size * size].reshape(-1, size).astype(np.float64).var(axis=1)
    if not len(energies):
        return np.zeros(0, np.bool_)
    loudest, noise = np.quantile(energies, 0.95), np.quantile(energies, 0.1)
    least, most = _LEVELS
    loud: NDArray[np.bool_] = energies > np.clip(_ABOVE_NOISE * noise, least * loudest, most * loudest)
    return loud
