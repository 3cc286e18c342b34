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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, islice
from typing import Any, Self, TypeVar

_T = TypeVar("_T")

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
            Tally.cut_off(self, 0)

    def tokens(self, texts: Sequence[str]) -> None:
        """Tokens come that complete these texts, where no token waits."""
        self.ends += islice(accumulate(map(len, texts), initial=self.end), 1, None)
        self.end = self.ends[-1]

    def pieces(self, pieces: Sequence[str], spellings: Mapping[str, str]) -> None:
        """Tokens come as pieces of the buffer, where no token waits: texts, or what stands for a token."""
        self.tokens([spellings.get(piece, piece) for piece in pieces])

    def cut_off(self, size: int) -> None:
        """A character ends without its rest, as `size` characters: the tokens that wait are these."""
        self.end += size
        self.ends += [self.end] * self.waiting
        self.waiting = 0

    def out_of_band(self, size: int, strand: str) -> None:
        """A token comes that stands out of band. Text before it may still wait."""
        self.end += size
        self.counts[strand] += 1

    def passed(self, texts: Sequence[str], size: int, strand: str) -> None:
        """Tokens come with these texts, of `size` characters, which go to `strand` at once, where nothing waits."""
        self.end += size
        count = len(texts)
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

    def settle_call(self, name_at: int, name_end: int, at: int, end: int, stop: int) -> None:
        """The text of a whole call comes: where its name begins and ends, its arguments, and the call itself ends."""
        for strand_end, is_markup in zip((name_at, name_end, at, end, stop), _MARKUP_OF_CALL, strict=True):
            self.settle("tool_calls", strand_end, False, is_markup)

    def call(self, begin: int, end: int, name: str, index: int | None, fault: str) -> None:
        """A call has ended, or what should have been one.

        index: which call of the message it is; None where it is none.
        fault: the diagnostic that says what is wrong with it; empty where nothing is.
        """

    def call_closes(self, end: int) -> None:
        """What closes the latest call has come."""

    def left_open(self, strand: str) -> None:
        """The output, or the turn, ends inside this strand."""

    def finish(self) -> None:
        """Nothing more comes: tokens that no text came of are content."""
        self.counts["content"] += len(self.ends) + self.waiting
        self.ends, self.waiting = [], 0

    def up_to_date(self) -> Self:
        """The tally itself, with all tokens so far in its counts."""
        return self


_MARKUP_OF_CALL = (True, False, True, False, True)


