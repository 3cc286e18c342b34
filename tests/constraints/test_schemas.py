"""JSON schemas: what is said of bad ones, and that every syntax takes all values that a schema takes, and no others
than those that it says it does.

The second is tried with the engines themselves. Where one of them is not installed, its tests are skipped.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import random
import re
import tracemalloc
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.constraints.language import Json, Lexeme, OutputLanguage, Unenforced
from unbraid.constraints.printers import Printed
from unbraid.constraints.printers.ebnf import to_ebnf
from unbraid.constraints.printers.gbnf import to_gbnf
from unbraid.constraints.printers.lark import to_lark
from unbraid.constraints.printers.regex import NotRegular, regular, to_regex
from unbraid.constraints.printers.structural_tag import to_structural_tag
from unbraid.constraints.schema_export import export, locate
from unbraid.constraints.schema_grammar import json_text
from unbraid.errors import InvalidSchema
from unbraid.schema import patterns
from unbraid.schema import regular as regular_nodes
from unbraid.schema.checks import check
from unbraid.schema.regular import ANY, EVERY, Chars, Node, Repeat, Verbatim, all_but, chars, sequence
from unbraid.schema.repair import repair

from .grammar_engines import LlamaCppGrammar, LlguidanceGrammar, XGrammarGrammar
from .schema_corpus import (
    BAD,
    CORPUS,
    ENORMOUS,
    HOSTILE,
    INTEGER,
    NODE,
    STRING,
    array,
    deep,
    integer,
    number,
    obj,
    string,
)

Accepts = Callable[[list[str]], list[bool]]


def _one_by_one(accepts: Callable[[str], object]) -> Accepts:
    return lambda texts: [bool(accepts(text)) for text in texts]


def _llama_cpp(gbnf: str) -> Accepts:
    grammar = LlamaCppGrammar(gbnf)
    return lambda texts: [verdict == "complete" for verdict in grammar.judge_all(texts)]


# How a language is printed, and what the engine takes.
PRINTED: dict[str, tuple[Callable[[OutputLanguage], Printed[Any]], Callable[[Any], Accepts]]] = {
    "lark": (to_lark, lambda lark: _one_by_one(LlguidanceGrammar(lark).accepts)),
    "structural tag": (to_structural_tag, lambda tag: _one_by_one(XGrammarGrammar.from_structural_tag(tag).accepts)),
    "gbnf": (to_gbnf, _llama_cpp),
    "ebnf": (to_ebnf, lambda ebnf: _one_by_one(XGrammarGrammar.from_ebnf(ebnf).accepts)),
    "regex": (to_regex, lambda regex: _one_by_one(re.compile(regex).fullmatch)),
}
every_syntax = pytest.mark.parametrize("syntax", PRINTED)


def printed(schema: Any, syntax: str) -> Printed[Any]:
    """The schema in a syntax; skips the test where that is no regular expression."""
    try:
        return PRINTED[syntax][0](OutputLanguage(Json(schema, "p"), {}))
    except NotRegular as problem:
        assert syntax == "regex"
        pytest.skip(str(problem))


def text(value: Any) -> str:
    """As models write JSON. Other spellings of the same value are not tried, since not all syntaxes take them:
    `\\u00e9`, `\\/`, 1.0 for an integer, -0, or properties in another order than that of the schema."""
    return json.dumps(value, ensure_ascii=False)


@pytest.mark.parametrize("name", CORPUS)
@every_syntax
def test_no_grammar_is_tighter_and_what_is_looser_is_listed(syntax: str, name: str) -> None:
    schema, valid, invalid = CORPUS[name]
    check(schema, "p")
    before = copy.deepcopy(schema)
    found = printed(schema, syntax)
    assert schema == before
    accepted = PRINTED[syntax][1](found.grammar)([text(value) for value in (*valid, *invalid)])
    assert [value for value, taken in zip(valid, accepted, strict=False) if not taken] == []
    if not found.unenforced:
        refused = accepted[len(valid) :]
        assert [value for value, taken in zip(invalid, refused, strict=True) if taken] == []


def test_what_each_syntax_loosens() -> None:
    """So that a change in what is enforced is seen."""
    common = {
        "oneOf, overlapping", "not", "if", "dependentRequired", "uniqueItems", "contains", "an unknown format",
        "recursive, with more beside it", "pattern that looks ahead", "pattern that refers back",
    }  # fmt: skip
    several = {"allOf of patterns", "pattern, and a length that it cannot have"}
    decimals = {"bounds of numbers", "exclusive bounds of numbers", "untyped keywords"}
    steps = {"multipleOf and minimum", "multipleOf a fraction", "multipleOf something large", "multipleOf one"}
    names = {"patternProperties, open", "patternProperties that overlap", "propertyNames"}
    own = several | decimals | steps | names | {
        "patternProperties, closed", "propertyNames with a list", "minProperties", "maxProperties", "at least one",
        "minProperties among several", "multipleOf", "multipleOf within bounds", "multipleOf a fraction, of integers",
    }  # fmt: skip
    expected = {
        "lark": {
            "patternProperties that overlap", "minProperties among several", "huge bounds", "pattern without a quote",
            "pattern with control characters",
        },
        "structural tag": several | decimals | steps | names | {
            "huge bounds", "a property that is false, open", "open, with odd names",
        },
        "gbnf": own,
        "ebnf": own,
    }  # fmt: skip
    for syntax, more in expected.items():
        found = {name for name, (schema, _, _) in CORPUS.items() if printed(schema, syntax).unenforced}
        assert found == common | more, syntax


def test_what_is_loosened_says_where() -> None:
    properties = {"tags": array(uniqueItems=True), "age": {"$ref": "#/$defs/age"}}
    schema = {"type": "object", "properties": properties, "$defs": {"age": number(minimum=0)}}
    _, unenforced = export(schema, "xgrammar", "tools[0] ('search').parameters")
    assert unenforced[0] == Unenforced(
        "tools[0] ('search').parameters.properties.tags", "`uniqueItems` is not enforced"
    )
    assert unenforced[1].where == "tools[0] ('search').parameters.$defs.age"
    assert "`minimum`" in unenforced[1].what


@every_syntax
def test_equal_languages_give_equal_text(syntax: str) -> None:
    plain = obj({"a": STRING, "b": {"enum": [1]}}, "a")
    noisy = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "T",
        "additionalProperties": False,
        "properties": {
            "a": string(description="x", default="y", examples=["z"], pattern=""),
            "b": {"const": 1.0, "deprecated": True},
        },
        "required": ["a", "a"],
        "type": "object",
        "$defs": {"unused": INTEGER},
        "$comment": "c",
    }
    assert printed(plain, syntax) == printed(noisy, syntax)


def test_properties_keep_their_order() -> None:
    schema = {
        "allOf": [obj({"z": INTEGER, "a": INTEGER}, additionalProperties=True), {"properties": {"m": STRING, "z": {}}}]
    }
    fitted: Any = export(schema, "llguidance", "p")[0]
    objects = [fitted] if "properties" in fitted else fitted["anyOf"]
    assert list(objects[0]["properties"]) == ["z", "a", "m"]


@pytest.mark.parametrize("name", CORPUS)
def test_all_rules_are_used(name: str) -> None:
    rules = dict(line.split(" ::= ", 1) for line in printed(CORPUS[name][0], "gbnf").grammar.splitlines())
    used = {
        word for body in rules.values() for word in re.findall(r"[a-z][\w-]*", re.sub(r'"(\\.|[^"\\])*"', "", body))
    }
    assert rules.keys() - used <= {"root"}


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"type": "object"},
        array(),
        obj({"a": {}}),
        {"type": "object", "properties": {"a": INTEGER}},
        {"$ref": "#/$defs/node", "$defs": {"node": NODE}},
    ],
)
def test_only_regular_languages_are_regular_expressions(schema: Any) -> None:
    with pytest.raises(NotRegular, match="no regular language"):
        to_regex(OutputLanguage(Json(schema, "p"), {}))


@every_syntax
def test_optional_properties_do_not_multiply(syntax: str) -> None:
    grammar = printed(obj({f"p{i}": INTEGER for i in range(40)}), syntax).grammar
    assert len(str(grammar)) < 1 << 18
    taken = [{}, {"p0": 1}, {"p3": 1, "p39": 2}, {f"p{i}": i for i in range(40)}]
    refused = [{"p4": 1, "p3": 2}, {"p3": 1, "p3 ": 2}]
    accepted = PRINTED[syntax][1](grammar)([text(value) for value in (*taken, *refused)])
    assert accepted == [True] * len(taken) + [False] * len(refused)


@pytest.mark.parametrize(
    "schema",
    [
        obj({f"p{i}": STRING for i in range(1_000)}),
        obj({f"p{i}": obj({f"p{i}": STRING for i in range(40)}) for i in range(40)}),
        deep(24, lambda inner: obj({"a": STRING, "b": inner})),
    ],
)
def test_what_is_too_long_for_a_regular_expression_is_seen_before_it_is_written(schema: Any) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(NotRegular, match="longer than"):
            to_regex(OutputLanguage(Json(schema, "p"), {}))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 100_000_000


@every_syntax
def test_contradictions_that_only_show_when_all_is_put_together(syntax: str) -> None:
    schema = {"allOf": [string(minLength=3), {"anyOf": [string(maxLength=2), INTEGER]}]}
    check(schema, "p")
    with pytest.raises(InvalidSchema, match="p contradicts itself"):
        printed(schema, syntax)


@pytest.mark.parametrize(("schema", "message"), BAD)
def test_bad_schemas(schema: Any, message: str) -> None:
    with pytest.raises(InvalidSchema, match=message):
        check(schema, "p")


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [False, STRING]},
        obj({"a": False}),
        {"not": False},
        array(items=False),
        {"minLength": 3, "maxLength": 2},  # any number will do
        {"type": ["string", "integer"], "minimum": 5, "maximum": 3},
        string(maxLength=10**9, pattern=r"^\p{L}+$"),
        string(pattern="(?<name>a)"),
        {"allOf": [{"type": ["string", "integer"]}, {"type": "number"}]},
        {"$ref": "#/$defs/a", "$defs": {"a": array(items={"$ref": "#/$defs/a"})}},
        {"$defs": {"unused": False}},
        {"x-unknown": {"y": [None]}},
    ],
)
def test_schemas_that_only_look_bad(schema: Any) -> None:
    check(schema, "p")
    assert export(schema, "llguidance", "p")
    assert printed(schema, "gbnf")


@pytest.mark.parametrize("name", ENORMOUS)
def test_enormous_schemas_are_refused(name: str) -> None:
    schema, message = ENORMOUS[name]
    with pytest.raises(InvalidSchema, match=f"^p {message}"):
        check(schema, "p")


@pytest.mark.parametrize("name", HOSTILE)
@every_syntax
def test_hostile_schemas_take_no_time(syntax: str, name: str) -> None:
    check(HOSTILE[name], "p")
    grammar = printed(HOSTILE[name], syntax).grammar
    assert len(json.dumps(grammar)) < 1 << 20
    assert PRINTED[syntax][1](grammar)(["nonsense"]) == [False]


def test_the_smallest_place_that_fails() -> None:
    schema = obj({"a": STRING, "b": array(items=obj({"c": string(pattern="!")}))}, **{"$defs": {"d": STRING}})

    def fails(inner: Any) -> bool:
        assert isinstance(inner, bool) or inner.get("$defs") == {"d": STRING}
        return "!" in json.dumps(inner)

    assert locate(schema, fails, "p") == "p.properties.b.items.properties.c"
    assert locate(schema, lambda inner: False, "p") == "p"
    assert locate(True, lambda inner: True, "p") == "p"


def test_looking_for_the_place_ends() -> None:
    calls = itertools.count()
    wide = obj({f"p{i}": STRING for i in range(1000)})
    assert locate(wide, lambda inner: next(calls) < 0, "p") == "p"
    assert next(calls) <= 200


# Classes, in all syntaxes: with what has a meaning in one of them, and with ends that are not ASCII.
_SOME = [*'a5^-]\\[/"&~. \n\t\x01\x1f\x7f\x80\x9f\xa0éÿ\u2028\ud7ff\ue000\uffff', "\U00010000", "😀", "\U0010ffff"]


def _classes() -> list[Chars]:
    chance = random.Random(0)
    found = [ANY, Chars(EVERY), *map(chars, _SOME), *map(all_but, _SOME)]
    for _ in range(30):
        ends = sorted(chance.sample(_SOME, 6))
        some = [ends[0], ends[1] + ends[2], ends[3], ends[4] + ends[5]]
        found.append(chance.choice([chars, all_but])(*chance.sample(some, 3)))
    return found


@every_syntax
def test_classes(syntax: str) -> None:
    # llama.cpp's vocabulary has no tokens for these.
    texts = [char for char in _SOME if syntax != "gbnf" or char not in "\x01\x1f"]
    for node in _classes():
        grammar = PRINTED[syntax][0](
            OutputLanguage(Lexeme(sequence(Verbatim("<"), Repeat(node, 1), Verbatim(">"))), {})
        ).grammar
        accepted = PRINTED[syntax][1](grammar)([f"<{char}>" for char in texts])
        assert [char for char, taken in zip(texts, accepted, strict=True) if taken] == list(filter(node.holds, texts))


# Patterns, against Python's `re`, which agrees as long as it is about ASCII and not about newlines.
_ATOMS = st.sampled_from(["a", "b", "[ab]", "[^a]", ".", r"\d", r"\W", "(a|bc)", "(?:|b)", r"\.", '"', r"\\", "[_^-]"])
_REGEX = st.lists(st.tuples(_ATOMS, st.sampled_from(["", "*", "+", "?", "{2}", "{0,2}", "{1,}"])), max_size=4).map(
    lambda parts: "".join(itertools.chain.from_iterable(parts))
)
_PATTERNS = st.tuples(st.sampled_from(["", "^"]), _REGEX, st.sampled_from(["", "$", "|b$"])).map("".join)
_TEXTS = st.text(alphabet='ab1."\\^_ -', max_size=6)


@given(_PATTERNS, _TEXTS)
def test_patterns_mean_what_they_mean(pattern: str, value: str) -> None:
    node: Node = patterns.parse(pattern)
    expected = re.search(pattern, value) is not None
    assert regular_nodes.matches(node, value) == expected
    assert (re.fullmatch(regular(node), value) is not None) == expected
    assert (re.fullmatch(regular(json_text(node)), text(value)[1:-1]) is not None) == expected
    low, high = regular_nodes.lengths(node)
    if expected:
        assert low <= len(value)
        assert high is None or len(value) <= high


# Schemas at random, put together from few parts, so that random values often satisfy them.
_LEAVES = st.sampled_from(
    [True, STRING, INTEGER, {"type": "null"}, {"enum": ["a", 1]}, {"const": {"a": 1}}, string(maxLength=1),
     integer(minimum=1), string(pattern="^a"), {"minLength": 1}, {"minimum": 1},
     {"required": ["a"]}, {"maxItems": 1}, {"maxProperties": 1},
     {"$ref": "#/$defs/d"}, {"type": ["object", "array"]}, {"minProperties": 1}]
)  # fmt: skip


def _combined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=2)
    return st.one_of(
        st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner),
        st.builds(lambda a, b: {"allOf": [a, b]}, inner, inner),
        st.builds(lambda a, b: {"oneOf": [a, b]}, inner, inner),
        st.builds(lambda a, b: {"type": "object", "properties": {"a": a}, "additionalProperties": b}, inner, inner),
        st.builds(lambda a, b: {"type": "object", "properties": {"a": a, "b": b}, "required": ["a"]}, inner, inner),
        st.builds(lambda a: {"properties": {"a": a}, "patternProperties": {"^b": a}}, inner),
        st.builds(lambda a, b: array(prefixItems=[a], items=b), inner, inner),
        st.builds(lambda a: array(items=a, minItems=1), inner),
        st.builds(lambda many: {"prefixItems": many, "items": False}, some),
        st.builds(lambda a, b: {"allOf": [a], **b} if isinstance(b, dict) else a, inner, inner),
    )


_SCHEMAS = st.recursive(_LEAVES, _combined, max_leaves=5).map(
    lambda schema: {"allOf": [schema], "$defs": {"d": obj({"a": {"$ref": "#/$defs/d"}}, additionalProperties=True)}}
)
_VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, 2, 1.5, "", "a", "b", "ab"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["a", "b", "bc", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def _orders(value: Any) -> list[Any]:
    """The value with its properties in every order: which one a grammar wants is its own affair."""
    if isinstance(value, dict):
        return [
            dict(zip(names, inner, strict=True))
            for names in itertools.permutations(value)
            for inner in itertools.product(*(_orders(value[name]) for name in names))
        ]
    if isinstance(value, list):
        return [list(inner) for inner in itertools.product(*map(_orders, value))]
    return [value]


@every_syntax
@given(schema=_SCHEMAS, values=st.lists(_VALUES, min_size=1, max_size=8))
def test_random_schemas(syntax: str, schema: Any, values: list[Any]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    with contextlib.suppress(InvalidSchema):  # a part of it may contradict itself, and be optional
        check(schema, "p")
    valid = [jsonschema.Draft202012Validator(schema).is_valid(value) for value in values]
    try:
        found = PRINTED[syntax][0](OutputLanguage(Json(schema, "p"), {}))
    except InvalidSchema:
        assert not any(valid)
        return
    except NotRegular:
        return
    spellings = [[text(order) for order in _orders(value)] for value in values]
    accepted = iter(PRINTED[syntax][1](found.grammar)(list(itertools.chain.from_iterable(spellings))))
    for value, fits, orders in zip(values, valid, spellings, strict=True):
        taken = [next(accepted) for _ in orders]
        assert any(taken) or not fits, f"refuses {value} though {schema} takes it: {found.grammar}"
        assert fits or found.unenforced or not any(taken), f"takes {value} though {schema} does not: {found.grammar}"


_SIZES = [10**400, -(10**400), 2 * 10**308, 1e308, 5e-324, 1e-300]


@pytest.mark.parametrize("key", ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"])
@pytest.mark.parametrize("kind", ["integer", "number"])
@every_syntax
def test_numbers_of_any_size(syntax: str, kind: str, key: str) -> None:
    """Larger than a float can be, and closer to zero than others: each is enforced, said or refused."""
    with pytest.raises(InvalidSchema, match="3,000 digits"):
        check(repair({"type": kind, key: 10**5000}, "p")[0], "p")
    for value in _SIZES:
        schema, repairs = repair({"type": kind, key: value}, "p")
        check(schema, "p")
        made = printed(schema, syntax)
        takes_zero = jsonschema.Draft202012Validator({"type": kind, key: value}).is_valid(0) if not repairs else True
        if not takes_zero and not made.unenforced and syntax in ("lark", "regex"):
            assert PRINTED[syntax][1](made.grammar)(["0"]) == [False]


@pytest.mark.parametrize("key", ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"])
@every_syntax
def test_counts_of_any_size(syntax: str, key: str) -> None:
    for value in (10**400, 10**5000, 1e308):
        schema, _ = repair({key: value}, "p")
        if key.startswith("min") or value == 10**5000:
            with pytest.raises(InvalidSchema, match=r"too large for a grammar|3,000 digits"):
                check(schema, "p")
        else:
            check(schema, "p")
            assert [one.what for one in printed(schema, syntax).unenforced] == [
                f"`{key}` is not enforced: it is above 100000"
            ]
