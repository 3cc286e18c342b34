"""A format made ready to run: its markers resolved, for text or for one tokenizer, and its calls laid out as steps.

With a tokenizer, a marker that is one token of the vocabulary is that token and nothing else (law 6). Inside the parser
such a token is one character that no text can hold, a lone surrogate; so the same search finds markers of both kinds,
and the marker's text, spelled out in ordinary tokens, stays text.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import cast

from . import calls, grammar
from .detokenizer import Detokenizer
from .errors import InvalidFormat, MissingTokens, UnbraidError
from .markers import Marker, Markers, Role, split_whitespace
from .tagged import tag_rule
from .vocabulary import Vocabulary

_FIRST_STAND_IN = 0xD800


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
    calls_markers: Markers
    """The markers that a call in this scope stops at: its own closer too."""
    strays: Markers
    all_markers: Markers
    """All of these."""
    again: Markers
    """Its own opener alone."""
    open: Marker | None
    close: Marker | None
    close_required: bool
    """Whether the output should not end without `close`."""
    inner: dict[str, ScopeRule]
    """The scopes that can open in this one."""


@dataclass(frozen=True, slots=True, eq=False)
class CallsRule:
    """Where calls stand: the steps that read them."""

    steps: tuple[calls.Step, ...]
    close: Marker | None
    closers: Markers
    """`close` alone."""
    close_required: bool


@dataclass(slots=True, eq=False)
class Program:
    format: grammar.Format
    vocabulary: Vocabulary | None
    content: ScopeRule = field(init=False)
    calls: CallsRule | None = None
    stand_ins: dict[int, str] = field(default_factory=dict)
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
        """The strands that a prompt leaves open, outermost first, by the markers that it ends with; and the whitespace
        of the last marker that the prompt has not written, and the output may."""
        from_ids = not isinstance(prompt, str)
        if not isinstance(prompt, str):
            if self.vocabulary is None:
                raise UnbraidError("a prompt of token ids needs a tokenizer: give tokenizer=…, or the prompt as text")
            # The markers at its end are all that matters; none has more tokens than this.
            prompt = Detokenizer(self.vocabulary).text(prompt[-64:], self.stand_ins)
        rest = prompt.rstrip()
        written = prompt[len(rest) :]
        opened: list[str] = []
        trail: str | None = None

        def take(marker: Marker | None) -> bool:
            """Take the marker off the end of the prompt, if it is there."""
            nonlocal rest, trail
            key = "" if marker is None else marker.key
            text = key if from_ids else self.spellings.get(key, key)
            if marker is None or not rest.endswith(text):
                return False
            if trail is None:
                trail = marker.trail[len(written) :] if marker.trail.startswith(written) else ""
            rest = rest[: -len(text)].rstrip()
            return True

        going_on = True
        while going_on:
            going_on = False
            for strand, scope in self.content.inner.items():
                if not opened and take(scope.close):
                    # Only a section that was opened and closed at once lets us see what stands before it.
                    going_on = take(scope.open)
                    break
                if strand not in opened and take(scope.open):
                    opened.insert(0, strand)
                    going_on = True
                    break
        return opened, trail or ""


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


def compile_format(format: grammar.Format, vocabulary: Vocabulary | None) -> Program:
    """Make `format` ready to run on text, or on the ids of one vocabulary. Done once for each pair."""
    if isinstance(vocabulary, Hashable):
        return _compiled(format, vocabulary)
    return _compile(format, vocabulary)


@lru_cache(maxsize=64)
def _compiled(format: grammar.Format, vocabulary: Hashable) -> Program:
    return _compile(format, cast(Vocabulary | None, vocabulary))


def _compile(format: grammar.Format, vocabulary: Vocabulary | None) -> Program:
    program = Program(format, vocabulary)
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
        if format.transcript is not None:
            self._transcript_tokens(format.transcript)
        pairs: dict[str, tuple[Marker, Marker | None]] = {}
        if format.reasoning is not None:
            pairs["reasoning"] = self._pair("reasoning", format.reasoning.open, format.reasoning.close)
        if format.speech is not None:
            pairs["speech"] = self._pair("speech", format.speech.open, format.speech.close)
        if format.tools is not None:
            pairs["calls"] = self._pair("calls", format.tools.open, format.tools.close)
        keys = [open.key for open, _ in pairs.values()]
        if len(set(keys)) < len(keys):
            raise InvalidFormat(f"format {format.name!r}: one marker cannot open two things")
        ends = [Marker("end", "", key) for key in map(self._token, format.ends) if key is not None]
        program.ends = {token for token, key in program.stand_ins.items() if key in {marker.key for marker in ends}}
        program.content = self._scope(("content",), pairs, ends)
        if format.tools is not None:
            steps = tuple(_StepBuilder(self).body(format.tools))
            close = pairs["calls"][1]
            closers = Markers([] if close is None else [close])
            program.calls = CallsRule(steps, close, closers, format.tools.close_written)

    def _scope(
        self, strands: tuple[str, ...], pairs: dict[str, tuple[Marker, Marker | None]], ends: list[Marker]
    ) -> ScopeRule:
        """The scope of the last of `strands`, inside the others."""
        admitted = ends + [open for name, (open, _) in pairs.items() if name not in strands]
        closers = {name: close for name, (_, close) in pairs.items() if close is not None}
        admitted += [close for name, close in closers.items() if name in strands]
        strays = [replace(close, lead="") for name, close in closers.items() if name not in strands]
        open, close = pairs.get(strands[-1], (None, None))
        inner = [name for name in pairs if name not in strands and name != "calls"]
        return ScopeRule(
            strand=strands[-1],
            markers=Markers(admitted),
            calls_markers=Markers([*admitted, *(close for name, close in closers.items() if name == "calls")]),
            strays=Markers(strays),
            all_markers=Markers([*admitted, *strays]),
            again=Markers([open] if open is not None else []),
            open=open,
            close=close,
            # Speech may end with the output; reasoning should have been closed.
            close_required=strands[-1] == "reasoning",
            inner={name: self._scope((*strands, name), pairs, ends) for name in inner},
        )

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
            codes: dict[str, Code] = {speech.code.format(n): n for n in range(speech.codes)}
            before, after = map(re.escape, speech.code.split("{}"))
            padding = "".join(f"|{re.escape(text)}" for text in speech.padding)
            pattern = f"{before}[0-9]{{1,{len(str(speech.codes))}}}{after}{padding}"
            program.code_search = CodeSearch(codes | dict.fromkeys(speech.padding), pattern, everywhere=False)
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

    def _transcript_tokens(self, transcript: grammar.Transcript) -> None:
        if self.format.speech is not None:
            raise InvalidFormat(f"format {self.format.name!r}: a transcript has no speech of its own")
        program, tag = self.program, transcript.tag.format
        tags: dict[str, Code] = {tag(code): code for code in transcript.languages}
        tags |= {tag(text): None for text in (*transcript.tasks, transcript.timeless, *transcript.ignored)}
        times = {transcript.time(number): round(number * transcript.step, 2) for number in range(transcript.times)}
        if self.vocabulary is None:
            before, after = map(re.escape, transcript.tag.split("{}"))
            pattern = f"{before}[0-9a-z.]{{2,{max(map(len, tags))}}}{after}"
            program.code_search = CodeSearch({**tags, **times}, pattern, everywhere=True)
            return
        for text, code in tags.items():
            token = self.vocabulary.token_id(text)
            if token is not None:
                program.codes[token] = (code, text)
        timeless = self.vocabulary.token_id(tag(transcript.timeless))
        if timeless is None:
            raise MissingTokens(
                f"format {self.format.name!r} needs the token {tag(transcript.timeless)}, and this tokenizer has none. "
                "Use the tokenizer of the model, or parse text without a tokenizer."
            )
        for number, (text, seconds) in enumerate(times.items()):
            program.codes[timeless + 1 + number] = (seconds, text)


class _StepBuilder:
    """Lays the grammar of calls out as steps. Jumps are absolute, so the state of a call is one number.

    Only markers can be tokens: a bracket or a word is text, whatever tokens it comes in.
    """

    def __init__(self, builder: _Builder) -> None:
        self._key = builder.key
        self._steps: list[calls.Step] = []
        self._close = ""
        """What closes the calls, as it is looked for."""

    def body(self, node: grammar.Calls) -> list[calls.Step]:
        body = node.body
        self._close = self._key(node.close.strip()) if node.close else ""
        if isinstance(body, grammar.Either):
            self._steps.append(calls.Branch(body.opening, 0))
            self._calls(body.second)
            leave = len(self._steps)
            self._steps.append(calls.Jump(0))
            self._steps[0] = calls.Branch(body.opening, len(self._steps))
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
        self._steps.append(calls.Literal(node.open.strip()))
        again = len(self._steps)
        self._call(node.call)
        self._steps.append(calls.NextInList(node.separator.strip(), node.close.strip(), again))

    def _call(self, node: grammar.Call) -> None:
        for part, following in zip(node.parts, (*node.parts[1:], ""), strict=True):
            literal = following.marker if isinstance(following, grammar.Maybe) else following
            if isinstance(part, grammar.Name | grammar.CallId) and isinstance(literal, str):
                calls.check_ends_word(literal)
            self._part(part, literal.strip() if isinstance(literal, str) else "")
        self._steps.append(calls.EndCall())

    def _part(self, part: grammar.CallPart, following: str = "") -> None:
        steps = self._steps
        if isinstance(part, str):
            if part.strip():
                steps.append(calls.Literal(part.strip()))
        elif isinstance(part, grammar.Name):
            steps.append(calls.ReadWord("name"))
        elif isinstance(part, grammar.CallId):
            steps.append(calls.ReadWord("id"))
        elif isinstance(part, grammar.Arguments):
            steps.append(calls.ReadArguments())
        elif isinstance(part, grammar.TaggedArguments):
            steps.append(
                calls.ReadTagged(tag_rule(part, self._key, [text for text in (following, self._close) if text]))
            )
        elif isinstance(part, grammar.PythonArguments):
            steps.append(calls.ReadPython())
        elif isinstance(part, grammar.JsonCall):
            steps.append(calls.ReadJsonCall(part))
        else:
            at = len(steps)
            steps.append(calls.Jump(0))
            for inner in part.then:
                self._part(inner)
            steps[at] = calls.Literal(self._key(part.marker.strip()), otherwise=len(steps))
