"""What a template wants to be given. Templates do not say; so they are tried, once, with messages of our own."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

from .errors import TemplateError
from .template import Rendering

_SYSTEM, _USER, _VALUE, _RESULT, _DESCRIPTION = "Qz be brief.", "Qz hello?", "qzvalue", "qzresult", "Qz says the time."
_CALL = "call_qzqzqzqzqzqzqzqzqzqz"
_TOOL = {
    "type": "function",
    "function": {
        "name": "qzfunction",
        "description": _DESCRIPTION,
        "parameters": {
            "type": "object",
            "properties": {"qzkey": {"type": "string", "description": "Qz"}},
            "required": ["qzkey"],
        },
    },
}
# A JSON string in a JSON string, or Python's way to print a dict.
_ugly = re.compile(rf"\\\"{_VALUE}|\{{'qzkey': *'{_VALUE}|%22{_VALUE}").search


@dataclass(frozen=True, slots=True)
class Shape:
    """How one template wants its messages."""

    parts: bool = False
    """Content as a list of parts, not as a string."""
    system: bool = True
    """Whether it takes system messages."""
    developer: bool = False
    """Whether it knows the role."""
    tools: bool = False
    """Whether it tells the model about tools."""
    calls: bool = False
    """Whether it shows calls of earlier turns."""
    results: bool = False
    """Whether it shows their results."""
    arguments: Literal["object", "text"] = "object"
    no_content: Literal[""] | None = ""
    """The content of a message that has only calls."""
    short_ids: bool = False
    """Ids of calls are 9 letters or digits (Mistral)."""

    def message(self, message: dict[str, Any]) -> dict[str, Any]:
        """A message as `messages.Reader` has it, for the template."""
        message = dict(message)
        if message["role"] == "developer" and not self.developer:
            message["role"] = "system"
        if message.get("tool_calls"):
            message["tool_calls"] = [self._call(call) for call in message["tool_calls"]]
            message["content"] = message["content"] or self.no_content
        if self.short_ids and message.get("tool_call_id"):
            message["tool_call_id"] = short_id(message["tool_call_id"])
        if self.parts and message["content"] is not None:
            message["content"] = [{"type": "text", "text": message["content"]}]
        return message

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        function = dict(call["function"])
        if self.arguments == "object":
            with suppress(ValueError, RecursionError):  # a model may have written it: then it is shown again as it was
                function["arguments"] = json.loads(function["arguments"])
        return {**call, "id": short_id(call["id"]) if self.short_ids else call["id"], "function": function}


def short_id(id: str) -> str:
    """An id as Mistral's templates want it: the same one for the same id."""
    if re.fullmatch("[a-zA-Z0-9]{9}", id):
        return id
    digest = base64.b32encode(hashlib.sha256(id.encode("utf-8", "replace")).digest())
    return digest[:9].decode()


def conversation(system: bool = True) -> list[dict[str, Any]]:
    """Messages to try templates with: one of each kind."""
    call = {
        "id": _CALL,
        "type": "function",
        "function": {"name": "qzfunction", "arguments": f'{{"qzkey": "{_VALUE}"}}'},
    }
    return [
        *([{"role": "system", "content": _SYSTEM}] if system else []),
        {"role": "user", "content": _USER},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": _RESULT, "tool_call_id": _CALL, "name": "qzfunction"},
    ]


class Prober:
    """Tries a template."""

    def __init__(self, rendering: Rendering, source: str) -> None:
        self._rendering = rendering
        self._source = source
        self.written: list[str] = []
        """All that came out, for who wants to know what the template writes by itself."""

    def shape(self) -> Shape:
        shape = Shape(developer="developer" in self._source)
        shape = next((each for each in self._plain_shapes(shape) if self._shows_words(each)), shape)
        tools = self._render(shape, conversation(shape.system)[:-2], tools=True)
        shape = replace(shape, tools=tools is not None and (_DESCRIPTION in tools or "qzfunction" in tools))
        scored = [(self._calls(each), each) for each in self._call_shapes(shape)]
        score, shape = max(scored, key=lambda pair: pair[0])
        shown = self._render(shape, conversation(shape.system), tools=True) or ""
        return replace(shape, calls=score > 0, results=_RESULT in shown)

    def _plain_shapes(self, shape: Shape) -> Iterator[Shape]:
        for system, parts in product((True, False), (False, True)):
            yield replace(shape, system=system, parts=parts)

    def _shows_words(self, shape: Shape) -> bool:
        text = self._render(shape, conversation(shape.system)[:-2])
        return text is not None and _USER in text and (_SYSTEM in text or not shape.system)

    def _call_shapes(self, shape: Shape) -> Iterator[Shape]:
        empty: tuple[Literal[""] | None, ...] = ("", None)
        kinds: tuple[Literal["object", "text"], ...] = ("object", "text")
        for short_ids, arguments, no_content in product((False, True), kinds, empty):
            yield replace(shape, short_ids=short_ids, arguments=arguments, no_content=no_content)

    def _calls(self, shape: Shape) -> int:
        """How well the template shows a call of such a shape. `max` takes the first of the best."""
        text = self._render(shape, conversation(shape.system), tools=True)
        if text is None or _VALUE not in text:
            return -1 if text is None else 0
        return (1 if _ugly(text) else 3) + (_RESULT in text)

    def _render(self, shape: Shape, messages: list[dict[str, Any]], tools: bool = False) -> str | None:
        given = {"tools": [_TOOL] if tools else None, "documents": None, "add_generation_prompt": True}
        try:
            text = self._rendering.render([shape.message(each) for each in messages], given, False)
        except TemplateError:
            return None
        self.written.append(text)
        return text
