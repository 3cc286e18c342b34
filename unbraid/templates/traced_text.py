"""Text that knows where it comes from: which characters of a rendered prompt are a message's, and of which.

To know what in a prompt is the template's and what is a message's, one could search the prompt for the message. That
fails as soon as the two spell the same. So the strings of the messages are given to the template as `TracedText`: a
`str` that carries an origin for each of its stretches, and whose methods carry it on. Everything that has no origin is
the template's own. The characters are those of a plain `str` at every moment, so tracing cannot change what a template
writes; where an operation forgets origins (`'%s' % text`), the text counts as the template's.

A traced text also has points: places without a character, such as where the template begins with the next message
(`sandbox.syntax_tree`). An empty text can have one, and it travels along.

`Trace` is the result: the prompt without marks, with origins, points and the template's lines.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple, SupportsIndex

from .control_tokens import BREAK, END, MARK

AT = "unbraid at"
"""The key under which a message carries its number until it is traced. No template sees it."""
_NOT_TRACED = frozenset({"role", "type"})
"""Fields that say what something is, and not what it says."""
REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
"""The names under which templates look for reasoning."""


def reasoning_of(message: Mapping[str, Any]) -> str:
    """The reasoning of a message, under whatever name."""
    return next((message[name] for name in REASONING_FIELDS if message.get(name)), "")


class Origin(NamedTuple):
    """Where a stretch of text comes from: the number of a message, and the field of it."""

    message: int
    field: str
    text: int = 0
    """Which of the texts in that field it is."""


class TracePoint(NamedTuple):
    """Something that happens between two characters."""

    kind: str
    """`message`: the template goes on with this message, or with none (-1). `generation`: a `{% generation %}` block
    begins (1) or ends (0)."""
    value: int


class TracedText(str):
    """A text with origins. Its methods return traced texts."""

    __slots__ = ("_points", "_spans")
    record: Any = None
    """Of one whose value is followed (`symbolic_text`): what was done with it."""
    _spans: tuple[tuple[int, int, Origin], ...]
    _points: tuple[tuple[int, TracePoint], ...]

    @classmethod
    def of(cls, text: str, origin: Origin) -> TracedText:
        """A text, all of which comes from one place."""
        return cls._create(text, ((0, len(text), origin),) if text else ())

    @classmethod
    def point(cls, kind: str, value: int) -> TracedText:
        """No text, and a point."""
        return cls._create("", (), ((0, TracePoint(kind, value)),))

    @classmethod
    def _create(
        cls, text: str, spans: tuple[tuple[int, int, Origin], ...], points: tuple[tuple[int, TracePoint], ...] = ()
    ) -> TracedText:
        traced = cls(text)
        traced._spans, traced._points = spans, points
        return traced

    @property
    def origin(self) -> Origin | None:
        """Where it first comes from."""
        return self._spans[0][2] if self._spans else None

    def __str__(self) -> str:
        return self

    def _cut(self, begin: int, end: int) -> TracedText:
        spans = tuple(
            (max(low, begin) - begin, min(high, end) - begin, origin)
            for low, high, origin in self._spans
            if low < end and high > begin
        )
        points = tuple((at - begin, point) for at, point in self._points if begin <= at <= end)
        return self._create(str.__getitem__(self, slice(begin, end)), spans, points)

    def _like(self, text: str) -> TracedText:
        """A text derived from this one. It has the same spans if it is as long; else all of it has the first origin."""
        if len(text) == len(self):
            return self._create(text, self._spans, self._points)
        return self.of(text, self.origin) if self.origin is not None else self._create(text, ())

    def _pieces(self, lengths: Iterable[tuple[int, int]]) -> list[str]:
        return [self._cut(begin, end) for begin, end in lengths]

    def joined_as(self, text_joined: TracedText, texts: Iterable[str]) -> TracedText:
        """What these texts were joined to (`text_joined`); `self` is one of them. Symbols override this."""
        return text_joined

    # What templates do with text

    def __add__(self, other: str) -> str:
        return joined("", (self, other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> str:
        return joined("", (other, self)) if isinstance(other, str) else NotImplemented

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        if not isinstance(key, slice):
            at = range(len(self))[key]
            return self._cut(at, at + 1)
        begin, end, step = key.indices(len(self))
        return self._cut(begin, max(begin, end)) if step == 1 else self._like(str.__getitem__(self, key))

    def __iter__(self) -> Iterator[str]:
        return (self._cut(at, at + 1) for at in range(len(self)))

    def strip(self, chars: str | None = None, /) -> str:
        begin = len(self) - len(str.lstrip(self, chars))
        return self._cut(begin, max(begin, len(str.rstrip(self, chars))))

    def lstrip(self, chars: str | None = None, /) -> str:
        return self._cut(len(self) - len(str.lstrip(self, chars)), len(self))

    def rstrip(self, chars: str | None = None, /) -> str:
        return self._cut(0, len(str.rstrip(self, chars)))

    def removeprefix(self, prefix: str, /) -> str:
        return self._cut(len(self) - len(str.removeprefix(self, prefix)), len(self))

    def removesuffix(self, suffix: str, /) -> str:
        return self._cut(0, len(str.removesuffix(self, suffix)))

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._pieces(self._places(str.split(self, sep, maxsplit), sep))

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._pieces(self._places(str.rsplit(self, sep, maxsplit), sep))

    def _places(self, pieces: Sequence[str], sep: str | None) -> Iterator[tuple[int, int]]:
        """Where the pieces of a split stand."""
        at = 0
        for piece in pieces:
            if sep is None:
                at = str.find(self, piece, at)
            yield at, at + len(piece)
            at += len(piece) + len(sep or "")

    def splitlines(self, keepends: bool = False) -> list[str]:
        at, places = 0, []
        for whole, line in zip(str.splitlines(self, True), str.splitlines(self, keepends), strict=True):
            places.append((at, at + len(line)))
            at += len(whole)
        return self._pieces(places)

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        return self._in_three(str.partition(self, sep))

    def rpartition(self, sep: str, /) -> tuple[str, str, str]:
        return self._in_three(str.rpartition(self, sep))

    def _in_three(self, parts: tuple[str, str, str]) -> tuple[str, str, str]:
        one, two = len(parts[0]), len(parts[0]) + len(parts[1])
        return self._cut(0, one), self._cut(one, two), self._cut(two, len(self))

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> str:
        if not old:
            return self._like(str.replace(self, old, new, count))
        return joined(new, self.split(old, count))

    def join(self, iterable: Iterable[str], /) -> str:
        return joined(self, iterable)

    def lower(self) -> str:
        return self._like(str.lower(self))

    def upper(self) -> str:
        return self._like(str.upper(self))

    def title(self) -> str:
        return self._like(str.title(self))

    def capitalize(self) -> str:
        return self._like(str.capitalize(self))


def plain(text: str) -> TracedText:
    """A text of the template's own, with the methods that carry origins on."""
    return TracedText._create(text, ())


