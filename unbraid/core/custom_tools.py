"""Custom tools: their input is free text, which may have to follow a grammar.

Models know functions only. So a custom tool is shown, called and constrained as a function with one string parameter,
`input`, and its text is taken out of the arguments while they arrive (`CustomInput`):

    the client's tool      {"type": "custom", "name": "sql", "format": {"type": "text"}}
    what the model sees    a function `sql` with the parameter {"input": {"type": "string"}}
    what the model writes  {"input": "SELECT 1"}
    what the client gets   SELECT 1

OpenAI's two APIs define them differently: Chat nests the tool under `custom` and its grammar under `grammar`; in
Responses both are flat. Either form is taken in either place. `constraints.grammars` reads the grammar itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self, cast

from ..errors import InvalidTools, Place
from .fast_import import frozen
from .json_text import plain_end, quote, read_escape
from .machine.markers import NOT_YET

Syntax = Literal["lark", "regex"]
INPUT = "input"
"""The one parameter."""

_LONGEST_DEFINITION = 100_000
_SYNTAXES = {
    "lark": "`input` must follow this grammar, which is written in Lark:",
    "regex": "All of `input` must match this regular expression:",
}


@frozen
class Grammar:
    """What the input must follow."""

    syntax: Syntax
    definition: str


@frozen
class CustomTool:
    """A tool whose input is free text."""

    name: str
    description: str
    grammar: Grammar | None
    """None where any text will do."""
    field: Place
    """The place of the grammar in the request, such as `tools[0].custom.format.grammar.definition`."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The schema of a function that takes the same."""
        return {
            "type": "object",
            "properties": {INPUT: {"type": "string"}},
            "required": [INPUT],
            "additionalProperties": False,
        }

    def as_function(self) -> dict[str, Any]:
        """The definition of that function, for a prompt: its description says what `input` is."""
        explanation = f"`{INPUT}` is free text, which the tool gets as it is."
        if self.grammar is not None:
            explanation += f" {_SYNTAXES[self.grammar.syntax]}\n{self.grammar.definition}"
        description = f"{self.description}\n\n{explanation}" if self.description else explanation
        function = {"name": self.name, "description": description, "parameters": self.parameters}
        return {"type": "function", "function": function}


def read_custom_tool(definition: Mapping[str, Any], where: Place) -> CustomTool:
    """Raises `InvalidTools`."""
    custom: object = definition
    if "custom" in definition:
        custom, where = definition["custom"], where / "custom"
    custom = _object(custom, where)
    name = custom.get("name")
    if not isinstance(name, str) or not name.strip():
        raise InvalidTools(where, " has no name: give it a non-empty string", field=where / "name")
    description = custom.get("description")
    if description is not None and not isinstance(description, str):
        raise InvalidTools(
            where,
            f" ({name!r}).description must be a string, not {type(description).__name__}",
            field=where / "description",
        )
    grammar, field = _grammar(custom.get("format"), where / "format")
    return CustomTool(name, description or "", grammar, field)


def _grammar(format: object, where: Place) -> tuple[Grammar | None, Place]:
    """The grammar, if there is one, and the place of its definition."""
    if format is None:
        return None, where
    format = _object(format, where)
    kind = format.get("type")
    if kind == "text":
        return None, where
    if kind != "grammar":
        raise InvalidTools(where / "type", f' must be "text" or "grammar", not {kind!r:.100}')
    grammar = format
    if "grammar" in format:
        where = where / "grammar"
        grammar = _object(format["grammar"], where)
    syntax, definition = grammar.get("syntax"), grammar.get("definition")
    if not isinstance(syntax, str) or syntax not in _SYNTAXES:
        raise InvalidTools(where / "syntax", f' must be "lark" or "regex", not {syntax!r:.100}')
    field = where / "definition"
    if not isinstance(definition, str) or not definition.strip():
        raise InvalidTools(field, f" must be a {syntax} grammar, not {definition!r:.100}")
    if len(definition) > _LONGEST_DEFINITION:
        raise InvalidTools(field, f" has {len(definition)} characters: {_LONGEST_DEFINITION} are the most")
    return Grammar(cast(Syntax, syntax), definition), field


