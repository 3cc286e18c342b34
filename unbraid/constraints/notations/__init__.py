"""What a model may write as arguments: one module for each notation, with the names of `core/notations`.

A notation is a function that takes its grammar node and a `CallContext` and returns the language of the arguments. To
add one, add its module and a line to `NOTATIONS`; the builder looks it up by the type of the node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...core import notations
from ...schema.regular import Node
from . import bare, elements, json, json_call, python, tagged, xml
from .context import CallContext


@dataclass(frozen=True, slots=True)
class NotationLanguage:
    """How the language of a notation is made."""

    make: Callable[[Any, CallContext], Node]
    """Takes the grammar's node, and the call."""
    reads_kinds: bool = True
    """Whether the schema matters even where it is not enforced: it says what is a string. JSON has quotes for that."""


NOTATIONS: dict[type, NotationLanguage] = {
    notations.Arguments: NotationLanguage(json.arguments, reads_kinds=False),
    notations.JsonCall: NotationLanguage(json_call.arguments, reads_kinds=False),
    notations.TaggedArguments: NotationLanguage(tagged.arguments),
    notations.XmlArguments: NotationLanguage(xml.arguments),
    notations.PythonArguments: NotationLanguage(python.arguments),
    notations.PythonDict: NotationLanguage(python.dictionary, reads_kinds=False),
    notations.BareArguments: NotationLanguage(bare.arguments),
    notations.ElementArguments: NotationLanguage(elements.arguments),
}
