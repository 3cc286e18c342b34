"""Words in markup: names and ids, and tags whose inner whitespace is as it comes."""

from __future__ import annotations

import re
from collections.abc import Callable

from ...errors import InvalidFormat
from ..lazily import lazily


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


def without_gaps(written: str) -> str:
    """A marker, as it is written, without the whitespace between its parts."""
    return _space_after_mark("", written)


QUOTES = ('"', "'")
AfterWords = Callable[[str, int, tuple[str, ...], int], int | None]
"""What `after_words` is."""

space_end = run_of(r"\s*")
escaped_space_end = run_of(r"(?:\s|\\[nrt])*")
# Nothing that could be markup of the call around it, or a placeholder for a token.
word_end = run_of(r"[^\s\\\"'`{}\[\]()<>,\x00-\x1f\ud800-\udfff]*")


def is_word(name: str) -> bool:
    """Whether a name can stand among markup as it is."""
    return bool(name) and word_end(name, 0) == len(name)


def check_ends_word(literal: str) -> None:
    """A name ends where its characters do: what follows it must not look like more of it."""
    if literal.strip() and word_end(literal.strip()[0], 0):
        raise InvalidFormat(f"{literal!r} cannot follow a name: it would be taken for part of the name")


def after_words(text: str, at: int, words: tuple[str, ...], most: int) -> int | None:
    """The position after the words, with at most so much whitespace before each; -1 where they do not come, None where
    the text ends before that can be told."""
    for word in words:
        if text.startswith(word, at):
            at += len(word)
            continue
        begin = space_end(text, at)
        rest = text[begin : begin + len(word)]
        if begin - at > most or not word.startswith(rest):
            return -1
        if rest != word:
            return None
        at = begin + len(word)
    return at


def after_escaped_space(text: str, at: int, words: tuple[str, ...], most: int) -> int | None:
    """As `after_words`, where a line break before a word may be written as in a string of JSON: `\\n`."""
    for word in words:
        begin = escaped_space_end(text, at)
        if text[begin:] == "\\" and begin - at <= most:
            return None
        after = after_words(text, begin, (word,), most)
        if begin - at > most or after is None or after < 0:
            return -1 if begin - at > most else after
        at = after
    return at


def after_loose_words(text: str, at: int, words: tuple[str, ...], most: int) -> int | None:
    """As `after_words`, where the quotes around attributes may be others, or missing."""
    for word in words:
        if word != '"':
            after = after_words(text, at, (word,), most)
            if after is None or after < 0:
                return after
            at = after
            continue
        begin = space_end(text, at)
        if begin - at > most:
            return -1
        if begin == len(text):
            return None
        if text[begin] in QUOTES:
            at = begin + 1
    return at
