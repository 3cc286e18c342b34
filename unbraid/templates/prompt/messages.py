"""Chat messages as clients send them, checked and brought to one form.

The form is OpenAI's, narrowed: content is a text, arguments are JSON text, the role `function` is `tool`. What a
particular template wants instead is the business of `TemplateCapabilities.adapt`. Errors name the field
(`messages[2].content`), since clients see them; what is read is passed on with its path, of which a `Place` is made
where something is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...core.custom_tools import arguments_of, read_custom_tool
from ...errors import Keys, Place
from ..control_tokens import ControlTokens, sanitize
from ..errors import InvalidMessages

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
PartHook = Callable[[Mapping[str, Any], Place], str]
"""Takes a part of a content that is no text (an image, a recording) and its place (`messages[2].content[0]`). Returns
the text for the prompt; control tokens in it are meant as tokens."""

_READ_APART = ("eot", "tts_content", "content")
_STRINGS = ("name", "tool_call_id", "reasoning_content", "reasoning", "thinking")


class MessageReader:
    """Reads messages: content is text, arguments are JSON text, results carry the name of their function. All other
    fields of a message are kept for the template."""

    def __init__(self, controls: ControlTokens, part_hook: PartHook | None = None) -> None:
        self._controls = controls
        self._hook = part_hook

    def read(self, messages: object) -> list[dict[str, Any]]:
        if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
            raise InvalidMessages(f"messages must be a list of messages, not {type(messages).__name__}")
        if not messages:
            raise InvalidMessages("messages is empty: there is nothing to answer")
        result: list[dict[str, Any]] = []
        names: dict[str, str] = {}
        for at, message in enumerate(messages):
            one = self._message(message, ("messages", at))
            for call in one.get("tool_calls", ()):
                names[call["id"]] = call["function"]["name"]
            if one["role"] == "tool" and not one.get("name") and one.get("tool_call_id") in names:
                one["name"] = names[one["tool_call_id"]]
            result.append(one)
        return result

    def _message(self, message: object, where: Keys) -> dict[str, Any]:
        if not isinstance(message, Mapping):
            raise InvalidMessages(Place(*where), f" must be an object, not {type(message).__name__}")
        role = message.get("role")
        if role not in ROLES:
            raise InvalidMessages(Place(*where, "role"), f" must be one of {', '.join(ROLES)}, not {role!r}")
        one = {str(key): sanitize(value) for key, value in message.items() if key not in _READ_APART}
        one["role"] = "tool" if role == "function" else role
        if role != "assistant" and one.pop("tool_calls", None):
            raise InvalidMessages(Place(*where, "tool_calls"), ": only a message of the assistant has tool calls")
        for key in _STRINGS:
            value = one.get(key, "")
            if value is None:
                del one[key]
            elif not isinstance(value, str):
                raise InvalidMessages(Place(*where, key), f" must be a string, not {type(value).__name__}")
        one["content"] = self._content(message.get("content"), (*where, "content"))
        if role == "assistant":
            self._assistant(one, message, where)
        elif "content" not in message or message["content"] is None:
            raise InvalidMessages(Place(*where), " has no content")
        return one

    def _assistant(self, one: dict[str, Any], message: Mapping[str, Any], where: Keys) -> None:
        calls = one.pop("tool_calls", None)
        if calls is not None and not isinstance(calls, list):
            raise InvalidMessages(Place(*where, "tool_calls"), f" must be a list, not {type(calls).__name__}")
        if calls:
            one["tool_calls"] = [_read_call(call, (*where, "tool_calls", at)) for at, call in enumerate(calls)]
        speech = message.get("tts_content")
        if isinstance(speech, Mapping) and isinstance(speech.get("tts_text"), str):
            # The spoken text is content. The audio codes are not shown to the model again.
            one["content"] += sanitize(speech["tts_text"])
        elif speech is not None:
            raise InvalidMessages(Place(*where, "tts_content"), " must be an object with tts_text")

    def _content(self, content: object, where: Keys) -> str:
        if content is None:
            return ""
        if isinstance(content, str):
            return str(sanitize(content))
        if not isinstance(content, Sequence) or isinstance(content, bytes):
            raise InvalidMessages(Place(*where), f" must be a string or a list of parts, not {type(content).__name__}")
        text_so_far = ""
        after_text = False
        for at, part in enumerate(content):
            text, is_text = self._part(part, (*where, at))
            text_so_far += ("\n" if after_text and is_text else "") + text
            after_text = is_text
        return text_so_far

    def _part(self, part: object, where: Keys) -> tuple[str, bool]:
        if isinstance(part, str):
            return sanitize(part), True
        if not isinstance(part, Mapping):
            raise InvalidMessages(Place(*where), f" must be an object, not {type(part).__name__}")
        kind = part.get("type", "text")
        if kind in ("text", "refusal"):
            text = part.get(kind)
            if not isinstance(text, str):
                raise InvalidMessages(Place(*where, kind), f" must be a string, not {type(text).__name__}")
            return sanitize(text), True
        if self._hook is None:
            raise InvalidMessages(Place(*where), f": parts of type {kind!r} are not supported here, only text")
        return self._controls.mark(sanitize(self._hook(part, Place(*where)))), False


def _read_call(call: object, where: Keys) -> dict[str, Any]:
    if not isinstance(call, Mapping):
        raise InvalidMessages(Place(*where), f" must be an object, not {type(call).__name__}")
    custom = call.get("type") == "custom"
    name, arguments = _read_custom_call(call, where) if custom else _read_function_call(call, where)
    id = call.get("id") or ""
    if not isinstance(id, str):
        raise InvalidMessages(Place(*where, "id"), f" must be a string, not {type(id).__name__}")
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _read_function_call(call: Mapping[str, Any], where: Keys) -> tuple[str, str]:
    function = call.get("function")
    if not isinstance(function, Mapping):
        raise InvalidMessages(Place(*where, "function"), " must be an object with name and arguments")
    name, arguments = _call_name(function, (*where, "function")), function.get("arguments")
    if isinstance(arguments, Mapping):
        arguments = json.dumps(arguments, ensure_ascii=False)
    if arguments is None or arguments == "":
        arguments = "{}"
    if not isinstance(arguments, str):
        raise InvalidMessages(
            Place(*where, "function", "arguments"), f" must be JSON text, not {type(arguments).__name__}"
        )
    return name, arguments


def begun_arguments(call: Mapping[str, Any]) -> str:
    """What there is of the arguments of a call that broke off, of a message that was read. The text of a custom tool is
    a string in it that has not ended."""
    if call.get("type") == "custom":
        return arguments_of(call["custom"]["input"])[: -len('"}')]
    arguments = call["function"].get("arguments")
    return json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, Mapping) else arguments or ""


def _read_custom_call(call: Mapping[str, Any], where: Keys) -> tuple[str, str]:
    """A call of a custom tool is shown as one of the function that the tool is shown as."""
    where = (*where, "custom")
    custom = call.get("custom")
    if not isinstance(custom, Mapping):
        raise InvalidMessages(Place(*where), " must be an object with name and input")
    name, input = _call_name(custom, where), custom.get("input")
    if not isinstance(input, str):
        raise InvalidMessages(Place(*where, "input"), f" must be a string, not {type(input).__name__}")
    return name, arguments_of(input)


def _call_name(called: Mapping[str, Any], where: Keys) -> str:
    name = called.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidMessages(Place(*where, "name"), " must be a non-empty string")
    return name


def tool_definitions(tools: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    """Tools in the form that templates expect, each under `function`; None if there are none. Custom tools are shown as
    functions. Raises `InvalidTools` where they cannot be."""
    if not tools:
        return None
    return [sanitize(_as_function(tool, at)) for at, tool in enumerate(tools)]


def _as_function(tool: Mapping[str, Any], at: int) -> dict[str, Any]:
    if isinstance(tool, Mapping) and tool.get("type") == "custom":
        return read_custom_tool(tool, Place("tools", at)).as_function()
    return dict(tool) if "function" in tool else {"type": "function", "function": dict(tool)}
