"""A format made ready to run: its markers resolved, for text or for one tokenizer, and its calls laid out as steps.
`compiler` makes it.

With a tokenizer, a marker that is one token of the vocabulary is that token and nothing else (law 6). Inside the parser
such a token is one character that no text can hold, a lone surrogate; so the same search finds markers of both kinds,
and the marker's text, spelled out in ordinary tokens, stays text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...errors import UnbraidError
from .. import grammar
from ..vocabulary import Vocabulary
from . import calls
from .detokenizer import Detokenizer
from .headers import HeaderRule
from .markers import Marker, Markers

_MARKER_TOKENS = 64
"""No markers at the end of a prompt, and no header, have more tokens than this."""
Code = int | str | float | None
"""What stands out of band: an audio code, a language, a time, or None for what means nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class ScopeRule:
    """A stretch of text in one strand, inside certain others, and the markers that mean something there.

    Admitted are the openers of what is not open yet and the closers of what is. The other closers close nothing: they
    are text, and only watched for.
    """

    strand: str
    markers: Markers
    calls_markers: dict[str, Markers]
    """The markers that a call in this scope stops at, by the calls' strand: its own closers too."""
    strays: Markers
    all_markers: Markers
    """All of these."""
    again: Markers
    """Its own openers alone."""
    opens: tuple[Marker, ...]
    closes: tuple[Marker, ...]
    close_required: bool
    """Whether the output should not end without `close`."""
    inner: dict[str, ScopeRule]
    """The scopes that can open in this one."""


@dataclass(frozen=True, slots=True, eq=False)
class CallsRule:
    """Where calls stand: the steps that read them."""

    strand: str
    steps: tuple[calls.Step, ...]
    close: Marker | None
    closers: Markers
    """`close` alone."""
    close_required: bool
    bare: bool
    again: int
    """The step that a further call of a list begins with, where it can be told by what it begins with; otherwise -1."""


