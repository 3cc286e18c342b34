"""Finding markers and words in text that arrives in pieces.

**How a reader answers.** A reader looks at text that may be cut anywhere, and takes nothing. This is so in all of the
core:

- what it looked for, where it has come: a position, a size, a match, a string;
- None, where it does not come;
- `NOT_YET`, where more input is needed to tell. Whether more comes, its caller knows (`Machine.at_end`).

A question answers True, False or `NOT_YET`, which is false. `Frame.step` and `Step.run` are no readers: they say
whether there was something to do. (`str.find` keeps its -1 inside a function.)

**Markers.** `Markers` answers the two questions that every frame asks of its buffer: where is the nearest marker, and
up to where can the text not be part of one? Both are one search with a compiled pattern, whatever the number of
markers.

**Words.** Names and ids, and tags whose inner whitespace is as it comes: `after_words` reads `<parameter = "` as
`<parameter="`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, TypeVar

from ...errors import InvalidFormat
from ..fast_import import lazily


class NotYet(Enum):
    """The type of `NOT_YET`."""

    NOT_YET = "not yet"

    def __bool__(self) -> bool:
        return False


NOT_YET: Final = NotYet.NOT_YET
"""More input is needed to tell."""


# --- Words ---------------------------------------------------------------------------------------------------------


def run_of(pattern: str) -> Callable[[str, int], int]:
    """Where the longest run of `pattern` that begins at a position ends. The pattern must match nothing, too. It is
    compiled when first used, as in `lazily`, which would cost a call more."""
    match: Callable[[str, int], re.Match[str] | None] | None = None

    def end(text: str, at: int) -> int:
        nonlocal match
        if match is None:
            match = re.compile(pattern).match
        return match(text, at).end()  # type: ignore[union-attr]  # an empty match always exists

    return end


space_end = run_of(r"\s*")
escaped_space_end = run_of(r"(?:\s|\\[nrt])*")
# Nothing that could be markup of the call around it, or a placeholder for a token.
word_end = run_of(r"[^\s\\\"'`{}\[\]()<>,\x00-\x1f\ud800-\udfff]*")
# The same among tags that are spelled as no name is: `<|sep|>`.
word_end_among_controls = run_of(r"(?:[^\s\\\"'`{}\[\]()<,\x00-\x1f\ud800-\udfff]|<(?!\|))*")
QUOTES = ('"', "'")

_between_words = lazily(lambda: re.compile(r"""\s+|(?<=[>\[])(?=<)|(?<=\w\])(?=<)|(?<=")(?=>)|(?==)|(?<==)""").split)
_after_mark = lazily(lambda: re.compile(r"(?<=\[)(?=<)").split)
_space_after_mark = lazily(lambda: re.compile(r"(?<=\[)\s+(?=<)").sub)
LONGEST_GAP = 16
"""How much whitespace may stand between a mark and its tag."""


def words_of(markup: str) -> tuple[str, ...]:
    """The words of some markup: whitespace may stand between any two, or none. Two tags are two words, and in a tag so
    are a name, the sign after it and a quote."""
    return tuple(filter(None, _between_words(markup)))


def marked_parts(marker: str) -> list[str]:
    """A marker in parts: a mark that ends with a bracket (`]<]minimax[>[`), and the tag after it. Whitespace between
    the two says nothing."""
    return _after_mark(marker)


def is_word(name: str) -> bool:
    """Whether a name can stand among markup as it is."""
    return bool(name) and word_end(name, 0) == len(name)


def check_ends_word(literal: str) -> None:
    """A name ends where its characters do: what follows it must not look like more of it."""
    if literal.strip() and word_end(literal.strip()[0], 0):
        raise InvalidFormat(f"{literal!r} cannot follow a name: it would be taken for part of the name")


Pieces = tuple[str | Callable[[str, int], int], ...]
"""Text as templates write it: literals, and runs (`run_of`) of what stands between them."""


MOST_KNOWN, LONGEST_KNOWN = 512, 128
"""So many answers are kept of each kind, and how long the texts may be."""
_T = TypeVar("_T")


class Answers(dict[str, _T]):
    """What a function says of short texts: `answers[text]`. Calls are written much alike, so the answers are kept, up
    to a number."""

    __slots__ = ("_ask",)

    def __init__(self, ask: Callable[[str], _T]) -> None:
        self._ask = ask

    def __missing__(self, text: str) -> _T:
        answer = self._ask(text)
        if len(self) < MOST_KNOWN and len(text) < LONGEST_KNOWN:
            self[text] = answer
        return answer


