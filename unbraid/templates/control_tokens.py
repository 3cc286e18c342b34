"""Which of a prompt's control tokens are meant: those that the template writes, and none that a message spells.

A control token in the template's own text is marked: the character `MARK` stands before it. A lone surrogate is no
text, so no message can hold it (they are cleaned of surrogates), and nothing that comes of messages is ever marked.
What is rendered says therefore by itself which `<|im_end|>` is the token and which is just these ten characters, even
where a template puts a token's text together from a message and a word of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from ..core.vocabulary import Vocabulary
from .trie_pattern import pattern_of

MARK = "\udc00"
BREAK = "\udc02"
"""Stands in the middle of what must not be taken for a control token, where marks do not help."""
END = "\udc01"
"""Where the message ends that the model is to go on with."""

_surrogates = re.compile("[\ud800-\udfff]").sub
T = TypeVar("T")


def clean(text: str) -> str:
    """Text that UTF-8 can hold: half a surrogate pair becomes U+FFFD."""
    return text if text.isascii() else _surrogates("\ufffd", text)


def cleaned(value: Any) -> Any:
    """JSON with every string clean, made of the plain types alone: a template gets at nothing else."""
    if isinstance(value, str):
        return clean(str(value))
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict):
        return {cleaned(key): cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(item) for item in value]
    return f"<{type(value).__name__}>"


# The control tokens

_HTML = frozenset(
    {
        "table",
        "caption",
        "thead",
        "tbody",
        "tfoot",
        "tr",
        "th",
        "td",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "blockquote",
        "strong",
        "em",
        "b",
        "i",
        "u",
        "sub",
        "sup",
        "code",
    }
)
_TAG = re.compile(r"</?(\w+)>")


def is_control(text: str, special: bool) -> bool:
    """Whether a token outside the ordinary vocabulary is more than text. Some tokenizers (Gemma's, GPT-NeoX's) have
    runs of spaces and tags of HTML there, only so that they are not split."""
    tag = _TAG.fullmatch(text)
    return len(text.strip(" \t\n\r\u2581")) > 1 and (special or tag is None or tag[1] not in _HTML)


class Controls:
    """The control tokens of a vocabulary, and how to find them in text."""

    def __init__(self, ids: dict[str, int]) -> None:
        self.ids = ids
        pattern = pattern_of(ids)
        self._find = re.compile(pattern)
        self._anywhere = re.compile(f"(?={pattern})")
        self._marked = re.compile(f"{MARK}?{pattern}|{MARK}")

    def __len__(self) -> int:
        return len(self.ids)

    def mark(self, text: str) -> str:
        """Text of our own or of the template, with its control tokens marked."""
        return self._find.sub(rf"{MARK}\g<0>", text) if self.ids else text

    def split(self, text: str) -> Iterator[tuple[str, bool]]:
        """The stretches of a rendered text, none of them empty: each with whether it is a control token."""
        at = 0
        for found in self._marked.finditer(text) if self.ids else ():
            if not found[0].startswith(MARK):
                continue
            if found.start() > at:
                yield text[at : found.start()], False
            at = found.end()
            if len(found[0]) > 1:
                yield found[0][1:], True
        if at < len(text):
            yield text[at:], False

    def spells(self, text: str) -> bool:
        """Whether plain text spells a control token."""
        return bool(self.ids) and self._find.search(text) is not None

    def spelled(self, text: str) -> Iterator[int]:
        """Where plain text spells control tokens, even where they overlap."""
        return (found.start() for found in self._anywhere.finditer(text)) if self.ids else iter(())

    def mark_rest(self, text: str) -> str:
        """A rendered text with those marked as well that are not."""
        return self._marked.sub(lambda found: MARK + found[0].removeprefix(MARK), text) if self.ids else text

    def break_up(self, value: Any) -> Any:
        """JSON whose strings no longer spell control tokens: `BREAK` stands in them."""
        if isinstance(value, str):
            return self._broken(value)
        if isinstance(value, dict):
            return {self.break_up(key): self.break_up(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.break_up(item) for item in value]
        return value

    def _broken(self, text: str) -> str:
        pieces, begin = [], 0
        for at in self.spelled(text):
            pieces.append(text[begin : at + 1])
            begin = at + 1
        return BREAK.join([*pieces, text[begin:]])

    def unmarked(self, text: str) -> set[str]:
        """The control tokens that a rendered text spells without a mark."""
        return (
            {found[0] for found in self._marked.finditer(text) if not found[0].startswith(MARK)} if self.ids else set()
        )


NO_CONTROLS = Controls({})


def controls_of(vocabulary: Vocabulary) -> Controls:
    """The control tokens of a vocabulary that can name its special tokens."""
    ids: dict[str, int] = {}
    for token in sorted(getattr(vocabulary, "special", ())):
        spelled = vocabulary.token_bytes(token)
        text = spelled.decode("utf-8", "replace") if spelled else ""
        if is_control(text, special=False):
            ids.setdefault(text, token)
    return Controls(ids)


def unmark(text: str) -> str:
    """A rendered text as the template has it."""
    return text.replace(MARK, "").replace(BREAK, "")


def marked(value: T, controls: Controls) -> T:
    """A grammar whose markers are marked, so that the renderer writes them so."""
    if isinstance(value, str):
        return controls.mark(value)  # type: ignore[return-value]
    if isinstance(value, tuple):
        return tuple(marked(item, controls) for item in value)  # type: ignore[return-value]
    if is_dataclass(value) and not isinstance(value, type):
        changed = {each.name: marked(getattr(value, each.name), controls) for each in fields(value)}
        return replace(value, **changed)
    return value
