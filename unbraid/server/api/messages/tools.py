"""Tools and the choice among them, as every dialect of the server has them.

A tool whose loading is deferred is shown to the model from the beginning: there is no search for tools here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import ApiError
from ..fields import Object

_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def function_tools(tools: Sequence[Object]) -> list[Object]:
    """The tools as functions. Errors of their schemas are found later, with those of all dialects."""
    return [function_tool(tool, f"tools[{at}]") for at, tool in enumerate(tools)]


def function_tool(tool: Object, where: str) -> Object:
    kind = tool.get("type") or "custom"
    if kind != "custom":
        raise ApiError(
            400,
            f"{where}: {kind!r} is a tool that Anthropic's service runs or that its models know by heart. Here, give a "
            "tool of your own with a name, a description and an input_schema, and run it in your program",
            param=f"{where}.type",
            code="unsupported",
        )
    function: Object = {"name": tool.get("name")}
    if tool.get("description") is not None:
        function["description"] = tool["description"]
    schema = tool.get("input_schema")
    if not isinstance(schema, dict):
        message = f"{where}.input_schema must be a JSON schema of an object"
        raise ApiError(400, message, param=f"{where}.input_schema")
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
