"""Shapes: short messages in the place of real ones.

What a template writes after a turn depends on the kind of the turn (an answer, a call, with or without reasoning) and
on the names and ids of its calls. It does not depend on the text of the turn. So the text between two turns is taken
from a short conversation of the same shape, and costs the same however long the real one is:

    shape_of(turn)            Shape(content=True, reasoning=True, calls=(("call_0", "get_weather"),))
    shape_of(turn).message()  {"role": "assistant", "content": "Qz", "reasoning_content": "Qz", "tool_calls": […]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..core.message import Message
from .values import Messages, key_of

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

    def message(self) -> dict[str, Any]:
        """A turn of this shape."""
        message: dict[str, Any] = {"role": "assistant", "content": WORD if self.content or not self.calls else ""}
        if self.reasoning:
            message["reasoning_content"] = WORD
        if self.calls:
            message["tool_calls"] = [
                {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(ARGUMENTS)}}
                for id, name in self.calls
            ]
        return message

    def in_words(self) -> str:
        """For reasons."""
        calls = {0: "", 1: "a call"}.get(len(self.calls), "several calls")
        said = calls or "an answer"
        return f"{said} after reasoning" if self.reasoning else said


def shape_of(settled: Message) -> Shape:
    """The shape of a turn in which every call is complete."""
    calls = tuple((call.id, call.name) for call in settled.tool_calls)
    return Shape(bool(settled.content or settled.speech), bool(settled.reasoning), calls)


def answered(shape: Shape, new: Messages) -> Shape:
    """A turn whose calls have the ids that the results name. Where the ids were not parsed here but given by a server,
    the results know others than the turn: they answer the calls in order."""
    ids = {id for id, _ in shape.calls}
    named = dict.fromkeys(str(message["tool_call_id"]) for message in new if message.get("tool_call_id"))
    others = [id for id in named if id not in ids]
    if not others or not shape.calls:
        return shape
    rest = iter(others)
    calls = ((id if id in named else next(rest, id), name) for id, name in shape.calls)
    return replace(shape, calls=tuple(calls))


def call(number: int = 0) -> tuple[str, str]:
    return f"call_qzqzqzqz{number:012}", "qzfunction"


_NO_CALL = call(8)[0]
"""The id of a call that the turn does not have."""


def result(number: int = 0) -> Mapping[str, Any]:
    """The result of that call."""
    id, name = call(number)
    return {"role": "tool", "tool_call_id": id, "name": name, "content": WORD}


def shortened(shape: Shape, new: Messages) -> tuple[Shape, tuple[Mapping[str, Any], ...]]:
    """A turn of this shape and the messages after it, with nothing left of them but what a template may look at: the
    roles, the names of functions, and which result answers which call. Ids are numbered."""
    ids = {id: call(number)[0] for number, (id, _) in enumerate(shape.calls)}
    calls = tuple((ids[id], name) for id, name in shape.calls)
    return replace(shape, calls=calls), tuple(_shortened_message(each, number, ids) for number, each in enumerate(new))


def kind_of(shape: Shape, new: Messages) -> bytes:
    """A key that is the same if `shortened` returns the same. It takes less time."""
    numbers = {id: number for number, (id, _) in enumerate(shape.calls)}
    following = tuple(
        (
            message.get("role"),
            message.get("name"),
            numbers.get(message["tool_call_id"], -1) if "tool_call_id" in message else None,
        )
        for message in new
    )
    return key_of((shape.content, shape.reasoning, tuple(name for _, name in shape.calls), following))


def _shortened_message(message: Mapping[str, Any], number: int, ids: Mapping[str, str]) -> Mapping[str, Any]:
    fields = {key: message[key] for key in ("role", "name") if key in message}
    if "tool_call_id" in message:
        fields["tool_call_id"] = ids.get(message["tool_call_id"], _NO_CALL)
    return {**fields, "content": f"{WORD} {number}"}


ONE_CALL = Shape(content=False, calls=(call(),))
EARLIER: tuple[Mapping[str, Any], ...] = (
    USER,
    Shape(content=False, reasoning=True, calls=(call(9),)).message(),
    result(9),
)
"""A conversation in which the model has reasoned and called since the user last spoke."""
