"""Arguments as one JSON object, or a whole call as one: the name, the arguments and an id as its members."""

from __future__ import annotations

from json import dumps

from ...core.notations import Arguments, JsonCall
from ...schema.regular import Node, Repeat, Verbatim, chars, choice, maybe, sequence
from ..language import SPACE
from .parameters import CallContext

_NUMBER = Repeat(chars("09"), 1, 4)


def arguments(notation: Arguments, call: CallContext) -> Node:
    return sequence(SPACE, call.parameters.json())


def json_call(notation: JsonCall, call: CallContext) -> Node:
    def key(text: str) -> Node:
        return sequence(SPACE, Verbatim(dumps(text)), SPACE, Verbatim(":"), SPACE)

    name = choice(*(Verbatim(dumps(name, ensure_ascii=False)) for name in call.names))
    comma = sequence(SPACE, Verbatim(","))
    members = [key(notation.name), name, comma, key(notation.arguments[0]), call.parameters.json()]
    if notation.id_first:
        members = [key(notation.id), Verbatim('"'), _NUMBER, Verbatim('"'), comma, *members]
    else:
        members.append(maybe(comma, key(notation.id), Verbatim('"'), call.call_id, Verbatim('"')))
    return sequence(SPACE, Verbatim("{"), *members, SPACE, Verbatim("}"))
