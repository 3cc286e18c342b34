"""The conversation and its tools: Anthropic's messages as chat messages, with the place of each in the request.

A message of Anthropic's may hold several of chat's: results of tools stand in the user's turn. And messages of the same
role that follow each other are one turn. So what became of a message, or of a block in it, has another number than
before, and `places` says where it came from. Reasoning comes back with a signature, which must be ours. Blocks that are
no text, such as images, go on as they are: the prompt builder refuses them where the model takes none.

Messages of the system may stand anywhere. Besides text they may say that a tool comes or goes, which the model is told
in words: what stands before in the prompt stays as it is, so that an engine finds it in its cache. A tool whose loading
is deferred is shown to the model from the beginning: there is no search for tools here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from ...errors import Keys, Place
from ..api.fields import Object
from ..errors import ApiError
from ..storage.seal import Seal

_SYSTEM = ("system",)
_SERVICE_HEADERS = re.compile(r"(?:x-anthropic-[\w-]+:[^\n]*(?:\n+|\Z))+", re.IGNORECASE)
_SAYS_ERROR = re.compile(r"\W*\w*error", re.IGNORECASE)
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
Placed = tuple[Object, Keys]
"""A block and its place."""


class History:
    """Reads a conversation.

    seal, client: for reasoning that comes back; see `server.seal`.
    """

    def __init__(self, seal: Seal, client: str) -> None:
        self._seal = seal
        self._client = client
        self.messages: list[dict[str, Any]] = []
        self.places: dict[Keys, Keys] = {}
        """Where each message comes from, and each part of a content."""
        self.tools: list[Object] = []
        """Tools that a message adds,"""
        self.tool_places: list[Keys] = []
        """and where they stand."""
        self.effort: object = None
        """The effort that the last message asks for which says one."""

    def read(self, system: object, messages: Sequence[Object]) -> None:
        """Raises `ApiError` for what is not as it should be."""
        if system is not None:
            for part, place in _without_service_headers(_system_parts(system, _SYSTEM)):
                self._add_part("system", part, _SYSTEM, place)
        last_user = max((at for at, message in enumerate(messages) if message.get("role") == "user"), default=-1)
        for at, message in enumerate(messages):
            if not (message.get("clear_at") == "next_user_message" and at < last_user):
                self._message(message, ("messages", at))
        if all(place[0] == "system" for place in self.places.values()):
            raise ApiError(400, "messages is empty: there is nothing to answer", param="messages")

    @property
    def ends_in_answer(self) -> bool:
        """Whether the last message is the beginning of an answer, which the model continues."""
        last = self.messages[-1]
        if last["role"] == "assistant" and last.get("tool_calls"):
            where = self.places["messages", len(self.messages) - 1]
            raise _wrong(
                where,
                "its `tool_use` has no `tool_result` after it. A call that was cut off cannot be continued: its "
                "`input` does not say where it broke off. Answer it with a `tool_result`, or leave it out",
            )
        return bool(last["role"] == "assistant")

    def _message(self, message: Object, where: Keys) -> None:
        role, content = message.get("role"), message.get("content")
        if role == "system":
            self._system(message, where)
            return
        if role not in ("user", "assistant"):
            raise _wrong((*where, "role"), f"must be user, assistant or system, not {role!r}")
        blocks = _blocks(content, (*where, "content"))
        if role == "assistant":
            self._continue_or_open(role, where)
        elif not blocks:
            raise _wrong((*where, "content"), "is empty: give it a block, or leave the message out")
        for block, place in blocks:
            kind = block.get("type")
            if role == "assistant" and kind in ("thinking", "redacted_thinking"):
                self._add_reasoning(self._reasoning(block, place), where)
            elif role == "assistant" and kind == "tool_use":
                self.messages[-1].setdefault("tool_calls", []).append(_call(block, place))
            elif role == "user" and kind == "tool_result":
                self._add_result(block, where, place)
            else:
                for part in _parts(block, place):
                    self._add_part(role, part, where, place)

    def _system(self, message: Object, where: Keys) -> None:
        config = message.get("output_config")
        if isinstance(config, dict):
            self.effort = config.get("effort") or self.effort
            if "content" not in message:
                return
        content = message.get("content")
        if isinstance(content, list):
            content = [self._tool_change(block, (*where, "content", at)) for at, block in enumerate(content)]
        for part, place in _system_parts(content, (*where, "content")):
            self._add_part("system", part, where, place)

    def _tool_change(self, block: object, where: Keys) -> object:
        """A block that adds or removes a tool, in words. Others stay as they are."""
        match block:
            case {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": dict(definition)}}:
                self.tool_places.append((*where, "tool", "definition"))
                self.tools.append(function_tool(definition, self.tool_places[-1]))
                return _text(f"The tool {definition.get('name')} can be called now.")
            case {"type": "tool_addition", "tool": {"type": "tool_reference", "name": str(name)}}:
                return _text(f"The tool {name} can be called now.")
            case {"type": "tool_removal", "tool": {"type": "tool_reference", "name": str(name)}}:
                return _text(f"The tool {name} can no longer be called.")
        return block

    def _continue_or_open(self, role: str, where: Keys) -> None:
        if not self.messages or self.messages[-1]["role"] != role:
            self._open(role, where)

    def _continue_or_open_after_calls(self, role: str, where: Keys) -> None:
        """What the assistant said after its calls is a message of its own, so that the order stays."""
        self._continue_or_open(role, where)
        if self.messages[-1].get("tool_calls"):
            self._open(role, where)

    def _open(self, role: str, where: Keys, **more: Any) -> None:
        self.messages.append({"role": role, "content": [], **more})
        self.places["messages", len(self.messages) - 1] = where

    def _add_part(self, role: str, part: Object, where: Keys, place: Keys) -> None:
        self._continue_or_open_after_calls(role, where)
        content = self.messages[-1]["content"]
        self.places["messages", len(self.messages) - 1, "content", len(content)] = place
        content.append(part)

    def _add_reasoning(self, text: str, where: Keys) -> None:
        self._continue_or_open_after_calls("assistant", where)
        before = self.messages[-1].get("reasoning_content")
        self.messages[-1]["reasoning_content"] = text if before is None else f"{before}\n{text}"

    def _add_result(self, block: Object, where: Keys, place: Keys) -> None:
        id = block.get("tool_use_id")
        if not isinstance(id, str) or not id:
            raise _wrong((*place, "tool_use_id"), "must be the id of a tool_use block")
        self._open("tool", where, tool_call_id=id)
        content = block.get("content")
        for inner, inner_place in _blocks("" if content is None else content, (*place, "content")):
            for part in _parts(inner, inner_place):
                self._add_part("tool", part, where, inner_place)
        if block.get("is_error"):
            _tell_error(self.messages[-1]["content"])

    def _reasoning(self, block: Object, where: Keys) -> str:
        kind = block["type"]
        required = ("thinking", "signature") if kind == "thinking" else ("data",)
        for name in required:
            if not isinstance(block.get(name), str):
                raise _wrong((*where, name), "must be a string, as it came")
        if kind == "thinking":
            text, signature = block["thinking"], block["signature"]
            if self._seal.verify(text, signature, self._client):
                return str(text)
            opened = None if text else self._seal.open(signature, self._client)
        else:
            opened = self._seal.open(block["data"], self._client)
        if opened is None:
            name = required[-1]
            raise _wrong(
                (*where, name),
                f"Invalid `{name}` in `{kind}` block: it was not made by this server for this client. Send blocks back "
                "as they came, or leave this one out",
            )
        return opened


# The system prompt


def _system_parts(system: object, where: Keys) -> list[Placed]:
    """The text blocks of a system prompt as parts of a content."""
    if isinstance(system, str):
        return [(_text(system), where)]
    if not isinstance(system, list):
        place = Place(*where)
        raise ApiError(400, f"{place} must be a string or a list of text blocks", param=place)
    return [(_system_part(block, (*where, at)), (*where, at)) for at, block in enumerate(system)]


def _system_part(block: object, where: Keys) -> Object:
    if not isinstance(block, dict) or block.get("type") != "text" or not isinstance(block.get("text"), str):
        place = Place(*where)
        raise ApiError(400, f"{place} must be a text block: a type of `text`, and a text", param=place)
    return _text(block["text"])


def _without_service_headers(parts: list[Placed]) -> list[Placed]:
    """The system prompt without the lines at its very beginning that are headers by the name of `x-anthropic-…`.

    Some clients write such lines for Anthropic's service and not for the model: Claude Code a billing header,
    `x-anthropic-billing-header: cc_version=…`. It changes from request to request. At the beginning of a prompt it
    would keep an engine from finding anything of the conversation in its cache. Wherever else such lines stand, they
    are text.
    """
    for at, (part, place) in enumerate(parts):
        headers = _SERVICE_HEADERS.match(part["text"])
        rest = part["text"][headers.end() :] if headers else part["text"]
        if rest:
            return [(_text(rest), place), *parts[at + 1 :]]
    return []


# Tools and the choice among them


def function_tools(tools: Sequence[Object]) -> list[Object]:
    """The tools as functions. Errors of their schemas are found later, with those of all dialects."""
    return [function_tool(tool, ("tools", at)) for at, tool in enumerate(tools)]


def function_tool(tool: Object, where: Keys) -> Object:
    kind = tool.get("type") or "custom"
    if kind != "custom":
        message = (
            f"{Place(*where)}: {kind!r} is a tool that Anthropic's service runs or that its models know by heart. "
            "Here, give a tool of your own with a name, a description and an input_schema, and run it in your program"
        )
        raise ApiError(400, message, param=Place(*where, "type"), code="unsupported")
    function: Object = {"name": tool.get("name")}
    if tool.get("description") is not None:
        function["description"] = tool["description"]
    schema = tool.get("input_schema")
    if not isinstance(schema, dict):
        place = Place(*where, "input_schema")
        raise ApiError(400, f"{place} must be a JSON schema of an object", param=place)
    examples = tool.get("input_examples")
    function["parameters"] = {**schema, "examples": examples} if examples else schema
    if tool.get("strict") is not None:
        function["strict"] = tool["strict"]
    return {"type": "function", "function": function}


def tool_choice(choice: Object | None) -> tuple[str | dict[str, Any] | None, bool | None]:
    """What may be called, and whether several at once."""
    if choice is None:
        return None, None
    kind, single = choice.get("type"), choice.get("disable_parallel_tool_use")
    if single not in (None, True, False):
        name = "tool_choice.disable_parallel_tool_use"
        raise ApiError(400, f"{name} must be true or false", param=name)
    parallel = False if single else None
    if kind == "tool":
        if not isinstance(choice.get("name"), str):
            raise ApiError(400, "tool_choice.name must be the name of a tool", param="tool_choice.name")
        return {"type": "function", "function": {"name": choice["name"]}}, parallel
    if not isinstance(kind, str) or kind not in _CHOICES:
        message = f"tool_choice.type must be auto, any, tool or none, not {kind!r}"
        raise ApiError(400, message, param="tool_choice.type")
    return _CHOICES[kind], parallel


# Blocks


def _blocks(content: object, where: Keys) -> list[Placed]:
    if isinstance(content, str):
        return [({"type": "text", "text": content}, where)]
    if not isinstance(content, list):
        raise _wrong(where, "must be a string or a list of blocks")
    for at, block in enumerate(content):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise _wrong((*where, at), "must be an object with a type")
    return [(block, (*where, at)) for at, block in enumerate(content)]


def _parts(block: Object, where: Keys) -> list[Object]:
    """A block of a message or a result as parts of a content: text, where it is text in some way."""
    kind, source = block["type"], block.get("source")
    if kind == "text":
        return [{"type": "text", "text": _string(block, "text", where)}]
    if kind == "tool_reference":
        return [_text(f"The tool {_string(block, 'tool_name', where)} can be called now.")]
    if kind == "search_result":
        about = [_string(block, name, where) for name in ("title", "source")]
        inner = _blocks(block.get("content"), (*where, "content"))
        return [_text(text) for text in about] + [part for one, place in inner for part in _parts(one, place)]
    if kind == "document" and isinstance(source, dict) and source.get("type") in ("text", "content"):
        name = "data" if source["type"] == "text" else "content"
        about = [_string(block, name, where) for name in ("title", "context") if block.get(name) is not None]
        inner = _blocks(source.get(name), (*where, "source", name))
        return [_text(text) for text in about] + [part for one, place in inner for part in _parts(one, place)]
    return [{key: value for key, value in block.items() if key != "cache_control"}]


def _tell_error(content: list[Object]) -> None:
    """Have a result say that it is an error. Templates have no place for it but the text."""
    first = content[0].get("text") if content else None
    if first is None:
        content.append(_text("Error"))
    elif not _SAYS_ERROR.match(first):
        content[0] = _text(f"Error: {first}" if first else "Error")


def _call(block: Object, where: Keys) -> Object:
    id, name, input = (block.get(key) for key in ("id", "name", "input"))
    if not isinstance(id, str) or not isinstance(name, str) or not name:
        raise _wrong(where, "must have an id and a name, both strings")
    if "input" not in block or isinstance(input, str):
        raise _wrong((*where, "input"), "must be an object")
    # Another value than an object was the model's own: it comes back as it went.
    arguments = input if isinstance(input, dict) else msgspec.json.encode(input).decode()
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _text(text: str) -> Object:
    return {"type": "text", "text": text}


def _string(block: Object, name: str, where: Keys) -> str:
    value = block.get(name)
    if not isinstance(value, str):
        raise _wrong((*where, name), "must be a string")
    return value


def _wrong(where: Keys, message: str) -> ApiError:
    place = Place(*where)
    return ApiError(400, f"{place}: {message}", param=place)
