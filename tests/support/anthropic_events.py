"""What a client of Anthropic's makes of a stream: its events, checked, and the message that they tell."""

from __future__ import annotations

import json
from typing import Any

_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


def read_events(text: str) -> list[dict[str, Any]]:
    """The events of a stream. The name of each is also its type."""
    *blocks, rest = text.split("\n\n")
    assert rest == ""
    found = []
    for block in blocks:
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


def folded_message(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that the events tell.

    Checks what every stream keeps to: one start and one end; blocks one after the other, each opened and closed once;
    deltas that fit the block that is open; one signature, last in its block. A call whose JSON stays open has its text
    as `partial_json`, and no input.
    """
    start, *between, delta, stop = [event for event in events if event["type"] != "ping"]
    assert start["type"] == "message_start"
    assert start["message"]["content"] == []
    assert start["message"]["stop_reason"] is None
    assert (delta["type"], stop) == ("message_delta", {"type": "message_stop"})
    content: list[dict[str, Any]] = []
    is_open = False
    for event in between:
        kind = event["type"]
        if kind == "content_block_start":
            assert not is_open
            assert event["index"] == len(content)
            content.append(dict(event["content_block"]))
            if content[-1]["type"] == "tool_use":
                assert content[-1].pop("input") == {}
                content[-1]["partial_json"] = ""
            is_open = True
            continue
        assert is_open
        assert event["index"] == len(content) - 1
        if kind == "content_block_stop":
            is_open = False
            _close(content[-1])
        else:
            assert kind == "content_block_delta"
            _add(content[-1], event["delta"])
    assert not is_open
    usage = {**start["message"]["usage"], **delta["usage"]}
    return {**start["message"], "content": content, **delta["delta"], "usage": usage}


def _add(block: dict[str, Any], delta: dict[str, Any]) -> None:
    if delta["type"] == "input_json_delta":
        block["partial_json"] += delta["partial_json"]
        return
    name = _DELTAS[delta["type"]]
    assert block["type"] == ("text" if name == "text" else "thinking")
    assert not block.get("signature"), "the signature is last"
    block[name] += delta[name]


def _close(block: dict[str, Any]) -> None:
    assert (block["type"] == "thinking") == bool(block.get("signature"))
    if block["type"] == "tool_use":
        try:
            block["input"] = json.loads(block["partial_json"])
        except ValueError:
            return
        del block["partial_json"]
