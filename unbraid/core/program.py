"""A format made ready to run: its markers resolved, for text or for one tokenizer, and its calls laid out as steps.

With a tokenizer, a marker that is one token of the vocabulary is that token and nothing else (law 6). Inside the parser
such a token is one character that no text can hold, a lone surrogate; so the same search finds markers of both kinds,
and the marker's text, spelled out in ordinary tokens, stays text.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import cast

from . import calls, grammar
from .errors import InvalidFormat, MissingTokens
from .markers import Marker, Markers, Role, split_whitespace
from .vocabulary import Vocabulary

_FIRST_STAND_IN = 0xD800


@dataclass(frozen=True, slots=True)
class ScopeRule:
    """A stretch of text in one strand, and the markers that end or interrupt it."""

    strand: str
    markers: Markers
    open: Marker | None
    close: Marker | None
    required: bool
    """Whether the text should not end without `close`."""


@dataclass(frozen=True, slots=True)
class CallsRule:
    """Where calls stand: the steps that read them."""

    steps: tuple[calls.Step, ...]
    markers: Markers
    close: Marker | None
    close_required: bool


@dataclass(slots=True)
class Program:
    format: grammar.Format
    vocabulary: Vocabulary | None
    scopes: dict[str, ScopeRule] = field(default_factory=dict)
    calls: CallsRule | None = None
    stand_ins: dict[int, str] = field(default_factory=dict)
    """Token id to the character that stands for it."""
    spellings: dict[str, str] = field(default_factory=dict)
    """That character to the token's text."""
    codes: dict[int, tuple[int | None, str]] = field(default_factory=dict)
    """Token id to audio code (None for padding) and text."""
    code_search: CodeSearch | None = None
    """How codes are found where there is only text."""

    def scopes_open_after(self, prompt: str, *, from_ids: bool) -> list[ScopeRule]:
        """The scopes that a prompt leaves open, outermost first, by what it ends with."""
        opened: list[ScopeRule] = []
        rest = prompt.rstrip()
        while True:
            for scope in self.scopes.values():
                if scope.open is not None and scope not in opened:
                    key = scope.open.key
                    text = key if from_ids else self.spellings.get(key, key)
                    if rest.endswith(text):
                        opened.insert(0, scope)
                        rest = rest[: -len(text)].rstrip()
                        break
            else:
                return opened


class CodeSearch:
    """Audio codes in text: `<audio_17>`."""

    __slots__ = ("_codes", "find", "find_partial")

    def __init__(self, speech: grammar.Speech) -> None:
        before, after = map(re.escape, speech.code.split("{}"))
        self._codes = {speech.code.format(n): n for n in range(speech.codes)} | dict.fromkeys(speech.padding)
        padding = "".join(f"|{re.escape(p)}" for p in speech.padding)
        digits = len(str(speech.codes))
        self.find = re.compile(f"{before}[0-9]{{1,{digits}}}{after}{padding}").search
        head, tail = speech.code.split("{}")
        started = f"{before}[0-9]{{1,{digits}}}(?:{_prefixes(tail[:-1])})?"
        self.find_partial = re.compile(rf"(?:{started}|{_prefixes(head, *speech.padding)})\Z").search
        """The beginning of a code at the end of the text."""

    def code(self, text: str) -> tuple[bool, int | None]:
        """Whether `text` is a code at all, and which one; None for padding."""
        return text in self._codes, self._codes.get(text)


def _prefixes(*texts: str) -> str:
    found = sorted({text[:n] for text in texts for n in range(1, len(text) + 1)}, key=len, reverse=True)
    return "|".join(map(re.escape, found)) or "(?!)"


def compile_format(format: grammar.Format, vocabulary: Vocabulary | None) -> Program:
    """Make `format` ready to run on text, or on the ids of one vocabulary. Done once for each pair."""
    return _compiled(format, cast(Hashable, vocabulary))


@lru_cache(maxsize=128)
def _compiled(format: grammar.Format, vocabulary: Hashable) -> Program:
    program = Program(format, cast(Vocabulary | None, vocabulary))
    _Builder(program).build()
    return program


