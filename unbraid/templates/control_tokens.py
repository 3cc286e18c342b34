"""Control tokens in a prompt: those that the template writes count, those that a message spells do not.

A message may contain the ten characters `<|im_end|>`. Encoded carelessly, they become the token that ends a turn, and
whoever wrote the message has forged one. So every control token in the template's own text gets a mark: the character
`MARK` before it. `MARK` is a lone surrogate. Client input is cleared of surrogates (`sanitize`), so no mark can come
from a message, and the rendered text itself says which `<|im_end|>` is a token. That holds even where a template puts a
token's text together from a message and a word of its own.

The marks travel with the text: the sandbox compares text without them (`sandbox.cost_checks`), the encoders turn
marked text into ids (`prompt.encoders`), and `unmark` removes them from what users see.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

from ..core.vocabulary import Vocabulary

MARK = "\udc00"
"""Stands before a control token that the template wrote."""
END = "\udc01"
"""Stands where the content ends of a message that the model is to continue."""
BREAK = "\udc02"
"""Stands inside a text that must not be read as a control token, where the template builds tokens from pieces."""
T = TypeVar("T")
_HTML = frozenset(
    {
        *("table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td", "h1", "h2", "h3", "h4", "h5", "h6"),
        *("blockquote", "strong", "em", "b", "i", "u", "sub", "sup", "code"),
    }
)
_TAG = re.compile(r"</?(\w+)>")
_surrogates = re.compile("[\ud800-\udfff]").sub
_SCALARS = (bool, int, float)
_LISTS = (list, tuple)


def is_control(text: str, special: bool) -> bool:
    """Whether an added token is a control token and not just text. Some tokenizers (Gemma's, GPT-NeoX's) list runs of
    spaces and HTML tags as added tokens, only so that they are never split."""
    tag = _TAG.fullmatch(text)
    return len(text.strip(" \t\n\r\u2581")) > 1 and (special or tag is None or tag[1] not in _HTML)


# A regular expression for thousands of literal texts. Python's `re` tries the branches of `a|b|c` one by one, which is
# too slow for the 6,562 audio tokens of a vocabulary. In a trie, texts share their beginnings, so at each place only
# one branch is left to try.


@dataclass(slots=True)
class _Node:
    end: bool
    children: dict[str, _Node]


def trie_pattern(texts: Iterable[str]) -> str:
    """A pattern that matches the longest of `texts` at a place; one that matches nothing if there are none."""
    root = _Node(False, {})
    for text in texts:
        node = root
        for character in text:
            node = node.children.setdefault(character, _Node(False, {}))
        node.end = True
    return _written(root) or "(?!)"


def _written(node: _Node) -> str:
    branches = []
    for character, child in node.children.items():
        text = re.escape(character)
        while len(child.children) == 1 and not child.end:
            ((character, child),) = child.children.items()
            text += re.escape(character)
        branches.append(text + _written(child))
    if not branches:
        return ""
    inner = branches[0] if len(branches) == 1 and not node.end else f"(?:{'|'.join(branches)})"
    return f"{inner}?" if node.end else inner


class ControlTokens:
    """The control tokens of a vocabulary, and how to find them in text."""

    def __init__(self, ids: dict[str, int]) -> None:
        self.ids = ids
        pattern = trie_pattern(ids)
        self._find = re.compile(pattern)
        self._begins = self._find.match
        self._anywhere = re.compile(f"(?={pattern})")
        self._marked = re.compile(f"{MARK}?{pattern}|{MARK}")

    def __len__(self) -> int:
        return len(self.ids)

    def mark(self, text: str) -> str:
        """Text of ours or of the template, with a mark before each of its control tokens."""
        return self._find.sub(rf"{MARK}\g<0>", text) if self.ids else text

    def split(self, text: str) -> Iterator[tuple[str, bool]]:
        """The segments of a rendered text, none of them empty, each with whether it is a control token."""
        first, *rest = text.split(MARK) if self.ids else (text,)
        if first:
            yield first, False
        for part in rest:
            token = self._begins(part)
            if token is not None:
                yield token[0], True
                part = part[token.end() :]
            if part:
                yield part, False

    def spells(self, text: str) -> bool:
        """Whether plain text spells a control token."""
        return bool(self.ids) and self._find.search(text) is not None

    def positions(self, text: str) -> Iterator[int]:
        """The positions at which plain text spells control tokens; they may overlap."""
        return (match.start() for match in self._anywhere.finditer(text)) if self.ids else iter(())

    def mark_all(self, text: str) -> str:
        """A text in which every control token is marked, also those that are not yet."""
        return self._marked.sub(lambda match: MARK + match[0].removeprefix(MARK), text) if self.ids else text

    def break_up(self, value: Any) -> Any:
        """JSON whose strings spell no control token: a `BREAK` stands after the first character of each."""
        if isinstance(value, str):
            return self._break_text(value)
        if isinstance(value, dict):
            return {self.break_up(key): self.break_up(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.break_up(item) for item in value]
        return value

    def _break_text(self, text: str) -> str:
        pieces, begin = [], 0
        for at in self.positions(text):
            pieces.append(text[begin : at + 1])
            begin = at + 1
        return BREAK.join([*pieces, text[begin:]])

    def unmarked(self, text: str) -> set[str]:
        """The control tokens that a rendered text spells without a mark."""
        return (
            {match[0] for match in self._marked.finditer(text) if not match[0].startswith(MARK)} if self.ids else set()
        )


NO_CONTROL_TOKENS = ControlTokens({})


def control_tokens_of(vocabulary: Vocabulary) -> ControlTokens:
    """The control tokens among the special tokens of a vocabulary; none if it does not know its special tokens."""
    ids: dict[str, int] = {}
    for token in sorted(getattr(vocabulary, "special", ())):
        spelled = vocabulary.token_bytes(token)
        text = spelled.decode("utf-8", "replace") if spelled else ""
        if is_control(text, special=False):
            ids.setdefault(text, token)
    return ControlTokens(ids)


def unmark(text: str) -> str:
    """A rendered text without marks."""
    return text.replace(MARK, "").replace(BREAK, "")


def mark_grammar(value: T, controls: ControlTokens) -> T:
    """A grammar (any value of `core.grammar`) with its control tokens marked, so that `render` writes them marked."""
    if isinstance(value, str):
        return controls.mark(value)  # type: ignore[return-value]
    if isinstance(value, tuple):
        return tuple(mark_grammar(item, controls) for item in value)  # type: ignore[return-value]
    if is_dataclass(value) and not isinstance(value, type):
        changed = {each.name: mark_grammar(getattr(value, each.name), controls) for each in fields(value)}
        return replace(value, **changed)
    return value


def sanitize_text(text: str) -> str:
    """The text with U+FFFD in the place of each lone surrogate."""
    return text if text.isascii() else _surrogates("\ufffd", text)


def sanitize(value: Any) -> Any:
    """JSON with every string sanitised. An object of another type becomes a text that names the type."""
    if type(value) is str:
        return value if value.isascii() else sanitize_text(value)
    if isinstance(value, str):
        return sanitize_text(str(value))
    if value is None or isinstance(value, _SCALARS):
        return value
    if isinstance(value, dict):
        return {sanitize(key): sanitize(item) for key, item in value.items()}
    if isinstance(value, _LISTS):
        return [sanitize(item) for item in value]
    return f"<{type(value).__name__}>"