class Beginnings(Answers[bool]):
    """Tells whether text is the beginning of something as templates write it, and not all of it."""

    __slots__ = ("_pieces",)

    def __init__(self, pieces: Pieces, others: Iterable[str] = ()) -> None:
        """pieces: what comes. others: or one of these literals."""
        literals = [*others, *(piece for piece in pieces[:2] if isinstance(piece, str))]
        super().__init__(self._goes_on)
        self.update((text[:size], True) for text in literals for size in range(1, len(text)))
        self._pieces = pieces

    def _goes_on(self, text: str) -> bool:
        at, size, last = 0, len(text), len(self._pieces) - 1
        for number, piece in enumerate(self._pieces):
            if not isinstance(piece, str):
                at = piece(text, at)
            elif text.startswith(piece, at):
                at += len(piece)
            else:
                return piece.startswith(text[at:])
            if at == size:
                return number < last
        return False


AfterWords = Callable[[str, int, tuple[str, ...], int], int | NotYet | None]
"""The type of `after_words`."""


def after_words(text: str, at: int, words: tuple[str, ...], most: int) -> int | NotYet | None:
    """The position after the words, with at most so much whitespace before each."""
    for word in words:
        if text.startswith(word, at):
            at += len(word)
            continue
        begin = space_end(text, at)
        rest = text[begin : begin + len(word)]
        if begin - at > most or not word.startswith(rest):
            return None
        if rest != word:
            return NOT_YET
        at = begin + len(word)
    return at


def after_escaped_space(text: str, at: int, words: tuple[str, ...], most: int) -> int | NotYet | None:
    """As `after_words`, where a line break before a word may be written as in a string of JSON: `\\n`."""
    for word in words:
        begin = escaped_space_end(text, at)
        if begin - at > most:
            return None
        after = NOT_YET if text[begin:] == "\\" else after_words(text, begin, (word,), most)
        if not isinstance(after, int):
            return after
        at = after
    return at


def after_loose_words(text: str, at: int, words: tuple[str, ...], most: int) -> int | NotYet | None:
    """As `after_words`, where the quotes around attributes may be others, or missing."""
    for word in words:
        if word != '"':
            after = after_words(text, at, (word,), most)
            if not isinstance(after, int):
                return after
            at = after
            continue
        begin = space_end(text, at)
        if begin - at > most:
            return None
        if begin == len(text):
            return NOT_YET
        if text[begin] in QUOTES:
            at = begin + 1
    return at


# --- Markers -------------------------------------------------------------------------------------------------------

is_control = lazily(lambda: re.compile(r"<[^<>\s]*[|｜]|[|｜]>|◁|\]<\]").search)
"""Whether a marker, or the beginning of one, is spelled as no prose is: `<|call|>`, `<channel|>`."""

Role = Literal["open", "close", "answer", "header", "citation", "end", "stray", "named"]

Counts = Literal[
    "always",
    "unquoted",
    "outside code",
    "at an edge",
    "at the end",
    "on a line",
    "between",
    "before the answer",
    "not later",
    "after a call",
]
"""Where in a text a marker is one. Elsewhere it is a name that an answer says. Unquoted: not right after the backtick
that opens inline code. Between: outside code, and not in a message that a header has begun. On a line: at the beginning
of one, outside code. What counts outside code or at an edge, which is a line's, counts at the very end of the output as
well; at an edge, also right before a marker that opens something or ends the turn. At the
end: only there, outside code. Not later: before the answer; after that it is markup outside code, and opens nothing.
After a call: before the answer, where a call has come."""

HEADER_END = "header end"
"""The strand of what ends a header, which may also begin one."""
_BRACKETS = ("[", "{")
"""Markers of calls that begin without one. Others may begin with them: `[TOOL_CALLS]`."""
find_token = lazily(lambda: re.compile(r"[\ud800-\udfff]").search)
"""The nearest stand-in of a token."""
is_token = lazily(lambda: re.compile(r"[\ud800-\udfff]").fullmatch)
"""Whether a key is the stand-in of one token. Others may have it in them."""
_NOTHING = "(?!)"
_is_plain = lazily(lambda: re.compile(r"[\w.:/ -]+").fullmatch)
_GAP = rf"\s{{0,{LONGEST_GAP}}}"


@dataclass(slots=True, eq=False, repr=False)
class Marker:
    """A marker as the parser looks for it."""

    role: Role
    strand: str
    """What it opens or closes."""
    key: str
    """Its text without the whitespace around it; or, with a tokenizer, the character that stands for its token."""
    lead: str = ""
    trail: str = ""
    label: str = ""
    """What comes after it, and may be missing."""
    end: str = ""
    """What it ends with, and may be missing."""
    counts: Counts = "always"


