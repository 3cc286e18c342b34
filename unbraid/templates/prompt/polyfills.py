"""Polyfills: what a template does not support is written into messages that every template can show.

Tools are described in the system message, in the style of Hermes. Calls of earlier turns become content, written as a
model of the format would write them. Results become turns of the user. A system message that the template would refuse
or leave out becomes text of the user, where it stands. Where roles must alternate, messages are joined. llama.cpp's
minja uses the same word for the same remedy.
"""

from __future__ import annotations

import json
from typing import Any

from ...core.grammar import Format
from ...core.message import Message, ToolCall
from ...core.render import render
from ...errors import UnbraidError
from ...formats import find
from ..control_tokens import ControlTokens, mark_grammar
from ..traced_text import AT

_SYSTEM = """\
You can call functions to help with the user's request. These are the functions, within <tools></tools>:
<tools>
{tools}
</tools>

To call a function, write its name and its arguments just like this, once for each call:
{example}
The results come back within <tool_response></tool_response>."""


class ToolPolyfill:
    """Writes tools, calls and results into messages."""

    def __init__(self, format: Format | None, controls: ControlTokens) -> None:
        with_calls = format if format is not None and format.tools is not None else find("hermes")
        self._format = mark_grammar(with_calls, controls)
        self._controls = controls

    def with_tools(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The tools described in the system message; one is added if there is none."""
        listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
        example = render(self._format, Message((ToolCall("function_name", '{"argument": "value"}'),)))
        head, tail = (self._controls.mark(part) for part in _SYSTEM.format(tools="\0", example="\1").split("\0"))
        text = head + listed + tail.replace("\1", example.strip("\n"))
        if messages and messages[0]["role"] in ("system", "developer"):
            first = messages[0]
            return [{**first, "content": f"{first['content']}\n\n{text}"}, *messages[1:]]
        return [{"role": "system", "content": text}, *messages]

    def with_calls(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Calls written into the content."""
        return [self._with_calls_as_content(message) if message.get("tool_calls") else message for message in messages]

    def _with_calls_as_content(self, message: dict[str, Any]) -> dict[str, Any]:
        calls = [
            ToolCall(each["function"]["name"], each["function"]["arguments"], each["id"])
            for each in message["tool_calls"]
        ]
        try:
            text = render(self._format, Message(tuple(calls)))
        except UnbraidError:  # the format cannot write these arguments: show them as JSON
            text = "\n".join(f"{call.name} {call.arguments}" for call in calls)
        content = message["content"]
        rest = {key: value for key, value in message.items() if key != "tool_calls"}
        return {**rest, "content": f"{content}\n{text}" if content else text}

    def with_results(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Results as turns of the user; consecutive results share one turn."""
        result: list[dict[str, Any]] = []
        after_result = False
        for message in messages:
            if message["role"] != "tool":
                result.append(message)
                after_result = False
                continue
            open, close = self._controls.mark("<tool_response>"), self._controls.mark("</tool_response>")
            text = f"{open}\n{message['content']}\n{close}"
            if after_result:
                text = f"{result.pop()['content']}\n{text}"
            result.append({**_number(message), "role": "user", "content": text})
            after_result = True
        return result


def system_as_user(messages: list[dict[str, Any]], keep_first: bool) -> list[dict[str, Any]]:
    """System messages as text of the user, where they stand, in one turn with what the user says beside them.

    keep_first: those that stand before all others stay what they are, as one message.
    """
    result: list[dict[str, Any]] = []
    moved = False
    for message in messages:
        is_system = message["role"] in _SYSTEM_ROLES
        first = keep_first and all(each["role"] in _SYSTEM_ROLES for each in result)
        if is_system and not first:
            message = {**_number(message), "role": "user", "content": message["content"]}
        alike = bool(result) and (message["role"] == result[-1]["role"] or (is_system and first))
        if alike and (is_system or moved):
            result.append(_joined(result.pop(), message))
        else:
            result.append(message)
        moved = is_system and not first
    return result


def alternating(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages of the user that follow each other as one, and the same for those of the assistant. Text before a call
    stays a message of its own."""
    result: list[dict[str, Any]] = []
    for message in messages:
        alike = bool(result) and message["role"] == result[-1]["role"] and message["role"] in ("user", "assistant")
        if alike and bool(message.get("tool_calls")) == bool(result[-1].get("tool_calls")):
            result.append(_joined(result.pop(), message))
        else:
            result.append(message)
    return result


def user_in_result(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the user says right after a result is put into that result."""
    merged: list[dict[str, Any]] = []
    for message in messages:
        if merged and message["role"] == "user" and merged[-1]["role"] == "tool":
            result = merged.pop()
            merged.append({**result, "content": together(result["content"], message["content"])})
        else:
            merged.append(message)
    return merged


_SYSTEM_ROLES = ("system", "developer")


def _joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Two messages of one role as one."""
    joined = {**second, **first, "content": together(first["content"], second["content"])}
    if "tool_calls" in first and "tool_calls" in second:
        joined["tool_calls"] = [*first["tool_calls"], *second["tool_calls"]]
    for key in ("reasoning_content", "reasoning", "thinking"):
        if key in first and key in second:
            joined[key] = together(first[key], second[key])
    return joined


def _number(message: dict[str, Any]) -> dict[str, Any]:
    """The number that a message carries where its text is traced."""
    return {AT: message[AT]} if AT in message else {}


def together(*texts: str) -> str:
    """Texts as one."""
    return "\n\n".join(text for text in texts if text)
