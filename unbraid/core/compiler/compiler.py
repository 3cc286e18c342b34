"""Compiles a format to the program that reads it (`compile_format`).

Markers become search patterns, calls become steps (`calls.py`), and each scope gets the markers that mean something in
it: the openers of what is not open yet and the closers of what is.

With a tokenizer, a marker that is one token of the vocabulary is that token and nothing else: law 6
(docs/laws.md#law-6). In the buffer such a token is one character that no text can hold, a lone surrogate: its
placeholder. So one search finds markers of both kinds, and the marker's text, spelled out in ordinary tokens, stays
text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace

from ...caching import LruCache
from ...errors import InvalidFormat, MissingTokens
from .. import grammar
from ..fast_import import lazily
from ..machine.calls import LAST, NEXT, CallsRule, Waits
from ..machine.headers import HeaderRule
from ..machine.markers import (
    HEADER_END,
    Counts,
    Marker,
    Markers,
    Role,
    find_token,
    is_control,
    marked_parts,
    split_whitespace,
)
from ..machine.out_of_band import SILENCE, Code, CodeSearch
from ..machine.scopes import CITED, CitationRule, ScopeRule
from ..vocabulary import Vocabulary
from .calls import CallSteps


@dataclass(slots=True, eq=False, repr=False)
class Program:
    """A compiled format, for text or for one vocabulary. It is made once and shared by all parsers. It never changes
    after that, save that the texts of tokens are added as they come, and their pieces."""

    format: grammar.Format
    vocabulary: Vocabulary | None
    content: ScopeRule = field(init=False)
    """The outermost scope. All others are reached from it."""
    headers: HeaderRule | None = None
    inner_tags: dict[str, str] = field(default_factory=dict)
    """Tags inside of calls that no prose has: `<｜tool▁sep｜>`. As they are looked for, and as they are written."""
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
    pieces: dict[int, str] = field(default_factory=dict)
    """The same, and the placeholders of the tokens that do not end the turn: what has come of these."""
    code_search: CodeSearch | None = None
    """How codes are found where there is only text."""

    def spelled(self, key: str) -> str:
        """A key as it is written: with the text of its tokens."""
        return "".join(self.spellings.get(char, char) for char in key) if self.spellings else key


_FIRST_PLACEHOLDER = 0xD800
# What may be a token of its own. A word or a bracket is text, whatever tokens it comes in.
_tag = lazily(lambda: re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]|\]<\]\w+\[>\[|｜[^｜<>\s]+｜|◁[^◁▷\s]+▷").match)
_is_tag = lazily(lambda: re.compile(r"\w|[\ud800-\udfff]").search)
"""Whether a literal is more than signs that JSON has too."""
_is_vendors = lazily(lambda: re.compile(r"</?\w+[_:](?:tool|function)_calls?>").match)
"""Whether a tag of calls has the word of one family in it: no answer ends with `</dots_function_call>`."""
_words = lazily(lambda: re.compile(r"<[^<>\s]*>|[^<\s]+").findall)
_NO_CLOSER = "\x00"
"""What no marker is."""
CALLS = "calls"
"""The strand of calls; other ways to write them have a number after it."""
ECHO = "calls again"
"""The strand of calls that models write once more, without a marker."""

Pair = tuple[tuple[Marker, ...], tuple[Marker, ...]]
"""The markers that open something, and those that close it."""


def compile_format(format: grammar.Format, vocabulary: Vocabulary | None) -> Program:
    """Make `format` ready to run on text, or on the ids of one vocabulary. Done once for each pair, and for all that
    are equal to it."""
    program = _programs.get((id(format), id(vocabulary)))
    if program is None and isinstance(vocabulary, Hashable):  # others may change, and nothing is kept for them
        program = _equal(format, vocabulary) or _compile(format, vocabulary)
        _programs[id(program.format), id(program.vocabulary)] = program
    return program or _compile(format, vocabulary)


_programs: LruCache[tuple[int, int], Program] = LruCache(256)
"""What was compiled, by identity: to hash a format takes as long as some deltas. A program holds its format and its
vocabulary, so that nothing else can get their ids."""


def _equal(format: grammar.Format, vocabulary: Vocabulary | None) -> Program | None:
    """The program of a format that says the same."""
    for program in _programs.values():
        if program.format.name == format.name and program.vocabulary == vocabulary and program.format == format:
            return program
    return None


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
            open, close = format.speech.open, format.speech.close
            pairs["speech"] = (
                (self._marker("open", "speech", open),) if open else (),
                (self._marker("close", "speech", close),) if close else (),
            )
        tools = {CALLS: format.tools} if format.tools is not None else {}
        tools |= {f"{CALLS} {number}": node for number, node in enumerate(format.other_tools, 1)}
        if format.tools is not None and format.tools.echoed:
            tools[ECHO] = _echo(format.tools)
        headers = format.headers
        headed = {"reasoning"} if headers is not None and _is_headed(format.reasoning, headers) else set()
        if headers is not None and (body := _body_of_message(format.tools, headers)) is not None:
            # A header has shown already that calls come.
            tools = {CALLS: grammar.Calls("", body, headers.ends[0], close_written=False)}
            headed.add(CALLS)
        header = format.tools if CALLS in headed else None
        literals: list[str] = []

        def key_of(text: str) -> str:
            literals.append(text)
            return self.key(text)

        steps = {strand: CallSteps(key_of, node, format.ends, header) for strand, node in tools.items()}
        for strand, node in tools.items():
            opens = tuple(self._marker("open", strand, text) for text in (node.open, *node.also) if text)
            pairs[strand] = opens, tuple(self._marker("close", strand, text) for text in node.closes)
        if headers is not None:
            # Whatever ends a message ends what it holds.
            for strand in {*headed, *(set(pairs) & {"reasoning"})}:
                ends = tuple(self._marker("close", strand, text) for text in headers.ends)
                pairs[strand] = ((), ends) if strand in headed else (pairs[strand][0], (*pairs[strand][1], *ends))
            others = [open for opens, _ in pairs.values() for open in opens]
            program.headers = self._headers(headers, others)
        keys = [open.key for opens, _ in pairs.values() for open in opens]
        if len(set(keys)) < len(keys):
            raise InvalidFormat(f"format {format.name!r}: one marker cannot open two things")
        self.ends = [Marker("end", "", key) for key in map(self._token, format.ends) if key is not None]
        program.ends = {
            token for token, key in program.token_placeholders.items() if key in {end.key for end in self.ends}
        }
        self.calls = {
            strand: CallsRule(
                strand=strand,
                steps=tuple(steps[strand].steps),
                close=next(iter(pairs[strand][1]), None),
                closers=Markers(pairs[strand][1]),
                openers=Markers(replace(open, lead="") for open in pairs[strand][0]),
                close_required=node.close_written,
                bare=node.bare,
                listed=steps[strand].listed,
                echo=strand == ECHO,
                again=steps[strand].again,
                markers=Markers(()),  # each scope has its own
                whole=steps[strand].whole if pairs[strand][1] else None,
                waits={at: step.wait for at, step in enumerate(steps[strand].steps) if isinstance(step, Waits)},
            )
            for strand, node in tools.items()
        }
        self.inner = {strand: {NEXT: [builder.first], LAST: builder.lasts} for strand, builder in steps.items()}
        literals += _in_headers(format)
        tags = dict.fromkeys(piece for text in literals for piece, is_tag in pieces(text, is_control_tag) if is_tag)
        program.inner_tags = {self.key(tag): tag for tag in tags if tag != format.optional_end and _is_tag(tag)}
        program.content = self._scope(("content",), pairs)

    def _scope(self, strands: tuple[str, ...], pairs: dict[str, Pair]) -> ScopeRule:
        """The scope of the last of `strands`, inside the others."""
        format = self.format
        openers = [open for name, (opens, _) in pairs.items() if name not in strands for open in opens]
        drafts: list[Marker] = []
        if "reasoning" in strands:
            # There models try out what they will say: without a marker, nothing shows that they say it.
            openers = [open for open in openers if open.strand not in self.calls or not self._bare(open)]
            if not format.calls_in_reasoning:
                drafts = [open for open in openers if open.strand in self.calls]
                openers = [open for open in openers if open.strand not in self.calls]
        ends = list(self.ends)
        if self.program.headers is not None and format.headers is not None:
            rule = self.program.headers
            keys = self._header_markers(rule)
            ends += [Marker("header", HEADER_END if key in rule.closes else "", key) for key in keys]
            if strands == ("content",):
                ends += [self._marker("end", "", text) for text in format.headers.ends]
        elif format.answer is not None:
            for open, close in ((format.answer.open, format.answer.close), *format.answer.also):
                ends.append(self._marker("answer", "", open))
                ends += [self._marker("end", "", close)] if strands == ("content",) else []
        if strands == ("content",):
            ends += [self._marker("end", "", text) for text in format.ignored]
        if format.citations is not None:
            ends += [self._marker("end", CITED, text) for text in format.citations.tags]
            ends += [self._marker("citation", "", text) for text in format.citations.opens]
        own = [close for name, (_, closes) in pairs.items() if name in strands for close in closes]
        admitted = [*ends, *openers, *own]
        admitted_keys = {marker.key for marker in admitted}
        others = [
            replace(close, lead="", trail="")
            for name, (_, closes) in pairs.items()
            for close in closes
            if name not in strands and close.key not in admitted_keys and not (drafts and name in self.calls)
        ]
        in_speech = strands[-1] == "speech"
        markup = [replace(close, role="stray") for close in others if in_speech or self._is_control(close)]
        if in_speech:
            markup += [replace(open, role="stray", lead="", trail="") for open in pairs["speech"][0]]
        if strands[-1] == "reasoning":
            markup += self._ends_of_content({*admitted_keys, *(close.key for close in others)})
            again = [replace(open, role="stray", lead="", label="") for open in pairs["reasoning"][0]]
            markup += [open for open in again if find_token(open.key) and self._is_control(open)]
        if strands == ("content",):
            # A bracket may begin a call, too: whether it does is not told by what closes nothing.
            ended = [close for close in others if not self._is_control(close) and not close.key.startswith("[")]
            vendors = [close for close in ended if _is_vendors(self.program.spelled(close.key))]
            markup += [
                replace(close, role="stray", counts="at the end" if close in vendors else "before the answer")
                for close in ended
            ]
        if not drafts:
            markup += self._inner_strays([*admitted, *others])
        strays = [replace(open, lead="") for open in drafts]
        strays += [close for close in others if not in_speech and not self._is_control(close)]
        # In the middle of a call a bracket is a bracket.
        stops = [marker for marker in admitted if not (marker.strand in self.calls and self._bare(marker))]
        opens, closes = pairs.get(strands[-1], ((), ()))
        closes_of_reasoning = pairs["reasoning"][1] if "reasoning" in pairs and self.program.headers is None else ()
        inner = [name for name in pairs if name not in strands and name not in self.calls]
        watched = [replace(marker, counts=self._where(marker, strands[-1])) for marker in (*admitted, *markup)]
        strays += self._names(watched, {marker.key for marker in strays})
        every = Markers([*strays, *watched])
        return ScopeRule(
            strand=strands[-1],
            markers=Markers(watched),
            strays=Markers(strays),
            all_markers=every,
            closes_of={strand: closes[0].key if closes else _NO_CLOSER for strand, (_, closes) in pairs.items()},
            opens=opens,
            closes=closes,
            leading=Markers(closes_of_reasoning if strands == ("content",) else opens),
            # Speech may end with the output; reasoning should have been closed.
            close_required=strands[-1] == "reasoning",
            inner={name: self._scope((*strands, name), pairs) for name in inner},
            calls={
                name: replace(rule, markers=self._calls_markers(name, [*stops, *pairs[name][1]]))
                for name, rule in self.calls.items()
            },
            header=self.program.headers,
            call_end=self._call_end(),
            citation=self._citation(),
        )

    def _ends_of_content(self, taken: set[str]) -> list[Marker]:
        """What ends or surrounds an answer, where there is none."""
        format = self.format
        closes = () if format.answer is None else (format.answer.close, *(close for _, close in format.answer.also))
        texts = (*(closes if format.headers is None else ()), *format.ignored)
        ends = [self._marker("stray", "", text) for text in texts if text]
        return [replace(end, lead="", trail="") for end in ends if end.key not in taken and self._is_control(end)]

    def _inner_strays(self, markers: list[Marker]) -> list[Marker]:
        """The tags inside of calls, and all tokens and marks that no prose has, where they stand alone: noise."""
        keys = [marker.key for marker in markers]
        tags = [tag for tag in self.program.inner_tags if not any(tag in key or key in tag for key in keys)]
        controls = [token for token, text in self.program.spellings.items() if is_control(text)]
        marks = dict.fromkeys(parts[0] for parts in map(marked_parts, keys) if len(parts) > 1)
        alone = [one for one in (*controls, *marks) if one not in (*keys, *tags)]
        return [*(Marker("stray", CALLS, tag) for tag in tags), *(Marker("stray", "", one) for one in alone)]

    def _names(self, markers: list[Marker], taken: set[str]) -> list[Marker]:
        """What openers look like where they are names: as they are, or spelled out, where they are tokens."""
        names: dict[str, Marker] = {}
        for marker in markers:
            if marker.role != "open" or marker.counts == "always" or self._bare(marker):
                continue
            for key in (marker.key, self.program.spelled(marker.key)):
                if not any(key in other or other in key for other in (*taken, *names)):
                    names[key] = Marker("named", marker.strand, key)
        return list(names.values())

    def _where(self, marker: Marker, strand: str) -> Counts:
        """Where in the text of a strand a marker is one (`Counts`)."""
        if marker.counts != "always":
            return marker.counts
        if strand == "speech" or marker.role in ("close", "citation") or marker.strand == CITED:
            return "always"
        if marker.role == "open" and marker.strand in self.calls:
            return "after a call" if marker.strand == ECHO else "unquoted"
        if marker.role == "open":
            if marker.strand != "reasoning" or strand != "content":
                return "always"
            if find_token(marker.key) and self._is_control(marker) and not self.format.reasoning_again:
                return "not later"
            return "on a line" if self.format.reasoning_again else "before the answer"
        if marker.key in {end.key for end in self.ends} or strand != "content":
            return "always"
        headers = self.program.headers
        of_messages = headers is not None and marker.key in headers.ends
        if find_token(marker.key):
            return "unquoted" if marker.role == "header" or of_messages else self._outside(marker)
        of_calls = marker.role == "stray" and marker.key in self.program.inner_tags
        if headers is not None and (marker.role == "header" or of_calls):
            return "between" if headers.answers_end else "outside code"
        return self._outside(marker)

    def _outside(self, marker: Marker) -> Counts:
        return "outside code" if self._is_control(marker) else "at an edge"

    def _is_control(self, marker: Marker) -> bool:
        """Whether no prose has a marker."""
        spelled = self.program.spelled(marker.key)
        return bool(is_control(spelled)) or (spelled.startswith("[") and bool(find_token(marker.key)))

    def _call_end(self) -> str:
        """What ends messages with calls, where it ends no others."""
        format = self.format
        close = format.tools.close.strip() if format.tools is not None and format.headers is not None else ""
        others = [around.close.strip() for around in (format.reasoning, format.answer) if around is not None]
        return self.key(close) if close and close not in others else ""

    def _citation(self) -> CitationRule | None:
        node = self.format.citations
        if node is None:
            return None
        return CitationRule(tuple(self.key(text) for text in node.opens), node.close, re.compile(node.inside))

    def _headers(self, node: grammar.Headers, others: list[Marker]) -> HeaderRule:
        """others: what opens something without a header, where the format is composed. No header holds that."""
        opens = tuple(self.key(text) for text in node.opens)
        closes = tuple(self.key(text) for text in node.closes)
        patterns = (("calls", node.calls), ("reasoning", node.reasoning), ("content", node.content))
        return HeaderRule(
            opens,
            closes,
            tuple(self.key(text.strip()) for text in node.ends),
            Markers([*(self._marker("end", "", text) for text in node.ends), *others]),
            re.compile(node.inside),
            (*opens, *closes, *node.begins) if node.begins else (),
            (*node.opens, self.format.prompt),
            [(strand, re.compile(pattern)) for strand, pattern in patterns],
            answers_end=self.format.answer is not None and bool(self.format.answer.close),
            names_calls=self.format.tools is not None and not self.format.tools.open.endswith(node.closes),
            words=(*node.closes, *node.begins, *(word for text in self._opens() for word in _words(text))),
        )

    def _opens(self) -> list[str]:
        """What the format writes before reasoning, answers and calls."""
        format = self.format
        nodes = (format.reasoning, format.answer, format.tools, *format.other_tools)
        return [node.open for node in nodes if node is not None]

    def _header_markers(self, rule: HeaderRule) -> list[str]:
        return list(dict.fromkeys(key for key in (*rule.opens, *rule.closes) if key.strip()))

    def _bare(self, marker: Marker) -> bool:
        return marker.role == "open" and marker.strand in self.calls and self.calls[marker.strand].bare

    def _calls_markers(self, strand: str, stops: list[Marker]) -> Markers:
        """What calls stop at. What begins a further call of their list opens no other calls."""
        further = self.inner[strand][NEXT]
        inner = self._inner_markers(strand, [stop for stop in stops if stop.role != "open" or stop.key not in further])
        inner_keys = {marker.key for marker in inner}
        return Markers([*(stop for stop in stops if stop.key not in inner_keys), *inner])

    def _inner_markers(self, strand: str, stops: list[Marker]) -> list[Marker]:
        """What calls in a list begin with, and end with, where nothing else looks like it."""
        markers: dict[str, Marker] = {}
        for role, keys in self.inner[strand].items():
            for key in keys:
                taken = [*(marker.key for marker in stops), *markers]
                if _is_tag(key) and not any(key in other or other in key for other in taken):
                    markers[key] = Marker("end", role, key)
        return list(markers.values())

    def _pair(self, strand: str, node: grammar.Between) -> Pair:
        if node.label and not (node.open.endswith(node.label) and node.open != node.label):
            raise InvalidFormat(f"{node.open!r} must end with its label {node.label!r}, and be more than that")
        spellings = ((node.open.removesuffix(node.label), node.close), *node.also)
        opens = tuple(self._marker("open", strand, text) for text in dict.fromkeys(open for open, _ in spellings))
        opens = (replace(opens[0], label=node.label), *opens[1:])
        closes = tuple(self._marker("close", strand, text) for text in dict.fromkeys(close for _, close in spellings))
        return opens, closes

    def _marker(self, role: Role, strand: str, text: str) -> Marker:
        lead, key, trail = split_whitespace(text)
        end = self.format.optional_end
        if end and key.endswith(end):
            return Marker(role, strand, self.key(key.removesuffix(end)), lead, trail, end=self.key(end))
        return Marker(role, strand, self.key(key), lead, trail)

    def key(self, text: str) -> str:
        """What to look for to find `text`: the stand-in of its token, or the text itself, with stand-ins for the tags
        in it that are tokens."""
        if self.vocabulary is None or self.format.spelled_markers:
            return text
        parts = pieces(text, lambda tag: self._token(tag) is not None)
        return "".join((is_token and self._token(piece)) or piece for piece, is_token in parts)

    def _token(self, text: str) -> str | None:
        token = None if self.vocabulary is None else self.vocabulary.token_id(text)
        if token is None:
            return None
        program = self.program
        if token not in program.token_placeholders:
            placeholder = chr(_FIRST_PLACEHOLDER + len(program.token_placeholders))
            program.token_placeholders[token] = placeholder
            program.spellings[placeholder] = text
        return program.token_placeholders[token]

    def _speech_tokens(self, speech: grammar.SpeechMarkup) -> None:
        if speech.code and (speech.code.count("{}") != 1 or not all(speech.code.partition("{}"))):
            raise InvalidFormat(
                f"the spelling of an audio code needs one '{{}}' for its number, with text around it: {speech.code!r}"
            )
        if speech.code and speech.codes % speech.codebooks:
            raise InvalidFormat(
                f"{speech.codes} audio codes are no {speech.codebooks} codebooks: they must be of the same size"
            )
        program, silent = self.program, speech.out_of_band
        if self.vocabulary is None:
            if speech.code or silent:
                numbered = (speech.code, speech.codes) if speech.code else None
                # What no marker opens has no place of its own either.
                program.code_search = CodeSearch(dict.fromkeys(silent, SILENCE), not speech.open, numbered=numbered)
            return
        missing = [text for text in (speech.open.strip(), speech.close.strip()) if text and self._token(text) is None]
        if speech.first_token is not None:
            program.codes |= {speech.first_token + n: (n, "") for n in range(speech.codes)}
        elif speech.code:
            for n in range(speech.codes):
                text = speech.code.format(n)
                token = self.vocabulary.token_id(text)
                if token is not None:
                    program.codes[token] = (n, text)
            if not program.codes:
                missing.append(speech.code.format(0))
        # Padding comes last, for a table that gives a padding token an id inside the range of the codes.
        for text in silent:
            token = self.vocabulary.token_id(text)
            if token is not None:
                program.codes[token] = (SILENCE, text)
        if missing:
            raise MissingTokens(
                f"format {self.format.name!r} needs tokens that this tokenizer does not have: {', '.join(missing)}. "
                "Use the tokenizer of the model, or parse text without a tokenizer."
            )

    def _transcript_tokens(self, transcript: grammar.TranscriptMarkup) -> None:
        if self.format.speech is not None:
            raise InvalidFormat(f"format {self.format.name!r}: a transcript has no speech of its own")
        program, tag = self.program, transcript.tag.format
        tags: dict[str, Code] = {tag(code): code for code in transcript.languages}
        tags |= {tag(text): SILENCE for text in (*transcript.tasks, transcript.timeless, *transcript.ignored)}
        times = {transcript.time(number): round(number * transcript.step, 2) for number in range(transcript.times)}
        if self.vocabulary is None:
            before, after = map(re.escape, transcript.tag.split("{}"))
            pattern = f"{before}[0-9A-Za-z.]{{2,{max(map(len, tags))}}}{after}"
            program.code_search = CodeSearch({**tags, **times}, everywhere=True, pattern=pattern)
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


def _echo(tools: grammar.Calls) -> grammar.Calls:
    """The list of calls without its marker."""
    body = tools.body
    while isinstance(body, grammar.Either):
        body = body.second
    if not isinstance(body, grammar.CallList) or not body.open.strip():
        raise InvalidFormat("only a list of calls with a bracket before it can be told where it comes once more")
    return grammar.Calls(body.open, body, tools.close, close_written=False, bare=True, also_close=tools.also_close)


def _is_headed(reasoning: grammar.Between | None, headers: grammar.Headers) -> bool:
    """Whether the reasoning stands in messages of its own."""
    if reasoning is None:
        return False
    return reasoning.open.startswith(headers.opens) and reasoning.open.endswith(headers.closes)


def _body_of_message(tools: grammar.Calls | None, headers: grammar.Headers) -> grammar.CallsBody | None:
    """What a message with calls holds after its header; None where calls do not stand in messages of their own."""
    if tools is None or tools.open.endswith(headers.closes):
        return None if tools is None else tools.body
    parts = tools.body.parts if isinstance(tools.body, grammar.Call) else ()
    for at, part in enumerate(parts, 1):
        if isinstance(part, str) and part.endswith(headers.closes):
            return grammar.Call(parts[at:])
    return None


def _in_headers(format: grammar.Format) -> list[str]:
    """What calls have in their headers besides the name."""
    tools = (format.tools, *format.other_tools) if format.headers is not None else ()
    calls = [node.body.parts for node in tools if node is not None and isinstance(node.body, grammar.Call)]
    return [part for parts in calls for part in parts if isinstance(part, str)]


def is_control_tag(tag: str) -> bool:
    """Whether no prose has a tag."""
    return bool(is_control(tag))


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
