"""References by address and name: what leads to a part of the same document becomes a pointer."""

from __future__ import annotations

import copy
from typing import Any, get_args

import jsonschema
import pytest

import unbraid
from unbraid.constraints.printers import GrammarSyntax
from unbraid.errors import InvalidSchema
from unbraid.schema.checks import check
from unbraid.schema.repair import repair

INTEGER = {"type": "integer"}
TREE = {
    "$id": "https://x.example/tree",
    "$dynamicAnchor": "node",
    "type": "object",
    "properties": {"children": {"type": "array", "items": {"$dynamicRef": "#node"}}},
}

# A schema, and what its references become: all values of `$ref` in it, in order.
POINTERS: dict[str, tuple[Any, list[str]]] = {
    "an anchor": ({"$ref": "#a", "$defs": {"x": {"$anchor": "a", **INTEGER}}}, ["#/$defs/x"]),
    "a name that needs escapes": ({"$ref": "#a", "$defs": {"x/y~%": {"$anchor": "a"}}}, ["#/$defs/x~1y~0%25"]),
    "an address": ({"$ref": "item.json", "$defs": {"x": {"$id": "item.json", **INTEGER}}}, ["#/$defs/x"]),
    "the root's own address": (
        {"$id": "https://x.example/a", "$ref": "https://x.example/a#/$defs/x", "$defs": {"x": INTEGER}},
        ["#/$defs/x"],
    ),
    "an address below another": (
        {
            "$id": "https://x.example/dir/a",
            "$ref": "/dir/b/c",
            "$defs": {"b": {"$id": "b/", "$defs": {"c": {"$id": "c", **INTEGER}}}},
        },
        ["#/$defs/b/$defs/c"],
    ),
    "a pointer inside a part with an address": (
        {"items": {"$id": "part", "$ref": "#/$defs/x", "$defs": {"x": INTEGER}}, "$defs": {"x": {"type": "string"}}},
        ["#/items/$defs/x"],
    ),
    "a name inside a part with an address": (
        {
            "$ref": "part#a",
            "allOf": [{"$id": "part", "$defs": {"x": {"$anchor": "a", **INTEGER}}}],
            "$defs": {"x": {"$anchor": "a"}},
        },
        ["#/allOf/0/$defs/x"],
    ),
    "an anchor as draft 7 had it": (
        {"$ref": "#a", "definitions": {"x": {"$id": "#a", **INTEGER}}},
        ["#/definitions/x"],
    ),
    "a URN": ({"$id": "urn:uuid:1", "$ref": "urn:uuid:1#/$defs/x", "$defs": {"x": INTEGER}}, ["#/$defs/x"]),
    "a dynamic reference to the only one of its name": (TREE, ["#"]),
    "a dynamic reference beside others": (
        {"$ref": "#/$defs/x", "$dynamicRef": "#y", "$defs": {"x": INTEGER, "y": {"$dynamicAnchor": "y", "minimum": 3}}},
        ["#/$defs/x", "#/$defs/y"],
    ),
    "a dynamic reference to an ordinary anchor": (
        {"$dynamicRef": "#a", "$defs": {"x": {"$anchor": "a", **INTEGER}}},
        ["#/$defs/x"],
    ),
}


def references(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [ref for inner in schema for ref in references(inner)]
    if not isinstance(schema, dict):
        return []
    own = [schema["$ref"]] if "$ref" in schema else []
    return own + [ref for key, inner in schema.items() if key != "$ref" for ref in references(inner)]


@pytest.mark.parametrize("name", POINTERS)
def test_pointers(name: str) -> None:
    schema, pointers = POINTERS[name]
    before = copy.deepcopy(schema)
    repaired, repairs = repair(schema, "p")
    assert (schema, repairs) == (before, [])
    assert references(repaired) == pointers
    check(repaired, "p")
    if "draft 7" in name:
        return
    # To others, the two say the same.
    ours = _without_addresses(repaired)
    values: list[Any] = [1, 5, "a", [1], ["a"], {"children": [{"children": 1}]}, {"children": [{}]}]
    for value in values:
        theirs = jsonschema.Draft202012Validator(schema).is_valid(value)
        assert jsonschema.Draft202012Validator(ours).is_valid(value) == theirs


def _without_addresses(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_addresses(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_addresses(inner)
        for key, inner in schema.items()
        if key not in ("$id", "$anchor", "$dynamicAnchor")
    }


@pytest.mark.parametrize("ref", ["other.json", "https://x.example/y", "#nobody", "part#nobody"])
def test_what_is_not_in_the_document_is_refused(ref: str) -> None:
    schema, _ = repair({"$ref": ref, "$defs": {"x": {"$id": "part", "$anchor": "a"}}}, "p")
    with pytest.raises(InvalidSchema, match=r"is not local|leads nowhere"):
        check(schema, "p")


def test_no_address_in_a_value_counts() -> None:
    schema = {"$ref": "#a", "$defs": {"x": {"enum": [{"$anchor": "a"}]}, "y": {"$anchor": "a", **INTEGER}}}
    assert references(repair(schema, "p")[0]) == ["#/$defs/y"]


def test_a_dynamic_reference_that_depends_on_the_way_is_said() -> None:
    """Where several schemas have the name, the outermost on the way counts. No grammar knows the way."""
    strict = {"$id": "strict", "$dynamicAnchor": "node", "$ref": "tree", "unevaluatedProperties": False}
    tree = {**TREE, "$id": "tree"}
    schema = {"$id": "https://x.example/", "$ref": "strict", "$defs": {"a": strict, "b": tree}}
    tool = {"name": "f", "strict": True, "parameters": {"type": "object", "properties": {"x": schema}}}
    for syntax in set(get_args(GrammarSyntax)) - {"regex"}:  # it nests without end
        said = [str(one) for one in unbraid.constraint("hermes", tools=[tool]).unenforced(syntax)]
        assert any("`$dynamicRef` is not enforced" in one for one in said), syntax
