"""What a model may write as arguments: one module for each notation, with the names of `core/notations`.

    json.py        {"city": "Rome"}, or a whole call as one object
    tagged.py      <arg name="city">Rome</arg>, also with XML's entities and sections
    elements.py    <city>Rome</city>, with elements inside of elements
    python.py      city="Rome", or a dict
    bare.py        city: Rome, with quotes of the model's own
    parameters.py  what a notation is told: the call, and the parameters of its tool
    texts.py       strings with a pattern or a grammar, in quotes and between tags

A notation is a function that takes its grammar node and a `CallContext` and returns the language of the arguments. To
add one, add its module and a line to `NOTATIONS`; the builder looks it up by the type of the node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...core import notations
from ...schema.regular import Node
from . import bare, elements, json, python, tagged
from .parameters import CallContext


@dataclass(frozen=True, slots=True)
class NotationLanguage:
    """How the language of a notation is made."""

    make: Callable[[Any, CallContext], Node]
    """Takes the grammar's node, and the call."""
    reads_kinds: bool = True
    """Whether the schema matters even where it is not enforced: it says what is a string. JSON has quotes for that."""


NOTATIONS: dict[type, NotationLanguage] = {
    notations.Arguments: NotationLanguage(json.arguments, reads_kinds=False),
    notations.JsonCall: NotationLanguage(json.json_call, reads_kinds=False),
    notations.TaggedArguments: NotationLanguage(tagged.arguments),
    notations.XmlArguments: NotationLanguage(tagged.xml_arguments),
    notations.PythonArguments: NotationLanguage(python.arguments),
    notations.PythonDict: NotationLanguage(python.dictionary, reads_kinds=False),
    notations.BareArguments: NotationLanguage(bare.arguments),
    notations.ElementArguments: NotationLanguage(elements.arguments),
}