class _Builder:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.format = program.format
        self.vocabulary = program.vocabulary

    def build(self) -> None:
        format, program = self.format, self.program
        if format.speech is not None:
            self._speech_tokens(format.speech)
        pairs: dict[str, tuple[Marker, Marker | None]] = {}
        if format.reasoning is not None:
            pairs["reasoning"] = self._pair("reasoning", format.reasoning.open, format.reasoning.close)
        if format.speech is not None:
            pairs["speech"] = self._pair("speech", format.speech.open, format.speech.close)
        if format.tools is not None:
            pairs["calls"] = self._pair("calls", format.tools.open, format.tools.close)
        closers = [close for _, close in pairs.values() if close is not None]
        ends = [Marker("end", "", key) for key in map(self._token, format.ends) if key is not None]

        # A scope admits every opener but its own, and knows every closer: its own, those of the scopes around it, and
        # those that close nothing.
        def markers_in(strand: str) -> Markers:
            return Markers([open for name, (open, _) in pairs.items() if name != strand] + closers + ends)

        program.scopes["content"] = ScopeRule("content", markers_in("content"), None, None, required=False)
        for strand, (open, close) in pairs.items():
            if strand != "calls":
                # Speech may end with the output; reasoning should have been closed.
                required = strand == "reasoning"
                program.scopes[strand] = ScopeRule(strand, markers_in(strand), open, close, required)
        if format.tools is not None:
            everything = Markers([open for open, _ in pairs.values()] + closers + ends)
            steps = tuple(_StepBuilder(self).body(format.tools))
            program.calls = CallsRule(steps, everything, pairs["calls"][1], format.tools.close_written)

    def _pair(self, strand: str, open: str, close: str) -> tuple[Marker, Marker | None]:
        return self._marker("open", strand, open), self._marker("close", strand, close) if close else None

    def _marker(self, role: Role, strand: str, text: str) -> Marker:
        lead, key, trail = split_whitespace(text)
        return Marker(role, strand, self.key(key), lead, trail)

    def key(self, text: str) -> str:
        """What to look for to find `text`: the stand-in of its token, or the text itself."""
        return self._token(text) or text

    def _token(self, text: str) -> str | None:
        token = None if self.vocabulary is None else self.vocabulary.token_id(text)
        if token is None:
            return None
        program = self.program
        if token not in program.stand_ins:
            stand_in = chr(_FIRST_STAND_IN + len(program.stand_ins))
            program.stand_ins[token] = stand_in
            program.spellings[stand_in] = text
        return program.stand_ins[token]

    def _speech_tokens(self, speech: grammar.Speech) -> None:
        if speech.code.count("{}") != 1:
            raise InvalidFormat(f"the spelling of an audio code needs one '{{}}' for its number: {speech.code!r}")
        program = self.program
        if self.vocabulary is None:
            program.code_search = CodeSearch(speech)
            return
        missing = [text for text in (speech.open.strip(), speech.close.strip()) if self._token(text) is None]
        spelled: list[tuple[int | None, str]] = [(n, speech.code.format(n)) for n in range(speech.codes)]
        # Padding comes last, for a table that gives a padding token an id inside the range of the codes.
        for code, text in [*spelled, *((None, text) for text in speech.padding)]:
            token = self.vocabulary.token_id(text)
            if token is not None:
                program.codes[token] = (code, text)
        if all(code is None for code, _ in program.codes.values()):
            missing.append(speech.code.format(0))
        if missing:
            raise MissingTokens(
                f"format {self.format.name!r} needs tokens that this tokenizer does not have: {', '.join(missing)}. "
                "Use the tokenizer of the model, or parse text without a tokenizer."
            )


class _StepBuilder:
    """Lays the grammar of calls out as steps. Jumps are absolute, so the state of a call is one number."""

    def __init__(self, builder: _Builder) -> None:
        self._key = builder.key
        self._steps: list[calls.Step] = []

    def body(self, node: grammar.Calls) -> list[calls.Step]:
        body = node.body
        if isinstance(body, grammar.Either):
            self._steps.append(calls.Branch(self._key(body.opening), 0))
            self._calls(body.second)
            leave = len(self._steps)
            self._steps.append(calls.Jump(0))
            self._steps[0] = calls.Branch(self._key(body.opening), len(self._steps))
            self._calls(body.first)
            self._steps[leave] = calls.Jump(len(self._steps))
        else:
            self._calls(body)
        self._steps.append(calls.Close())
        return self._steps

    def _calls(self, node: grammar.Call | grammar.CallList) -> None:
        if isinstance(node, grammar.Call):
            self._call(node)
            return
        self._steps.append(calls.Literal(self._key(node.open)))
        again = len(self._steps)
        self._call(node.call)
        self._steps.append(calls.NextInList(self._key(node.separator), self._key(node.close), again))

    def _call(self, node: grammar.Call) -> None:
        for part in node.parts:
            self._part(part)
        self._steps.append(calls.EndCall())

    def _part(self, part: grammar.CallPart) -> None:
        steps = self._steps
        if isinstance(part, str):
            if part.strip():
                steps.append(calls.Literal(self._key(part.strip())))
        elif isinstance(part, grammar.Name):
            steps.append(calls.ReadWord("name"))
        elif isinstance(part, grammar.CallId):
            steps.append(calls.ReadWord("id"))
        elif isinstance(part, grammar.Arguments):
            steps.append(calls.ReadArguments())
        elif isinstance(part, grammar.JsonCall):
            steps.append(calls.ReadJsonCall(part))
        else:
            at = len(steps)
            steps.append(calls.Jump(0))
            for inner in part.then:
                self._part(inner)
            steps[at] = calls.Literal(self._key(part.marker.strip()), otherwise=len(steps))
