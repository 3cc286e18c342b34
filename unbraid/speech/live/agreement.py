"""Which words are certain: those that two passes in a row have heard in the same place.

Speech is transcribed again and again while it grows. The end of each pass is a guess, as its last word may be cut off.
What two passes agree on is certain (LocalAgreement, Macháček and others, 2023), up to the last word that another one
follows. It is told, and never taken back: from then on each pass has to begin with it. A model that can go on from
given words is made to; of the output of others, what stands for the certain words is found by comparing words.

A mark (a comma, a full stop) is certain only with the word after it: which one it is, and whether there is one, depends
on what is said next. Passes that end in the same pause agree on a mark that is gone once speech goes on.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..languages import is_unspaced

_WITHIN = "'’-‐"  # signs that stand inside of words
_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class HeardPiece:
    """A piece of text, and the tokens that spell it; none where the listener gives text alone."""

    text: str
    tokens: tuple[int, ...] = ()


@dataclass
class Agreement:
    """The passes over one stretch of sound."""

    certain: list[HeardPiece] = field(default_factory=list)
    _guess: list[HeardPiece] = field(default_factory=list)
    """What the last pass has heard after that."""

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens of all that is certain."""
        return tuple(token for piece in self.certain for token in piece.tokens)

    def take(self, heard: Sequence[HeardPiece], *, whole: bool) -> str:
        """A further pass. Returns the text that has become certain.

        whole: the sound ends with a pause, so the last word is whole. The mark after it waits for the next one.
        """
        rest = self._after_certain(heard)
        agreed = _common(self._guess, rest)
        if agreed < len(rest) or not whole:
            while agreed and not _is_followed(rest, agreed):
                agreed -= 1
        while agreed and not _says(rest[agreed - 1]):
            agreed -= 1
        self.certain += rest[:agreed]
        self._guess = rest[agreed:]
        return _text(rest[:agreed])

    def doubt(self) -> None:
        """A pass that is not to be believed: the next one has nothing to agree with."""
        self._guess = []

    def finish(self, heard: Sequence[HeardPiece]) -> str:
        """The last pass, which is believed. Returns the rest of the text."""
        rest = self._after_certain(heard)
        self.certain += rest
        self._guess = []
        return _text(rest)

    def _after_certain(self, heard: Sequence[HeardPiece]) -> list[HeardPiece]:
        """What a pass has heard after the words that are certain."""
        certain, text = _text(self.certain), _text(heard)
        if text.startswith(certain):
            size = at = 0
            while size < len(certain):
                size += len(heard[at].text)
                at += 1
            if size == len(certain):
                return list(heard[at:])
        return list(heard[_place_after(self.certain, heard) :])


def pieces_of(text: str) -> list[HeardPiece]:
    """Text that comes without tokens, in words and the marks after them. Nothing of it is lost."""
    pieces: list[HeardPiece] = []
    for word in _WORD.findall(text):
        space = " " if pieces or text[:1].isspace() else ""
        end = len(word)
        while end and _is_mark(word[end - 1]):
            end -= 1
        parts = (space + word[:end], word[end:]) if end else (space + word,)
        pieces += [HeardPiece(part) for part in parts if part]
    return pieces


def _text(pieces: Sequence[HeardPiece]) -> str:
    return "".join(piece.text for piece in pieces)


def _common(before: Sequence[HeardPiece], now: Sequence[HeardPiece]) -> int:
    """How many pieces both begin with."""
    count = 0
    while count < min(len(before), len(now)) and before[count].text == now[count].text:
        count += 1
    return count


def _is_followed(pieces: Sequence[HeardPiece], at: int) -> bool:
    """Whether a word ends before this piece, and another one follows."""
    if at >= len(pieces) or not _begins_word(pieces[at].text):
        return False
    return any(map(_says, pieces[at:]))


def _says(piece: HeardPiece) -> bool:
    """Whether there is more in it than marks."""
    return not all(map(_is_mark, piece.text))


def _is_mark(char: str) -> bool:
    """Whether a character is no part of a word: no letter, no number, and no sign that is written onto a letter."""
    return unicodedata.category(char)[0] not in "LNM"


def _begins_word(text: str) -> bool:
    """Whether this is no continuation of the word before it."""
    first = text[0]
    return first.isspace() or is_unspaced(text) or (unicodedata.category(first)[0] == "P" and first not in _WITHIN)


def _place_after(certain: Sequence[HeardPiece], heard: Sequence[HeardPiece]) -> int:
    """The piece that follows those that say most nearly what is certain: by edit distance, word by word."""
    keys = [_key(piece.text) for piece in certain]
    costs = list(range(len(keys) + 1))
    """Of turning all words so far into the first so many that are wanted."""
    best, place = costs[-1], 0
    for at, piece in enumerate(heard, 1):
        word, diagonal = _key(piece.text), costs[0]
        costs[0] = at
        for number, other in enumerate(keys, 1):
            swapped = diagonal + (word != other)
            diagonal = costs[number]
            costs[number] = min(swapped, costs[number] + 1, costs[number - 1] + 1)
        if costs[-1] <= best:
            best, place = costs[-1], at
    return place


def _key(text: str) -> str:
    return "".join(char for char in text.casefold() if char.isalnum())