def joined(separator: str, texts: Iterable[str]) -> str:
    """`separator.join(texts)`, traced if one of them is."""
    pieces = list(texts)
    if not isinstance(separator, TracedText) and not any(isinstance(piece, TracedText) for piece in pieces):
        return separator.join(pieces)
    spans: list[tuple[int, int, Origin]] = []
    points: list[tuple[int, TracePoint]] = []
    at = 0
    for number, piece in enumerate(pieces):
        for each in (separator, piece) if number and separator else (piece,):
            if isinstance(each, TracedText):
                spans += [(begin + at, end + at, origin) for begin, end, origin in each._spans]
                points += [(place + at, point) for place, point in each._points]
            at += len(each)
    text = TracedText._create(str.join(separator, pieces), tuple(spans), tuple(points))
    symbol = next((each for each in (separator, *pieces) if isinstance(each, TracedText) and each.record), None)
    if symbol is None:
        return text
    between = [each for piece in pieces for each in (separator, piece)][1:]
    return symbol.joined_as(text, between)


class TracedMessage(dict[str, Any]):
    """A message as a template gets it, with its number."""

    __slots__ = ("_at",)
    _at: int


def traced_message(message: dict[str, Any], number: int) -> TracedMessage:
    """A message whose strings are traced. Its number is what it carries under `AT`, or `number`."""
    number = message.get(AT, number)
    traced = TracedMessage(
        (key, value if key in _NOT_TRACED else _traced(value, Origin(number, _field(key)), count()))
        for key, value in message.items()
        if key != AT
    )
    traced._at = number
    return traced


def _field(key: str) -> str:
    return "reasoning" if key in REASONING_FIELDS else key


def _traced(value: Any, origin: Origin, numbers: Iterator[int]) -> Any:
    if isinstance(value, str):
        number = next(numbers)
        return value if isinstance(value, TracedText) else TracedText.of(value, origin._replace(text=number))
    if isinstance(value, dict):
        return {
            key if key in _NOT_TRACED else _traced(key, origin, numbers): item
            if key in _NOT_TRACED
            else _traced(item, origin, numbers)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_traced(item, origin, numbers) for item in value]
    return value


def origin_in(value: Any) -> Origin | None:
    """Where the first traced text in a JSON value comes from."""
    if isinstance(value, TracedText):
        return value.origin
    if isinstance(value, dict):
        return next((origin for pair in value.items() for each in pair if (origin := origin_in(each))), None)
    if isinstance(value, list | tuple):
        return next((origin for each in value if (origin := origin_in(each))), None)
    return None


@dataclass(frozen=True)
class Trace:
    """A rendered text, and where it comes from."""

    text: str
    """Without marks."""
    spans: tuple[tuple[int, int, Origin], ...] = ()
    """Stretches that come from a message, in order."""
    points: tuple[tuple[int, TracePoint], ...] = ()
    lines: tuple[tuple[int, int], ...] = ()
    """Where the template wrote from which line of its compiled code: the first character, and the line."""
    source_line: Callable[[int], int] = int
    """The line of the template for one of its compiled code. (Jinja takes its time for that.)"""

    def line(self, at: int) -> int | None:
        """The line of the template that wrote the character at `at`."""
        return next((self.source_line(line) for begin, line in reversed(self.lines) if begin <= at), None)


def trace_of(text: str, lines: Sequence[tuple[int, int]] = (), source_line: Callable[[int], int] = int) -> Trace:
    """The trace of a rendered text with marks."""
    traced = text if isinstance(text, TracedText) else plain(text)
    places = [match.start() for match in _marks.finditer(traced)]
    if not places:
        return Trace(str.__str__(traced), traced._spans, traced._points, tuple(lines), source_line)

    def before(at: int) -> int:
        return at - bisect_left(places, at)

    spans = tuple((before(begin), before(end), origin) for begin, end, origin in traced._spans)
    whole = _marks.sub("", traced)
    points = tuple((before(at), point) for at, point in traced._points)
    return Trace(whole, spans, points, tuple((before(at), line) for at, line in lines), source_line)


_marks = re.compile(f"[{MARK}{END}{BREAK}]")
