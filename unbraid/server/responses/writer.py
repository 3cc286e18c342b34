"""The reply in the Responses dialect: the response object as it grows, and the events that tell how.

One writer serves all replies, so a streamed one and a whole one have the same items. A streamed one sends the bytes
that `first`, `update` and `last` return. A whole one throws them away and sends `response`. A call that was cut off is
an item whose status is `incomplete`; nobody is told that it is done, so that nobody runs it.
"""

from __future__ import annotations

import codecs
import time
from collections.abc import Callable
from typing import Any, Literal, TypedDict

from msgspec import Raw

from ...core.events import Content
from ...core.message import Message
from ...engines import TokenLogprob
from ..api.replies import logprobs_of
from ..errors import ApiError
from ..generation.blocks import Block, Blocks, BlockStep, events_of_message
from ..generation.updates import Update, Usage, as_told
from .output_items import (
    CustomCallItem,
    Events,
    FunctionCallItem,
    MessageItem,
    OutputItem,
    ReasoningItem,
    new_id,
)
from .tools import ShownTools

_INCOMPLETE = {"length": "max_output_tokens"}
"""Finish reasons that leave a response incomplete, and what they are called here."""


class EchoedFields(TypedDict):
    """The fields of a request that the reply repeats."""

    background: bool
    instructions: str | list[dict[str, Any]] | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: dict[str, Any]
    safety_identifier: str | None
    service_tier: Literal["default"]
    store: bool
    temperature: float
    presence_penalty: float
    frequency_penalty: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: Literal["auto", "disabled"]
    user: str | None


class ResponseObject(EchoedFields):
    """A response, as replies, events and the store have it."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    error: dict[str, Any] | None
    incomplete_details: dict[str, Any] | None
    model: str
    output: list[dict[str, Any]]
    usage: dict[str, Any] | None


def usage_of(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": (usage.strands or {}).get("reasoning", 0)},
        "total_tokens": usage.prompt + usage.completion,
    }


class ResponseWriter:
    """Writes one response.

    echo: the fields of the request that the reply repeats.
    seal: makes the `encrypted_content` of reasoning, where the client wants it.
    summarized: the reasoning stands where its summary would. Nobody makes it shorter.
    """

    def __init__(
        self,
        model: str,
        echo: EchoedFields,
        tools: ShownTools,
        usage: Usage,
        *,
        seal: Callable[[str], str] | None = None,
        summarized: bool = False,
        with_logprobs: bool = False,
    ) -> None:
        self.response: ResponseObject = {
            "id": new_id("resp"),
            "object": "response",
            "created_at": int(time.time()),
            "completed_at": None,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "model": model,
            "output": [],
            "usage": None,
            **echo,
        }
        self._tools = tools
        self._usage = usage
        self._seal = seal
        self._summarized = summarized
        self._logprobs = TextLogprobs() if with_logprobs else None
        self._blocks = Blocks()
        self._events = Events()
        self._growing: OutputItem | None = None
        self._cut_off = False

    def first(self) -> bytes:
        return self._state("response.created") + self._state("response.in_progress")

    def update(self, update: Update) -> bytes:
        self.hear(update)
        events = b"".join(map(self._step, self._blocks.feed(update.events)))
        return events if update.end is None else events + self._end(update.end)

    def hear(self, update: Update) -> None:
        """Note what is not in the message: the logprobs, and whether it was cut off."""
        self._cut_off = update.cut_off
        if self._logprobs is not None:
            self._logprobs.add(update)

    def whole(self, message: Message, end: str | None) -> None:
        """All of a reply that is not streamed, of which all updates were heard. `end`: None where it did not end."""
        message = as_told(message, cut_off=end is None or self._cut_off)
        for step in self._blocks.feed(list(events_of_message(message))):
            self._step(step)
        if end is not None:
            self._end(end)

    def last(self) -> bytes:
        """The final state."""
        return self._state(f"response.{self.response['status']}")

    def fail(self, error: ApiError) -> bytes:
        """The end of a response that failed. What has come stays in it."""
        closed = self._cut()
        self._settle("failed", error={"code": "server_error", "message": error.message})
        return closed + self.last()

    def cancel(self) -> None:
        """The client has stopped it."""
        self._cut()
        self._settle("cancelled")

    def _end(self, reason: str) -> bytes:
        cut_off = reason in _INCOMPLETE
        events = b"".join(map(self._step, self._blocks.finish(cut_off)))
        if not self.response["output"]:  # the model said nothing: that is an answer, too
            block = Block(0, "text", complete=not cut_off)
            events += self._step(("open", block, "")) + self._step(("close", block, ""))
        if cut_off:
            self.response["incomplete_details"] = {"reason": _INCOMPLETE[reason]}
            self._settle("incomplete")
        else:
            self._settle("completed")
        return events

    def _cut(self) -> bytes:
        """Close what is open: it has been cut off."""
        return b"".join(map(self._step, self._blocks.finish(cut_off=True)))

    def _settle(
        self, status: Literal["completed", "incomplete", "failed", "cancelled"], error: dict[str, Any] | None = None
    ) -> None:
        self.response["status"], self.response["error"] = status, error
        self.response["completed_at"] = int(time.time()) if status == "completed" else None
        # An engine counts at the end. What has not ended is not counted.
        self.response["usage"] = usage_of(self._usage) if status in ("completed", "incomplete") else None

    def _step(self, step: BlockStep) -> bytes:
        kind, block, text = step
        if kind == "open":
            self._growing = self._opened(block)
            item = self._growing.item
            self.response["output"].append(item)
            added = self._events.event("response.output_item.added", output_index=block.index, item=item)
            return added + self._growing.begin()
        growing = self._growing
        assert growing is not None, "a block was opened before"
        if kind == "delta":
            return growing.delta(text)
        ended = growing.end(block)
        if block.kind == "call" and not block.complete:
            return ended
        return ended + self._events.event("response.output_item.done", output_index=block.index, item=growing.item)

    def _opened(self, block: Block) -> OutputItem:
        if block.kind == "reasoning":
            return ReasoningItem(self._events, block, self._summarized, self._seal)
        if block.kind == "text":
            return MessageItem(self._events, block, None if self._logprobs is None else self._logprobs.take)
        tool = self._tools.find(block.name)
        if tool is not None and tool.custom:
            return CustomCallItem(self._events, block, tool)
        return FunctionCallItem(self._events, block, tool)

    def _state(self, kind: str) -> bytes:
        return self._events.event(kind, response=self.response)


class TextLogprobs:
    """The logprobs of the answer's tokens. Those of other tokens have no place in a reply.

    Which tokens these are follows from the spans of the events, so it does not depend on how an engine cuts its pieces.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._end = 0
        """How many characters the tokens so far are."""
        self._held: list[tuple[int, int, TokenLogprob]] = []
        """Tokens that no event was about yet, each with its span."""
        self._found: list[Raw] = []

    def add(self, update: Update) -> None:
        for one in update.logprobs:
            start, self._end = self._end, self._end + len(self._decoder.decode(one.bytes))
            self._held.append((start, self._end, one))
        for event in update.events:
            if type(event) is Content:
                taken = [each for each in self._held if each[0] < event.end and each[1] > event.start]
                self._found += logprobs_of(one for _, _, one in taken)
                self._held = [each for each in self._held if each[0] >= event.end]

    def take(self) -> list[Raw]:
        """Those of the text that is about to go out."""
        taken, self._found = self._found, []
        return taken
