"""From a format and a request to the language of the responses that are allowed."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..core import grammar, notations
from ..core.machine.compiler import pieces
from ..core.machine.program import Program
from ..core.machine.words import is_word
from ..errors import InvalidTools, UnbraidError
from .language import (
    NOTHING,
    SOME_SPACE,
    SPACE,
    Json,
    Language,
    Lexeme,
    Node,
    Repeat,
    Rule,
    Text,
    TextExcept,
    Token,
    alternatives,
    chars,
    choice,
    maybe,
    sequence,
)
from .notations.bare import BareValues, bare
from .notations.elements import elements
from .notations.parameters import Parameters, python, tagged
from .request import ANY_OBJECT, Request
from .schema_export import Unenforced
from .schema_grammar import integers

Quota = Literal["none", "any", "some"]
"""How many calls may stand in a stretch of text; never more than one where the request says so."""
LETTERS_AND_DIGITS = chars("az", "AZ", "09")
DIGIT = chars("09")


@dataclass(frozen=True, slots=True)
class LazyLanguage:
    """What may come from the first call on; before it the model is left alone."""

    trigger: str
    """How the marker is spelled that begins a call,"""
    token: int | None
    """and the token that it is."""
    language: Language


def build(program: Program, request: Request, opened: Sequence[str], header: str) -> Language:
    """The language of the output, given the strands that the prompt has left open, or the header that it has begun."""
    builder = _Builder(program, request)
    root = builder.output(opened) if program.headers is None else builder.messages(opened, header)
    return Language(root, builder.rules, builder.unenforced)


def build_lazy(program: Program, request: Request) -> LazyLanguage | None:
    """The language from the first call on, where nothing before it is constrained."""
    if request.calls != "auto" or request.answer is not None or request.reasoning is not None:
        return None
    if program.headers is not None or (program.format.tools is not None and program.format.tools.bare):
        return None  # a header may be half in the prompt, and a bracket is no sign of a call
    builder = _Builder(program, request)
    trigger, token, root = builder.from_the_first_call()
    return LazyLanguage(trigger, token, Language(root, builder.rules, builder.unenforced))


class _Builder:
    def __init__(self, program: Program, request: Request) -> None:
        self.format = program.format
        self.program = program
        self.request = request
        self.tokens = {program.spellings[char]: token for token, char in program.token_placeholders.items()}
        self.codes = _code_node(program)
        format = self.format
        markers = dict.fromkeys(_markers(format))
        if format.speech is not None:
            markers |= dict.fromkeys((format.speech.code.partition("{}")[0], *format.speech.padding))
        if format.transcript is not None:
            markers[format.transcript.tag.partition("{}")[0]] = None
        self.markers = tuple(markers)
        """All that free text must not spell. As a token a marker is no text; spelled out it would fool those who read
        only the text."""
        self.free = TextExcept(self.markers)
        self.rules: dict[str, Node] = {}
        self.unenforced: list[Unenforced] = []
        self.bare_values: dict[str, BareValues] = {}
        """By their quotes."""
        self.block = self._calls() if request.calls != "none" and format.tools is not None else None

    # --- The strands -----------------------------------------------------------------------------------------------

    def output(self, opened: Sequence[str]) -> Node:
        if self.format.transcript is not None:
            return self._transcript(self.format.transcript)
        inside = list(opened)
        parts: list[Node] = []
        reasoning = self.format.reasoning
        if reasoning is not None and inside[-1:] == ["reasoning"]:
            # What the prompt has opened, some models open once more.
            parts += [maybe(self._marker(reasoning.open)), self.free, self._marker(reasoning.close)]
            inside.pop()
        elif reasoning is not None and self.request.reasoning is not False:
            open, think = self._marker(reasoning.open), sequence(self.free, self._marker(reasoning.close))
            if self._is_free(inside) and isinstance(open, Text):
                # Free text can begin with the same whitespace.
                open = Lexeme(sequence(SPACE, open))
            else:
                parts.append(SPACE)
            parts.append(sequence(open, think) if self.request.reasoning else maybe(open, think))
        if inside[-1:] == ["speech"]:
            parts.append(self._rest_of_speech())
        else:
            parts.append(self._answered(self._content()))
        if len(inside) > 1:
            raise UnbraidError(
                f"no constraint begins inside {' inside '.join(reversed(inside))}: close it in the prompt"
            )
        return sequence(*parts)

    def _transcript(self, transcript: grammar.TranscriptMarkup) -> Node:
        """The language, the task, and then text without times or text between times."""
        if self.request.answer is not None:
            raise UnbraidError(f"format {self.format.name!r} is no JSON: leave `response_format` out")
        tokens = {text: token for token, (_, text) in self.program.codes.items()}

        def one_of(texts: Iterable[str]) -> Node:
            spelled = [text for text in texts if not tokens or text in tokens]
            node = choice(*map(Text, spelled))
            return token_node([tokens[text] for text in spelled], node) if tokens else node

        tag = transcript.tag.format
        time = one_of(map(transcript.time, range(transcript.times)))
        return sequence(
            one_of(map(tag, transcript.languages)),
            one_of(map(tag, transcript.tasks)),
            choice(sequence(one_of([tag(transcript.timeless)]), self.free), Repeat(sequence(time, self.free))),
        )

    def _is_free(self, inside: Sequence[str]) -> bool:
        """Whether the output, or what follows the reasoning, begins with free text."""
        return bool(inside) or (self.request.answer is None and self.request.calls != "required")

    def from_the_first_call(self) -> tuple[str, int | None, Node]:
        """The marker that begins a call, and what may come from there on. What the call stands in is not known, so
        text may hold any marker but this one."""
        assert self.format.tools is not None
        assert self.block is not None
        marker = self.format.tools.open.strip()
        text = TextExcept((marker,))
        more = text if self.request.one_call else sequence(Repeat(sequence(text, self.block)), text)
        return marker, self.tokens.get(marker), sequence(self.block, more)

    def _answered(self, content: Node) -> Node:
        """The content with what may stand around it. Calls at once have nothing around them."""
        answer, request = self.format.answer, self.request
        if answer is None or request.calls == "required":
            return content
        open, close = self._marker(answer.open), self._marker(answer.close)
        if request.answer is not None:
            return choice(content, sequence(SPACE, open, self._content(), maybe(SPACE, close)))
        more = NOTHING if self.block is None or request.one_call else Repeat(sequence(SPACE, self.block))
        around = Lexeme(sequence(SPACE, open)) if isinstance(open, Text) else sequence(SPACE, open)
        # Free text stands right before the marker that ends it.
        closed = sequence(self._content(), close, more, _trail(answer.close))
        return choice(content, sequence(around, choice(self._content(), closed)))

    def messages(self, opened: Sequence[str], header: str) -> Node:
        """Messages with headers: reasoning, and then what was asked for. The prompt may have begun the first header."""
        format, request = self.format, self.request
        reasoning, answer = format.reasoning, format.answer
        assert answer is not None

        def first(open: str) -> Node:
            rest = open.removeprefix(header)
            return sequence(SPACE if rest[:1].isspace() else NOTHING, self._spelled(rest.lstrip()))

        closed = self._marker(answer.close) if answer.close else NOTHING

        def last(message: Node) -> Node:
            """The output may end with the message or with what closes it."""
            return choice(message, sequence(message, closed)) if answer.close else message

        content = self.free if request.answer is None else sequence(SPACE, self._json_answer())

        def rest(open: Callable[[str], Node]) -> Node:
            """All but the reasoning; `open` writes the first header."""
            said = sequence(open(answer.open), content)
            if self.block is None:
                return last(said)
            called = self._calls(open)
            more = NOTHING if request.one_call else Repeat(self.block)
            if request.calls == "required":
                return sequence(called, more)
            spoken = sequence(self._spelled(answer.open), content)
            if request.answer is not None:
                return choice(last(said), sequence(called, more))
            if request.one_call:
                return choice(last(said), called, sequence(said, closed, self.block))
            item = choice(sequence(spoken, closed, self.block), self.block)
            some = sequence(choice(sequence(said, closed, self.block), called), Repeat(item), maybe(last(spoken)))
            return choice(NOTHING, last(said), some)

        if reasoning is None:
            return rest(first)
        thought = sequence(self.free, self._marker(reasoning.close), rest(self._spelled))
        if opened:
            return thought
        thought = sequence(first(reasoning.open), thought)
        if request.reasoning is None:
            return choice(thought, rest(first))
        return thought if request.reasoning else rest(first)

    def _content(self) -> Node:
        request = self.request
        if self.block is None and request.answer is None:
            return self._written("none")
        if request.calls == "required":
            return self._called()
        if request.answer is not None:
            answer = sequence(SPACE, self._json_answer())
            return answer if self.block is None else choice(answer, self._called())
        return self._written("any")

    def _json_answer(self) -> Node:
        """In the content, a marker that is no token is a marker, even inside a JSON string."""
        assert self.request.answer is not None
        spelled = tuple(marker for marker in self.markers if marker not in self.tokens)
        return Json(*self.request.answer, without=spelled)

    def _written(self, calls: Quota) -> Node:
        """Free text, with speech and calls in it.

        Free text always stands right before the marker that ends it, so that a dialect with a lexer can read both as
        one piece.
        """
        ignored = [self._marker(text) for text in self.format.ignored]
        if calls == "none" or self.block is None:
            items = [*self._section("none"), *ignored]
        elif self.request.one_call:
            silent = self._written("none")
            called = [sequence(silent, item, silent) for item in (self.block, *self._section("some"))]
            return choice(silent, *called)
        else:
            items = [self.block, *self._section("any"), *ignored]
        return (
            sequence(Repeat(choice(*(sequence(self.free, item) for item in items))), self.free) if items else self.free
        )

    def _called(self) -> Node:
        """Calls at once: only what is spoken may stand around them."""
        assert self.block is not None
        before = [maybe(SPACE, self._marker(text)) for text in self.format.ignored[:1]]
        more = NOTHING if self.request.one_call else Repeat(sequence(SPACE, self.block))
        silent = [sequence(SPACE, section, SPACE, self.block) for section in self._section("none")]
        spoken = [sequence(SPACE, section) for section in self._section("some")]
        return sequence(*before, choice(sequence(SPACE, self.block), *silent, *spoken), more, self._after_calls())

    def _after_calls(self) -> Node:
        assert self.format.tools is not None
        return _trail(self.format.tools.close)

    def _section(self, calls: Quota) -> list[Node]:
        """The spoken sections that there can be; none where the model does not speak."""
        speech = self.format.speech
        if speech is None:
            return []
        open, close = self._marker(speech.open), self._marker(speech.close)
        silent = sequence(open, self._spoken(), close)
        if calls == "none" or self.block is None:
            return [silent]
        called = sequence(open, self._spoken_with_calls(), close)
        return [called] if calls == "some" else [silent, called]

    def _rest_of_speech(self) -> Node:
        """The section that the prompt has opened, and what follows it. At the end of the output it need not close."""
        assert self.format.speech is not None
        request, close, silent = self.request, self._marker(self.format.speech.close), self._spoken()
        after = sequence(silent, close, self._content())
        if request.answer is not None and request.calls != "required":
            return after
        if self.block is None:
            return choice(silent, after)
        called = self._spoken_with_calls()
        if request.calls == "required":
            more = NOTHING if request.one_call else Repeat(sequence(SPACE, self.block))
            return choice(after, called, sequence(called, close, more, self._after_calls()))
        quiet = self._written("none" if request.one_call else "any")
        return choice(silent, after, called, sequence(called, close, quiet))

    def _spoken(self) -> Node:
        """Text and codes in turn. A text that ends with the beginning of a marker is not followed by a code: codes are
        out of band, and the next text would complete the marker."""
        assert self.codes is not None
        return sequence(Repeat(sequence(TextExcept(self.markers, clean_end=True), Repeat(self.codes, 1))), self.free)

    def _spoken_with_calls(self) -> Node:
        assert self.block is not None
        more = NOTHING if self.request.one_call else Repeat(sequence(self._spoken(), self.block))
        return sequence(self._spoken(), self.block, more, self._spoken())

    def _marker(self, text: str) -> Node:
        return self._spelled(text.strip())

    def _spelled(self, text: str) -> Node:
        """Markup as it is written, with its tokens."""
        found = pieces(text, self.tokens.__contains__)
        return sequence(
            *(token_node([self.tokens[one]], Text(one)) if is_token else Text(one) for one, is_token in found)
        )

    # --- Calls -----------------------------------------------------------------------------------------------------

    def _calls(self, open: Callable[[str], Node] | None = None) -> Node:
        """One block of calls, from the opening marker to the closing one. Headers may be written in several ways."""
        assert self.format.tools is not None
        others = () if self.program.headers is None else self.format.other_tools
        return choice(*(self._block(tools, open or self._marker) for tools in (self.format.tools, *others)))

    def _block(self, tools: grammar.Calls, open: Callable[[str], Node]) -> Node:
        body = tools.body
        bodies: list[grammar.Call | grammar.CallList] = []
        while isinstance(body, grammar.Either):
            bodies.append(body.first)
            body = body.second
        bodies.append(body)
        parts = [NOTHING if tools.bare else open(tools.open), choice(*map(self._body, bodies))]
        if tools.close:
            close = self._marker(tools.close)
            # Where it need not be written, whitespace before it would be content. What ends a message may end the turn.
            written = tools.close_written and self.program.headers is None
            parts += [SPACE, close] if written else [maybe(close)]
        return sequence(*parts)

    def _body(self, body: grammar.Call | grammar.CallList) -> Node:
        if isinstance(body, grammar.Call):
            return self._call(body, headed=self.program.headers is not None)
        call = self._call(body.call)
        more = NOTHING if self.request.one_call else Repeat(sequence(*_literal(body.separator), call))
        return sequence(*_literal(body.open), call, more, *_literal(body.close))

    def _call(self, call: grammar.Call, headed: bool = False) -> Node:
        """A call to one of the tools. Those that take the same arguments share the rest of the call. What is headed
        begins inside the header."""
        same: dict[str, list[str]] = {}
        notation = any(isinstance(part, grammar.Notation) for part in call.parts)
        for name, schema in self.request.tools.items():
            strict = self.request.tools.strict(name)
            # What is not strict is any JSON object; other notations still need to know what is a string.
            same.setdefault(json.dumps([schema if strict or notation else ANY_OBJECT, strict]), []).append(name)
        parts = list(zip(call.parts, (*call.parts[1:], ""), strict=True))
        return alternatives(
            *(sequence(*(self._part(*part, names, headed) for part in parts)) for names in same.values())
        )

    def _part(self, part: grammar.CallPart, following: grammar.CallPart, names: list[str], headed: bool) -> Node:
        if isinstance(part, str) and headed:
            return self._spelled(part)  # headers are written as they are
        if isinstance(part, str):
            # Where the template writes whitespace there must be some; elsewhere there may be.
            space = SOME_SPACE if part[:1].isspace() else SPACE
            text = part.strip()
            trail = (SOME_SPACE,) if text and part[-1:].isspace() else ()
            return sequence(space, *((self._marker(text), *trail) if text else ()))
        if isinstance(part, grammar.Name):
            # In a header, a name and what stands before it are one word.
            before: Node = NOTHING if headed else SPACE
            return sequence(before, choice(*(Text(_bare(name)) for name in names)))
        if isinstance(part, grammar.CallId):
            return sequence(SPACE, self._id())
        if isinstance(part, grammar.NameInId):
            name = choice(*(Text(_bare(name)) for name in names))
            return sequence(SPACE, Text(part.before), name, Text(part.after), Repeat(DIGIT, 1, 4))
        if isinstance(part, grammar.Ordinal):
            return sequence(SPACE, Repeat(DIGIT, 1, 4))
        parameters = self._parameters(names[0])
        if isinstance(part, notations.Arguments):
            return sequence(SPACE, parameters.json())
        if isinstance(part, notations.TaggedArguments):
            return tagged(parameters, part, self._spelled, self._after(following))
        if isinstance(part, notations.PythonArguments):
            return python(parameters)
        if isinstance(part, notations.BareArguments):
            return self._bare(part, parameters)
        if isinstance(part, notations.ElementArguments):
            return elements(parameters, part, self._marker, self._after(following), self.rules)
        if isinstance(part, notations.JsonCall):
            return self._json_call(part, names, parameters.json())
        if isinstance(part, grammar.Maybe):
            return maybe(SPACE, self._marker(part.marker), *(self._part(one, "", names, headed) for one in part.then))
        raise AssertionError(part)

    def _after(self, following: grammar.CallPart) -> list[str]:
        """What may stand after the arguments."""
        assert self.format.tools is not None
        texts = (following if isinstance(following, str) else "", self.format.tools.close)
        return [text.strip() for text in texts if text.strip()]

    def _bare(self, part: notations.BareArguments, parameters: Parameters) -> Node:
        if part.quote not in self.bare_values:
            self.bare_values[part.quote] = BareValues(part.quote, self._marker, self.rules, self.unenforced)
        return bare(parameters, self.bare_values[part.quote])

    def _parameters(self, name: str) -> Parameters:
        tools = self.request.tools
        return Parameters(name, tools[name], tools.strict(name), self._rule, self.unenforced)

    def _rule(self, node: Node) -> Node:
        name = f"arguments-{len(self.rules)}"
        self.rules[name] = node
        return Rule(name)

    def _json_call(self, part: notations.JsonCall, names: list[str], arguments: Json) -> Node:
        def key(text: str) -> Node:
            return sequence(SPACE, Text(json.dumps(text)), SPACE, Text(":"), SPACE)

        name = choice(*(Text(json.dumps(name, ensure_ascii=False)) for name in names))
        comma = sequence(SPACE, Text(","))
        items = [key(part.name), name, comma, key(part.arguments[0]), arguments]
        if part.id_first:
            items = [key(part.id), Text('"'), Repeat(DIGIT, 1, 4), Text('"'), comma, *items]
        else:
            items.append(maybe(comma, key(part.id), Text('"'), self._id(), Text('"')))
        return sequence(SPACE, Text("{"), *items, SPACE, Text("}"))

    def _id(self) -> Node:
        ids = self.format.call_ids
        return sequence(Text(ids.prefix), Repeat(LETTERS_AND_DIGITS, ids.length, ids.length))


def _trail(close: str) -> Node:
    """Whitespace at the end of the output: what the closing marker has of its own. More would be content, and a weak
    model that has nothing else to write would fill up all that it is allowed."""
    trail = close[len(close.rstrip()) :]
    return maybe(Text(trail)) if trail else NOTHING


def _literal(text: str) -> tuple[Node, ...]:
    """A literal of a list, where there is one; whitespace is as it comes."""
    return (SPACE, Text(text.strip())) if text.strip() else ()


def _markers(format: grammar.Format) -> Iterable[str]:
    """All that opens or closes something, or is markup of its own."""
    if format.headers is not None:
        headers = format.headers
        yield from (text for text in (*headers.opens, *headers.closes, *headers.ends) if text.strip())
        return
    for around in (format.reasoning, format.answer):
        if around is not None:
            for pair in ((around.open, around.close), *around.also):
                yield from (text.strip() for text in pair if text)
    for tools in (format.tools, *format.other_tools):
        if tools is not None:
            yield from (text.strip() for text in (tools.open, *tools.also, *tools.closes) if text)
    if format.speech is not None:
        yield from (format.speech.open.strip(), format.speech.close.strip())
    yield from (text.strip() for text in format.ignored)


def _bare(name: str) -> str:
    """The name as it stands among markup."""
    if not is_word(name):
        raise InvalidTools(
            f"a tool named {name!r} cannot be called in this format: use letters, digits, `_`, `-` and `.`"
        )
    return name


def _code_node(program: Program) -> Node | None:
    """One audio code, or padding."""
    speech = program.format.speech
    if speech is None:
        return None
    before, _, after = speech.code.partition("{}")
    spelled = choice(sequence(Text(before), integers(0, speech.codes - 1), Text(after)), *map(Text, speech.padding))
    if program.vocabulary is None:
        return spelled
    return token_node(program.codes.keys(), spelled)


def token_node(ids: Collection[int], text: Node) -> Token:
    """One of these tokens."""
    starts = sorted(id for id in ids if id - 1 not in ids)
    ends = sorted(id for id in ids if id + 1 not in ids)
    return Token(tuple(zip(starts, ends, strict=True)), text)