@dataclass(slots=True, eq=False)
class Program:
    format: grammar.Format
    vocabulary: Vocabulary | None
    content: ScopeRule = field(init=False)
    calls: dict[str, CallsRule] = field(default_factory=dict)
    """By their strands."""
    headers: HeaderRule | None = None
    token_placeholders: dict[int, str] = field(default_factory=dict)
    """Token id to the character that stands for it."""
    spellings: dict[str, str] = field(default_factory=dict)
    """That character to the token's text."""
    ends: set[int] = field(default_factory=set)
    """The tokens that end the turn, whatever is open."""
    codes: dict[int, tuple[Code, str]] = field(default_factory=dict)
    """Token id to what stands out of band, and its text."""
    code_search: CodeSearch | None = None
    """How codes are found where there is only text."""

    def open_after(self, prompt: str | Sequence[int]) -> tuple[list[str], str]:
        """The strands that a prompt leaves open, outermost first; and the whitespace of its last marker that the prompt
        has not written, and the output may. Tokens also show that it breaks off in the middle of a strand; text does
        not, for a user may have written it."""
        opened, trail = self.opened_at_end(prompt)
        return opened if opened or isinstance(prompt, str) else self._inside(prompt), trail

    def opened_at_end(self, prompt: str | Sequence[int]) -> tuple[list[str], str]:
        """The same, by nothing but the markers that the prompt ends with."""
        ids: Sequence[int] = ()
        if not isinstance(prompt, str):
            if self.vocabulary is None:
                raise UnbraidError("a prompt of token ids needs a tokenizer: give tokenizer=…, or the prompt as text")
            ids = prompt
            prompt = Detokenizer(self.vocabulary).text(self._end_of(ids), self.token_placeholders)
        rest = prompt.rstrip()
        written = prompt[len(rest) :]
        if self.headers is not None:
            return self._message_after(self._spelled(prompt)), ""
        opened: list[str] = []
        trail: str | None = None

        def take(markers: tuple[Marker, ...]) -> bool:
            """Take one of the markers off the end of the prompt, if it is there."""
            nonlocal rest, trail
            for marker in markers:
                text = marker.key if ids else self._spelled(marker.key)
                if rest.endswith(text):
                    if trail is None:
                        trail = marker.trail[len(written) :] if marker.trail.startswith(written) else ""
                    rest = rest[: -len(text)].rstrip()
                    return True
            return False

        going_on = True
        while going_on:
            going_on = False
            for strand, scope in self.content.inner.items():
                if not opened and take(scope.closes):
                    # Only a section that was opened and closed at once lets us see what stands before it.
                    going_on = take(scope.opens)
                    break
                if strand not in opened and take(scope.opens):
                    opened.insert(0, strand)
                    going_on = True
                    break
        return opened, trail or ""

    def _end_of(self, prompt: Sequence[int]) -> Sequence[int]:
        """The tokens that matter, at the end of a prompt: its last markers, or all from its last header on."""
        begin = len(prompt)
        if self.headers is not None:
            opens = {key[0] for key in self.headers.opens}
            begin = next(
                (at for at in range(begin, 0, -1) if self.token_placeholders.get(prompt[at - 1]) in opens), begin
            )
        return prompt[max(begin - _MARKER_TOKENS, 0) :]

    def _inside(self, prompt: Sequence[int]) -> list[str]:
        """The strands that a prompt has opened with tokens, in the turn that it has begun, and not closed."""
        if self.headers is not None:
            return []  # the header of the last message has told it
        turn = next((at for at in range(len(prompt), 0, -1) if prompt[at - 1] in self.ends), 0)
        opened: list[str] = []
        for char in map(self.token_placeholders.get, prompt[turn:]):
            for strand, scope in self.content.inner.items() if char else ():
                if strand not in opened and any(marker.key == char for marker in scope.opens):
                    opened.append(strand)
                elif strand in opened and any(marker.key == char for marker in scope.closes):
                    del opened[opened.index(strand) :]
        return opened

    def _message_after(self, prompt: str) -> list[str]:
        """The strand of the message that a prompt has begun, and not ended."""
        rule = self.headers
        assert rule is not None
        opens, closes = ([self._spelled(key) for key in keys] for keys in (rule.opens, rule.closes))
        end = max(prompt.rfind(close) + len(close) if close in prompt else -1 for close in closes)
        begin = max(prompt.rfind(open, 0, max(end, 0)) for open in opens)
        if begin < 0 or any(self._spelled(end) in prompt[begin:] for end in rule.ends):
            return []
        return [strand for strand in [rule.strand(prompt[begin:end])[0]] if strand in self.content.inner]

    def header_after(self, prompt: str | Sequence[int]) -> str:
        """What a prompt has written of a header that it has not finished."""
        if self.headers is None:
            return ""
        if not isinstance(prompt, str):
            if self.vocabulary is None:
                raise UnbraidError("a prompt of token ids needs a tokenizer: give tokenizer=…, or the prompt as text")
            prompt = self._spelled(Detokenizer(self.vocabulary).text(prompt[-_MARKER_TOKENS:], self.token_placeholders))
        opens, closes = ([self._spelled(key) for key in keys] for keys in (self.headers.opens, self.headers.closes))
        begin = max(prompt.rfind(open) for open in opens)
        # The first of several that open one header: `<|start|>` comes before `<|channel|>`.
        for open in opens:
            at = prompt.rfind(open)
            if 0 <= at < begin and not any(close in prompt[at:begin] for close in closes):
                begin = at
        return "" if begin < 0 or any(close in prompt[begin:] for close in closes) else prompt[begin:]

    def _spelled(self, key: str) -> str:
        return "".join(self.spellings.get(char, char) for char in key)


class CodeSearch:
    """What stands out of band, in text: `<audio_17>`, `<|de|>`."""

    __slots__ = ("_codes", "_prefixes", "_starts", "everywhere", "find")

    def __init__(self, codes: Mapping[str, Code], pattern: str, everywhere: bool) -> None:
        self._codes = codes
        self._prefixes = {text[:n] for text in codes for n in range(1, len(text))}
        self._starts = {text[0] for text in codes}
        self.everywhere = everywhere
        """Not only in speech."""
        self.find = re.compile(pattern).search
        """What looks like a code; `code` says whether it is one."""

    def code(self, text: str) -> tuple[bool, Code]:
        """Whether `text` is a code at all, and which one."""
        return text in self._codes, self._codes.get(text)

    def unfinished(self, text: str, start: int) -> int:
        """Where a code begins that `text` ends inside of; the end of the text if there is none."""
        begin = max(text.rfind(char, start) for char in self._starts)
        return begin if begin >= 0 and text[begin:] in self._prefixes else len(text)
