"""A compiled format: its markers resolved, for text or for one tokenizer, and its calls laid out as steps.

`compiler.compile_format` makes it, once for each format and vocabulary. It never changes after that, so that all
parsers share it; only the texts of tokens are noted as they are met.

With a tokenizer, a marker that is one token of the vocabulary is that token and nothing else (law 6). In the buffer
such a token is one character that no text can hold, a lone surrogate: its placeholder. So one search finds markers of
both kinds, and the marker's text, spelled out in ordinary tokens, stays text.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .. import grammar
from ..machine.headers import HeaderRule
from ..machine.out_of_band import Code, CodeSearch
from ..machine.scopes import ScopeRule
from ..vocabulary import Vocabulary


@dataclass(slots=True, eq=False, repr=False)
class Program:
    format: grammar.Format
    vocabulary: Vocabulary | None
    content: ScopeRule = field(init=False)
    """The outermost scope. All others are reached from it."""
    headers: HeaderRule | None = None
    token_placeholders: dict[int, str] = field(default_factory=dict)
    """Token id to the character that stands for it."""
    spellings: dict[str, str] = field(default_factory=dict)
    """That character to the token's text."""
    ends: set[int] = field(default_factory=set)
    """The tokens that end the turn, whatever is open."""
    codes: dict[int, tuple[Code, str]] = field(default_factory=dict)
    """Token id to what stands out of band, and its text."""
    texts: dict[int, str] = field(default_factory=dict)
    """The text of tokens that are neither of these, and whole characters."""
    code_search: CodeSearch | None = None
    """How codes are found where there is only text."""

    def spelled(self, key: str) -> str:
        """A key as it is written: with the text of its tokens."""
        return "".join(self.spellings.get(char, char) for char in key) if self.spellings else key
