"""A few replies, read at start through the interfaces of an engine whose version the plug-in was not tested with.

The hooks say that all parts are there; only a reply shows whether they still do what they did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..core.grammar import Format
from ..core.message import Message, Text, ToolCall
from ..core.render import render
from ..formats import find

Reply = tuple[str, str, list[tuple[str, str]]]
"""The reasoning, the content, and the calls by name and arguments."""
Read = Callable[[Format, str, bool], Reply]
"""Reads a reply of a format through the engine: as a whole if that is True, and otherwise character by character."""

FORMATS = ("qwen3", "glm-4.7", "kimi-k2")
"""JSON, tags, and a section around calls."""
TOOL: dict[str, Any] = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
_EXPECTED: Reply = ("Hm.", "So:", [("f", '{"a": "b"}'), ("f", '{"a": "c"}')])


def failures(read: Read) -> Iterator[str]:
    """What went wrong, in words."""
    reasoning, content, calls = _EXPECTED
    said = (Text("reasoning", reasoning), Text("content", content))
    message = Message((*said, *(ToolCall(name, arguments, "abcdefghi") for name, arguments in calls)))
    for name in FORMATS:
        format = find(name)
        text = render(format, message)
        for whole in (False, True):
            try:
                reply: object = read(format, text, whole)
            except Exception as error:
                reply = error
            if reply != _EXPECTED:
                how = "as a whole" if whole else "streamed"
                yield f"{format.name} {how} reads {_EXPECTED} as {reply!r}"
