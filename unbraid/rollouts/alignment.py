"""Which characters a token stands for.

A tokenizer says what bytes a token has. Mostly these are the bytes of the text, one after the other. Some tokenizers
put a space before a text, swallow whitespace after a control token, or normalise what they read. So tokens are matched
with the text from both ends, and only what is left in the middle is shared out evenly.

A token counts for its last character, as in `core.tally`: so each token has one place, and no place is asked twice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from ..core.vocabulary import Vocabulary

_SPACE = b" \t\r\n"


def last_characters(ids: Sequence[int], text: str, vocabulary: Vocabulary) -> list[int]:
    """For each token the index of its last character in `text`; -1 for one before the first."""
    data = text.encode("utf-8", "replace")
    pieces = [vocabulary.token_bytes(id) or b"" for id in ids]
    ends = _ends(pieces, data)
    if len(data) == len(text):
        return [end - 1 for end in ends]
    starts = [0]
    for character in text:
        starts.append(starts[-1] + len(character.encode("utf-8", "replace")))
    return [bisect_left(starts, end) - 1 for end in ends]


def _ends(pieces: Sequence[bytes], data: bytes) -> list[int]:
    """Where each piece ends in the data."""
    ends: list[int] = []
    at = 0
    for piece in pieces:
        found = _after(piece, data, at)
        if found is None:
            break
        at = found
        ends.append(at)
    if len(ends) == len(pieces):
        return ends
    back: list[int] = []
    until = len(data)
    for piece in reversed(pieces[len(ends) :]):
        if until - len(piece) < at or not data.endswith(piece, at, until):
            break
        back.append(until)
        until -= len(piece)
    middle = pieces[len(ends) : len(pieces) - len(back)]
    weight, total = 0, sum(map(len, middle)) or 1
    for piece in middle:
        weight += len(piece)
        ends.append(at + (until - at) * weight // total)
    return [*ends, *reversed(back)]


def _after(piece: bytes, data: bytes, at: int) -> int | None:
    """The end of a piece that stands at `at`, give or take whitespace that the tokenizer added or dropped."""
    if data.startswith(piece, at):
        return at + len(piece)
    if piece.startswith(b" ") and data.startswith(piece[1:], at):
        return at + len(piece) - 1
    begin = at
    while begin < len(data) and data[begin] in _SPACE:
        begin += 1
    return begin + len(piece) if begin > at and data.startswith(piece, begin) else None
