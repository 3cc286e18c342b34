"""The reply: a message of content blocks, whole, or as the events that open, continue and close each of them.

Both are made of the same `Blocks`. A whole reply takes them from a message that is settled: a call that was cut off is
no call there, and its text stands in a text block. A client of the stream has seen the call begin, and sees that its
JSON stays open. A call that broke is a call in both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, NotRequired, TypedDict

import msgspec

from ...core.message import Message
from ..generation.blocks import Block, Blocks, BlockStep, events_of_message
from ..generation.updates import Update, Usage, as_told
from ..observing.exchange import random_id
from ..storage.seal import Seal

_encode = msgspec.json.encode
_DELTAS = {
    "text": b'"type":"text_delta","text":',
    "reasoning": b'"type":"thinking_delta","thinking":',
    "call": b'"type":"input_json_delta","partial_json":',
}
_PING = b'event: ping\ndata: {"type":"ping"}\n\n'


StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"]


class MessageUsage(TypedDict):
    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: NotRequired[dict[str, int]]


class MessageEnd(TypedDict):
    stop_reason: StopReason | None
    """None while the reply goes on."""
    stop_sequence: str | None


class AnthropicMessage(MessageEnd):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    usage: MessageUsage


@dataclass(frozen=True)
class MessageHead:
    """What is known of a reply before it begins."""

    model: str
    seal: Seal
    client: str
    prompt_tokens: int = 0
    """0 where only the engine can count them; then they are told at the end."""
    clipped: bool = False
    """Whether the context has less room than `max_tokens`."""
    omit_thinking: bool = False
    id: str = field(default_factory=lambda: f"msg_{random_id()}")

    def fields(self, content: list[dict[str, Any]], end: MessageEnd, usage: MessageUsage) -> AnthropicMessage:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            **end,
            "usage": usage,
        }

    def thinking(self, text: str) -> dict[str, str]:
        """A thinking block. Its signature vouches for the text, or holds it where it is not to be seen."""
        if self.omit_thinking:
            return {"type": "thinking", "thinking": "", "signature": self.seal.close(text, self.client)}
        return {"type": "thinking", "thinking": text, "signature": self.seal.sign(text, self.client)}

    def end(self, update: Update) -> MessageEnd:
        """Why the reply ended, told by its last update."""
        reason: StopReason
        if update.end == "length":
            reason = "model_context_window_exceeded" if self.clipped else "max_tokens"
        elif update.end == "tool_calls":
            reason = "tool_use"
        else:
            reason = "end_turn" if update.stopped_by is None else "stop_sequence"
        return {"stop_reason": reason, "stop_sequence": update.stopped_by}


def usage_of(usage: Usage) -> MessageUsage:
    """The token counts. Those of the prompt that the engine found in its cache are counted apart."""
    counts: MessageUsage = {
        "input_tokens": usage.prompt - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.completion,
    }
    if usage.strands is not None:
        counts["output_tokens_details"] = {"thinking_tokens": usage.strands.get("reasoning", 0)}
    return counts


def whole_reply(head: MessageHead, message: Message, last: Update, usage: Usage) -> AnthropicMessage:
    """The reply to a request that does not stream."""
    blocks = Blocks()
    settled = as_told(message, cut_off=last.cut_off).settled()
    steps = chain(blocks.feed(list(events_of_message(settled))), blocks.finish())
    content = [_whole_block(head, block) for kind, block, _ in steps if kind == "close"]
    return head.fields(content, head.end(last), usage_of(usage))


def _whole_block(head: MessageHead, block: Block) -> dict[str, Any]:
    if block.kind == "text":
        return {"type": "text", "text": block.text}
    if block.kind == "reasoning":
        return head.thinking(block.text)
    return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": _input(block.text)}


def _input(arguments: str) -> object:
    """The arguments of a call, as the model wrote them: no digit of a number is lost. What is no JSON is the value of
    an object, as nothing else has a place here."""
    try:
        msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        try:  # msgspec refuses half of a surrogate pair, which JSON may have
            json.loads(arguments, parse_constant=_refused)
        except (ValueError, RecursionError):
            return {"arguments": arguments}
    return msgspec.Raw(arguments.encode())


def _refused(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")


class MessageEvents:
    """Writes the events of a streamed reply. Of a delta, only its text is encoded anew."""

    def __init__(self, head: MessageHead, usage: Usage) -> None:
        self._head = head
        self._usage = usage
        self._blocks = Blocks()
        self._delta = b""
        """How each delta of the block that is open begins."""
        self._end: MessageEnd = {"stop_reason": None, "stop_sequence": None}

    def first(self) -> bytes:
        before = usage_of(Usage(prompt=self._head.prompt_tokens))
        message = self._head.fields([], {"stop_reason": None, "stop_sequence": None}, before)
        return _event("message_start", message=message) + _PING

    def update(self, update: Update) -> bytes:
        events = b"".join(self._written(self._blocks.feed(update.events)))
        if update.end is not None:
            self._end = self._head.end(update)
            events += b"".join(self._written(self._blocks.finish(cut_off=update.end == "length")))
        return events

    def last(self) -> bytes:
        end = _event("message_delta", delta=self._end, usage=usage_of(self._usage))
        return end + _event("message_stop")

    def _written(self, steps: Iterator[BlockStep]) -> Iterator[bytes]:
        omits = self._head.omit_thinking
        for kind, block, text in steps:
            if kind == "delta":
                if not (omits and block.kind == "reasoning"):
                    yield b"%b%b}}\n\n" % (self._delta, _encode(text))
            elif kind == "open":
                start = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{%b'
                self._delta = start % (block.index, _DELTAS[block.kind])
                yield _event("content_block_start", index=block.index, content_block=_opened(block))
            else:
                if block.kind == "reasoning":
                    signature = self._head.thinking(block.text)["signature"]
                    delta = {"type": "signature_delta", "signature": signature}
                    yield _event("content_block_delta", index=block.index, delta=delta)
                yield _event("content_block_stop", index=block.index)


def _opened(block: Block) -> dict[str, Any]:
    """A block before anything is in it."""
    if block.kind == "text":
        return {"type": "text", "text": ""}
    if block.kind == "reasoning":
        return {"type": "thinking", "thinking": "", "signature": ""}
    return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": {}}


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode({"type": kind, **fields}))