def _in_parts(said: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Calls of a tally, where one stands for several."""
    for call in said:
        if call[0] == "pieces":
            _, pieces, spellings = call
            yield "tokens", [spellings.get(piece, piece) for piece in pieces]
        elif call[0] == "settle_call":
            ends = zip(call[1:], _MARKUP_OF_CALL, strict=True)
            yield from (("settle", "tool_calls", end, False, is_markup) for end, is_markup in ends)
        else:
            yield call


class LabelledTally(Tally):
    """A tally that also keeps what each token is. Its memory grows with the output.

    Few callers read it while the output comes, and some never do. So calls are only recorded, and replayed when one
    reads it (`up_to_date`). Strands come in the order of the tokens, save for tokens that stand out of band.
    """

    __slots__ = ("apart", "attempts", "open", "runs", "said", "seen", "token_ends")

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[Any, ...]] = []
        """The calls to replay: each the name of a method, and its arguments."""
        self.seen = 0
        """How many tokens have come."""
        self.runs: list[tuple[int, str, bool]] = []
        """How many tokens are next of which strand, and whether they are markup."""
        self.apart: list[tuple[int, str]] = []
        """The numbers of the tokens that stand out of band, and their strands."""
        self.attempts: list[tuple[int, int, str, int | None, str]] = []
        """What `call` was told."""
        self.open: list[str] = []
        """The strands that were open at an end."""
        self.token_ends: list[int] = []
        """Where each token ends in the raw output; -1 while the rest of a character is to come."""

    def token(self, size: int) -> None:
        self.said.append(("token", size))

    def tokens(self, texts: Sequence[str]) -> None:
        self.said.append(("tokens", texts))

    def pieces(self, pieces: Sequence[str], spellings: Mapping[str, str]) -> None:
        self.said.append(("pieces", pieces, spellings))

    def cut_off(self, size: int) -> None:
        self.said.append(("cut_off", size))

    def out_of_band(self, size: int, strand: str) -> None:
        self.said.append(("out_of_band", size, strand))

    def passed(self, texts: Sequence[str], size: int, strand: str) -> None:
        self.said.append(("passed", texts, size, strand))

    def call(self, begin: int, end: int, name: str, index: int | None, fault: str) -> None:
        self.said.append(("call", begin, end, name, index, fault))

    def call_closes(self, end: int) -> None:
        self.said.append(("call_closes", end))

    def left_open(self, strand: str) -> None:
        self.said.append(("left_open", strand))

    def settle(self, strand: str, end: int, is_marker: bool, is_markup: bool) -> None:
        self.said.append(("settle", strand, end, is_marker, is_markup))

    def finish(self) -> None:
        self.said.append(("finish",))

    def settle_call(self, *places: int) -> None:
        self.said.append(("settle_call", *places))

    def up_to_date(self) -> Self:
        said, self.said = self.said, []
        for name, *arguments in _in_parts(said):
            waits, begin = len(self.ends), self.end
            getattr(super(), name)(*arguments)
            if name == "settle" and len(self.ends) < waits:
                strand, _, _, is_markup = arguments
                self.runs.append((waits - len(self.ends), strand, is_markup))
            elif name == "token":
                self.seen += 1
                self.token_ends.append(-1)
                if arguments[0]:
                    self._character_ends()
            elif name == "tokens":
                self._texts(arguments[0], begin)
            elif name == "passed":
                texts, _, strand = arguments
                self.runs.append((len(texts), strand if strand in self.counts else "content", False))
                self._texts(texts, begin)
            elif name == "out_of_band":
                self.apart.append((self.seen, arguments[1]))
                self.seen += 1
                self.token_ends.append(self.end)
            elif name == "call":
                self.attempts.append(tuple(arguments))
            elif name == "call_closes" and self.attempts:
                begin, _, *rest = self.attempts[-1]
                self.attempts[-1] = (begin, *arguments, *rest)
            elif name == "left_open":
                self.open += arguments
            elif name in ("cut_off", "finish"):
                self._character_ends()
        return self

    def _texts(self, texts: Sequence[str], begin: int) -> None:
        self.seen += len(texts)
        self.token_ends += islice(accumulate(map(len, texts), initial=begin), 1, None)

    def _character_ends(self) -> None:
        """The tokens that it was waited for end here."""
        at = len(self.token_ends) - 1
        while at >= 0 and (self.token_ends[at] < 0 or (self.apart and self.apart[-1][0] == at)):
            if self.token_ends[at] < 0:
                self.token_ends[at] = self.end
            at -= 1

    @property
    def labels(self) -> list[str]:
        """The strand of each token; `content` until it is known."""
        self.up_to_date()
        return self._spread([[strand] * count for count, strand, _ in self.runs], "content", dict(self.apart))

    @property
    def markup(self) -> list[bool]:
        """Whether each token is markup, by the same rule."""
        self.up_to_date()
        apart = dict.fromkeys((number for number, _ in self.apart), False)
        return self._spread([[is_markup] * count for count, _, is_markup in self.runs], False, apart)

    def _spread(self, runs: list[list[_T]], unknown: _T, apart: dict[int, _T]) -> list[_T]:
        """A value for each token: those of the runs, in order, around those that stand apart."""
        values = list(chain.from_iterable(runs))
        values += [unknown] * (self.seen - len(apart) - len(values))
        if not apart:
            return values
        rest = iter(values)
        return [apart[number] if number in apart else next(rest) for number in range(self.seen)]
