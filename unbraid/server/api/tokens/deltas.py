"""The events of one chunk as one delta of OpenAI's chat dialect.

vLLM's contract has one delta for each chunk, whatever came in it: a piece of reasoning, of content and of a call stand
side by side.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....core.custom_tools.input import CustomInput
from ....core.events import Content, Event, Reasoning, ToolCallArguments, ToolCallEnd, ToolCallStart
from .readings import Reading


class Deltas:
    """Makes the deltas of one stream.

    input: what reads the free text of the custom call that is open, if one is.
    """

    __slots__ = ("called", "characters", "input", "role_sent")

    def __init__(self) -> None:
        self.role_sent = False
        self.called = False
        """Whether a call has begun."""
        self.input: CustomInput | None = None
        self.characters = 0
        """How long the text is so far, where that is to be told."""

    def save(self) -> tuple[bool, bool, int, list[Any] | None]:
        return self.role_sent, self.called, self.characters, None if self.input is None else self.input.save()

    def load(self, saved: list[Any]) -> None:
        self.role_sent, self.called, self.characters, input = saved
        self.input = None if input is None else CustomInput.load(input)

    def delta(self, events: Iterable[Event], reading: Reading) -> dict[str, Any]:
        """What is new."""
        said: dict[str, Any] = {"role": None, "content": None, "reasoning": None}
        if not self.role_sent:
            self.role_sent, said["role"] = True, "assistant"
        calls: dict[int, dict[str, Any]] = {}
        for event in events:
            kind = type(event)
            if kind is Content:
                said["content"] = (said["content"] or "") + event.text  # type: ignore[union-attr]
            elif kind is Reasoning:
                if reading.include_reasoning:
                    said["reasoning"] = (said["reasoning"] or "") + event.text  # type: ignore[union-attr]
            elif isinstance(event, ToolCallArguments):
                if self.input is None:
                    _add(calls, event.index, "function", "arguments", event.fragment)
                else:
                    _add(calls, event.index, "custom", "input", self.input.feed(event.fragment))
            elif isinstance(event, ToolCallStart):
                self._begin(event, calls, event.name in reading.custom)
            elif isinstance(event, ToolCallEnd):
                if self.input is not None:
                    _add(calls, event.index, "custom", "input", self.input.finish())
                    self.input = None
            else:
                _add_speech(said, event.to_openai())
        if calls:
            said["tool_calls"] = list(calls.values())
        return said

    def _begin(self, event: ToolCallStart, calls: dict[int, dict[str, Any]], custom: bool) -> None:
        self.called = True
        self.input = CustomInput() if custom else None
        what = {"name": event.name, "input" if custom else "arguments": ""}
        type = "custom" if custom else "function"
        calls[event.index] = {"id": event.id, "type": type, "index": event.index, type: what}


def _add(calls: dict[int, dict[str, Any]], index: int, type: str, key: str, text: str) -> None:
    """Text that belongs to a call."""
    if not text:
        return
    call = calls.get(index)
    if call is None:
        calls[index] = {"id": None, "type": None, "index": index, type: {"name": None, key: text}}
    else:
        call[type][key] += text


def _add_speech(said: dict[str, Any], more: dict[str, Any] | None) -> None:
    """Speech, which OpenAI has no field for: its text and its codes, each in the order in which they came."""
    for name, fields in (more or {}).items():
        before = said.setdefault(name, {})
        for key, text in fields.items():
            before[key] = before.get(key, "") + text
