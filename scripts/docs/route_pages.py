"""The page of all routes with the fields that they take, made from what the server says at `/openapi.json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from unbraid.server.api.openapi import description

from .markdown import code, table

PATH = "routes.md"


def page() -> str:
    said = description()
    parts = [
        "# Routes",
        "Every route with the fields of its request, as `/openapi.json` of a running server has them. "
        "[The server](server.md) says what the fields mean; fields that are not listed are OpenAI's or Anthropic's and "
        "have no effect, or are refused with a sentence that says so.",
    ]
    for path, operations in said["paths"].items():
        for method, operation in operations.items():
            if method in ("get", "post", "delete"):
                parts += _operation(f"{method.upper()} {path}", operation, said)
    return "\n\n".join(parts)


def _operation(title: str, operation: Mapping[str, Any], said: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {code(title)}"
    yield operation["summary"] + "."
    taken = operation.get("requestBody", {}).get("content", {})
    for kind, body in taken.items():
        schema = _resolved(body["schema"], said)
        required = set(schema.get("required", ()))
        rows = [
            (code(name), _type(field, said), "yes" if name in required else "", _default(field))
            for name, field in schema.get("properties", {}).items()
        ]
        if rows:
            yield f"Takes {code(kind)}:"
            yield table(("field", "type", "required", "default"), rows)
    named = [each["name"] for each in operation.get("parameters", ()) if each.get("in") == "query"]
    if named:
        yield "In the query: " + ", ".join(map(code, named)) + "."


def _resolved(schema: Mapping[str, Any], said: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in schema:
        found: Any = said
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        schema = found
    return schema


def _type(schema: Mapping[str, Any], said: Mapping[str, Any]) -> str:
    """What a field may be, in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return ", ".join(code(str(each)) for each in schema["enum"])
    for several in ("anyOf", "oneOf"):
        if several in schema:
            kinds = dict.fromkeys(_type(each, said) for each in schema[several])
            return " or ".join(kinds)
    kind = schema.get("type", "anything")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array" and schema.get("items"):
        return f"array of {_type(schema['items'], said)}"
    return str(kind)


def _default(schema: Mapping[str, Any]) -> str:
    value = schema.get("default")
    return "" if value is None or value in ([], {}) else code(str(value))
