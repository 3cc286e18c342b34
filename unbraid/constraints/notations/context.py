"""What a notation is told of the call whose arguments it writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...schema.regular import Node
from ..schema_grammar import SchemaGrammar
from .parameters import Parameters


@dataclass(frozen=True, slots=True)
class CallContext:
    """One call, to one of several tools that take the same arguments."""

    names: list[str]
    """The names of the tools."""
    parameters: Parameters
    following: list[str]
    """What may stand right after the arguments."""
    spelled: Callable[[str], Node]
    """Markup with its whitespace, as text and tokens."""
    marker: Callable[[str], Node]
    """Markup without whitespace around it."""
    call_id: Node
    """An id that the model makes up."""
    rules: dict[str, Node]
    """The rules of the language; a notation may add some."""
    values: dict[str, SchemaGrammar]
    """Grammars of values that all calls share. A notation puts its own here."""
