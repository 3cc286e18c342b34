"""JSON schemas to try: good ones with values, bad ones with what is wrong with them, and enormous ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

INTEGER, STRING = {"type": "integer"}, {"type": "string"}


def obj(properties: dict[str, Any] | None = None, *required: str, **more: Any) -> dict[str, Any]:
    """An object schema that allows no other properties."""
    named = {} if properties is None else {"properties": properties}
    return {
        "type": "object",
        **named,
        **({"required": list(required)} if required else {}),
        "additionalProperties": False,
        **more,
    }


def string(**more: Any) -> dict[str, Any]:
    return {"type": "string", **more}


def array(**more: Any) -> dict[str, Any]:
    return {"type": "array", **more}


def integer(**more: Any) -> dict[str, Any]:
    return {"type": "integer", **more}


def number(**more: Any) -> dict[str, Any]:
    return {"type": "number", **more}


NODE = obj({"v": INTEGER, "next": {"$ref": "#/$defs/node"}}, "v")
CAT = obj({"kind": {"const": "cat"}, "lives": INTEGER}, "kind")
DOG = obj({"kind": {"const": "dog"}, "name": STRING}, "kind", "name")
UUID = "123e4567-e89b-12d3-a456-426614174000"

# Schema, values that satisfy it (their properties in the order of the schema), values that do not.
CORPUS: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "string": (STRING, ["", "a", 'q"\n\t\\/', "é😀"], [1, None, ["a"]]),
    "integer": (INTEGER, [0, -5, 12345678901234567890123], [1.5, "1", True]),
    "number": (number(), [0, 1.5, -2.25, 1.5e-07, 0.12345678901234566, 10**20], ["1", None]),
    "boolean": ({"type": "boolean"}, [True, False], [0, "true", None]),
    "null": ({"type": "null"}, [None], [0, "null"]),
    "types": ({"type": ["string", "null"]}, ["a", None], [1]),
    "types with keywords": ({"type": ["string", "integer"], "minLength": 2, "minimum": 3}, ["ab", 3], [2, None]),
    "integer or number": ({"type": ["integer", "number"]}, [1, 1.5], ["a"]),
    "nullable": (string(nullable=True), ["a", None], [1]),
    "any": ({}, [1, "a", None, [1, {"a": []}], {"a": {"b": [1]}}], []),
    "true": (True, [1, {"a": [True]}], []),
    "annotations only": ({"title": "x", "description": "y", "default": 3}, [1, "a", {}], []),
    "untyped keywords": ({"minLength": 2, "minimum": 5}, ["ab", 5, None, [1]], ["a", 4]),
    "untyped properties": ({"properties": {"a": INTEGER}}, [{"a": 1}, {}, {"b": 1}, 5], [{"a": "x"}]),
    "object": ({"type": "object"}, [{}, {"a": {"b": [1]}}], [1, []]),
    "properties": (obj({"a": INTEGER, "b": STRING}), [{}, {"a": 1}, {"b": "x"}, {"a": 1, "b": "x"}], [{"a": "x"}]),
    "closed": (obj({"a": INTEGER}), [{}, {"a": 1}], [{"b": 1}, {"a": 1, "b": 2}]),
    "empty closed": (obj(), [{}], [{"a": 1}]),
    "open": (
        {"type": "object", "properties": {"abc": INTEGER}},
        [{}, {"abc": 1}, {"abc": 1, "x": [2]}, {"a": 1}, {"ab": 1}, {"abcd": "x"}, {'"': 1}, {"\\": 1}, {"é": 1}],
        [{"abc": "x"}],
    ),
    "open, with odd names": (
        {"type": "object", "properties": {'q"': INTEGER, "é-[]^": INTEGER, "a-b": INTEGER, "ab": INTEGER}},
        [{'q"': 1}, {"é-[]^": 1}, {"aX": 1}, {"a-b": 1, "ab": 2}, {"a.": 3}, {"è": 1}],
        [{'q"': "x"}],
    ),
    "closed, with odd names": (
        obj({'q"': INTEGER, "é": INTEGER, "n\n": INTEGER, "a b": INTEGER, "a/b": INTEGER}),
        [{'q"': 1}, {"é": 1, "n\n": 2}, {"a b": 1}, {"a/b": 1}],
        [{"x": 1}],
    ),
    "open, with a schema": (
        {"type": "object", "properties": {"a": INTEGER}, "additionalProperties": STRING},
        [{}, {"a": 1}, {"a": 1, "b": "x"}, {"b": "x", "c": "y"}],
        [{"b": 2}, {"a": "x"}],
    ),
    "map": ({"type": "object", "additionalProperties": INTEGER}, [{}, {"a": 1}, {"a": 1, "b": 2}], [{"a": "x"}]),
    "required": (obj({"a": INTEGER, "b": INTEGER}, "a"), [{"a": 1}, {"a": 1, "b": 2}], [{}, {"b": 2}]),
    "required, but not described": (
        {"type": "object", "required": ["b"], "additionalProperties": INTEGER},
        [{"b": 1}, {"b": 1, "c": 2}],
        [{}, {"b": "x"}],
    ),
    "a property that is false": (obj({"a": False, "b": INTEGER}), [{}, {"b": 1}], [{"a": 1}]),
    "a property that is false, open": ({"type": "object", "properties": {"a": False}}, [{}, {"b": 1}], [{"a": 1}]),
    "patternProperties, closed": (
        obj({"a": INTEGER}, patternProperties={"^x_": STRING}),
        [{}, {"a": 1}, {"a": 1, "x_b": "s"}, {"x_": "s"}],
        [{"x_b": 1}, {"y": "s"}],
    ),
    "patternProperties, open": (
        {"type": "object", "patternProperties": {"^x_[a-z]+$": STRING}},
        [{"x_b": "s"}, {"y": 1}, {}],
        [{"x_b": 1}],
    ),
    "patternProperties that overlap": (
        obj({"xa": True}, patternProperties={"^x": INTEGER, "a$": {"minimum": 3}}),
        [{"xa": 3}, {"xb": 1}, {"ba": 3}, {"ba": "s"}],
        [{"xa": 2}, {"xb": "s"}, {"ba": 2}],
    ),
    "propertyNames": (
        {"type": "object", "properties": {"xx": INTEGER}, "propertyNames": {"pattern": "^x+$"}},
        [{}, {"xx": 1}, {"x": "s"}],
        [{"y": 1}, {"xx": "s"}],
    ),
    "propertyNames with a list": (
        {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": INTEGER},
        [{}, {"a": 1, "b": 2}],
        [{"c": 1}, {"a": "s"}],
    ),
    "minProperties": ({"type": "object", "minProperties": 2}, [{"a": 1, "b": 2}], [{}, {"a": 1}]),
    "maxProperties": ({"type": "object", "maxProperties": 1}, [{}, {"a": 1}], [{"a": 1, "b": 2}]),
    "minProperties among several": (
        obj({"a": INTEGER, "b": INTEGER, "c": INTEGER}, minProperties=2),
        [{"a": 1, "b": 2}, {"b": 1, "c": 2}, {"a": 1, "b": 2, "c": 3}],
        [{}, {"b": 1}],
    ),
    "at least one": (obj({"a": INTEGER, "b": INTEGER}, minProperties=1), [{"a": 1}, {"b": 1}, {"a": 1, "b": 1}], [{}]),
    "enum": ({"enum": ["a", 1, None, 1.5, "é", 'q"\n', "a/b"]}, ["a", 1, None, 1.5, "é", 'q"\n', "a/b"], ["b", 2]),
    "enum of structures": ({"enum": [[1, 2], {"a": [1], "b": {}}]}, [[1, 2], {"a": [1], "b": {}}], [[1], {"a": [1]}]),
    "enum and type": (string(enum=["a", 1, "bcd"], maxLength=2), ["a"], [1, "bcd"]),
    "const": ({"const": "a"}, ["a"], ["b", 1]),
    "const null": ({"const": None}, [None], [0]),
    "1 is not true": ({"anyOf": [{"const": 1}, {"const": "x"}]}, [1, "x"], [True, 2]),
    "anyOf": ({"anyOf": [STRING, INTEGER]}, ["a", 1], [None, 1.5]),
    "anyOf with more beside it": (string(anyOf=[{"minLength": 3}, {"maxLength": 1}]), ["", "a", "abc"], ["ab", 1]),
    "anyOf of required": (
        obj({"a": INTEGER, "b": INTEGER}, anyOf=[{"required": ["a"]}, {"required": ["b"]}]),
        [{"a": 1}, {"b": 1}],
        [{}],
    ),
    "anyOf with a $ref to false": ({"anyOf": [STRING, {"$ref": "#/$defs/f"}], "$defs": {"f": False}}, ["a"], [1]),
    "anyOf with true and false": ({"anyOf": [STRING, False]}, ["a"], [1]),
    "oneOf, apart": ({"oneOf": [STRING, {"type": "null"}]}, ["a", None], [1]),
    "oneOf, told apart by a property": (
        {"oneOf": [CAT, DOG]},
        [{"kind": "cat", "lives": 9}, {"kind": "dog", "name": "x"}],
        [{"kind": "dog"}, {"kind": "cow"}],
    ),
    "oneOf, told apart by a property, referred to": (
        {"oneOf": [{"$ref": "#/$defs/c"}, {"$ref": "#/$defs/d"}], "$defs": {"c": CAT, "d": DOG}},
        [{"kind": "cat", "lives": 9}, {"kind": "dog", "name": "x"}],
        [{"kind": "dog"}, {"kind": "cow"}],
    ),
    "oneOf, overlapping": ({"oneOf": [number(), INTEGER]}, [1.5], [1, "a"]),
    "allOf": (
        {"allOf": [{"type": "object", "properties": {"a": INTEGER}, "required": ["a"]}, {"properties": {"b": STRING}}]},
        [{"a": 1}, {"a": 1, "b": "s"}, {"a": 1, "c": 2}],
        [{"b": "s"}, {"a": 1, "b": 2}],
    ),
    "allOf of one": ({"allOf": [STRING], "description": "x"}, ["a"], [1]),
    "allOf of bounds": (integer(allOf=[{"minimum": 3}, {"maximum": 5}]), [3, 4, 5], [2, 6]),
    "allOf of patterns": (string(allOf=[{"pattern": "^a"}, {"pattern": "b$"}]), ["ab", "acb"], ["a", "b"]),
    "allOf of alternatives": (
        {"allOf": [{"enum": ["a", "ab", 4, 5]}, {"anyOf": [string(maxLength=1), integer(minimum=5), {"const": None}]}]},
        ["a", 5],
        ["ab", 4, None],
    ),
    "allOf of arrays": (
        {"allOf": [array(items=INTEGER, minItems=1), {"maxItems": 2, "prefixItems": [{"minimum": 3}]}]},
        [[3], [4, 1]],
        [[], [2], ["a"], [3, 3, 3]],
    ),
    "not": (string(**{"not": {"enum": ["a"]}}), ["b"], ["a", 1]),
    "if": (integer(**{"if": {"minimum": 3}, "then": {"multipleOf": 2}}), [1, 4], [3, "a"]),
    "dependentRequired": (obj({"a": INTEGER, "b": INTEGER}, dependentRequired={"a": ["b"]}), [{"b": 1}], [{"a": 1}]),
    "$ref": ({"$ref": "#/$defs/s", "$defs": {"s": STRING}}, ["a"], [1]),
    "$ref, old": ({"$ref": "#/definitions/s", "definitions": {"s": STRING}}, ["a"], [1]),
    "$ref with odd names": ({"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": STRING}}, ["a"], [1]),
    "$refs that look alike": (
        obj({"a": {"$ref": "#/$defs/x_y"}, "b": {"$ref": "#/$defs/x-y"}}, **{"$defs": {"x_y": STRING, "x-y": INTEGER}}),
        [{"a": "s", "b": 1}],
        [{"a": 1}, {"b": "s"}],
    ),
    "$ref with more beside it": ({"$ref": "#/$defs/s", "minLength": 2, "$defs": {"s": STRING}}, ["ab"], ["a", 1]),
    "$ref to a property": (obj({"a": INTEGER, "b": {"$ref": "#/properties/a"}}), [{"a": 1, "b": 2}], [{"b": "x"}]),
    "$ref to true": (obj({"a": {"$ref": "#/$defs/t"}}, **{"$defs": {"t": True}}), [{"a": 1}, {"a": {}}], [{"b": 1}]),
    "recursive": (
        {"$ref": "#/$defs/node", "$defs": {"node": NODE}},
        [{"v": 1}, {"v": 1, "next": {"v": 2, "next": {"v": 3}}}],
        [{"v": 1, "next": 3}, {}],
    ),
    "recursive from the root": (obj({"a": {"$ref": "#"}}), [{}, {"a": {"a": {}}}], [{"a": 1}]),
    "recursive, with more beside it": (
        {"$ref": "#/$defs/t", "$defs": {"t": array(items={"$ref": "#/$defs/t", "maxItems": 1})}},
        [[], [[], [[]]]],
        [[1], [[[], []]]],
    ),
    "array": ({"type": "array"}, [[], [1, "a", []]], [{}, "a"]),
    "items": (array(items=INTEGER), [[], [1, 2]], [["a"], [1, "a"]]),
    "items of objects": (array(items=obj({"a": INTEGER}, "a")), [[], [{"a": 1}, {"a": 2}]], [[{}], [1]]),
    "items false": (array(items=False), [[]], [[1]]),
    "minItems alone": (array(minItems=1), [[1], [1, "a"]], [[]]),
    "maxItems alone": (array(maxItems=1), [[], ["a"]], [[1, 2]]),
    "counted items": (array(items=INTEGER, minItems=2, maxItems=3), [[1, 2], [1, 2, 3]], [[1], [1, 2, 3, 4]]),
    "no items": (array(items=INTEGER, maxItems=0), [[]], [[1]]),
    "many items": (array(items=INTEGER, maxItems=3000), [[], [1, 2]], [["a"]]),
    "prefixItems": (array(prefixItems=[INTEGER, STRING]), [[], [1], [1, "a"], [1, "a", None]], [["a"], [1, 2]]),
    "tuple": (array(prefixItems=[INTEGER, STRING], minItems=2, maxItems=2), [[1, "a"]], [[1], [1, "a", 2], ["a", 1]]),
    "tuple, cut short": (array(prefixItems=[INTEGER, STRING], items=False), [[], [1], [1, "a"]], [["a"], [1, "a", 2]]),
    "tuple with more": (
        array(prefixItems=[INTEGER], items=STRING, minItems=2, maxItems=3),
        [[1, "a"], [1, "a", "b"]],
        [[1], ["a", "a"], [1, "a", "b", "c"]],
    ),
    "tuple that is too long": (array(prefixItems=[INTEGER] * 3, maxItems=1), [[], [1]], [[1, 1], ["a"]]),
    "prefixItems with true and false": (array(prefixItems=[True, False]), [[], ["a"]], [[1, 2]]),
    "items as a list": (array(items=[INTEGER], additionalItems=False), [[], [1]], [["a"], [1, 1]]),
    "uniqueItems": (array(items=INTEGER, uniqueItems=True), [[1, 2]], [[1, 1], ["a"]]),
    "contains": (array(items={"type": ["integer", "string"]}, contains=INTEGER, minContains=2), [[1, "a", 2]], [["a"]]),
    "minLength": (string(minLength=2), ["ab", 'a"', "\n\n", "éé", "abc"], ["", "a"]),
    "maxLength": (string(maxLength=2), ["", "ab", '""', "\n\n", "😀"], ["abc"]),
    "lengths": (string(minLength=1, maxLength=3), ["a", "abc"], ["", "abcd"]),
    "great lengths": (string(minLength=3, maxLength=5000), ["abc"], ["ab"]),
    "pattern": (string(pattern="^a+$"), ["a", "aaa"], ["", "b", "ab"]),
    "pattern, not anchored": (string(pattern="ab"), ["ab", "xaby", '"ab\n', "\\ab"], ["a", "ba"]),
    "pattern, anchored at the start": (string(pattern="^ab"), ["ab", "abc\n"], ["xab"]),
    "pattern, anchored at the end": (string(pattern="ab$"), ["ab", "\nab"], ["abx"]),
    "pattern with alternatives": (string(pattern="^a|b$"), ["ax", "xb", "a"], ["xax", "c"]),
    "pattern with groups": (string(pattern="^(?:a|bc)*(d[ef]){2,3}$"), ["abcdedf", "dede"], ["de", "dedededede"]),
    "pattern with escapes": (string(pattern=r"^a\.+\/\$\{x\}$"), ["a../${x}"], ["a.a./${x}", "ab"]),
    "pattern with classes": (string(pattern=r"^[\w.^\-\]]+@\d\s\S$"), ["a.^-]@1 x", "_@1\té"], ["@1 x", "a@x x"]),
    "pattern with a caret": (string(pattern=r"^[\^]+[\^-`]x$"), ["^_x", "^^^x"], ["_x"]),
    "pattern with an underscore": (string(pattern=r"^[_a-f]+$"), ["_a", "f"], ["g", "A"]),
    "pattern with quotes": (string(pattern='^"[^a]*"$'), ['""', '"b\n\\"', '"é"'], ['"a"', "b"]),
    "pattern without a quote": (string(pattern='^[^"]*$'), ["a", "\\", "\n"], ['"']),
    "pattern with a backslash": (string(pattern=r"^\\\\(n|\\n)+$"), ["\\\\n", "\\\\\\n"], ["\\\\\n"]),
    "pattern with control characters": (string(pattern=r"^\t[\x00-\x1f]*$"), ["\t\n", "\t\x01\x1f\b"], ["\tx"]),
    "pattern with a dot": (string(pattern="^.$"), ["a", '"', "\\", "é", "\t", "\x01", "😀"], ["\n", "ab"]),
    "pattern with letters beyond ASCII": (string(pattern="^aé+[à-ü😀-😆]$"), ["aééé😀", "aéü"], ["aéaé", "aéa"]),
    "pattern with an empty alternative": (string(pattern="^(|ab)c$"), ["c", "abc"], ["ab"]),
    "pattern that is empty": (string(pattern="^$"), [""], ["a"]),
    "pattern and length": (string(pattern="^[a-z]+$", minLength=3, maxLength=5), ["abc", "abcde"], ["ab", "abcdef"]),
    "pattern, and a length that it cannot have": (string(pattern="^(ab)+$", maxLength=4), ["ab", "abab"], ["ababab"]),
    "pattern that looks ahead": (string(pattern="^(?!a).*$"), ["b"], ["a"]),
    "pattern that refers back": (string(pattern=r"^(a|b)\1$"), ["aa"], ["ab"]),
    "pattern with many repetitions": (string(pattern="^a{3000}$"), ["a" * 3000], ["b"]),
    "date": (
        string(format="date"),
        ["2024-02-29", "2000-02-29", "1999-12-31", "0000-04-30"],
        ["2024-13-01", "x", "2024-11-31", "2024-02-30", "2023-02-29", "1900-02-29", "2024-00-10", "2024-01-00"],
    ),
    "time": (string(format="time"), ["12:00:00Z", "23:59:60.123456+01:00"], ["25:00:00Z", "12:00"]),
    "date-time": (
        string(format="date-time"),
        ["2024-02-29T12:00:00.1Z", "2024-02-29t12:00:00z"],
        ["2024-02-29", "2024-06-31T12:00:00Z"],
    ),
    "duration": (string(format="duration"), ["P1Y2M3DT4H5M6S", "P3W", "PT5M"], ["P", "1D"]),
    "email": (string(format="email"), ["a.b+c@d.example", '"a \\" b"@d', "a@[127.0.0.1]"], ["a", "@b", "a b@c"]),
    "hostname": (string(format="hostname"), ["a-B.example", "x"], ["-a", "a..b"]),
    "ipv4": (string(format="ipv4"), ["127.0.0.1", "255.255.255.255"], ["256.0.0.1", "1.2.3"]),
    "ipv6": (string(format="ipv6"), ["::", "::1", "fe80::1", "1:2:3:4:5:6:7:8", "::f:1.2.3.4"], [":::", "1::2::3"]),
    "uuid": (string(format="uuid"), [UUID, UUID.upper()], [UUID[:-1], "x"]),
    "uri": (string(format="uri"), ["https://a.b/c?d=[e]#f", "urn:x:y", "mailto:a@b"], ["a b", "//x"]),
    "an unknown format": (string(format="color"), ["red"], [1]),
    "minimum": (integer(minimum=205), [205, 1000, 10**18], [204, 25, -300, 0]),
    "maximum": (integer(maximum=10), [10, 0, -1, -(10**17)], [11, 100]),
    "minimum and maximum": (integer(minimum=-5, maximum=120), [-5, 0, 120], [-6, 121]),
    "exclusive bounds": (integer(exclusiveMinimum=0, exclusiveMaximum=3, minimum=-7), [1, 2], [0, 3, -1]),
    "exclusive bounds, old": (integer(minimum=0, exclusiveMinimum=True), [1, 5], [0]),
    "bounds between integers": (integer(minimum=1.5, maximum=3.5), [2, 3], [1, 4]),
    "huge bounds": (integer(minimum=-(10**25), maximum=10**25), [1, -5, 10**12], ["a"]),
    "bounds of numbers": (number(minimum=0, maximum=1), [0, 1, 0.5, 0.1234567], [1.5, -0.1]),
    "exclusive bounds of numbers": (number(exclusiveMinimum=0), [0.0001, 5], [0, -1]),
    "multipleOf": (integer(multipleOf=5), [5, 0, -10, 1000], [6]),
    "multipleOf within bounds": (integer(multipleOf=5, minimum=0, maximum=20), [0, 20], [6, 25]),
    "multipleOf and minimum": (integer(multipleOf=5, minimum=0), [0, 20], [-5]),
    "multipleOf a fraction, of integers": (integer(multipleOf=1.5), [3, 6], [2]),
    "multipleOf one": (number(multipleOf=1), [0, -7], ["a"]),
    "multipleOf a fraction": (number(multipleOf=0.5), [0.5, 3, -1.5], [0.7]),
    "multipleOf something large": (integer(multipleOf=2000), [4000], ["a"]),
}


BAD: list[tuple[Any, str]] = [
    (False, "^p is `false`"),
    (number(minimum=float("nan")), "^p holds a float, which is no JSON"),
    (string(pattern="(a"), r"^p\.pattern '\(a' is no regular expression: `\(` at 0 is never closed"),
    (obj(patternProperties={"[": STRING}), r"^p\.patternProperties\.\[ '\[' is no regular expression"),
    ({"const": {1, 2}}, "^p holds a set, which is no JSON"),
    ({"const": {1: 2}}, "^p has a key that is no string"),
    ({"$ref": "https://x.example/y"}, r"^p\.\$ref: 'https://x\.example/y' is not local"),
    ({"$ref": "other.json#/a"}, r"^p\.\$ref: .* is not local"),
    ({"$ref": "#anchor"}, r"^p\.\$ref: '#anchor' leads nowhere: no `\$anchor` has that name"),
    ({"$ref": "#/$defs/x"}, r"^p\.\$ref: .* leads nowhere: there is no '\$defs'"),
    ({"$ref": "#/anyOf/7", "anyOf": [STRING]}, "leads nowhere: there is no '7'"),
    ({"$ref": "#/required", "required": []}, "leads to something that is no schema"),
    ({"$ref": "#"}, "^p refers to itself with nothing in between"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "refers to itself"),
    (obj({"a": {"$ref": "#/properties/a"}}), r"^p\.properties\.a refers to itself"),
    (
        {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [STRING, {"allOf": [{"$ref": "#/$defs/a"}]}]}}},
        "refers to itself",
    ),
    (integer(minimum=5, maximum=3), r"^p: no number is between 5 and 3"),
    (number(minimum=5, exclusiveMaximum=5), "no number is between 5 and 5"),
    (number(minimum=5, maximum=5, exclusiveMinimum=True), "no number is between 5 and 5"),
    (integer(minimum=1.2, maximum=1.8), "no integer is between 1.2 and 1.8"),
    (integer(exclusiveMinimum=1, exclusiveMaximum=2), "no integer is between 1 and 2"),
    (string(minLength=3, maxLength=2), r"minLength \(3\) is above maxLength \(2\)"),
    (obj({"a": array(minItems=3, maxItems=2)}), r"^p\.properties\.a: minItems \(3\) is above maxItems"),
    ({"type": "object", "minProperties": 3, "maxProperties": 2}, "minProperties .3. is above maxProperties"),
    ({"enum": []}, r"^p\.enum is empty"),
    (string(enum=[1, 2]), "^p: no value of enum is of type 'string'"),
    (integer(const="a"), "^p: no value of const is of type 'integer'"),
    ({"enum": [1], "const": 2}, r"^p\.const is not among the values of enum"),
    (obj({"a": STRING}, "b"), r"^p\.required: 'b' is not in `properties`, and no others are allowed"),
    (obj({"a": False}, "a"), r"^p\.required: 'a' can have no value"),
    (obj({"a": STRING, "b": STRING}, "a", "b", maxProperties=1), "2 properties are required, but maxProperties is 1"),
    ({"anyOf": [False, string(minLength=2, maxLength=1)]}, r"^p\.anyOf: every alternative contradicts itself"),
    ({"oneOf": [False]}, r"^p\.oneOf: every alternative contradicts itself"),
    ({"allOf": [STRING, INTEGER]}, r"^p\.type allows nothing, together with allOf"),
    ({"allOf": [True, False]}, r"^p\.allOf\[1\] admits nothing"),
    ({"$ref": "#/$defs/a", "$defs": {"a": integer(minimum=2, maximum=1)}}, "which admits nothing"),
    ({"$ref": "#/$defs/a", "$defs": {"a": False}}, "which admits nothing"),
    (string(minLength=10**6), r"^p\.minLength is 1000000, too large for a grammar"),
    (obj({f"p{i}": STRING for i in range(1_001)}), r"^p\.properties are more than 1000"),
    (array(minItems=10**9), r"^p\.minItems is 1000000000, too large"),
]


def deep(levels: int, wrap: Callable[[Any], Any]) -> Any:
    schema: Any = STRING
    for _ in range(levels):
        schema = wrap(schema)
    return schema


def _fan_out(levels: int) -> Any:
    definitions: dict[str, Any] = {
        f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}, array(items={"$ref": f"#/$defs/d{i + 1}"}), NODE]}
        for i in range(levels)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{levels}": STRING, "node": NODE}}


_shared: Any = {"type": "string"}
for _ in range(60):
    _shared = {"anyOf": [_shared, _shared]}
_cycle: Any = {"type": "array"}
_cycle["items"] = _cycle
ENORMOUS: dict[str, tuple[Any, str]] = {
    "deep objects": (deep(5000, lambda inner: obj({"a": inner})), "nests deeper than"),
    "deep arrays": (deep(5000, lambda inner: array(items=inner)), "nests deeper than"),
    "deep alternatives": (deep(5000, lambda inner: {"anyOf": [inner]}), "nests deeper than"),
    "many properties": (obj({f"p{i}": STRING for i in range(100_000)}), "holds more than"),
    "a huge enum": ({"enum": list(range(1_000_000))}, "holds more than"),
    "a long string": ({"const": "a" * (1 << 21)}, "is longer than"),
    "shared objects": (_shared, "holds more than|nests deeper"),
    "a schema that holds itself": (_cycle, "nests deeper than"),
}


HOSTILE: dict[str, Any] = {
    "as deep as can be": deep(32, lambda inner: obj({"a": inner})),
    "arrays as deep as can be": deep(95, lambda inner: array(items=inner)),
    "alternatives as deep as can be": deep(45, lambda inner: {"anyOf": [inner, {"type": "null"}]}),
    "allOf as deep as can be": deep(45, lambda inner: {"allOf": [inner, {"minLength": 1}]}),
    "fan-out": _fan_out(60),
    "fan-out with siblings": {
        "$ref": "#/$defs/d0",
        "$defs": {
            f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}], "maxLength": i + 9}
            for i in range(60)
        }
        | {"d60": STRING},
    },
    "a chain of references": {
        "$ref": "#/$defs/d0",
        "$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}", "minLength": i} for i in range(2000)} | {"d2000": STRING},
    },
    "alternatives that multiply": string(
        allOf=[{"anyOf": [{"pattern": f"{i}{j}"} for i in range(9)]} for j in range(9)]
    ),
    "two trees at once": {
        "allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
        "$defs": {
            name: {"type": "object", "properties": {x: {"$ref": f"#/$defs/{name}"} for x in "xyz"}} for name in "ab"
        },
    },
    "a catastrophic pattern": string(pattern="^(a+)+$", enum=["a" * 200 + "b", "a"]),
    "nested counts": string(pattern="^((a{50}){50}){50}$"),
    "a large enum": {"enum": [f"value {i}" for i in range(10_000)]},
    "a large object": obj({f"p{i}": {"type": ["string", "null"]} for i in range(1_000)}),
    "many alternatives": {"oneOf": [obj({"kind": {"const": i}}, "kind") for i in range(1_000)]},
    "great counts": obj({"a": array(items=STRING, minItems=99_999), "b": string(maxLength=10**12)}),
}
