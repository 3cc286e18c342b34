"""Replies of Anthropic's dialect in every format: a stream, put together, is the whole reply."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid import Format
from unbraid.server.generation.updates import Outgoing, Update, Usage, as_told
from unbraid.server.messages.reply import MessageEvents, MessageHead, whole_reply
from unbraid.server.storage.seal import Seal

from ..support import strategies
from ..support.anthropic_events import folded_message, read_events

every_format = pytest.mark.parametrize("format", strategies.FORMATS, ids=[f.name for f in strategies.FORMATS])
HEAD = MessageHead("model", Seal(), "client", 3)


def replies(format: Format, pieces: Iterable[str], end: str) -> tuple[dict[str, Any], dict[str, Any], unbraid.Message]:
    """The whole reply, the streamed one, and the message that both tell."""
    parser = unbraid.parser(format, seed=7, prompt="")
    usage = Usage(3, 1, 5)
    events, outgoing = MessageEvents(HEAD, usage), Outgoing()
    written = events.first()
    for piece in pieces:
        written += events.update(Update(0, outgoing.passed(parser.feed(piece))))
    rest = outgoing.last(outgoing.passed(parser.finish()), cut_off=end == "length")
    last = Update(0, rest, end=end)
    written += events.update(last) + events.last()
    whole = json.loads(msgspec.json.encode(whole_reply(HEAD, parser.message, last, usage)))
    return whole, folded_message(read_events(written.decode())), parser.message


def input_of(arguments: str) -> Any:
    """The input of a call in a whole reply. What is no JSON is the value of an object."""
    try:
        return json.loads(arguments)
    except ValueError:
        return {"arguments": arguments}


@every_format
@given(data=st.data())
def test_a_stream_is_the_whole_reply(format: Format, data: st.DataObject) -> None:
    text = data.draw(strategies.hostile(format))
    pieces = data.draw(st.composite(strategies.cuts)(text))
    whole, streamed, message = replies(format, pieces, data.draw(st.sampled_from(["stop", "length", "tool_calls"])))
    calls = [block for block in whole["content"] if block["type"] == "tool_use"]
    message_told = as_told(message, cut_off=whole["stop_reason"] == "max_tokens")
    assert [(call["name"], call["input"]) for call in calls] == [
        (call.name, input_of(call.arguments)) for call in message_told.tool_calls if call.complete
    ]
    for block in whole["content"]:
        if block["type"] == "thinking":
            assert HEAD.seal.verify(block["thinking"], block["signature"], "client")
    for block in streamed["content"]:
        if message_told.tool_calls and message_told.tool_calls[-1].complete and "partial_json" in block:
            block["input"] = {"arguments": block.pop("partial_json")}
    if all(call.complete for call in message_told.tool_calls):
        assert streamed == whole
        return
    # What was cut off is text in the whole reply, with all that the model wrote for it.
    said = "".join(block["text"] for block in whole["content"] if block["type"] == "text")
    for call in message_told.tool_calls:
        assert call.complete or "".join(call.raw.split()) in "".join(said.split())
    begun = [block for block in streamed["content"] if block["type"] == "tool_use"]
    assert [call["name"] for call in begun] == [call.name for call in message.tool_calls]