def split_whitespace(marker: str) -> tuple[str, str, str]:
    """The whitespace before a marker, the marker itself, the whitespace after it."""
    key = marker.strip()
    if not key:
        raise InvalidFormat(f"a marker must hold more than whitespace: {marker!r}")
    lead, _, trail = marker.partition(key)
    return lead, key, trail


class Markers:
    """A set of markers to look for at once."""

    __slots__ = (
        "_alternatives",
        "_by_key",
        "_ends",
        "_longest",
        "_partial",
        "_search",
        "_spellings",
        "at",
        "begins",
        "find_or_sign",
        "first_characters",
        "in_words",
        "like_json",
        "signs",
        "suspect",
    )

    def __init__(self, markers: Iterable[Marker]) -> None:
        self._by_key = {marker.key: marker for marker in markers}
        self._ends = {marker.key: marker.end for marker in self._by_key.values() if marker.end}
        self._spellings = spellings = {
            lead + marker.key for marker in self._by_key.values() for lead in _suffixes(marker.lead)
        }
        longer: dict[str, list[str]] = {}
        for one in self._by_key:
            for other in self._by_key:
                if one == other or one not in other:
                    continue
                if other.startswith(one) and (one in _BRACKETS or is_token(one) or one == marked_parts(other)[0]):
                    longer.setdefault(one, []).append(other[len(one) :] + self._ends.get(other, ""))
                elif not is_token(one):
                    raise InvalidFormat(f"the marker {one!r} is part of another, {other!r}: a stream can't tell")
        # Longest first, so that a marker takes all of the whitespace before it. Every alternative begins with a literal
        # character: `re` then skips over other text at the speed of C.
        ordered = sorted(spellings, key=len, reverse=True)
        self._alternatives = [
            _spelled(text)
            + _not_followed_by(longer.get(text.lstrip(), []), _GAP if is_control(text) else "")
            + _ending(self._ends.get(text.lstrip(), ""))
            for text in ordered
        ]
        pattern = re.compile("|".join(self._alternatives) or _NOTHING)
        self._search, self.at = pattern.search, pattern.match
        first = sorted({spelling[0] for spelling in spellings})
        self.first_characters = tuple(char for char in first if not is_token(char))
        """Those that they begin with in text, where no token has its stand-in. To look for each of these few takes less
        time than a pattern does."""
        begins = "".join(map(re.escape, first))
        self.begins = re.compile(f"[{begins}]" if begins else _NOTHING).search
        """The nearest character that any of them begins with. Most text has none, and need not be looked at more
        closely (`absent`)."""
        self.signs = re.compile(rf"""[{begins}"\\\x00-\x1f]""").search
        """The same, or the nearest character that stands escaped in a JSON string."""
        self.suspect: Callable[[str], re.Match[str] | None] = self._compile_suspect
        """A place where one of them may stand, or may begin at the end of the text. Where there is none, they are
        absent; where there is one, a closer look has to tell."""
        self._partial: Callable[[str, int], re.Match[str] | None] = self._compile_partial
        ends = self._ends
        self._longest = max(
            (len(s) + len(ends.get(s.lstrip(), "")) + LONGEST_GAP * (len(marked_parts(s)) - 1) for s in spellings),
            default=0,
        )
        self.find_or_sign: Callable[[str, int, int], re.Match[str] | None] = self._compile_find_or_sign
        """The nearest marker, or in a group of its own the nearest sign: a quote, a bracket, a comma, a backslash."""
        self.in_words = any(map(_is_plain, self._by_key))
        """Whether one of them may stand in a name."""
        self.like_json = "".join(bracket for bracket in "[{" if any(key[0] == bracket for key in self._by_key))
        """The characters that begin a marker as well as a JSON value."""

    def _compile_partial(self, text: str, start: int) -> re.Match[str] | None:
        """Puts the pattern in its own place, with the first call: most sets never need it, and it is the longest."""
        prefixes = {_prefix(s, n) for s in self._spellings for n in range(1, len(s))}
        prefixes |= {
            re.escape(s + end[:n])
            for s in self._spellings
            if (end := self._ends.get(s.lstrip(), ""))
            for n in range(len(end))
        }
        any_prefix = "|".join(sorted(prefixes, key=len, reverse=True))
        self._partial = re.compile(rf"(?:{any_prefix})\Z" if prefixes else _NOTHING).search
        return self._partial(text, start)

    def _compile_suspect(self, text: str) -> re.Match[str] | None:
        """Likewise."""
        self.suspect = re.compile(
            _begun({marked_parts(spelling)[0] for spelling in self._spellings}) or _NOTHING
        ).search
        return self.suspect(text)

    def _compile_find_or_sign(self, text: str, start: int, end: int) -> re.Match[str] | None:
        """Likewise."""
        self.find_or_sign = re.compile("|".join([*self._alternatives, r"""(["'\\(){}\[\],])"""])).search
        return self.find_or_sign(text, start, end)

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def __iter__(self) -> Iterator[Marker]:
        return iter(self._by_key.values())

    def find(self, text: str, start: int, end: int = sys.maxsize) -> re.Match[str] | None:
        """The nearest marker, with the whitespace before it that belongs to it."""
        return self._search(text, start, end)

    def absent(self, text: str) -> bool:
        """Whether there is neither a marker in `text` nor the beginning of one at its end."""
        if text.isascii():  # so there is no token in it
            for char in self.first_characters:
                if char in text:
                    break
            else:
                return True
        suspect = self.suspect(text)
        if suspect is None:
            return True
        start = suspect.start()
        return self._search(text, start) is None and self.safe_end(text, start) == len(text)

    def matches_at(self, text: str, start: int) -> bool | NotYet:
        """Whether a marker stands at `start`."""
        if self.at(text, start):
            return True
        return NOT_YET if self.safe_end(text, start) == start else False

    def which(self, match: re.Match[str]) -> Marker:
        text = match.group()
        marker = self._by_key.get(text)
        if marker is not None:
            return marker
        text = text.lstrip()
        if self._ends and text not in self._by_key:
            text = next(key for key, end in self._ends.items() if text == key + end)
        return self._by_key.get(text) or self._by_key[_space_after_mark("", text)]

    def alone(self, text: str) -> Marker | None:
        """The marker that all of a text is, with the whitespace before it; None where it is none, or more."""
        match = self.at(text, 0)
        return self.which(match) if match is not None and match.end() == len(text) else None

    def only(self, admitted: Callable[[Marker], bool]) -> Markers:
        """Those of them that are admitted."""
        return Markers(filter(admitted, self._by_key.values()))

    def safe_end(self, text: str, start: int) -> int:
        """Up to where `text`, which holds no marker, cannot become part of one, whatever comes next."""
        size = len(text)
        tail = size - self._longest + 1
        if self.begins(text, tail if tail > start else start) is None:
            return size
        partial = self._partial(text, tail if tail > start else start)
        return size if partial is None else partial.start()

    def searchable_end(self, text: str, start: int) -> int:
        """Up to where `text` can be searched for markers: neither a whole one nor the beginning of one is cut there.
        Only the end of the text is looked at, so that who takes little of it may ask often."""
        match = self._search(text, max(start, len(text) - 2 * self._longest))
        return self.safe_end(text, start) if match is None else match.end()


