"""What is looked for in the ids of a prompt, where nobody knows the messages: words and tokens that tell what they may
have been (`unknown_past`). It is looked for in their text, or, for a quick answer, by the ids alone: their text is
thousands of pieces, and is mostly not needed.

Wherever a word stands in a text, each of its bytes belongs to a token that agrees with the word around it. So there is
a set of tokens for each byte, and a word is absent where one of these sets has no token in common with the ids. If
it is not absent, a look at the text has to tell.

    words = WordTokens(vocabulary).searched([b"</think>"])
    words.possible(words.seen(ids))    [False]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..caching import LruCache
from ..core.vocabulary import WholeVocabulary
from .values import Messages

_HEADS, _SEEN = 4, 64
"""So many beginnings of prompts are remembered, and what follows from so many sets of ids."""


@dataclass(frozen=True)
class Suspect:
    """A history that ids may be a rendering of."""

    number: int
    history: Messages
    what: str
    """In words."""
    evidence: tuple[tuple[str, int], ...]
    """Texts that a prompt of such a history has more often than so many times."""


@dataclass(frozen=True)
class SearchedTexts:
    """What to look for in prompts with the same tools and variables."""

    key: bytes
    suspects: tuple[tuple[Suspect, tuple[tuple[int, int], ...]], ...]
    """Each with its evidence, by the numbers of `texts`."""
    texts: tuple[bytes, ...]
    shown: tuple[bytes, ...]
    """What is in every prompt with these tools."""

    def end_of(self, text: bytes) -> bytes:
        """What the last text that is looked for may have begun in."""
        return text[-max(map(len, self.texts), default=1) :]

    def inspected(self, text: bytes) -> Inspection:
        lacks_tools = any(shown not in text for shown in self.shown)
        return Inspection(self, tuple(map(text.count, self.texts)), self.end_of(text), lacks_tools)

    @cached_property
    def adds_up(self) -> bool:
        """Whether no text can overlap with itself: what is counted in two parts is then what is counted in both."""
        return not any(text.startswith(text[-size:]) for text in self.texts for size in range(1, len(text)))


@dataclass(frozen=True)
class Inspection:
    """What was seen in the ids of a prompt."""

    setting: SearchedTexts
    counts: tuple[int, ...]
    tail: bytes
    """The end of the text."""
    lacks_tools: bool

    @cached_property
    def suspects(self) -> list[Suspect]:
        """The histories that the prompt may be a rendering of."""
        counts = self.counts
        exceeded: dict[tuple[tuple[int, int], ...], bool] = {}
        for _, evidence in self.setting.suspects:
            if evidence not in exceeded:
                exceeded[evidence] = all(counts[at] > times for at, times in evidence)
        return [suspect for suspect, evidence in self.setting.suspects if exceeded[evidence]]

    def followed_by(self, more: bytes) -> Inspection | None:
        """The same of a prompt that goes on so; None where it must be looked at as a whole."""
        setting = self.setting
        if self.lacks_tools or not setting.adds_up:
            return None
        text, size = self.tail + more, len(self.tail)
        counts = [
            count + text.count(each, max(size - len(each) + 1, 0))
            for each, count in zip(setting.texts, self.counts, strict=True)
        ]
        return Inspection(setting, tuple(counts), setting.end_of(text), False)


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


class PastWords:
    """What to look for in prompts with the same tools and variables, by ids.

    words: those of the setting's texts.
    """

    def __init__(self, setting: SearchedTexts, words: SpelledWords) -> None:
        self._setting = setting
        self._words = words
        self._heads: tuple[tuple[int, ...], ...] = ()
        """Beginnings of prompts that show the tools."""
        self._suspects: LruCache[frozenset[int], list[Suspect]] = LruCache(_SEEN)

    def shows_tools(self, head: tuple[int, ...]) -> None:
        """Note the beginning of a prompt that shows the tools."""
        if head not in self._heads:
            self._heads = (head, *self._heads[: _HEADS - 1])

    def suspects(self, ids: tuple[int, ...]) -> list[Suspect] | None:
        """The histories that the prompt may be a rendering of, or some more. None where a look at the text has to tell
        whether it shows the tools."""
        if self._setting.shown and not any(ids[: len(head)] == head for head in self._heads):
            return None
        seen = self._words.seen(ids)
        suspects = self._suspects.get(seen)
        if suspects is None:
            possible = self._words.possible(seen)
            suspects = self._suspects[seen] = [
                suspect
                for suspect, evidence in self._setting.suspects
                if all(possible[number] for number, _ in evidence)
            ]
        return suspects
