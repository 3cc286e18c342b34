"""The items of a response's output while they grow, each with the events that tell it.

An item begins, takes deltas and ends. `item` is what the response object holds, and is changed as it grows.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ...core.custom_tools import CustomInput
from ..generation.blocks import Block
from .tools import ShownTool

if TYPE_CHECKING:  # an alias; the playground loads this without the server's other packages
    from ..api.fields import Object

_encode = msgspec.json.encode


def new_id(kind: str) -> str:
    """An id such as `msg_3f0c…`."""
    return f"{kind}_{secrets.token_hex(16)}"


class Events:
    """Writes events, and numbers them."""

    def __init__(self) -> None:
        self._next = 0

    def event(self, kind: str, **fields: Any) -> bytes:
        return b"event: %b\ndata: %b\n\n" % (
            kind.encode(),
            _encode({"type": kind, "sequence_number": self._number(), **fields}),
        )

    def deltas(self, kind: str, place: Object) -> Callable[[str, bytes], bytes]:
        """A writer of one item's deltas. They come often, so what does not change is written once."""
        head = b"event: %b\ndata: %b" % (kind.encode(), _encode({"type": kind, **place})[:-1])

        def delta(text: str, more: bytes = b"") -> bytes:
            return b'%b,"delta":%b%b,"sequence_number":%d}\n\n' % (head, _encode(text), more, self._number())

        return delta

    def _number(self) -> int:
        number, self._next = self._next, self._next + 1
        return number


class OutputItem(Protocol):
    """An item that grows."""

    item: Object

    def begin(self) -> bytes:
        """The events after the one that adds the item."""
        ...

    def delta(self, text: str) -> bytes: ...

    def end(self, block: Block) -> bytes:
        """The events before the one that says that the item is done. A call that was cut off has none."""
        ...


class MessageItem:
    """Text of the answer. `logprobs` gives those of the tokens of the next delta, where the client wants them."""

    def __init__(self, events: Events, block: Block, logprobs: Callable[[], list[msgspec.Raw]] | None) -> None:
        self._logprobs = logprobs
        self._part: Object = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        self.item: Object = {
            "id": new_id("msg"),
            "type": "message",
            "status": "in_progress",
            "role": "assistant",
            "content": [],
        }
        self._place = {"item_id": self.item["id"], "output_index": block.index, "content_index": 0}
        self._events = events
        self._delta = events.deltas("response.output_text.delta", self._place)

    def begin(self) -> bytes:
        return self._events.event("response.content_part.added", **self._place, part=self._part)

    def delta(self, text: str) -> bytes:
        if self._logprobs is None:
            return self._delta(text, b',"logprobs":[]')
        logprobs = self._logprobs()
        self._part["logprobs"] += logprobs
        return self._delta(text, b',"logprobs":' + _encode(logprobs))

    def end(self, block: Block) -> bytes:
        part = self._part
        part["text"] = block.text
        self.item |= {"status": "completed" if block.complete else "incomplete", "content": [part]}
        events = self._events.event(
            "response.output_text.done", **self._place, text=part["text"], logprobs=part["logprobs"]
        )
        return events + self._events.event("response.content_part.done", **self._place, part=part)


class ReasoningItem:
    """Reasoning: its text, or the same text where a summary was asked for. `seal` makes its `encrypted_content`."""

    def __init__(self, events: Events, block: Block, summarized: bool, seal: Callable[[str], str] | None) -> None:
        self._seal = seal
        self._events = events
        self.item: Object = {"id": new_id("rs"), "type": "reasoning", "status": "in_progress", "summary": []}
        if seal is not None:
            self.item["encrypted_content"] = ""
        place = {"item_id": self.item["id"], "output_index": block.index}
        if summarized:
            self._key, self._part_kind = "summary", "summary_text"
            self._text, self._part_event = "response.reasoning_summary_text", "response.reasoning_summary_part"
            self._place = {**place, "summary_index": 0}
        else:
            self._key, self._part_kind = "content", "reasoning_text"
            self._text, self._part_event = "response.reasoning_text", "response.content_part"
            self._place = {**place, "content_index": 0}
        self._delta = events.deltas(f"{self._text}.delta", self._place)

    def begin(self) -> bytes:
        return self._events.event(f"{self._part_event}.added", **self._place, part=self._part(""))

    def delta(self, text: str) -> bytes:
        return self._delta(text, b"")

    def end(self, block: Block) -> bytes:
        text = block.text
        part = self._part(text)
        self.item |= {"status": "completed" if block.complete else "incomplete", self._key: [part]}
        if self._seal is not None:
            self.item["encrypted_content"] = self._seal(text)
        events = self._events.event(f"{self._text}.done", **self._place, text=text)
        return events + self._events.event(f"{self._part_event}.done", **self._place, part=part)

    def _part(self, text: str) -> Object:
        return {"type": self._part_kind, "text": text}


class FunctionCallItem:
    """A call of a function. Its arguments are JSON text; those of a call that was cut off are not whole."""

    def __init__(self, events: Events, block: Block, tool: ShownTool | None) -> None:
        self._events = events
        self.item: Object = {
            "id": new_id("fc"),
            "type": "function_call",
            "status": "in_progress",
            "call_id": block.call_id,
            **_name(block, tool),
            "arguments": "",
        }
        self._place = {"item_id": self.item["id"], "output_index": block.index}
        self._delta = events.deltas("response.function_call_arguments.delta", self._place)

    def begin(self) -> bytes:
        return b""

    def delta(self, text: str) -> bytes:
        return self._delta(text, b"")

    def end(self, block: Block) -> bytes:
        arguments = block.text
        self.item |= {"status": "completed" if block.complete else "incomplete", "arguments": arguments}
        if not block.complete:
            return b""
        return self._events.event(
            "response.function_call_arguments.done", **self._place, name=self.item["name"], arguments=arguments
        )


class CustomCallItem:
    """A call of a custom tool. Its input is free text, taken out of the arguments that the model writes."""

    def __init__(self, events: Events, block: Block, tool: ShownTool) -> None:
        self._events = events
        self._decoder = CustomInput()
        self._pieces: list[str] = []
        self.item: Object = {
            "id": new_id("ctc"),
            "type": "custom_tool_call",
            "status": "in_progress",
            "call_id": block.call_id,
            **_name(block, tool),
            "input": "",
        }
        self._place = {"item_id": self.item["id"], "output_index": block.index}
        self._delta = events.deltas("response.custom_tool_call_input.delta", self._place)

    def begin(self) -> bytes:
        return b""

    def delta(self, text: str) -> bytes:
        return self._said(self._decoder.feed(text))

    def end(self, block: Block) -> bytes:
        events = self._said(self._decoder.finish())
        arguments = "".join(self._pieces)
        self.item |= {"status": "completed" if block.complete else "incomplete", "input": arguments}
        if not block.complete:
            return events
        return events + self._events.event("response.custom_tool_call_input.done", **self._place, input=arguments)

    def _said(self, text: str) -> bytes:
        if not text:
            return b""
        self._pieces.append(text)
        return self._delta(text, b"")


def _name(block: Block, tool: ShownTool | None) -> Object:
    """The name that the client knows a tool by."""
    if tool is None:
        return {"name": block.name}
    return {"name": tool.name} if tool.namespace is None else {"name": tool.name, "namespace": tool.namespace}
