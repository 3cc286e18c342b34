"""Definitions of custom tools, as OpenAI's two APIs write them, read and shown to a model as a function.

Chat nests what the tool is under `custom`, and its grammar under `grammar`; Responses has both flat. Either form is
taken in either place. Whether a grammar is one is not known here: `constraints.grammars` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from ...errors import InvalidTools
from ..records import frozen

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
    field: str
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
        told = f"`{INPUT}` is free text, which the tool gets as it is."
        if self.grammar is not None:
            told += f" {_SYNTAXES[self.grammar.syntax]}\n{self.grammar.definition}"
        description = f"{self.description}\n\n{told}" if self.description else told
        function = {"name": self.name, "description": description, "parameters": self.parameters}
        return {"type": "function", "function": function}


def read_custom_tool(definition: Mapping[str, Any], where: str) -> CustomTool:
    """Raises `InvalidTools`."""
    custom: object = definition
    if "custom" in definition:
        custom, where = definition["custom"], f"{where}.custom"
    custom = _object(custom, where)
    name = custom.get("name")
    if not isinstance(name, str) or not name.strip():
        raise InvalidTools(f"{where} has no name: give it a non-empty string", field=f"{where}.name")
    description = custom.get("description")
    if description is not None and not isinstance(description, str):
        raise InvalidTools(
            f"{where} ({name!r}).description must be a string, not {type(description).__name__}",
            field=f"{where}.description",
        )
    grammar, field = _grammar(custom.get("format"), f"{where}.format")
    return CustomTool(name, description or "", grammar, field)


def _grammar(format: object, where: str) -> tuple[Grammar | None, str]:
    """The grammar, if there is one, and the place of its definition."""
    if format is None:
        return None, where
    format = _object(format, where)
    kind = format.get("type")
    if kind == "text":
        return None, where
    if kind != "grammar":
        raise InvalidTools(f'{where}.type must be "text" or "grammar", not {kind!r:.100}', field=f"{where}.type")
    grammar = format
    if "grammar" in format:
        where = f"{where}.grammar"
        grammar = _object(format["grammar"], where)
    syntax, definition = grammar.get("syntax"), grammar.get("definition")
    if syntax not in _SYNTAXES:
        raise InvalidTools(f'{where}.syntax must be "lark" or "regex", not {syntax!r:.100}', field=f"{where}.syntax")
    field = f"{where}.definition"
    if not isinstance(definition, str) or not definition.strip():
        raise InvalidTools(f"{field} must be a {syntax} grammar, not {definition!r:.100}", field=field)
    if len(definition) > _LONGEST_DEFINITION:
        raise InvalidTools(f"{field} has {len(definition)} characters: {_LONGEST_DEFINITION} are the most", field=field)
    return Grammar(cast(Syntax, syntax), definition), field


def _object(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidTools(f"{where} must be an object, not {type(value).__name__}", field=where)
    return value
