"""Texts in pieces: sentences, so that the first can be heard while the others are made.

Nothing is left out: the pieces, joined with spaces, have the words of the text in its order. A piece is a sentence, or
several if they are very short ("No. 5" is none, "Yes. I will." may be two). One that is too long for a model is divided
where a speaker would pause, or else between words, or else anywhere.
"""

from __future__ import annotations

import re

SHORT = 24
"""Characters. What is shorter is spoken together with what follows: alone, models speak it badly."""
LONGEST = 300
"""Characters of a piece."""

# The end of a sentence: a mark, perhaps with closing quotes, before white space; or a mark of a script without spaces.
_ENDS = re.compile(r"(?<=[.!?…])[\"'”’»)\]]*(?=\s)|[。！？]+[」』”]*|\n\s*\n|\n(?=\s*[-*•\d])")
_ABBREVIATED = re.compile(
    r"(?:^|[\s(])(?:[A-Za-z]|[Dd]r|[Mm]rs?|[Mm]s|[Pp]rof|[Ss]t|[Nn]o|[Vv]s|e\.g|i\.e|bzw|z\.B|Sra?)\.$"
)
_PAUSES = (re.compile(r"[;:—–]+\s*|\s-\s"), re.compile(r"[,、，]+\s*"), re.compile(r"\s+"))


def sentences(text: str) -> list[str]:
    """The pieces of a text, each with a character or more."""
    pieces: list[str] = []
    begun = 0
    for end in _ENDS.finditer(text):
        size = end.end() - begun
        if size < SHORT or (size < LONGEST and _ABBREVIATED.search(text[max(begun, end.start() - 8) : end.start()])):
            continue
        pieces += _divided(text[begun : end.end()].strip())
        begun = end.end()
    rest = text[begun:].strip()
    if rest and pieces and len(rest) < SHORT and len(pieces[-1]) + len(rest) < LONGEST:
        pieces[-1] += f" {rest}"
    elif rest:
        pieces += _divided(rest)
    return pieces


def _divided(piece: str) -> list[str]:
    """A sentence in parts of at most `LONGEST` characters."""
    found = []
    while len(piece) > LONGEST:
        cut = LONGEST
        for pause in _PAUSES:
            ends = [match.end() for match in pause.finditer(piece, LONGEST // 3, LONGEST)]
            if ends:
                cut = ends[-1]
                break
        found.append(piece[:cut].strip())
        piece = piece[cut:].strip()
    return [*found, piece] if piece else found
