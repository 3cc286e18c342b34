"""A whole call as one JSON object: the name, the arguments and an id as its members."""

from __future__ import annotations

import json

from ...core.notations import JsonCall
from ...schema.regular import Node, Repeat, Text, chars, choice, maybe, sequence
from ..language import SPACE
from .context import CallContext

_NUMBER = Repeat(chars("09"), 1, 4)


def arguments(notation: JsonCall, call: CallContext) -> Node:

    def key(text: str) -> Node:
        return sequence(SPACE, Text(json.dumps(text)), SPACE, Text(":"), SPACE)

    name = choice(*(Text(json.dumps(name, ensure_ascii=False)) for name in call.names))
    comma = sequence(SPACE, Text(","))
    members = [key(notation.name), name, comma, key(notation.arguments[0]), call.parameters.json()]
    if notation.id_first:
        members = [key(notation.id), Text('"'), _NUMBER, Text('"'), comma, *members]
    else:
        members.append(maybe(comma, key(notation.id), Text('"'), call.call_id, Text('"')))
    return sequence(SPACE, Text("{"), *members, SPACE, Text("}"))
