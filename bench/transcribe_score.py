"""The columns of `transcribe.py`: what a system wrote beside what was said, and when.

Text is compared in small letters, without accents and punctuation; numbers are compared digit by digit, and what a
system puts into brackets (`[MUSIC]`) is no word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from transcribe_sounds import ABROAD, GROUPS, JOINTS, NOTHING, PAUSES, SENTENCES, Sound

from tests.speech.word_errors import words

_ASIDE = re.compile(r"\[[^\]]*\]|\([^)]*\)|\*[^*]*\*|♪")
_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_NONE = "–"
_NEAR = 3  # words: how far from a word its double may stand
FAR = 0.5
"""Seconds: a word with a larger error is in the wrong place."""

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
    answers: list[tuple[Sound, Heard, Heard]] = field(default_factory=list)
    """A sound, its text, and what was written when times of words were asked for."""

    def _of(self, *groups: str) -> Iterator[tuple[Sound, Heard, Heard]]:
        return (one for one in self.answers if one[0].group in groups)

    def text_errors(self, *groups: str) -> float:
        return _rate(Aligned(plain(sound.text), plain(heard.text)) for sound, heard, _ in self._of(*groups))

    def timed_errors(self, *groups: str) -> float:
        """Sentences are heard as text alone."""
        return _rate(
            Aligned(plain(sound.text), plain(timed.text) if sound.group == SENTENCES else _timed_words(timed))
            for sound, _, timed in self._of(*groups)
        )

    @property
    def lost_doubled(self) -> tuple[int, int]:
        """At joints, in the text and in what is timed together."""
        found = [
            Aligned(plain(sound.text), heard)
            for sound, text, timed in self._of(JOINTS)
            for heard in (plain(text.text), _timed_words(timed))
        ]
        return sum(one.lost for one in found), sum(one.doubled for one in found)

    @property
    def time_errors(self) -> list[float]:
        """Of each phrase's first word its start, and of the last one its end. Words that were not heard have none."""
        return [error for sound, _, timed in self._of(PAUSES) for error in _edge_errors(sound, timed)]

    @property
    def aligned_errors(self) -> list[float]:
        """Of the start of each word that the aligner and the system have."""
        return [error for sound, _, timed in self._of(JOINTS) for error in _start_errors(sound, timed)]

    @property
    def edges(self) -> int:
        return sum(2 * len(sound.phrases) for sound, _, _ in self._of(PAUSES))

    @property
    def false_words(self) -> float:
        """A minute."""
        found = [(sound.seconds, len(plain(heard.text))) for sound, heard, _ in self._of(NOTHING)]
        return sum(count for _, count in found) / sum(seconds for seconds, _ in found) * 60

    def cpu(self, *groups: str) -> float:
        """Seconds of CPU time that a recording takes, at the median."""
        return median(heard.cpu for _, heard, _ in self._of(*groups))

    def speed(self, *groups: str) -> float:
        """Seconds of audio in a second."""
        taken = list(self._of(*groups))
        return sum(sound.seconds for sound, _, _ in taken) / sum(heard.seconds for _, heard, _ in taken)

    def _has(self, *groups: str) -> bool:
        return any(True for _ in self._of(*groups))

    def cells(self) -> Iterator[str]:
        """A row of the table; `COLUMNS` has the head. Groups that were not heard have a dash."""
        yield self.name
        for group in (SENTENCES, PAUSES, JOINTS, ABROAD):
            text, timed = self.text_errors(group), self.timed_errors(group)
            cell = f"{text:.1%}" if group == SENTENCES else f"{text:.1%} / {timed:.1%}"
            yield cell if self._has(group) else _NONE
        spoken = (SENTENCES, PAUSES, JOINTS, ABROAD)
        yield f"{self.text_errors(*spoken):.1%} / {self.timed_errors(*spoken):.1%}" if self._has(*spoken) else _NONE
        yield "{} / {}".format(*self.lost_doubled) if self._has(JOINTS) else _NONE
        errors = sorted(self.time_errors)
        for found in (errors, sorted(self.aligned_errors)):
            yield f"{median(found):.2f} / {found[round(0.9 * (len(found) - 1))]:.2f} s" if found else _NONE
        far = sum(error > FAR for error in errors) + self.edges - len(errors)
        yield f"{far} of {self.edges}" if self.edges else _NONE
        yield f"{self.false_words:.1f}" if self._has(NOTHING) else _NONE
        yield " / ".join(f"{self.cpu(group):.1f}" if self._has(group) else _NONE for group in (SENTENCES, JOINTS))
        groups = (PAUSES, JOINTS, NOTHING)
        yield " / ".join(f"{self.speed(group):.1f}" if self._has(group) else _NONE for group in groups)
        yield f"{max((heard.memory for _, *both in self._of(*GROUPS) for heard in both), default=0):.0f}"


COLUMNS = (
    "system",
    "word errors: sentences",
    "with pauses: text / timed",
    "over joints: text / timed",
    "joints in es, fr, it",
    "all of these: text / timed",
    "lost / doubled at joints",
    "edges of phrases: median / 90%",
    "starts of words, by an aligner: median / 90%",
    f"> {FAR} s off, or not heard",
    "false words a minute",
    "CPU s: a sentence / joints",
    "audio s / s: pauses / joints / nothing",
    "memory at peak (MB)",
)


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