def _object(value: object, where: Place) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidTools(where, f" must be an object, not {type(value).__name__}")
    return value


_OPENING = f'{{"{INPUT}":"'
_SPACE_BEFORE = frozenset((0, 1, _OPENING.index(":"), len(_OPENING) - 1))
"""The places in the opening that whitespace may stand before."""
_SPACE = " \t\n\r"

_BEGIN, _STRING, _CLOSE, _OVER, _AS_WRITTEN = range(5)


class CustomInput:
    """Decodes the arguments of one call, cut anywhere: `{"input": "a` and `b"}` give `a` and `b`.

    A model may write another key, an object where the string should be, or more keys. Nothing of it is lost. From where
    the arguments are not as they should be, their text is the input: all of it, or, if text has already gone out, the
    rest. `{}` is no input: a parser writes it for a call without arguments.
    """

    __slots__ = ("_at", "_held", "_state", "complete")

    def __init__(self) -> None:
        self._state = _BEGIN
        self._at = 0
        """How much of the opening has come."""
        self._held = ""
        """Text that may yet be the input as it is written; inside the string, an escape that is cut."""
        self.complete = False
        """After `finish`: whether the arguments were whole, and the one string and nothing else."""

    def feed(self, fragment: str) -> str:
        """Take the next fragment of the arguments. Returns the text in it."""
        if self._state == _STRING:
            return self._string(fragment, at_end=False)
        if self._state == _AS_WRITTEN:
            return fragment
        return self._outside(fragment)

    def finish(self) -> str:
        """No more comes: the rest of the text."""
        if self._state == _STRING:
            return self._string("", at_end=True) + self._held
        if self._state == _OVER:
            self.complete = self._at == len(_OPENING)
            return ""
        return "" if self._state == _CLOSE else self._held

    def save(self) -> list[Any]:
        """Its state as plain values."""
        return [self._state, self._at, self._held]

    @classmethod
    def load(cls, saved: list[Any]) -> Self:
        decoder = cls()
        decoder._state, decoder._at, decoder._held = saved
        return decoder

    def _outside(self, fragment: str) -> str:
        """Outside of the string all is held, until it is known whether it is markup or input."""
        for at, char in enumerate(fragment):
            if char in _SPACE and (self._state != _BEGIN or self._at in _SPACE_BEFORE):
                continue
            if self._state == _BEGIN and char == _OPENING[self._at]:
                self._at += 1
                if self._at == len(_OPENING):
                    self._state, self._held = _STRING, ""
                    return self._string(fragment[at + 1 :], at_end=False)
            elif char == "}" and (self._state == _CLOSE or (self._state == _BEGIN and self._at == 1)):
                self._state = _OVER
            else:
                self._state, held, self._held = _AS_WRITTEN, self._held, ""
                return held + fragment
        self._held += fragment
        return ""

    def _string(self, fragment: str, at_end: bool) -> str:
        text, said, at = self._held + fragment, [], 0
        self._held = ""
        while at < len(text):
            end = plain_end(text, at)
            said.append(text[at:end])
            if end == len(text):
                break
            if text[end] == '"':
                self._state, self._held = _CLOSE, '"'
                said.append(self._outside(text[end + 1 :]))
                break
            escape = read_escape(text, end, at_end)
            if escape is NOT_YET:
                self._held = text[end:]
                break
            said.append(escape[1])
            at = end + escape[0]
        return "".join(said)


def input_of(arguments: str) -> str:
    """The input that the arguments of a call say."""
    decoder = CustomInput()
    return decoder.feed(arguments) + decoder.finish()


def arguments_of(input: str) -> str:
    """The arguments of a call with this input."""
    return f'{{"{INPUT}": {quote(input)}}}'
