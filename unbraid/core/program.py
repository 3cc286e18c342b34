"""A format made ready to run: its markers resolved, for text or for one tokenizer, and its calls laid out as steps.

With a tokenizer, a marker that is one token of the vocabulary is that token and nothing else (law 6). Inside the parser
such a token is one character that no text can hold, a lone surrogate; so the same search finds markers of both kinds,
and the marker's text, spelled out in ordinary tokens, stays text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import cast

from . import calls, grammar
from .detokenizer import Detokenizer
from .element_arguments import element_rule
from .errors import InvalidFormat, MissingTokens, UnbraidError
from .headers import HeaderRule
from .markers import Marker, Markers, Role, split_whitespace
from .tagged import tag_rule
from .vocabulary import Vocabulary

_FIRST_STAND_IN = 0xD800
# What may be a token of its own. A word or a bracket is text, whatever tokens it comes in.
_tag = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]|\]<\]\w+\[>\[|｜[^｜<>\s]+｜|◁[^◁▷\s]+▷").match
_is_tag = re.compile(r"\w|[\ud800-\udfff]").search
"""Whether a literal is more than signs that JSON has too."""
CALLS = "calls"
"""The strand of calls; other ways to write them have a number after it."""


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
        if self.headers is not None:
            return self._message_after(prompt if not from_ids else self._spelled(prompt)), ""
        opened: list[str] = []
        trail: str | None = None

        def take(markers: tuple[Marker, ...]) -> bool:
            """Take one of the markers off the end of the prompt, if it is there."""
            nonlocal rest, trail
            for marker in markers:
                text = marker.key if from_ids else self._spelled(marker.key)
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
            prompt = self._spelled(Detokenizer(self.vocabulary).text(prompt[-64:], self.stand_ins))
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


def pieces(marker: str, is_token: Callable[[str], bool]) -> Iterator[tuple[str, bool]]:
    """A marker as what it is made of: the tags in it that are tokens, and the text between them. Says of each piece
    whether it is a token."""
    start = at = 0
    while at < len(marker):
        tag = _tag(marker, at)
        if tag is not None and is_token(tag.group()):
            if at > start:
                yield marker[start:at], False
            yield tag.group(), True
            start = at = tag.end()
        else:
            at += 1
    if at > start:
        yield marker[start:at], False


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


Pair = tuple[tuple[Marker, ...], tuple[Marker, ...]]
"""The markers that open something, and those that close it."""


def compile_format(format: grammar.Format, vocabulary: Vocabulary | None) -> Program:
    """Make `format` ready to run on text, or on the ids of one vocabulary. Done once for each pair."""
    if isinstance(vocabulary, Hashable):
        return _compiled(format, vocabulary)
    return _compile(format, vocabulary)


@lru_cache(maxsize=256)
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
        pairs: dict[str, Pair] = {}
        if format.reasoning is not None:
            pairs["reasoning"] = self._pair("reasoning", format.reasoning)
        if format.speech is not None:
            pairs["speech"] = self._pair("speech", grammar.Between(format.speech.open, format.speech.close))
        tools = {CALLS: format.tools} if format.tools is not None else {}
        tools |= {f"{CALLS} {number}": node for number, node in enumerate(format.other_tools, 1)}
        headers = format.headers
        if headers is not None and tools:
            # A header has shown already that calls come.
            tools = {CALLS: grammar.Calls("", headers.body, headers.ends[0], close_written=False)}
        steps = {strand: _StepBuilder(self, node) for strand, node in tools.items()}
        for strand, node in tools.items():
            opens = tuple(self._marker("open", strand, text) for text in (node.open, *node.also) if text)
            pairs[strand] = opens, (self._marker("close", strand, node.close),) if node.close else ()
        if headers is not None:
            # Whatever ends a message ends what it holds.
            for strand in set(pairs) & {"reasoning", CALLS}:
                pairs[strand] = (), tuple(self._marker("close", strand, text) for text in headers.ends)
            program.headers = self._headers(headers)
        keys = [open.key for opens, _ in pairs.values() for open in opens]
        if len(set(keys)) < len(keys):
            raise InvalidFormat(f"format {format.name!r}: one marker cannot open two things")
        self.ends = [Marker("end", "", key) for key in map(self._token, format.ends) if key is not None]
        program.ends = {token for token, key in program.stand_ins.items() if key in {end.key for end in self.ends}}
        for strand, node in tools.items():
            closers = pairs[strand][1]
            program.calls[strand] = CallsRule(
                strand=strand,
                steps=tuple(steps[strand].steps),
                close=closers[0] if closers else None,
                closers=Markers(closers),
                close_required=node.close_written,
                bare=node.bare,
                again=steps[strand].again,
            )
        self.inner = {
            strand: {calls.NEXT: [builder.first], calls.LAST: builder.lasts} for strand, builder in steps.items()
        }
        program.content = self._scope(("content",), pairs)

    def _scope(self, strands: tuple[str, ...], pairs: dict[str, Pair]) -> ScopeRule:
        """The scope of the last of `strands`, inside the others."""
        format = self.format
        openers = [open for name, (opens, _) in pairs.items() if name not in strands for open in opens]
        ends = list(self.ends)
        if self.program.headers is not None and format.headers is not None:
            ends += [Marker("header", "", key) for key in self._header_markers(self.program.headers)]
            if strands == ("content",):
                ends += [self._marker("end", "", text) for text in format.headers.ends]
        elif format.answer is not None:
            for open, close in ((format.answer.open, format.answer.close), *format.answer.also):
                ends.append(self._marker("answer", "", open))
                ends += [self._marker("end", "", close)] if strands == ("content",) else []
        if strands == ("content",):
            ends += [self._marker("end", "", text) for text in format.ignored]
        own = [close for name, (_, closes) in pairs.items() if name in strands for close in closes]
        admitted = [*ends, *openers, *own]
        known = {marker.key for marker in admitted}
        others = [close for name, (_, closes) in pairs.items() if name not in strands for close in closes]
        strays = [replace(close, lead="") for close in others if close.key not in known]
        # In the middle of a call a bracket is a bracket.
        stops = [marker for marker in admitted if not (marker.strand in self.program.calls and self._bare(marker))]
        opens, closes = pairs.get(strands[-1], ((), ()))
        inner = [name for name in pairs if name not in strands and name not in self.program.calls]
        return ScopeRule(
            strand=strands[-1],
            markers=Markers(admitted),
            calls_markers={
                name: Markers([*stops, *pairs[name][1], *self._inner_markers(name, [*stops, *pairs[name][1]])])
                for name in self.program.calls
            },
            strays=Markers(strays),
            all_markers=Markers([*admitted, *strays]),
            again=Markers(opens),
            opens=opens,
            closes=closes,
            # Speech may end with the output; reasoning should have been closed.
            close_required=strands[-1] == "reasoning",
            inner={name: self._scope((*strands, name), pairs) for name in inner},
        )

    def _headers(self, node: grammar.Headers) -> HeaderRule:
        opens = tuple(self.key(text) for text in node.opens)
        closes = tuple(self.key(text) for text in node.closes)
        patterns = (("calls", node.calls), ("reasoning", node.reasoning), ("content", node.content))
        return HeaderRule(
            opens,
            closes,
            tuple(self.key(text) for text in node.ends),
            Markers(self._marker("end", "", text) for text in node.ends),
            re.compile(node.inside),
            (*opens, *closes, *node.begins) if node.begins else (),
            [(strand, re.compile(pattern)) for strand, pattern in patterns],
        )

    def _header_markers(self, rule: HeaderRule) -> list[str]:
        return list(dict.fromkeys(key for key in (*rule.opens, *rule.closes) if key.strip()))

    def _bare(self, marker: Marker) -> bool:
        return marker.role == "open" and self.program.calls[marker.strand].bare

    def _inner_markers(self, strand: str, stops: list[Marker]) -> list[Marker]:
        """What calls in a list begin with, and end with, where nothing else looks like it."""
        found: dict[str, Marker] = {}
        for role, keys in self.inner[strand].items():
            for key in keys:
                taken = [*(marker.key for marker in stops), *found]
                if _is_tag(key) and not any(key in other or other in key for other in taken):
                    found[key] = Marker("end", role, key)
        return list(found.values())

    def _pair(self, strand: str, node: grammar.Between) -> Pair:
        spellings = ((node.open, node.close), *node.also)
        opens = tuple(self._marker("open", strand, text) for text in dict.fromkeys(open for open, _ in spellings))
        closes = tuple(self._marker("close", strand, text) for text in dict.fromkeys(close for _, close in spellings))
        return opens, closes

    def _marker(self, role: Role, strand: str, text: str) -> Marker:
        lead, key, trail = split_whitespace(text)
        return Marker(role, strand, self.key(key), lead, trail)

    def key(self, text: str) -> str:
        """What to look for to find `text`: the stand-in of its token, or the text itself, with stand-ins for the tags
        in it that are tokens."""
        if self.vocabulary is None:
            return text
        found = pieces(text, lambda tag: self._token(tag) is not None)
        return "".join((is_token and self._token(piece)) or piece for piece, is_token in found)

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
    """Lays the grammar of calls out as steps. Jumps are absolute, so the state of a call is one number."""

    def __init__(self, builder: _Builder, node: grammar.Calls) -> None:
        self._key = builder.key
        self._close = self._key(node.close.strip()) if node.close else ""
        """What closes the calls, as it is looked for."""
        self.steps: list[calls.Step] = []
        self.again = -1
        """The step that a further call in a list begins with,"""
        self.first = ""
        """and what it begins with."""
        self.lasts: list[str] = []
        """What a call ends with, after arguments that are JSON."""
        self._body(node.body)
        self.steps.append(calls.Close())

    def _body(self, body: grammar.CallsBody) -> None:
        if not isinstance(body, grammar.Either):
            self._calls(body)
            return
        branch = len(self.steps)
        self.steps.append(calls.Jump(0))
        self._body(body.second)
        leave = len(self.steps)
        self.steps.append(calls.Jump(0))
        self.steps[branch] = calls.Branch(tuple(map(self._key, body.opening.split())), len(self.steps))
        self._calls(body.first)
        self.steps[leave] = calls.Jump(len(self.steps))

    def _calls(self, node: grammar.Call | grammar.CallList) -> None:
        if isinstance(node, grammar.Call):
            self._call(node)
            return
        if node.open.strip():
            self.steps.append(calls.Literal(node.open.strip()))
        again = len(self.steps)
        self._call(node.call)
        first, separator, close = node.call.parts[0], node.separator.strip(), node.close.strip()
        begins = "{" if isinstance(first, grammar.JsonCall) else ""
        if isinstance(first, str):
            begins = self._key(first.strip())
        self.steps.append(calls.NextInList(separator, close, begins, again))
        if not separator and isinstance(first, str):
            self.again, self.first = again, begins

    def _call(self, node: grammar.Call) -> None:
        for part, following in zip(node.parts, (*node.parts[1:], ""), strict=True):
            literal = following.marker if isinstance(following, grammar.Maybe) else following
            words = grammar.Name | grammar.CallId | grammar.NameInId
            if isinstance(part, words) and isinstance(literal, str) and not literal[:1].isspace():
                calls.check_ends_word(literal)
            self._part(part, literal.strip() if isinstance(literal, str) else "")
        last = node.parts[-1]
        if isinstance(last, str) and grammar.Arguments() in node.parts:
            self.lasts.append(self._key(last.strip()))
        self.steps.append(calls.EndCall())

    def _after(self, following: str) -> list[str]:
        """What may come after the arguments, as it is looked for: what stands next, and what closes the calls."""
        return [key for key in (self._key(following), self._close) if key]

    def _part(self, part: grammar.CallPart, following: str = "") -> None:
        steps = self.steps
        if isinstance(part, str):
            if part.strip():
                steps.append(calls.Literal(self._key(part.strip())))
        elif isinstance(part, grammar.Name):
            steps.append(calls.ReadWord("name"))
        elif isinstance(part, grammar.CallId):
            steps.append(calls.ReadWord("id"))
        elif isinstance(part, grammar.NameInId):
            steps.append(calls.ReadNameInId("name", part))
        elif isinstance(part, grammar.Ordinal):
            steps.append(calls.ReadOrdinal("number"))
        elif isinstance(part, grammar.Arguments):
            steps.append(calls.ReadArguments(self._key(following) if following else ""))
        elif isinstance(part, grammar.TaggedArguments):
            steps.append(calls.ReadTagged(tag_rule(part, self._key, self._after(following))))
        elif isinstance(part, grammar.PythonArguments):
            steps.append(calls.ReadPython())
        elif isinstance(part, grammar.BareArguments):
            quotes = Markers([Marker("close", "", self._key(part.quote))])
            steps.append(calls.ReadBare(self._key(following) if following else "", quotes=quotes))
        elif isinstance(part, grammar.ElementArguments):
            steps.append(calls.ReadElements(element_rule(part, self._key, self._after(following))))
        elif isinstance(part, grammar.JsonCall):
            steps.append(calls.ReadJsonCall(part))
        else:
            at = len(steps)
            steps.append(calls.Jump(0))
            for inner in part.then:
                self._part(inner)
            steps[at] = calls.Literal(self._key(part.marker.strip()), otherwise=len(steps))
