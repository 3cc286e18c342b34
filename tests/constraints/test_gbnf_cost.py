"""That grammars for llama.cpp leave few alternatives open, whatever the schema: it follows them all, with every token
of the vocabulary, and nothing can stop it meanwhile. What cannot be written so is refused before it gets there."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid.constraints.determinize.items import MOST_STACKS
from unbraid.constraints.language import Json, OutputLanguage
from unbraid.constraints.printers import Printed
from unbraid.constraints.printers.ebnf import to_ebnf
from unbraid.constraints.printers.gbnf import to_gbnf
from unbraid.engines import Unsupported
from unbraid.engines.llama_cpp.requests import constraint_fields
from unbraid.errors import InvalidSchema

from .grammar_engines import LlamaCppGrammar
from .schema_corpus import INTEGER, STRING, array, deep, obj, string


def union(*options: Any) -> Any:
    return {"anyOf": list(options)}


def named(count: int) -> dict[str, Any]:
    return {f"p{at}": INTEGER for at in range(count)}


def recursive(*options: Any) -> Any:
    return {"$ref": "#/$defs/e", "$defs": {"e": union(*options)}}


E = {"$ref": "#/$defs/e"}
HASHES = [f"{random.Random(at).getrandbits(64):x}" for at in range(1_000)]

CHEAP: dict[str, Any] = {
    "repeated, maybe empty": string(pattern="^(a?){50}$"),
    "repeated often, maybe empty": string(pattern="^(a?){1000}$"),
    "and then as often": string(pattern="^(a?){100}a{100}$"),
    "star of a star": string(pattern="^(a*)*$"),
    "the same twice": string(pattern="^(a|a)*b$"),
    "one in the other": string(pattern="^(a|b|ab)*c$"),
    "dashes": string(pattern="^(-|--|---)*x$"),
    "plus of a plus": string(pattern="^(-+)+x$"),
    "counts of counts": string(pattern="^((a{1,50}){1,50}){1,20}$"),
    "with gaps": string(pattern="^(a{2,3}){0,40}$"),
    "optional in a row": string(pattern="^(a?b?c?)*d?e?$"),
    "anywhere": string(pattern="foo|ba(r|z)+"),
    "many scripts": string(pattern=r"^[\u0100-\u0200\u3000-\u9fff]{1,50}é?(\W|\S)*$"),
    "email": string(format="email"),
    "ipv6": string(format="ipv6"),
    "a large enum": {"enum": [f"value {at}" for at in range(10_000)]},
    "an enum of hashes": {"enum": HASHES},
    "one the beginning of the other": {"enum": ["x" * at for at in range(200)]},
    "a long constant": {"const": "x" * 100_000},
    "optional properties": obj(named(100)),
    "optional properties, open": {"type": "object", "properties": named(60)},
    "required properties": obj(named(900), *named(900)),
    "lengths": union(*(string(minLength=at) for at in range(100))),
    "a tuple": array(prefixItems=[{}] * 300, items=False),
    "a fan of references": {
        "$ref": "#/$defs/d0",
        "$defs": {
            f"d{at}": union(
                array(items={"$ref": f"#/$defs/d{at + 1}"}), array(items={"$ref": f"#/$defs/d{at + 1}"}, minItems=1)
            )
            for at in range(30)
        }
        | {"d30": INTEGER},
    },
    "alike, in each other": recursive(obj({"l": E, "x": INTEGER}), obj({"l": E, "y": INTEGER})),
    "arrays in each other": recursive(array(items=E, minItems=1), array(items=E, minItems=2)),
    "open objects": union(
        {"type": "object", "properties": {"a": STRING}}, {"type": "object", "properties": {"b": INTEGER}}
    ),
    "as many characters": {"enum": [chr(0x4E00 + 2 * at) for at in range(5_000)]},
    "two of as many characters": string(pattern=f"^[{''.join(chr(0x4E00 + 2 * at) for at in range(5_000))}]{{2}}$"),
    "kinds": union(*(obj({"kind": {"const": at}}, "kind") for at in range(500))),
    "patterns together": string(allOf=[union(*({"pattern": f"{i}{j}"} for i in range(9))) for j in range(9)]),
    "great lengths": string(minLength=5, maxLength=5_000),
    "great counts": array(items=STRING, minItems=5, maxItems=5_000),
    "greater counts": array(items=STRING, minItems=99_999),
    "deep": deep(45, lambda inner: array(items=inner)),
}

TOO_AMBIGUOUS: dict[str, tuple[Any, str]] = {
    "no end to be seen": (string(pattern="^(a|b)*a(a|b){20}$"), "p"),
    "somewhere in a long text": (string(pattern="^.{0,5000}foo"), "p"),
    "as many first characters": (obj({"a": {"enum": [2 * chr(0x4E00 + at) for at in range(500)]}}), "p.properties.a"),
    "as many that may be missing": (string(pattern=f"^{''.join(f'{chr(0x4E00 + at)}?' for at in range(500))}$"), "p"),
    "too many optional properties": (obj(named(900)), "p"),
    "too many lengths": (array(items=union(*(string(minLength=at) for at in range(900)))), "p.items"),
    "great counts in each other": (deep(20, lambda inner: array(items=inner, maxItems=5_000)), r"p(\.items)+"),
    "anything or itself": (
        recursive({"type": "object", "properties": {"v": INTEGER}}, {"type": "object", "properties": {"l": E}}),
        r"p\.\$defs\.e",
    ),
}


def printed(schema: Any, words: tuple[str, ...] = ()) -> Printed[str]:
    return to_gbnf(OutputLanguage(Json(schema, "p", words), {}))


def deterministic(schema: Any, words: tuple[str, ...] = ()) -> str:
    """The grammar of a schema that is not too ambiguous."""
    found = printed(schema, words)
    assert found.too_ambiguous is None
    return found.grammar


# llama.cpp's own reckoning: a stack of positions for each way that is open

Element = str | frozenset[tuple[int, int]] | tuple[tuple[int, int], ...]
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|[a-z][\w-]*|\{[\d,]+\}|[|()*+?]')
_CHAR = re.compile(r"\\u(.{4})|\\U(.{8})|\\(.)|(.)", re.DOTALL)
_SHORT = {"n": "\n", "r": "\r", "t": "\t"}
Stack = tuple[tuple[str, int, int], ...]


def _chars(text: str) -> list[str]:
    return [chr(int(u or wide, 16)) if u or wide else _SHORT.get(e, e) or c for u, wide, e, c in _CHAR.findall(text)]


class Stacks:
    """What llama.cpp does with a grammar, as far as the printer uses it."""

    def __init__(self, gbnf: str) -> None:
        self.rules: dict[str, list[list[Any]]] = {}
        for line in gbnf.splitlines():
            name, _, body = line.partition(" ::= ")
            self._read(name, body)
        self.open = self._advanced({(("root", way, 0),) for way in range(len(self.rules["root"]))})

    def _read(self, name: str, body: str) -> None:
        ways: list[list[Any]] = [[]]
        last: list[Any] = []
        for token in _TOKEN.findall(body):
            if token == "|":
                ways.append([])
            elif token[0] == '"':
                last = [((ord(char), ord(char)),) for char in _chars(token[1:-1])]
                ways[-1] += last
            elif token[0] == "[":
                excluded = token[1] == "^"
                members = re.findall(
                    r"(\\u.{4}|\\U.{8}|\\.|[^\\])(?:-(\\u.{4}|\\U.{8}|\\.|[^\\]))?", token[1 + excluded : -1]
                )
                ranges = [(ord(_chars(low)[0]), ord(_chars(high or low)[0])) for low, high in members]
                last = [(excluded, tuple(ranges))]
                ways[-1] += last
            elif token[0] in "*+?{":
                low, _, high = {"*": "0,", "+": "1,", "?": "0,1"}.get(token, token[1:-1]).partition(",")
                least = int(low)
                most = None if token in "*+" or token.endswith(",}") else int(high or low)
                del ways[-1][len(ways[-1]) - len(last) :]
                ways[-1] += last * least
                if most is None:
                    inner = f"{name}.{len(self.rules)}"
                    self.rules[inner] = [[*last, inner], []]
                    ways[-1].append(inner)
                elif most > least:
                    inner = ""
                    for _ in range(most - least):
                        before, inner = inner, f"{name}.{len(self.rules)}"
                        self.rules[inner] = [[*last, *([before] if before else [])], []]
                    ways[-1].append(inner)
            elif token not in "()":
                last = [token]
                ways[-1] += last
        self.rules[name] = ways

    def _advanced(self, todo: set[Stack]) -> set[Stack]:
        found: set[Stack] = set()
        seen: set[Stack] = set()
        while todo:
            stack = todo.pop()
            while stack and stack[-1][2] >= len(self.rules[stack[-1][0]][stack[-1][1]]):
                stack = stack[:-1]
            if stack in seen:
                continue
            seen.add(stack)
            if not stack:
                found.add(stack)
                continue
            name, way, at = stack[-1]
            element = self.rules[name][way][at]
            if not isinstance(element, str):
                found.add(stack)
                continue
            rest = (*stack[:-1], (name, way, at + 1)) if at + 1 < len(self.rules[name][way]) else stack[:-1]
            todo |= {(*rest, (element, inner, 0)) for inner in range(len(self.rules[element]))}
        return found

    def _element(self, stack: Stack) -> Any:
        name, way, at = stack[-1]
        return self.rules[name][way][at]

    def read(self, char: str) -> None:
        self.open = self._advanced(
            {
                (*stack[:-1], (*stack[-1][:2], stack[-1][2] + 1))
                for stack in self.open
                if stack and self._takes(stack, char)
            }
        )

    def _takes(self, stack: Stack, char: str) -> bool:
        element = self._element(stack)
        excluded, ranges = element if isinstance(element[0], bool) else (False, element)
        return any(low <= ord(char) <= high for low, high in ranges) is not excluded

    def next(self) -> Iterator[str]:
        """Some characters that may come."""
        for stack in self.open:
            if stack:
                element = self._element(stack)
                excluded, ranges = element if isinstance(element[0], bool) else (False, element)
                yield from (char for char in 'a-"x{' if self._takes(stack, char))
                if not excluded:
                    yield from (chr(end) for some in ranges for end in some)


@pytest.mark.parametrize("name", CHEAP)
def test_few_stacks_are_open(name: str) -> None:
    gbnf = deterministic(CHEAP[name])
    assert len(gbnf) < 1 << 17
    for seed in range(4):
        chance = random.Random(seed)
        stacks = Stacks(gbnf)
        for _ in range(150):
            assert len(stacks.open) <= MOST_STACKS
            following = sorted(set(stacks.next()) - ({" ", "\n", "\t"} if chance.random() < 0.9 else set()))
            if not following:
                break
            char = chance.choice(following)
            # Where ways part inside a token, each is followed on its own.
            assert sum(bool(stack) and stacks._takes(stack, char) for stack in stacks.open) <= 8
            stacks.read(char)


@pytest.mark.parametrize("name", TOO_AMBIGUOUS)
def test_what_is_too_ambiguous_is_refused_by_name(name: str) -> None:
    schema, where = TOO_AMBIGUOUS[name]
    constraint = unbraid.Constraint(OutputLanguage(Json(schema, "p"), {}))
    named = constraint.llama_cpp.printed.too_ambiguous
    assert named is not None
    assert re.fullmatch(where, named)
    with pytest.raises(Unsupported, match=r"too many alternatives open at once for llama.cpp.* fewer alternatives"):
        constraint_fields(constraint, None)
    assert constraint.to_ebnf()  # others have other limits


def test_names_that_only_one_of_them_knows() -> None:
    """Where strings must not spell markers, too: both may go on with the same, and the ways would double each time."""
    open_end = {"type": "object", "additionalProperties": E}
    schema = recursive({**open_end, "properties": {"zz": E}}, {**open_end, "properties": {"y": E}}, {"type": "null"})
    for words in ((), ("<tool_call>", "</tool_call>")):
        gbnf = deterministic(schema, words)
        stacks = Stacks(gbnf)
        for char in '{"zz":' * 20:
            stacks.read(char)
            assert 0 < len(stacks.open) <= MOST_STACKS
        assert LlamaCppGrammar(gbnf).accepts('{"zz":' * 20 + "null" + "}" * 20)


@pytest.mark.parametrize("format", ["hermes", "qwen3-coder", "lfm2", "mistral"])
def test_many_tools(format: str) -> None:
    def tool(name: str, count: int, *, strict: bool) -> dict[str, Any]:
        return {"type": "function", "function": {"name": name, "strict": strict, "parameters": obj(named(count))}}

    for tools in (
        [tool(f"tool_{at}", 3, strict=False) for at in range(500)],
        [tool(f"tool_{at}", 1 + at % 5, strict=True) for at in range(300)],
        [tool(f"tool_{at}", 20, strict=True) for at in range(50)],
    ):
        constraint = unbraid.constraint(format, tools=tools, tool_choice="required")
        assert len(constraint_fields(constraint, None)["grammar"]) < 1 << 17


def test_calls_that_a_small_tool_takes() -> None:
    """What every schema has in common is worked out once."""

    def tool(name: str, **more: Any) -> Any:
        return {"type": "object", "properties": {name: STRING, "days": INTEGER}, "required": [name], **more}

    def calls(schema: Any) -> int:
        count = 0

        def counted(frame: FrameType, event: str, argument: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(counted)
        try:
            printed(schema)
        finally:
            sys.setprofile(None)
        return count

    printed(tool("first"))
    assert calls(tool("city", additionalProperties=False)) < 8_000
    assert calls(tool("place")) < 26_000


def test_what_nests_too_deep_says_so() -> None:
    """Checked schemas do not, but printers take any language."""
    schema = deep(300, lambda inner: obj({"a": inner}))
    for write in (to_gbnf, to_ebnf):
        with pytest.raises(InvalidSchema, match="too deep"):
            write(OutputLanguage(Json(schema, "p"), {}))


# That it is the same language

_ATOMS = st.sampled_from(
    ["a", "b", "ab", "[ab]", "[^a]", ".", r"\d", "(a|ab)", "(?:|b)", '"', r"\\", "(a?b?)", "(aa|a|b)"]
)
_COUNTS = st.sampled_from(["", "*", "+", "?", "{2}", "{0,2}", "{1,}", "{2,3}", "{0}"])
_PARTS = st.lists(st.tuples(_ATOMS, _COUNTS).map("".join), max_size=3).map("".join)
_GROUPS = st.lists(st.one_of(_PARTS, st.tuples(_PARTS, _COUNTS).map(lambda both: f"({both[0]}){both[1]}")), max_size=3)
_PATTERNS = st.tuples(st.sampled_from(["", "^"]), _GROUPS.map("".join), st.sampled_from(["", "$", "|b$"])).map("".join)


@given(_PATTERNS, st.lists(st.text(alphabet='ab1"\\', max_size=8), min_size=1, max_size=12))
def test_patterns_mean_what_they_mean(pattern: str, values: list[str]) -> None:
    gbnf = deterministic(string(pattern=pattern))
    texts = ['"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values]
    found = [verdict == "complete" for verdict in LlamaCppGrammar(gbnf).judge_all(texts)]
    assert found == [re.search(pattern, value) is not None for value in values]


def test_counts_of_counts() -> None:
    for outer in [(0, 2), (1, 3), (2, 2), (2, 4), (0, None)]:
        for inner in [(0, 2), (1, 2), (2, 3), (3, 3), (4, 5), (2, None)]:
            inside, outside = (f"{{{low},{'' if high is None else high}}}" for low, high in (inner, outer))
            pattern = f"^(a{inside}){outside}$"
            grammar = LlamaCppGrammar(deterministic(string(pattern=pattern)))
            verdicts = grammar.judge_all([f'"{"a" * n}"' for n in range(25)])
            expected = [re.search(pattern, "a" * n) is not None for n in range(25)]
            assert [verdict == "complete" for verdict in verdicts] == expected, pattern
