"""What a request asks of the response, in the words of the chat API: read and checked.

Schemas of strict tools and of the answer are checked here, so that what cannot be enforced is said before anything is
built. The schemas of tools have been repaired by `Tools`; that of the answer is repaired here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from ..core.grammar import Format
from ..core.tools import Tools
from ..errors import InvalidTools, Place, UnbraidError, about
from ..schema.checks import check
from ..schema.keywords import Schema
from ..schema.repair import repair, warn

ToolChoice = str | Mapping[str, Any]
Mode = Literal["none", "auto", "required"]
ANY_OBJECT: Schema = {"type": "object"}


@dataclass(frozen=True, slots=True)
class Request:
    tools: Tools
    """Those that may be called."""
    calls: Mode
    """Whether calls may come, or must."""
    one_call: bool
    """No more than one."""
    reasoning: bool | None
    """Whether reasoning comes first; None where the model chooses."""
    answer: tuple[Schema, str] | None
    """The schema of a JSON answer, and where it was given."""


def read_request(
    format: Format,
    tools: Tools,
    tool_choice: ToolChoice | None,
    parallel_tool_calls: bool | None,
    reasoning: bool | None,
    response_format: Mapping[str, Any] | None,
) -> Request:
    for name, value in (("parallel_tool_calls", parallel_tool_calls), ("reasoning", reasoning)):
        if value not in (None, True, False):
            raise UnbraidError(Place(name), f" is true, false or null, not {value!r:.100}")
    if reasoning and format.reasoning is None:
        raise UnbraidError(f"format {format.name!r} has no reasoning: leave `reasoning` out", field="reasoning")
    calls, names = _choice("auto" if tool_choice is None else tool_choice)
    if names is not None:
        missing = [name for name in names if name not in tools]
        if missing:
            there = ", ".join(map(repr, tools)) or "there are none"
            raise InvalidTools(Place("tool_choice"), f" names {missing[0]!r}, which is not among the tools: {there}")
        tools = tools.only(names)
    if calls == "required" and not tools:
        raise InvalidTools(Place("tool_choice"), ' is "required", but there are no tools: give tools=…')
    if not tools:
        calls = "none"
    if calls != "none" and format.tools is None:
        raise InvalidTools(f'format {format.name!r} has no tool calls: use tool_choice="none", or another format')
    if calls != "none":
        for name in tools:
            if tools.strict(name):
                with about(where := tools.schema_place(name)):
                    _check(json.dumps({"type": "object", **tools[name]}), where)
    if calls == "auto" and response_format is not None and format.tools is not None and format.tools.bare:
        raise UnbraidError(
            f"format {format.name!r} has no marker before its calls: an answer in JSON cannot be told from a call; "
            'leave `response_format` out, or use tool_choice="none" or "required"',
            field="response_format",
        )
    named = isinstance(tool_choice, Mapping) and tool_choice.get("type") in ("function", "custom")
    return Request(tools, calls, named or parallel_tool_calls is False, reasoning, _answer(response_format))


@lru_cache(maxsize=1024)
def _check(schema: str, where: str) -> None:
    """Check a schema, once for each content: requests change more often than the tools in them."""
    check(json.loads(schema), where)


def _choice(choice: ToolChoice) -> tuple[Mode, list[str] | None]:
    """Whether calls may come, and to which of the tools; None for all."""
    match choice:
        case "none" | "auto" | "required":
            return choice, None
        case {"type": "allowed_tools", "allowed_tools": {"mode": "auto" | "required" as mode, "tools": [*allowed]}}:
            return mode, [_name(tool) for tool in allowed]
        case {"type": "function" | "custom"}:
            return "required", [_name(choice)]
        case {"type": "none" | "auto" | "required" as mode}:
            return mode, None
    raise _bad_choice(choice)


def _name(choice: object) -> str:
    match choice:
        case {"function": {"name": str(name)}} | {"custom": {"name": str(name)}} | {"name": str(name)}:
            return name
    raise _bad_choice(choice)


def _bad_choice(choice: object) -> InvalidTools:
    return InvalidTools(
        Place("tool_choice"),
        ' is "none", "auto", "required" or {"type": "function", "function": {"name": …}}, not ' + f"{choice!r:.200}",
    )


def _answer(response_format: Mapping[str, Any] | None) -> tuple[Schema, str] | None:
    match response_format:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return ANY_OBJECT, "response_format"
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            where = Place("response_format", "json_schema", "schema")
            with about(where):
                repaired, repairs = repair(schema, where)
                warn(repairs)
                _check(json.dumps(repaired), where)
            return repaired, where
    raise UnbraidError(
        Place("response_format"),
        ' is {"type": "text"}, {"type": "json_object"} or {"type": "json_schema", "json_schema": {"name": …, "schema": '
        f"{{…}}}}}}, not {response_format!r:.200}",
    )