def any_matches_at(sets: Iterable[Markers], text: str, start: int) -> bool | NotYet:
    """Whether a marker of any of these sets stands at `start`."""
    answers = [markers.matches_at(text, start) for markers in sets]
    return True if any(answers) else NOT_YET if NOT_YET in answers else False


def _spelled(text: str) -> str:
    """A pattern for all ways to write it."""
    return _GAP.join(map(re.escape, marked_parts(text)))


def _begun(texts: set[str]) -> str:
    """A pattern for all of these texts, whole or cut off by the end of the text: each character is looked at once."""
    branches = []
    for first in sorted({text[0] for text in texts}):
        rests = {text[1:] for text in texts if text[0] == first}
        branches.append(re.escape(first) + ("" if "" in rests else rf"(?:\Z|{_begun(rests)})"))
    return "|".join(branches)


def _prefix(text: str, size: int) -> str:
    """A pattern for the first `size` characters of a text, and whitespace where a gap may follow."""
    at_gap = len(marked_parts(text[: size + 1])) > len(marked_parts(text[:size]))
    return _spelled(text[:size]) + (_GAP if at_gap else "")


def _not_followed_by(rests: list[str], gap: str = "") -> str:
    """A pattern: the text does not end inside one of these, which would make one marker another."""
    prefixes = "|".join(re.escape(rest[:size]) for rest in rests for size in range(len(rest)))
    return rf"(?!{gap}(?:{prefixes})\Z)" if rests else ""


def _ending(end: str) -> str:
    """A pattern for the end of a marker, whole or missing; not for a text that ends inside of it."""
    return rf"(?:{re.escape(end)}|{_not_followed_by([end])})" if end else ""


def _suffixes(lead: str) -> list[str]:
    return [lead[i:] for i in range(len(lead) + 1)]
