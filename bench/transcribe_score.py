"""The columns of `transcribe.py`: what a system wrote beside what was said, and when.

Text is compared in small letters, without accents and punctuation; numbers are compared digit by digit, and what a
system puts into brackets (`[MUSIC]`) is no word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from transcribe_sounds import GROUPS, JOINTS, NOTHING, PAUSES, SPOKEN, TIMED, Sound

from tests.speech.word_errors import words

_ASIDE = re.compile(r"\[[^\]]*\]|\([^)]*\)|\*[^*]*\*|♪")
_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_NONE = "–"
_NEAR = 3  # words: how far from a word its double may stand
Timed = tuple[str, float, float]
"""A word, its start and its end."""


@dataclass(frozen=True)
class Heard:
    """A system's answer."""

    text: str
    words: list[Timed]
    language: str | None
    seconds: float
    cpu: float
    memory: float = 0.0
    """The most that the process had until then, in MB."""


def plain(text: str) -> list[str]:
    """The words that are compared."""
    found: list[str] = []
    for word in words(_ASIDE.sub(" ", text)):
        found += [_DIGITS[int(digit)] for digit in word] if word.isascii() and word.isdigit() else [word]
    return found


@dataclass
class Aligned:
    """Words that were said beside those that were heard, with as few errors as possible."""

    said: Sequence[str]
    heard: Sequence[str]
    pairs: list[tuple[int | None, int | None]] = field(init=False)
    """Places of both; one of them is None where a word has nothing beside it."""

    def __post_init__(self) -> None:
        said, heard = self.said, self.heard
        cost = [list(range(len(heard) + 1))]
        for word in said:
            row = [cost[-1][0] + 1]
            for at, other in enumerate(heard):
                row.append(min(cost[-1][at] + (word != other), cost[-1][at + 1] + 1, row[at] + 1))
            cost.append(row)
        i, j = len(said), len(heard)
        back: list[tuple[int | None, int | None]] = []
        while i or j:
            if i and j and cost[i][j] == cost[i - 1][j - 1] + (said[i - 1] != heard[j - 1]):
                i, j = i - 1, j - 1
                back.append((i, j))
            elif i and cost[i][j] == cost[i - 1][j] + 1:
                i -= 1
                back.append((i, None))
            else:
                j -= 1
                back.append((None, j))
        self.pairs = back[::-1]

    @property
    def errors(self) -> int:
        return sum(i is None or j is None or self.said[i] != self.heard[j] for i, j in self.pairs)

    @property
    def lost(self) -> int:
        return sum(j is None for _, j in self.pairs)

    @property
    def doubled(self) -> int:
        """Words too many that were said just before or after."""
        count = at = 0
        for i, j in self.pairs:
            if i is not None:
                at = i + 1
            elif j is not None and self.heard[j] in self.said[max(0, at - _NEAR) : at + _NEAR]:
                count += 1
        return count

    def place(self, i: int) -> int | None:
        """Where the word `i` that was said was heard; None where another one was."""
        return next((j for k, j in self.pairs if k == i and j is not None and self.heard[j] == self.said[i]), None)


