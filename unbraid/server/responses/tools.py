"""The tools of a Responses request: which the model is shown, by which names, and how a call of one is answered.

A tool is a function, or a custom tool whose input is free text. A namespace groups some of either; the model sees them
by their own names, or by `namespace.name` where that would be ambiguous. What runs at the vendor (web search and the
like) is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import Keys, Place
from ..errors import ApiError

if TYPE_CHECKING:  # an alias; the playground loads this without the server's other packages
    from ..api.fields import Object

_OURS = ("function", "custom")
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

    def __init__(self, tools: Sequence[tuple[object, Place]]) -> None:
        """`tools`: each with its place in the request."""
        flat = list(_flat(tools))
        counts = Counter(tool["name"] for tool, _, _ in flat)
        self.all = [_shown(tool, namespace, counts[tool["name"]] > 1) for tool, namespace, _ in flat]
        self._places = [where for _, _, where in flat]
        self._by_shown = {tool.shown: tool for tool in self.all}

    def definitions(self) -> list[Object]:
        return [tool.definition for tool in self.all]

    def client_places(self) -> dict[Keys, Keys]:
        """Where each of them stands in the request, for `ChatTask.places`."""
        places: dict[Keys, Keys] = {("tools", at): place.path for at, place in enumerate(self._places)}
        if self._places and self._places[0].path[0] != "tools":  # all of them stand elsewhere
            places["tools",] = self._places[0].path[:-1]
        return places

    def find(self, shown: str) -> ShownTool | None:
        """The tool that the model calls by this name."""
        return self._by_shown.get(shown)

    def shown_name(self, name: str, namespace: str | None) -> str:
        """The name that the model knows a tool by, of calls in the conversation too."""
        called = [tool for tool in self.all if tool.name == name]
        exactly = [tool for tool in called if tool.namespace == namespace]
        matches = exactly or (called if namespace is None else [])
        return matches[0].shown if matches else name

    def choice(self, tool_choice: str | Object | None) -> str | Mapping[str, Any] | None:
        """`tool_choice`, for `ChatTask`."""
        if tool_choice is None or tool_choice in ("none", "auto", "required"):
            return tool_choice
        match tool_choice:
            case {"type": "function" | "custom", "name": str(name)}:
                return {"type": "function", "name": self.shown_name(name, tool_choice.get("namespace"))}  # type: ignore[union-attr]
            case {"type": "allowed_tools", "mode": mode, "tools": [*tools]} if all(map(_named, tools)):
                allowed = [{"name": self.shown_name(tool["name"], tool.get("namespace"))} for tool in tools]
                return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": allowed}}
            case {"type": str(kind)} if kind not in (*_OURS, "allowed_tools"):
                raise _refused(kind, Place("tool_choice"))
        raise ApiError(400, f"tool_choice is {_CHOICES}, not {tool_choice!r:.200}", param="tool_choice")


def _named(tool: object) -> bool:
    return isinstance(tool, dict) and isinstance(tool.get("name"), str)


def _flat(tools: Sequence[tuple[object, Place]]) -> Iterator[tuple[Object, str | None, Place]]:
    """Each tool with its namespace and its place."""
    for tool, where in tools:
        if isinstance(tool, dict) and tool.get("type") == "namespace":
            inner = tool.get("tools")
            if not isinstance(tool.get("name"), str) or not isinstance(inner, list):
                raise ApiError(400, f"{where}: a namespace has a name and a list of tools", param=where)
            for within, each in enumerate(inner):
                inside = where / "tools" / within
                yield _checked(each, inside), tool["name"], inside
        else:
            yield _checked(tool, where), None, where


def _checked(tool: object, where: Place) -> Object:
    if not isinstance(tool, dict):
        raise ApiError(400, f"{where} must be an object, not {type(tool).__name__}", param=where)
    kind = tool.get("type", "function")
    if kind not in _OURS:
        raise _refused(kind, where)
    if not isinstance(tool.get("name"), str) or not tool["name"].strip():
        raise ApiError(400, f"{where} has no name: give it a non-empty string", param=where / "name")
    return tool


def _refused(kind: object, where: Place) -> ApiError:
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
