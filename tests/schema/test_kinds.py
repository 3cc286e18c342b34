"""What a schema says about the kind of one argument."""

from __future__ import annotations

from typing import Any

import pytest

from unbraid.schema.kinds import ANY_KIND, kinds_of

LOOP = {"$ref": "#/$defs/loop"}

SCHEMAS: dict[str, tuple[Any, set[str]]] = {
    "a type": ({"type": "string"}, {"string"}),
    "integers are numbers": ({"type": "integer"}, {"number"}),
    "several types": ({"type": ["string", "null"]}, {"string", "null"}),
    "no type": ({"description": "?"}, set(ANY_KIND)),
    "true": (True, set(ANY_KIND)),
    "an enum": ({"enum": ["a", "b"]}, {"string"}),
    "an enum of all sorts": ({"enum": ["a", 1, None, True, [], {}]}, set(ANY_KIND)),
    "a constant": ({"const": 1.5}, {"number"}),
    "a constant truth": ({"const": True}, {"boolean"}),
    "any of": ({"anyOf": [{"type": "array"}, {"type": "null"}]}, {"array", "null"}),
    "one of": ({"oneOf": [{"type": "string"}, {"enum": [1]}]}, {"string", "number"}),
    "all of": ({"allOf": [{"type": ["string", "number"]}, {"type": ["number", "null"]}]}, {"number"}),
    "a reference": ({"$ref": "#/$defs/city"}, {"string"}),
    "a reference with / and ~": ({"$ref": "#/$defs/a~1b~0c"}, {"array"}),
    "a reference to references": ({"$ref": "#/$defs/maybe"}, {"string", "null"}),
    "a reference to nothing": ({"$ref": "#/$defs/none"}, set(ANY_KIND)),
    "a reference to elsewhere": ({"$ref": "https://example.com/schema"}, set(ANY_KIND)),
    "a reference in a circle": (LOOP, set(ANY_KIND)),
    "a reference into a list": ({"$ref": "#/$defs/maybe/anyOf/1"}, {"null"}),
    "a reference with a percent sign": ({"$ref": "#/%24defs/city"}, {"string"}),
    "a reference to an anchor": ({"$ref": "#city"}, set(ANY_KIND)),
    "nullable": ({"type": "string", "nullable": True}, {"string", "null"}),
    "a contradiction": ({"type": "string", "enum": [1]}, set(ANY_KIND)),
}
DEFINITIONS = {
    "city": {"type": "string"},
    "a/b~c": {"type": "array"},
    "maybe": {"anyOf": [{"$ref": "#/$defs/city"}, {"type": "null"}]},
    "loop": {"anyOf": [LOOP, {"type": "null"}, LOOP]},
}


@pytest.mark.parametrize(("schema", "kinds"), SCHEMAS.values(), ids=SCHEMAS)
def test_kinds(schema: Any, kinds: set[str]) -> None:
    parameters = {"type": "object", "properties": {"a": schema}, "$defs": DEFINITIONS}
    assert kinds_of(parameters, "a") == kinds
    assert kinds_of(parameters, "b") == ANY_KIND
    assert kinds_of({"additionalProperties": schema, "$defs": DEFINITIONS}, "b") == kinds


def test_references_that_branch_cost_no_more_than_they_are_many() -> None:
    definitions: dict[str, Any] = {"0": {"type": "string"}}
    for n in range(1, 150):
        definitions[str(n)] = {"anyOf": [{"$ref": f"#/$defs/{n - 1}"}] * 3}
    assert kinds_of({"properties": {"a": {"$ref": "#/$defs/149"}}, "$defs": definitions}, "a") == {"string"}


def test_chains_of_references_that_are_too_long_say_nothing() -> None:
    definitions = {str(n): {"$ref": f"#/$defs/{n + 1}"} for n in range(5_000)}
    assert kinds_of({"properties": {"a": {"$ref": "#/$defs/0"}}, "$defs": definitions}, "a") == ANY_KIND
