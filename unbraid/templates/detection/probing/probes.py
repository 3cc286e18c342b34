"""Probes: turns of an assistant to render templates with, made of words that no template contains.

So every `qz…` word in the output shows where a part of the turn went, and everything else is the template's own text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Strand = Literal["content", "reasoning", "calls"]
USER, NEXT_USER = "qzquestion", "qzsequel"
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
    reasoning: str | None = None
    """None if the turn has none. Empty reasoning is given to the template, and some write markers for it."""
    calls: tuple[ProbeCall, ...] = ()

    @property
    def strands(self) -> tuple[Strand, ...]:
        """The strands that it has."""
        there: dict[Strand, object] = {"content": self.content, "reasoning": self.reasoning, "calls": self.calls}
        return tuple(strand for strand, part in there.items() if part)

    def message(self) -> dict[str, Any]:
        """The turn as a message of a chat API, without its reasoning: `ways` says where to put it."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
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
SYMBOLS = ProbeCall("qzspell", {"qzsigns": "qz &lt; & é <b> 日本"}, "functions.qzspell:0")
"""What a template writes with entities must be read with them, and what it writes as it is must not."""
NO_ARGUMENTS = ProbeCall("qzping", {}, "functions.qzping:0")

ANSWER = ProbeTurn("an answer", content=CONTENT)
REASONED = ProbeTurn("an answer after reasoning", content=CONTENT, reasoning=REASONING)
CALL = ProbeTurn("a call", calls=(LOOKUP,))
CALLS = ProbeTurn("two calls", calls=(LOOKUP, RECORD))
REASONED_CALL = ProbeTurn("a call after reasoning", reasoning=REASONING, calls=(LOOKUP,))
# Formats are derived from these. The others show whether the derived format holds.
THREE_CALLS = ProbeTurn("three calls", calls=(LOOKUP, RECORD, AGAIN))
CALL_WITH_CONTENT = ProbeTurn("a call after content", content=CONTENT, calls=(LOOKUP,))
ALL_STRANDS = ProbeTurn("a call after reasoning and content", content=CONTENT, reasoning=REASONING, calls=(LOOKUP,))
EMPTY_REASONING = ProbeTurn("an answer after empty reasoning", content=CONTENT, reasoning="")
CALL_OF_ALL_KINDS = ProbeTurn("arguments of all kinds", calls=(KINDS,))
CALL_WITH_SYMBOLS = ProbeTurn("an argument with symbols", calls=(SYMBOLS,))
CALL_WITHOUT_ARGUMENTS = ProbeTurn("a call without arguments", calls=(NO_ARGUMENTS,))

TURNS = (
    ANSWER,
    REASONED,
    CALL,
    CALLS,
    REASONED_CALL,
    THREE_CALLS,
    CALL_WITH_CONTENT,
    ALL_STRANDS,
    EMPTY_REASONING,
    CALL_OF_ALL_KINDS,
    CALL_WITH_SYMBOLS,
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


TOOLS: list[dict[str, Any]] = [_tool(call) for call in (LOOKUP, RECORD, KINDS, SYMBOLS, NO_ARGUMENTS)]
