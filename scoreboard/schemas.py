"""Schemas with values for the board of constraints, each value with whether the schema takes it.

`suite` is JSON Schema's own test suite, draft 2020-12. `tools` are tool definitions: our examples, and the models of
packages that tests install (MCP's and OpenAI's types) as the parameters of a tool, with values drawn by a seed: some
that follow the schema, its properties in their order, and the same with one thing changed. jsonschema says which of
those still follow.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice
from typing import Any

import jsonschema
import pydantic

from tests.constraints.schema_suite import FETCHED, LEFT_OUT, MOST_ORDERS, fetch_suite, spellings, suite_folder
from tests.support.sdists import NoSdist

from .corpus import SEED, TOOLS
from .peers import ROOT, Missing

MODELS = ("mcp.types", "openai.types.responses", "openai.types.shared")
DRAWN = 40
"""Models that the seed picks."""
VALUES = 6
DEEPEST = 6
_FORMATS = {
    "uri": "https://example.org/a?b=1",
    "date-time": "2026-03-01T10:20:30Z",
    "date": "2026-03-01",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "email": "someone@example.org",
}
_WORDS = ("Köln", "天气 😀", 'a "quoted" word', "C:\\tmp\n", "", "x", "</tool_call>", "plain text")
_CHANGES = ("another type", "a longer string", "a larger number", "a property less", "a property more")


@dataclass(frozen=True)
class Case:
    """A schema and values."""

    corpus: str
    name: str
    """`FILE:NUMBER` in the suite, `SOURCE:NAME` of tools."""
    title: str
    schema: Any
    values: tuple[tuple[str, bool, Any], ...]
    """What each is about, whether it is valid, and the value."""

    @property
    def kind(self) -> str:
        return self.name.split(":")[0]

    @cached_property
    def texts(self) -> list[list[str]]:
        """The spellings of each value, one of which must be taken: grammars take properties in the schema's order."""
        if self.corpus == "tools":
            return [[json.dumps(one, ensure_ascii=False) for one in orders(value)] for _, _, value in self.values]
        return [list(islice(spellings(value), MOST_ORDERS)) for _, _, value in self.values]


@cache
def suite() -> list[Case]:
    try:
        fetch_suite()
    except NoSdist as error:
        raise Missing(f"no JSON Schema test suite: {error}") from error
    folder = suite_folder() or FETCHED
    cases = []
    for path in sorted((folder / "tests" / "draft2020-12").glob("*.json")):
        groups = json.loads(path.read_text(encoding="utf-8")) if path.stem not in LEFT_OUT else []
        for at, group in enumerate(groups):
            values = tuple((test["description"], test["valid"], test["data"]) for test in group["tests"])
            cases.append(Case("suite", f"{path.stem}:{at}", group["description"], group["schema"], values))
    return cases


# Tools


@cache
def tools(seed: int = SEED) -> list[Case]:
    """Tool definitions with drawn values."""
    own = [*TOOLS, *json.loads((ROOT / "examples" / "tools.json").read_text(encoding="utf-8"))]
    named = [(f"ours:{at}-{tool['function']['name']}", tool["function"]["parameters"]) for at, tool in enumerate(own)]
    every = [(f"{module}:{name}", kind) for module in MODELS for name, kind in _models(module)]
    random.Random(f"{seed}:tools").shuffle(every)
    named += islice(((name, schema) for name, kind in every if (schema := _schema(kind))), DRAWN)
    return [case for name, schema in named if (case := drawn(name, schema, seed)).values]


def _models(module: str) -> Iterator[tuple[str, type[pydantic.BaseModel]]]:
    for name, kind in sorted(vars(importlib.import_module(module)).items()):
        if inspect.isclass(kind) and issubclass(kind, pydantic.BaseModel) and kind is not pydantic.BaseModel:
            yield name, kind


def _schema(kind: type[pydantic.BaseModel]) -> dict[str, Any] | None:
    """Its schema, if it has one with properties."""
    try:
        schema = kind.model_json_schema()
    except pydantic.errors.PydanticUserError:
        return None
    return schema if schema.get("properties") else None


