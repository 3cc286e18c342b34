"""How many tokens belong to each strand.

The rule: a token belongs to the strand that its last character went to. A marker, with the whitespace that is part of
it, belongs to the strand that it opens or closes; what ends the turn, and markers that say nothing, to the text that
they stand in. A token without a whole character of its own belongs with the character that it is a part of. A call that
turned out to be none is text. Reasoning that is left in the content is reasoning all the same.

The tally keeps where each token ends in the raw output until the machine says what the text up to there is
(`Machine._say`). So it does not depend on how the tokens are cut into pieces, and costs an addition a token.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, islice

STRANDS = ("reasoning", "content", "tool_calls", "speech", "audio")
"""`speech` is text that is spoken, `audio` its codes."""


class Tally:
    """Counts the tokens of one response."""

    __slots__ = ("counts", "end", "ends", "thoughts", "waiting")

    def __init__(self) -> None:
        self.counts = dict.fromkeys(STRANDS, 0)
        self.thoughts = 0
        """Tokens of the reasoning without its markers."""
        self.ends: list[int] = []
        """Where tokens end whose strand is not known yet."""
        self.end = 0
        """Where the last token ends."""
        self.waiting = 0
        """Tokens that are part of a character that is not whole yet."""

    def token(self, size: int) -> None:
        """A token comes that completes `size` characters."""
        if not size:
            self.waiting += 1
            return
        self.end += size
        self.ends.append(self.end)
        if self.waiting:
            self.cut_off(0)

    def tokens(self, sizes: Sequence[int]) -> None:
        """Tokens come that complete so many characters each, where no token waits."""
        self.ends += islice(accumulate(sizes, initial=self.end), 1, None)
        self.end = self.ends[-1]

    def cut_off(self, size: int) -> None:
        """A character ends without its rest, as `size` characters: the tokens that wait are these."""
        self.end += size
        self.ends += [self.end] * self.waiting
        self.waiting = 0

    def out_of_band(self, size: int, strand: str) -> None:
        """A token comes that stands out of band. Text before it may still wait."""
        self.end += size
        self.counts[strand] += 1

    def passed(self, count: int, size: int, strand: str) -> None:
        """Tokens come whose text goes to `strand` at once, where nothing waits."""
        self.end += size
        self.counts[strand if strand in self.counts else "content"] += count
        if strand == "reasoning":
            self.thoughts += count

    def settle(self, strand: str, end: int, is_marker: bool, is_markup: bool) -> None:
        """All text up to `end` that nothing was said of belongs to `strand`.

        is_marker: it opens or closes the strand. is_markup: it says nothing itself, as markers and all else of a call
            do but its name and arguments.
        """
        ends = self.ends
        if not ends or ends[0] > end:
            return
        if ends[-1] <= end:
            count = len(ends)
            ends.clear()
        else:
            count = bisect_right(ends, end)
            del ends[:count]
        self.counts[strand] += count
        if strand == "reasoning" and not is_marker:
            self.thoughts += count

    def finish(self) -> None:
        """Nothing more comes: tokens that no text came of are content."""
        self.counts["content"] += len(self.ends) + self.waiting
        self.ends, self.waiting = [], 0


class LabelledTally(Tally):
    """A tally that also keeps what each token is. Its memory grows with the output."""

    __slots__ = ("cut", "labels", "markup", "places")

    def __init__(self) -> None:
        super().__init__()
        self.labels: list[str] = []
        """The strand of each token; `content` until it is known."""
        self.markup: list[bool] = []
        """Whether each token is markup, by the same rule."""
        self.places: list[int] = []
        """Which tokens those in `ends` are."""
        self.cut: list[int] = []
        """Which tokens those are that wait."""

    def token(self, size: int) -> None:
        self.places.append(len(self.labels))
        self.labels.append("content")
        self.markup.append(False)
        if size and not self.waiting:  # nearly always
            self.end += size
            self.ends.append(self.end)
            return
        if not size:
            self.cut.append(self.places.pop())
        super().token(size)

    def tokens(self, sizes: Sequence[int]) -> None:
        super().tokens(sizes)
        count, first = len(sizes), len(self.labels)
        self.places += range(first, first + count)
        self.labels += ["content"] * count
        self.markup += [False] * count

    def cut_off(self, size: int) -> None:
        super().cut_off(size)
        self.places += self.cut
        self.cut = []

    def out_of_band(self, size: int, strand: str) -> None:
        super().out_of_band(size, strand)
        self.labels.append(strand)
        self.markup.append(False)

    def passed(self, count: int, size: int, strand: str) -> None:
        super().passed(count, size, strand)
        self.labels += [strand if strand in self.counts else "content"] * count
        self.markup += [False] * count

    def settle(self, strand: str, end: int, is_marker: bool, is_markup: bool) -> None:
        before = len(self.ends)
        super().settle(strand, end, is_marker, is_markup)
        settled = before - len(self.ends)
        if not settled:
            return
        places, self.places = self.places[:settled], self.places[settled:]
        first, until = places[0], places[0] + settled
        if places == list(range(first, until)):  # nearly always
            self.labels[first:until] = [strand] * settled
            self.markup[first:until] = [is_markup] * settled
            return
        for place in places:
            self.labels[place] = strand
            self.markup[place] = is_markup
