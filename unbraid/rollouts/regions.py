"""A traced prompt cut up: which stretch belongs to which message, and what of it a model would have written.

The template's loops say where it goes on with the next message (`templates.sandbox.syntax_tree`). Text outside of any
loop, such as a system message before it, belongs to the message whose text stands there.

A turn of the assistant begins with what the generation prompt also has: that was not sampled. It ends with the token
that closes the turn (`closers`): that one was. `{% generation %}` blocks, where the template has them, say it
themselves.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from ..templates.control_tokens import MARK, ControlTokens
from ..templates.prompt.builder import TracedPrompt
from ..templates.traced_text import Origin
from .values import NOBODY


@dataclass(frozen=True)
class ControlToken:
    """A control token in a prompt's text."""

    begin: int
    end: int
    text: str


@dataclass(frozen=True)
class Region:
    """A stretch of a prompt, and the message it belongs to."""

    begin: int
    end: int
    message: int


class Regions:
    """The parts of one traced prompt.

    closers: the texts of the control tokens that close a turn of the assistant.
    """

    def __init__(self, prompt: TracedPrompt, controls: ControlTokens, closers: Collection[str]) -> None:
        self.text = prompt.trace.text
        self.trace = prompt.trace
        self.notes = prompt.notes
        self.closers = closers
        self._segments = list(_segments(prompt.text, controls))
        self.tokens = [
            ControlToken(begin, begin + len(text), text) for begin, text, control in self._segments if control
        ]
        self.regions = list(self._owned())
        self._begins = [region.begin for region in self.regions]

    def message_at(self, at: int) -> int:
        """The message that the character at `at` belongs to; -1 for none."""
        index = bisect_right(self._begins, at) - 1
        return self.regions[index].message if index >= 0 else NOBODY

    def of(self, message: int) -> list[Region]:
        return [region for region in self.regions if region.message == message]

    def marked_from(self, at: int) -> str:
        """The text from `at` on, with its control tokens marked. `at` must not be inside of one."""
        return self.marked_between(at, len(self.text))

    def marked_between(self, low: int, high: int) -> str:
        """The text between two places, with its control tokens marked. Neither may be inside of one."""
        marked = []
        for begin, text, control in self._segments:
            if begin + len(text) > low and begin < high:
                marked.append(MARK + text if control else text[max(0, low - begin) : high - begin])
        return "".join(marked)

    def last_value(self, message: int) -> int | None:
        """Where the last text of a message ends, in its own region. Names and ids of calls count where they stand
        first: templates write them again with the results."""
        ends: list[int] = []
        seen: set[Origin] = set()
        owned = self.of(message)
        for begin, end, origin in self.trace.spans:
            if origin.message != message or (origin.field == "tool_calls" and origin in seen):
                continue
            seen.add(origin)
            ends += [min(end, region.end) for region in owned if begin < region.end and end > region.begin]
        return max(ends, default=None)

    def end_of_turn(self, message: int) -> tuple[ControlToken | None, int]:
        """The token that closes a turn, if it is in the turn's own region, and where the next message begins."""
        owned = self.of(message)
        if not owned:
            return None, len(self.text)
        after = self.last_value(message)
        after = owned[0].begin if after is None else after
        until = next(region.end for region in reversed(owned) if region.begin <= after)
        later = [begin for begin, _, origin in self.trace.spans if origin.message > message and begin >= after]
        until = min([until, *later])
        closing = next((t for t in self.tokens if after <= t.begin < until and t.text in self.closers), None)
        return closing, until

    def sampled(self, message: int, generation_prompt: str) -> tuple[int, int]:
        """The stretch that a model would have written for a turn of the assistant."""
        owned = self.of(message)
        if not owned:
            return 0, 0
        begin = owned[0].begin
        begin += difference(self.text[begin : begin + len(generation_prompt)], generation_prompt)
        closing, until = self.end_of_turn(message)
        if closing is None:
            closing = next((t for t in self.tokens if t.begin == until and t.text in self.closers), None)
        return begin, max(begin, closing.end if closing is not None else until)

    def generation_blocks(self) -> list[tuple[int, int]]:
        """Where `{% generation %}` blocks begin and end."""
        blocks: list[tuple[int, int]] = []
        opened: int | None = None
        for at, point in self.trace.points:
            if point.kind == "generation":
                if point.value:
                    opened = at
                elif opened is not None:
                    blocks.append((opened, at))
        return blocks

    # Whose text it is

    def _owned(self) -> Iterator[Region]:
        begin, message = 0, NOBODY
        cuts = [(at, point.value) for at, point in self.trace.points if point.kind == "message"]
        for at, next_message in [*cuts, (len(self.text), NOBODY)]:
            if at > begin:
                last = at == len(self.text)
                yield from [Region(begin, at, message)] if message >= 0 else self._outside(begin, at, last)
            begin, message = at, next_message

    def _outside(self, begin: int, end: int, last: bool) -> Iterator[Region]:
        """What is written outside of any loop: each message has it up to the next one's."""
        spans = [(low, high, origin.message) for low, high, origin in self.trace.spans if begin <= low < end]
        if not spans:
            yield Region(begin, end, NOBODY)
            return
        at = begin
        for (_, high, message), (low, _, following) in pairwise(spans):
            if following != message:
                cut = next((t.end for t in self.tokens if high <= t.begin < low and t.text in self.closers), high)
                yield Region(at, cut, message)
                at = cut
        final = spans[-1][1] if last else end
        if last:
            final = next((t.end for t in self.tokens if t.begin >= final and t.text in self.closers), final)
        yield Region(at, final, spans[-1][2])
        if final < end:
            yield Region(final, end, NOBODY)


def _segments(marked: str, controls: ControlTokens) -> Iterator[tuple[int, str, bool]]:
    """The segments of a marked text: where each begins in the text without marks, and whether it is a token."""
    at = 0
    for text, control in controls.split(marked):
        yield at, text, control
        at += len(text)


class Stretches:
    """Stretches of a text that do not overlap, each with a number."""

    def __init__(self, stretches: Iterable[tuple[int, int, int]]) -> None:
        self._stretches = sorted(each for each in stretches if each[1] > each[0])
        self._begins = [begin for begin, _, _ in self._stretches]

    def __len__(self) -> int:
        return len(self._stretches)

    def at(self, place: int) -> int | None:
        """The number of the stretch that has the character at `place`."""
        index = bisect_right(self._begins, place) - 1
        return self._stretches[index][2] if index >= 0 and place < self._stretches[index][1] else None


def difference(one: str, other: str) -> int:
    """Where two texts begin to differ."""
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return min(len(one), len(other))
