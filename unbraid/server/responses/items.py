"""The items of a conversation in the Responses dialect, read into the messages that chat templates take.

One turn of the assistant is several items there (reasoning, messages, calls) and one message here: all of them until
something else comes. What the model said after its calls is a message of its own, so that the order stays. Errors name
the item (`input[3].content[0]`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core.custom_tools import arguments_of
from ...errors import Keys, Place
from ..api.fields import Object
from ..errors import ApiError
from .tools import ShownTools

_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_ROLES = ("user", "assistant", "system", "developer")


@dataclass(slots=True)
class Conversation:
    """Messages, and where they stand in the client's request."""

    messages: list[Object] = field(default_factory=list)
    places: dict[Keys, Place] = field(default_factory=dict)
    continued: bool = False
    """Whether the last item is incomplete: then the model goes on with it."""


class ItemReader:
    """Reads items.

    unseal: the reasoning of an `encrypted_content`; None if it is not ours.
    """

    def __init__(self, tools: ShownTools, unseal: Callable[[str], str | None]) -> None:
        self._tools = tools
        self._unseal = unseal
        self._read = Conversation()
        self._turn: Object | None = None
        """The assistant's message that further items belong to."""

    def read(self, items: Sequence[Object], places: Sequence[Place]) -> Conversation:
        self._read.continued = bool(items) and is_begun(items[-1])
        for at, (item, place) in enumerate(zip(items, places, strict=True), 1):
            self._item(item, place, at == len(items))
        return self._read

    def _item(self, item: Object, place: Place, is_last: bool) -> None:
        kind = kind_of(item)
        if kind == "message":
            self._message(item, place)
        elif kind == "reasoning":
            self._add_text("reasoning_content", self._reasoning(item, place), place)
        elif kind == "function_call":
            self._call(item, _string(item, "arguments", place), place, is_last)
        elif kind == "custom_tool_call":
            arguments = arguments_of(_string(item, "input", place))
            self._call(item, arguments[: -len('"}')] if is_begun(item) else arguments, place, is_last)
        elif kind in ("function_call_output", "custom_tool_call_output"):
            output = item.get("output")
            content = output if isinstance(output, str) else _parts(output, place / "output")
            result = {"role": "tool", "tool_call_id": _string(item, "call_id", place), "content": content}
            self._add(result, place, "output")
        elif kind != "additional_tools":  # these are read with the tools
            message = f"{place}: items of type {kind!r:.64} belong to tools of the vendor's, which do not run here"
            raise ApiError(400, message, param=place, code="unsupported")

    def _message(self, item: Object, place: Place) -> None:
        role = item.get("role")
        if role not in _ROLES:
            message = f"{place}.role must be one of {', '.join(_ROLES)}, not {role!r:.64}"
            raise ApiError(400, message, param=place / "role")
        content = item.get("content")
        content = content if isinstance(content, str) else _parts(content, place / "content")
        if role != "assistant":
            self._add({"role": role, "content": content}, place, "content")
            return
        text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
        self._add_text("content", text, place)

    def _reasoning(self, item: Object, place: Place) -> str:
        sealed = item.get("encrypted_content")
        if sealed is not None and (text := self._unseal(_string(item, "encrypted_content", place))) is not None:
            return text
        texts = [_texts(item.get(key), place / key) for key in ("content", "summary")]
        if sealed is not None and not any(texts):
            message = f"{place}.encrypted_content was not made by this server, or not for this key: leave the item out"
            raise ApiError(400, message, param=place / "encrypted_content", code="invalid_encrypted_content")
        return texts[0] or texts[1]

    def _call(self, item: Object, arguments: str, place: Place, is_last: bool) -> None:
        name = self._tools.shown_name(_string(item, "name", place), item.get("namespace"))
        if not name:
            raise ApiError(400, f"{place / 'name'} must be a non-empty string", param=place / "name")
        if is_begun(item) and not is_last:  # it was cut off, so nobody has run it: it is what the model said
            self._add_text("content", f"{name} {arguments}", place)
            return
        call = {"id": _string(item, "call_id", place), "type": "function"}
        self._assistant(place).setdefault("tool_calls", []).append(
            {**call, "function": {"name": name, "arguments": arguments}}
        )

    def _add(self, message: Object, place: Place, content: str | None = None) -> None:
        """`content`: the field of the item that the parts of the content stand in."""
        self._turn = None
        at = len(self._read.messages)
        self._read.messages.append(message)
        self._read.places["messages", at] = place
        if content is not None and isinstance(message["content"], list):
            self._read.places["messages", at, "content"] = place / content

    def _add_text(self, key: str, text: str, place: Place) -> None:
        if self._turn is not None and self._turn.get("tool_calls"):
            self._turn = None
        turn = self._assistant(place)
        before = turn.get(key) or ""
        turn[key] = f"{before}\n{text}" if before and text else before + text

    def _assistant(self, place: Place) -> Object:
        """The assistant's turn that goes on, or a new one."""
        if self._turn is None:
            turn: Object = {"role": "assistant", "content": ""}
            self._add(turn, place)
            self._turn = turn
        return self._turn


def is_begun(item: Object) -> bool:
    """Whether an item is the assistant's, and was cut off."""
    if item.get("status") != "incomplete":
        return False
    kind = kind_of(item)
    return kind in ("reasoning", "function_call", "custom_tool_call") or item.get("role") == "assistant"


def kind_of(item: Object) -> object:
    """The type of an item. Messages and references need not say theirs."""
    return item.get("type") or ("message" if "role" in item else "item_reference")


def resolved(item: Object, place: Place, find: Callable[[str], Object | None]) -> Object:
    """The item itself, where it is only referred to. `find` finds one by its id."""
    if kind_of(item) != "item_reference":
        return item
    resolved_item = find(_string(item, "id", place))
    if resolved_item is None:
        message = f"{place}: there is no item {item['id']!r:.80} here; give the item itself"
        raise ApiError(404, message, param=place / "id")
    return resolved_item


def _string(item: Object, key: str, place: Place) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        problem = "is missing" if value is None else f"must be a string, not {type(value).__name__}"
        raise ApiError(400, f"{place / key} {problem}", param=place / key)
    return value


def _parts(content: object, place: Place) -> list[dict[str, Any]]:
    """The parts of a content, as chat templates know them."""
    if not isinstance(content, list):
        message = f"{place} must be a string or a list of parts, not {type(content).__name__}"
        raise ApiError(400, message, param=place)
    return [_part(part, place / at) for at, part in enumerate(content)]


def _part(part: object, place: Place) -> dict[str, Any]:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise ApiError(400, f"{place} must be an object with a type", param=place)
    kind = part["type"]
    if kind in _TEXTS or kind == "refusal":
        return {"type": "text", "text": _string(part, "refusal" if kind == "refusal" else "text", place)}
    return part  # the reader of messages says what it does not take


def _texts(parts: object, place: Place) -> str:
    """The text of all parts of a reasoning item."""
    if parts is None:
        return ""
    return "\n\n".join(part.get("text", "") for part in _parts(parts, place))