@dataclass
class Score:
    """One system over all sounds."""

    name: str
    answers: list[tuple[Sound, Heard]] = field(default_factory=list)

    def of(self, *groups: str) -> list[tuple[Sound, Heard]]:
        return [one for one in self.answers if one[0].group in groups]

    def aligned(self, *groups: str) -> Iterator[Aligned]:
        """Words that have times are counted with their times, others as text."""
        for sound, heard in self.of(*groups):
            yield Aligned(plain(sound.text), _timed_words(heard) if sound.group in TIMED else plain(heard.text))

    def errors(self, *groups: str) -> float:
        return _rate(self.aligned(*groups))

    @property
    def lost_doubled(self) -> tuple[int, int]:
        """At joints."""
        found = list(self.aligned(JOINTS))
        return sum(one.lost for one in found), sum(one.doubled for one in found)

    @property
    def time_errors(self) -> list[float]:
        """Of each phrase's first word its start, and of the last one its end. Words that were not heard have none."""
        return [error for sound, timed in self.of(PAUSES) for error in _edge_errors(sound, timed)]

    @property
    def aligned_errors(self) -> list[float]:
        """Of the start of each word that the aligner and the system have."""
        return [error for sound, timed in self.of(*TIMED) for error in _start_errors(sound, timed)]

    @property
    def false_words(self) -> float:
        """A minute."""
        found = [(sound.seconds, len(plain(heard.text))) for sound, heard in self.of(NOTHING)]
        return sum(count for _, count in found) / sum(seconds for seconds, _ in found) * 60

    def cpu(self, *groups: str) -> float:
        """Seconds of CPU time that a second of sound takes."""
        found = self.of(*groups)
        return sum(heard.cpu for _, heard in found) / sum(sound.seconds for sound, _ in found)

    @property
    def memory(self) -> float:
        """At the peak, in MB."""
        return max(heard.memory for _, heard in self.answers)

    def cells(self) -> Iterator[tuple[str, str]]:
        """The heads of the columns, and this system's row. Groups that were not heard have no columns."""
        heard = {sound.group for sound, _ in self.answers}
        yield "system", self.name
        for group in SPOKEN:
            if group in heard:
                yield f"words wrong of {_words(self.aligned(group))}: {group}", f"{self.errors(group):.1%}"
        yield f"words wrong of {_words(self.aligned(*SPOKEN))}: all", f"{self.errors(*SPOKEN):.1%}"
        if JOINTS in heard:
            yield "lost / doubled at joints", "{} / {}".format(*self.lost_doubled)
        if PAUSES in heard:
            yield "edges of phrases: median / 90%", _spread(self.time_errors)
        if heard.intersection(TIMED):
            yield "starts of words, by an aligner: median / 90%", _spread(self.aligned_errors)
        if NOTHING in heard:
            yield f"false words a minute: {NOTHING}", f"{self.false_words:.1f}"
        for group in GROUPS:
            if group in heard:
                yield f"CPU s a second: {group}", f"{self.cpu(group):.2f}"
        yield "memory at the peak (MB)", f"{self.memory:.0f}"


def _spread(errors: Iterable[float]) -> str:
    ordered = sorted(errors)
    return f"{median(ordered):.2f} / {ordered[round(0.9 * (len(ordered) - 1))]:.2f} s" if ordered else _NONE


def _words(aligned: Iterable[Aligned]) -> str:
    return f"{sum(len(one.said) for one in aligned):,}"


def _rate(found: Iterable[Aligned]) -> float:
    all_of_them = list(found)
    return sum(one.errors for one in all_of_them) / max(1, sum(len(one.said) for one in all_of_them))


def _timed_words(timed: Heard) -> list[str]:
    return plain(" ".join(word for word, _, _ in timed.words))


def _start_errors(sound: Sound, timed: Heard) -> Iterator[float]:
    heard = [(one, start) for word, start, _ in timed.words for one in plain(word)]
    said = [(one, start) for word, start in sound.starts for one in plain(word)]
    aligned = Aligned([word for word, _ in said], [word for word, _ in heard])
    for i, (_, start) in enumerate(said):
        j = aligned.place(i)
        if start is not None and j is not None:
            yield abs(heard[j][1] - start)


def _edge_errors(sound: Sound, timed: Heard) -> Iterator[float]:
    times = [(start, end) for word, start, end in timed.words for _ in plain(word)]
    aligned = Aligned(plain(sound.text), [one for word, _, _ in timed.words for one in plain(word)])
    at = 0
    for phrase in sound.phrases:
        count = len(plain(phrase.text))
        first, last = aligned.place(at), aligned.place(at + count - 1)
        if first is not None:
            yield abs(times[first][0] - phrase.start)
        if last is not None:
            yield abs(times[last][1] - phrase.end)
        at += count
