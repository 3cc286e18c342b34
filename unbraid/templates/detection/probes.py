"""What templates are tried with: turns of an assistant, made of words that no template has.

So whatever else stands in the text is the template's own, and every word says where it came from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

USER = "qzquestion"
CONTENT, REASONING = "qzanswer", "qzponder"


@dataclass(frozen=True)
class Call:
    name: str
    arguments: Mapping[str, Any]
    id: str
    """It says the function's name, as Kimi's do; where a template wants short ones, its `Shape` makes one of it."""


@dataclass(frozen=True)
class Turn:
    """One turn of the assistant."""

    label: str
    """What it shows, for the reasons of a verdict."""
    content: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    essential: bool = True
    """Whether a format that does not get it back is not the template's. Templates have their own idea of the others:
    where content goes that comes with calls, how a list is written between tags."""

    def message(self) -> dict[str, Any]:
        """As a chat API has it, with what `Shape.message` expects."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
                }
                for call in self.calls
            ]
        return message


LOOKUP = Call("qzlookup", {"qzcity": "qzparis", "qzdays": 37}, "functions.qzlookup:0")
RECORD = Call("qzrecord", {"qzcity": "qzoslo", "qzdays": 58}, "functions.qzrecord:1")
AGAIN = Call("qzlookup", {"qzcity": "qzrome", "qzdays": 64}, "functions.qzlookup:2")
KINDS = Call(
    "qzgather",
    {
        "qztext": "qzword",
        "qzrate": 12.5,
        "qzdone": True,
        "qzlist": ["qzitem", "qzthing"],
        "qztree": {"qzleaf": "qzgreen"},
    },
    "functions.qzgather:0",
)
NO_ARGUMENTS = Call("qzping", {}, "functions.qzping:0")

ANSWER = Turn("an answer", content=CONTENT)
REASONED = Turn("an answer after reasoning", content=CONTENT, reasoning=REASONING)
CALL = Turn("a call", calls=(LOOKUP,))
CALLS = Turn("two calls", calls=(LOOKUP, RECORD))
REASONED_CALL = Turn("a call after reasoning", reasoning=REASONING, calls=(LOOKUP,))
THREE_CALLS = Turn("three calls", calls=(LOOKUP, RECORD, AGAIN), essential=False)
"""Formats are derived from two calls: a third shows whether what was derived is true."""
CALL_WITH_CONTENT = Turn("a call after content", content=CONTENT, calls=(LOOKUP,), essential=False)
CALL_OF_ALL_KINDS = Turn("arguments of all kinds", calls=(KINDS,), essential=False)
CALL_WITHOUT_ARGUMENTS = Turn("a call without arguments", calls=(NO_ARGUMENTS,), essential=False)

TURNS = (
    ANSWER,
    REASONED,
    CALL,
    CALLS,
    REASONED_CALL,
    THREE_CALLS,
    CALL_WITH_CONTENT,
    CALL_OF_ALL_KINDS,
    CALL_WITHOUT_ARGUMENTS,
)


_SCHEMAS: dict[type, dict[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    # Some templates cannot do without what a list holds, or an object.
    list: {"type": "array", "items": {"type": "string"}},
    dict: {"type": "object", "properties": {}, "additionalProperties": {"type": "string"}},
}


def _tool(call: Call) -> dict[str, Any]:
    properties = {key: {**_SCHEMAS[type(value)], "description": key} for key, value in call.arguments.items()}
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    function = {"name": call.name, "description": f"About {call.name}.", "parameters": parameters}
    return {"type": "function", "function": function}


TOOLS: list[dict[str, Any]] = [_tool(call) for call in (LOOKUP, RECORD, KINDS, NO_ARGUMENTS)]
