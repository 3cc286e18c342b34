"""Probes: turns of an assistant to render templates with, made of words that no template contains.

So every `qz…` word in the output shows where a part of the turn went, and everything else is the template's own text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

USER = "qzquestion"
CONTENT, REASONING = "qzanswer", "qzponder"


@dataclass(frozen=True)
class ProbeCall:
    name: str
    arguments: Mapping[str, Any]
    id: str
    """It contains the function's name, as Kimi's ids do. `TemplateCapabilities.adapt` shortens it if necessary."""


@dataclass(frozen=True)
class ProbeTurn:
    """One turn of the assistant, to be rendered."""

    label: str
    """Its name in the reasons of a verdict."""
    content: str = ""
    reasoning: str = ""
    calls: tuple[ProbeCall, ...] = ()
    essential: bool = True
    """Whether the template's format must get it back. Templates differ in the others: where content goes that comes
    with calls, how a list is written between tags."""

    def message(self) -> dict[str, Any]:
        """The turn as a message of a chat API."""
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


LOOKUP = ProbeCall("qzlookup", {"qzcity": "qzparis", "qzdays": 37}, "functions.qzlookup:0")
RECORD = ProbeCall("qzrecord", {"qzcity": "qzoslo", "qzdays": 58}, "functions.qzrecord:1")
AGAIN = ProbeCall("qzlookup", {"qzcity": "qzrome", "qzdays": 64}, "functions.qzlookup:2")
KINDS = ProbeCall(
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
NO_ARGUMENTS = ProbeCall("qzping", {}, "functions.qzping:0")

ANSWER = ProbeTurn("an answer", content=CONTENT)
REASONED = ProbeTurn("an answer after reasoning", content=CONTENT, reasoning=REASONING)
CALL = ProbeTurn("a call", calls=(LOOKUP,))
CALLS = ProbeTurn("two calls", calls=(LOOKUP, RECORD))
REASONED_CALL = ProbeTurn("a call after reasoning", reasoning=REASONING, calls=(LOOKUP,))
THREE_CALLS = ProbeTurn("three calls", calls=(LOOKUP, RECORD, AGAIN), essential=False)
"""Formats are derived from two calls. A third shows whether the derived format holds."""
CALL_WITH_CONTENT = ProbeTurn("a call after content", content=CONTENT, calls=(LOOKUP,), essential=False)
CALL_OF_ALL_KINDS = ProbeTurn("arguments of all kinds", calls=(KINDS,), essential=False)
CALL_WITHOUT_ARGUMENTS = ProbeTurn("a call without arguments", calls=(NO_ARGUMENTS,), essential=False)

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
    # Some templates fail without `items` or `properties`.
    list: {"type": "array", "items": {"type": "string"}},
    dict: {"type": "object", "properties": {}, "additionalProperties": {"type": "string"}},
}


def _tool(call: ProbeCall) -> dict[str, Any]:
    properties = {key: {**_SCHEMAS[type(value)], "description": key} for key, value in call.arguments.items()}
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    function = {"name": call.name, "description": f"About {call.name}.", "parameters": parameters}
    return {"type": "function", "function": function}


TOOLS: list[dict[str, Any]] = [_tool(call) for call in (LOOKUP, RECORD, KINDS, NO_ARGUMENTS)]
