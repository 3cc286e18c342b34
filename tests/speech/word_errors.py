"""How many words were heard wrong."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable


def words(text: str) -> list[str]:
    """Without accents: some of the transcripts have none."""
    plain = "".join(c for c in unicodedata.normalize("NFD", text.lower()) if not unicodedata.combining(c))
    return re.findall(r"\w+", plain)


def word_errors(said: str, heard: str) -> int:
    """How many words must be put in, taken out or changed."""
    before = list(range(len(words(heard)) + 1))
    for number, word in enumerate(words(said), 1):
        row = [number]
        for at, other in enumerate(words(heard)):
            row.append(min(before[at] + (word != other), before[at + 1] + 1, row[at] + 1))
        before = row
    return before[-1]


def error_rate(pairs: Iterable[tuple[str, str]]) -> float:
    """Of all pairs of what was said and what was heard, as a share of the words that were said."""
    errors = total = 0
    for said, heard in pairs:
        errors += word_errors(said, heard)
        total += len(words(said))
    return errors / total