def drawn(name: str, schema: Any, seed: int) -> Case:
    """A tool with its values."""
    chance = random.Random(f"{seed}:{name}")
    draw, validator = Draw(schema, chance), jsonschema.Draft202012Validator(schema)
    values: dict[str, tuple[str, bool, Any]] = {}
    for _ in range(VALUES):
        value = draw.value(schema)
        for what, changed in (("as it is", value), draw.changed(value), draw.changed(value)):
            valid = validator.is_valid(changed)
            # jsonschema leaves formats alone, and whether what is not named may come is a matter of taste
            if what not in ("a longer string", "a property more") or not valid:
                values.setdefault(json.dumps(changed), (what, valid, changed))
    return Case("tools", name, name, schema, tuple(values.values()))


class Drawn(dict[str, Any]):
    """An object that was drawn, and what its schema requires."""

    required: tuple[str, ...] = ()


def orders(value: Any) -> list[Any]:
    """The value in the orders that converters write: the schema's, and what is required first."""
    first = _required_first(value)
    return [value] if json.dumps(first) == json.dumps(value) else [value, first]


def _required_first(value: Any) -> Any:
    if isinstance(value, list):
        return [_required_first(one) for one in value]
    if isinstance(value, Drawn):
        return {
            name: _required_first(value[name]) for name in sorted(value, key=lambda name: name not in value.required)
        }
    return value


class Draw:
    """Values of a schema, as a model would write them."""

    def __init__(self, root: Any, chance: random.Random) -> None:
        self._root, self._chance = root, chance

    def value(self, schema: Any, depth: int = 0) -> Any:
        if not isinstance(schema, dict):
            return self._chance.choice(_WORDS)
        if "$ref" in schema:
            return self.value(self._at(schema["$ref"]), depth + 1)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                ways = schema[key] if depth < DEEPEST else sorted(schema[key], key=lambda one: len(json.dumps(one)))[:1]
                return self.value(self._chance.choice(ways), depth + 1)
        if "allOf" in schema:
            return self.value(schema["allOf"][0], depth + 1)
        if "const" in schema or "enum" in schema:
            return schema["const"] if "const" in schema else self._chance.choice(schema["enum"])
        kind = schema.get("type", "string")
        return self._of_type(self._chance.choice(kind) if isinstance(kind, list) else kind, schema, depth)

    def _at(self, pointer: str) -> Any:
        place = self._root
        for part in pointer.lstrip("#/").split("/"):
            place = place[part]
        return place

    def _of_type(self, kind: str, schema: dict[str, Any], depth: int) -> Any:
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            least = schema.get("minItems", 0)
            return [self.value(schema.get("items", {}), depth + 1) for _ in range(least + self._chance.randint(0, 2))]
        if kind in ("integer", "number"):
            low, high = schema.get("minimum", 0), schema.get("maximum", schema.get("minimum", 0) + 90)
            number = self._chance.randint(int(low), int(high))
            return number if kind == "integer" or low == high else number + (0.5 if number < high else -0.5)
        if kind == "string":
            return _FORMATS.get(schema.get("format", ""), self._chance.choice(_WORDS))
        return None if kind == "null" else self._chance.random() < 0.5

    def _object(self, schema: dict[str, Any], depth: int) -> Drawn:
        value = Drawn()
        value.required = required = tuple(schema.get("required", ()))
        for name, inner in schema.get("properties", {}).items():
            if name in required or (depth < DEEPEST and self._chance.random() < 0.5):
                value[name] = self.value(inner, depth + 1)
        if isinstance(schema.get("additionalProperties"), dict) and self._chance.random() < 0.5:
            value["some-key"] = self.value(schema["additionalProperties"], depth + 1)
        return value

    def changed(self, value: Any) -> tuple[str, Any]:
        """The value with one thing changed somewhere."""
        changed = copy.deepcopy(value)
        places = [*_places(changed)]
        holder = self._chance.choice(places)
        what = self._chance.choice(_CHANGES)
        if isinstance(holder, dict) and (what == "a property more" or not holder):
            holder["unheard-of"] = 1
            return "a property more", changed
        key = self._chance.choice([*holder] if isinstance(holder, dict) else range(len(holder)))
        if what == "a property less" and isinstance(holder, dict):
            del holder[key]
        elif what == "a longer string" and isinstance(holder[key], str):
            holder[key] += "~"
        elif type(holder[key]) in (int, float) and what != "another type":
            what, holder[key] = "a larger number", holder[key] + 1000
        else:
            what, holder[key] = "another type", 7 if isinstance(holder[key], str | list | dict) else "seven"
        return what, changed


def _places(value: Any) -> Iterator[Any]:
    """Every object, and every array that is not empty."""
    if isinstance(value, dict) or (isinstance(value, list) and value):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _places(inner)
