"""Which words ids may spell, seen by the ids alone: their text is thousands of pieces, and is mostly not needed.

Wherever a word stands in a text, each of its bytes belongs to a token that agrees with the word around it. So there is
a set of tokens for each byte, and a word is absent where one of these sets has no token in common with the ids. If
it is not absent, a look at the text has to tell.

    words = WordTokens(vocabulary).searched([b"</think>"])
    words.possible(words.seen(ids))    [False]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..core.vocabulary import WholeVocabulary


class SpelledWords:
    """Looks for words in ids.

    needed: for each word the tokens that each of its bytes may belong to.
    """

    def __init__(self, needed: Sequence[Sequence[frozenset[int]]]) -> None:
        self._needed = needed
        self._any = frozenset[int]().union(*(each for sets in needed for each in sets))

    def seen(self, ids: Sequence[int]) -> frozenset[int]:
        """Those of the ids that words may be made of."""
        return self._any.intersection(ids)

    def possible(self, seen: frozenset[int]) -> list[bool]:
        """For each word, whether a text of these ids may contain it."""
        return [not any(each.isdisjoint(seen) for each in sets) for sets in self._needed]


class WordTokens:
    """The tokens that words may be made of, in one vocabulary. All of it is read for words that are new, once."""

    def __init__(self, vocabulary: WholeVocabulary) -> None:
        self._vocabulary = vocabulary
        self._known: dict[bytes, list[frozenset[int]]] = {}

    def searched(self, words: Iterable[bytes]) -> SpelledWords:
        words = list(words)
        new = [word for word in dict.fromkeys(words) if word not in self._known]
        if new:
            pieces = [
                (token, data) for token in range(self._vocabulary.size) if (data := self._vocabulary.token_bytes(token))
            ]
            for word in new:
                self._known[word] = _tokens_at(word, pieces)
        return SpelledWords([self._known[word] for word in words])


def _tokens_at(word: bytes, pieces: list[tuple[int, bytes]]) -> list[frozenset[int]]:
    """For each byte of a word, the tokens that it may belong to."""
    size, first, last = len(word), word[0], word[-1]
    of_each: list[set[int]] = [set() for _ in word]
    inner: dict[bytes, set[int]] = {}
    for begin in range(size):
        for end in range(begin + 1, size + 1):
            inner.setdefault(word[begin:end], set()).update(range(begin, end))
    for token, data in pieces:
        places = set(inner.get(data, ()))
        if first in data:  # it may end with the beginning of the word
            places.update(range(max(at for at in range(size + 1) if word[:at] in data[-at:] or not at)))
        if last in data:  # or begin with its end
            places.update(range(min(at for at in range(size + 1) if data.startswith(word[at:])), size))
        if first in data and last in data and word in data:
            places.update(range(size))
        for at in places:
            of_each[at].add(token)
    return [frozenset(each) for each in of_each]
