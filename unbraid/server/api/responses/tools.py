"""The tools of a Responses request: which the model is shown, by which names, and how a call of one is answered.

A tool is a function, or a custom tool whose input is free text. A namespace groups some of either; the model sees them
by their own names, or by `namespace.name` where that would be ambiguous.

What runs at the vendor is refused, such as a search in files that are kept there. But agents offer some of it with
every request, whatever the model (`_OFFERED`). The model is not shown these, the log says so, and the reply repeats
only the tools that are in force. A choice that needs one of them is refused.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import ApiError
from ..fields import Object

_log = logging.getLogger(__name__)

_OURS = ("function", "custom")
_OFFERED = ("web_search", "web_search_preview", "image_generation", "tool_search")
_told: set[str] = set()
_FUNCTION_FIELDS = ("name", "description", "parameters", "strict")
_CHOICES = '"none", "auto", "required", {"type": "function", "name": …}, {"type": "custom", "name": …} or allowed_tools'


@dataclass(frozen=True, slots=True)
class ShownTool:
    """A tool, and the name that the model knows it by."""

    shown: str
    name: str
    namespace: str | None
    custom: bool
    definition: Object
    """For `ChatTask.tools`."""


class ShownTools:
    """All tools of a request."""

    def __init__(self, given: Sequence[Object]) -> None:
        found = list(_flat(given))
        counts = Counter(tool["name"] for tool, _ in found)
        self.all = [_shown(tool, namespace, counts[tool["name"]] > 1) for tool, namespace in found]
        self._by_shown = {tool.shown: tool for tool in self.all}

    def definitions(self) -> list[Object]:
        return [tool.definition for tool in self.all]

    def find(self, shown: str) -> ShownTool | None:
        """The tool that the model calls by this name."""
        return self._by_shown.get(shown)

    def shown_name(self, name: str, namespace: str | None) -> str:
        """The name that the model knows a tool by, of calls in the conversation too."""
        for tool in self.all:
            if tool.name == name and (namespace is None or tool.namespace == namespace):
                return tool.shown
        return name

    def choice(self, given: str | Object | None) -> str | Mapping[str, Any] | None:
        """`tool_choice`, for `ChatTask`."""
        if given == "required" and not self.all:
            raise ApiError(400, "tool_choice: none of the tools can be called here", param="tool_choice")
        if given is None or given in ("none", "auto", "required"):
            return given
        match given:
            case {"type": "function" | "custom", "name": str(name)}:
                return {"type": "function", "name": self.shown_name(name, given.get("namespace"))}  # type: ignore[union-attr]
            case {"type": "allowed_tools", "mode": mode, "tools": [*tools]} if all(map(_named, tools)):
                allowed = [{"name": self.shown_name(tool["name"], tool.get("namespace"))} for tool in tools]
                return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": allowed}}
            case {"type": str(kind)} if kind not in (*_OURS, "allowed_tools"):
                raise _refused(kind, "tool_choice")
        raise ApiError(400, f"tool_choice is {_CHOICES}, not {given!r:.200}", param="tool_choice")


def _named(tool: object) -> bool:
    return isinstance(tool, dict) and isinstance(tool.get("name"), str)


def _flat(given: Sequence[Object]) -> Iterator[tuple[Object, str | None]]:
    """Each tool that can be called, with its namespace."""
    for at, tool in enumerate(given):
        where = f"tools[{at}]"
        if tool.get("type") == "namespace":
            inner = tool.get("tools")
            if not isinstance(tool.get("name"), str) or not isinstance(inner, list):
                raise ApiError(400, f"{where}: a namespace has a name and a list of tools", param=where)
            for within, each in enumerate(inner):
                yield _checked(each, f"{where}.tools[{within}]"), tool["name"]
        elif is_left_out(tool):
            _tell(tool["type"])
        else:
            yield _checked(tool, where), None


def is_left_out(tool: Object) -> bool:
    """Whether the model is not shown a tool that a request offers."""
    return tool.get("type") in _OFFERED


def _tell(kind: str) -> None:
    if kind not in _told:
        _told.add(kind)
        _log.warning("requests offer a tool of type %r, which runs at the vendor: the model is not shown it", kind)


def _checked(tool: object, where: str) -> Object:
    if not isinstance(tool, dict):
        raise ApiError(400, f"{where} must be an object, not {type(tool).__name__}", param=where)
    kind = tool.get("type", "function")
    if kind not in _OURS:
        raise _refused(kind, where)
    if not isinstance(tool.get("name"), str) or not tool["name"].strip():
        raise ApiError(400, f"{where} has no name: give it a non-empty string", param=f"{where}.name")
    return tool


def _refused(kind: object, where: str) -> ApiError:
    message = (
        f"{where}: tools of type {kind!r:.64} run at the vendor, not here: leave it out, or give a function that does "
        "the same"
    )
    return ApiError(400, message, param=where, code="unsupported")


def _shown(tool: Object, namespace: str | None, ambiguous: bool) -> ShownTool:
    name = tool["name"]
    shown = f"{namespace}.{name}" if ambiguous and namespace is not None else name
    custom = tool.get("type") == "custom"
    if custom:
        definition = {**tool, "name": shown}
    else:
        definition = {key: tool[key] for key in _FUNCTION_FIELDS if tool.get(key) is not None}
        definition["name"] = shown
    return ShownTool(shown, name, namespace, custom, definition)
