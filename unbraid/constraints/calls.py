"""The language of tool calls: a block of calls, from the opening marker to the closing one.

A call is made part by part, as the format's grammar lists them. The arguments are made by their notation, which is
looked up in `notations.NOTATIONS` by the type of its node.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from ..core import grammar
from ..core.custom_tools import Grammar
from ..core.machine.markers import is_word
from ..core.notations.value_ends import call_tail
from ..errors import InvalidTools
from ..metering import spend, working_on
from ..schema.regular import NOTHING, Node, Repeat, Verbatim, chars, choice, maybe, sequence
from .grammars import UnsupportedGrammar
from .grammars.reader import read_grammar
from .language import SOME_SPACE, SPACE, Rule, Unenforced, alternatives
from .markup import MarkupNodes
from .notations import NOTATIONS
from .notations.parameters import CallContext, Parameters
from .request import ANY_OBJECT, Request
from .schema_grammar import SchemaGrammar

_NUMBER = Repeat(chars("09"), 1, 4)
_LETTERS_AND_DIGITS = chars("az", "AZ", "09")


class CallsBuilder:
    """Makes the calls that a request allows. The rules that they refer to are collected in `rules`."""

    def __init__(self, markup: MarkupNodes, request: Request) -> None:
        self._markup, self._format, self._request = markup, markup.format, request
        self._headed = markup.format.headers is not None
        self.rules: dict[str, Node] = {}
        self.unenforced: list[Unenforced] = []
        self._values: dict[str, SchemaGrammar] = {}

    def block(self, open: Callable[[str], Node] | None = None) -> Node:
        """One block of calls; `open` writes its opening marker. Headers may be written in several ways."""
        assert self._format.tools is not None
        others = self._format.other_tools if self._headed else ()
        return choice(*(self._block(tools, open or self._markup.marker) for tools in (self._format.tools, *others)))

    def _block(self, tools: grammar.Calls, open: Callable[[str], Node]) -> Node:
        body = tools.body
        bodies: list[grammar.Call | grammar.CallList] = []
        while isinstance(body, grammar.Either):
            bodies.append(body.first)
            body = body.second
        bodies.append(body)
        parts = [NOTHING if tools.bare else open(tools.open), choice(*map(self._body, bodies))]
        if tools.close:
            close = (self._markup.ending if self._headed else self._markup.marker)(tools.close)
            # Where it need not be written, whitespace before it would be content. What ends a message may end the turn.
            closes = tools.close_written and not self._headed
            parts += [SPACE, close] if closes else [maybe(close)]
        return sequence(*parts)

    def _body(self, body: grammar.Call | grammar.CallList) -> Node:
        if isinstance(body, grammar.Call):
            return self._call(body, None, headed=self._headed)
        call = self._call(body.call, body)
        more = NOTHING if self._request.one_call else Repeat(sequence(*_literal(body.separator), call))
        return sequence(*_literal(body.open), call, more, *_literal(body.close))

    def _call(self, call: grammar.Call, of: grammar.CallList | None, headed: bool = False) -> Node:
        """A call to one of the tools, in a list or alone. Those that take the same arguments share the rest of the
        call. A headed call begins inside the header."""
        assert self._format.tools is not None
        self._tail = call_tail(self._format.tools, call, of, self._format.ends)
        same: dict[str, list[str]] = {}
        reads_kinds = any(type(part) in NOTATIONS and NOTATIONS[type(part)].reads_kinds for part in call.parts)
        tools = self._request.tools
        for name, schema in tools.items():
            spend()
            strict, grammar = self._follows_schema(name), self._grammar(name)
            key = [schema if strict or reads_kinds else ANY_OBJECT, strict, repr(grammar)]
            same.setdefault(json.dumps(key), []).append(name)
        parts = list(zip(call.parts, (*call.parts[1:], ""), strict=True))
        return alternatives(
            *(sequence(*(self._part(*part, names, headed) for part in parts)) for names in same.values())
        )

    def _part(self, part: grammar.CallPart, following: grammar.CallPart, names: list[str], headed: bool) -> Node:
        notation = NOTATIONS.get(type(part))
        if notation is not None:
            return notation.make(part, self._context(names, following))
        match part:
            case str() if headed:
                return self._markup.spelled(part)  # headers are written as they are
            case str():
                return self._literal_part(part)
            case grammar.Name(escapes=escapes):
                # In a header, a name and what stands before it are one word.
                spelled = [grammar.escaped(name, escapes) for name in names]
                return sequence(NOTHING if headed else SPACE, _one_of(spelled))
            case grammar.CallId():
                return sequence(SPACE, self._call_id())
            case grammar.NameInId(before, after):
                return sequence(SPACE, Verbatim(before), _one_of(names), Verbatim(after), _NUMBER)
            case grammar.Ordinal():
                return sequence(SPACE, _NUMBER)
            case grammar.Maybe(marker, then, due=due):
                inside = sequence(
                    SPACE, self._markup.marker(marker), *(self._part(one, "", names, headed) for one in then)
                )
                return inside if due else maybe(inside)
            case grammar.Instead():
                return NOTHING
        raise AssertionError(part)

    def _literal_part(self, part: str) -> Node:
        """Where the template writes whitespace there must be some; elsewhere there may be."""
        space = SOME_SPACE if part[:1].isspace() else SPACE
        text = part.strip()
        trail = (SOME_SPACE,) if text and part[-1:].isspace() else ()
        return sequence(space, *((self._markup.marker(text), *trail) if text else ()))

    def _context(self, names: list[str], following: grammar.CallPart) -> CallContext:
        assert self._format.tools is not None
        texts = (following if isinstance(following, str) else "", self._format.tools.close)
        tools, name = self._request.tools, names[0]
        return CallContext(
            names,
            Parameters(name, tools[name], self._follows_schema(name), self._rule, self.unenforced, self._input(name)),
            following=[text.strip() for text in texts if text.strip()],
            tail=self._tail,
            tools=list(tools),
            spelled=self._markup.spelled,
            marker=self._markup.marker,
            call_id=self._call_id(),
            rules=self.rules,
            values=self._values,
        )

    def _follows_schema(self, name: str) -> bool:
        """The arguments of strict tools do. Those of a custom tool are its input, so that nothing else may come."""
        return self._request.tools.strict(name) or self._request.tools.custom(name) is not None

    def _grammar(self, name: str) -> Grammar | None:
        custom = self._request.tools.custom(name)
        return None if custom is None else custom.grammar

    def _input(self, name: str) -> Node | None:
        """What a grammar makes of a custom tool's input."""
        custom = self._request.tools.custom(name)
        if custom is None or custom.grammar is None:
            return None
        try:
            working_on(custom.field)
            return read_grammar(custom.grammar, custom.field)
        except UnsupportedGrammar as problem:
            self.unenforced.append(Unenforced(f"tool {name!r}", f"its grammar is not enforced: {problem}"))
            return None

    def _rule(self, node: Node) -> Node:
        name = f"arguments-{len(self.rules)}"
        self.rules[name] = node
        return Rule(name)

    def _call_id(self) -> Node:
        ids = self._format.call_ids
        return sequence(Verbatim(ids.prefix), Repeat(_LETTERS_AND_DIGITS, ids.length, ids.length))


def _literal(text: str) -> tuple[Node, ...]:
    """A literal of a list, where there is one; whitespace is as it comes."""
    return (SPACE, Verbatim(text.strip())) if text.strip() else ()


def _one_of(names: list[str]) -> Node:
    return choice(*(Verbatim(_among_markup(name)) for name in names))


def _among_markup(name: str) -> str:
    """The name, where it can stand among markup."""
    if not is_word(name):
        raise InvalidTools(
            f"a tool named {name!r} cannot be called in this format: use letters, digits, `_`, `-` and `.`"
        )
    return name
