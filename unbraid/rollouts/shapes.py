"""Shapes: what turns are like, and short conversations to try a template with.

shape_of(turn)            Shape(content=True, reasoning=True, calls=(("call_0", "get_weather"),))
shape_of(turn).message()  {"role": "assistant", "content": "Qz", "reasoning_content": "Qz", "tool_calls": […]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..templates.traced_text import REASONING_FIELDS
from .values import Messages

WORD = "Qz"
"""A word that no template has."""
ARGUMENTS = {"qzkey": "qzvalue"}
TOOLS: tuple[Mapping[str, Any], ...] = (
    {
        "type": "function",
        "function": {
            "name": "qzfunction",
            "description": "Qz.",
            "parameters": {
                "type": "object",
                "properties": {"qzkey": {"type": "string", "description": "Qz"}},
                "required": ["qzkey"],
            },
        },
    },
)
USER: Mapping[str, Any] = {"role": "user", "content": "Qz first"}
NEXT: Mapping[str, Any] = {"role": "user", "content": "Qz next"}
"""Another one. Templates compare messages by what they say to find the last one."""
SYSTEM: Mapping[str, Any] = {"role": "system", "content": WORD}


@dataclass(frozen=True)
class Shape:
    """What a turn has, whatever it says."""

    content: bool = True
    reasoning: bool = False
    calls: tuple[tuple[str, str], ...] = ()
    """The id and the name of each call."""

    def message(self, arguments: Mapping[str, Any] = ARGUMENTS) -> dict[str, Any]:
        """A turn of this shape."""
        message: dict[str, Any] = {"role": "assistant", "content": WORD if self.content or not self.calls else ""}
        if self.reasoning:
            message["reasoning_content"] = WORD
        if self.calls:
            message["tool_calls"] = [
                {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
                for id, name in self.calls
            ]
        return message

    @property
    def order(self) -> tuple[str, ...]:
        """In which order the turn says this (see `proof.order_of`)."""
        strands = [*(["reasoning"] if self.reasoning else []), *(["content"] if self.content or not self.calls else [])]
        return (*strands, *(f"call {name}" for _, name in self.calls))

    def in_words(self) -> str:
        """For reasons."""
        calls = {0: "", 1: "a call"}.get(len(self.calls), "several calls")
        said = (f"words and {calls}" if self.content else calls) if calls else "an answer"
        return f"{said} after reasoning" if self.reasoning else said


def shape_of(message: Mapping[str, Any]) -> Shape:
    """The shape of a turn."""
    calls = tuple((call["id"], call["function"]["name"]) for call in message.get("tool_calls") or ())
    return Shape(bool(message.get("content")), any(message.get(each) for each in REASONING_FIELDS), calls)


def answered(message: dict[str, Any], new: Messages) -> dict[str, Any]:
    """A turn whose calls have the ids that the results name. Where the ids were not parsed here but given by a server,
    the results know others than the turn: they answer the calls in order."""
    calls = message.get("tool_calls") or ()
    ids = {call["id"] for call in calls}
    answers = [each.get("tool_call_id") for each in new if isinstance(each, Mapping)]
    named = dict.fromkeys(id for id in answers if id and isinstance(id, str))
    others = [id for id in named if id not in ids]
    if not others or not calls:
        return message
    rest = iter(others)
    renamed = [{**call, "id": call["id"] if call["id"] in named else next(rest, call["id"])} for call in calls]
    return {**message, "tool_calls": renamed}


def call(number: int = 0) -> tuple[str, str]:
    return f"call_qzqzqzqz{number:012}", "qzfunction"


def result(number: int = 0) -> Mapping[str, Any]:
    """The result of that call."""
    id, name = call(number)
    return {"role": "tool", "tool_call_id": id, "name": name, "content": WORD}


ONE_CALL = Shape(content=False, calls=(call(),))
EARLIER: tuple[Mapping[str, Any], ...] = (
    USER,
    Shape(content=False, reasoning=True, calls=(call(9),)).message(),
    result(9),
)
"""A conversation in which the model has reasoned and called since the user last spoke."""
