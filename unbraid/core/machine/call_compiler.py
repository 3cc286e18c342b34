"""How calls are read, step by step, as their grammar has it."""

from __future__ import annotations

from collections.abc import Callable

from .. import grammar
from ..notations.elements import element_rule
from ..notations.tagged import tag_rule
from . import calls
from .markers import Marker, Markers

_BRACKETS = ("]", "}", ")")


class CallSteps:
    """The grammar of calls laid out as steps. Jumps are absolute, so the state of a call is one number."""

    def __init__(self, key: Callable[[str], str], node: grammar.Calls) -> None:
        """key: what to look for to find a text."""
        self._key = key
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
        if self.again in (branch + 1, leave + 1):
            self.again = branch  # a further call tells again which of the two it is

    def _calls(self, node: grammar.Call | grammar.CallList) -> None:
        if isinstance(node, grammar.Call):
            self._call(node)
            return
        if node.open.strip():
            self.steps.append(calls.Literal(node.open.strip()))
        again = len(self.steps)
        self._call(node.call)
        first, separator, close = node.call.parts[0], node.separator.strip(), node.close.strip()
        # A bracket, and what may come after it on a line of its own: ``]```.
        closes = (close[:1], close[1:].strip()) if close[:1] in _BRACKETS else (close,)
        begins = "{" if isinstance(first, grammar.JsonCall) else ""
        if isinstance(first, str):
            begins = self._key(first.strip())
        self.steps.append(calls.NextInList(separator, tuple(filter(None, closes)), begins, again))
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
            steps.append(calls.ReadNamespaced("name") if part.namespaced else calls.ReadWord("name"))
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
