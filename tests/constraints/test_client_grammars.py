"""Grammars of clients: read as the `lark` package reads them, and refused where they cannot be."""

from __future__ import annotations

import re
from itertools import product

import lark
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from unbraid import InvalidTools, Unenforced, constraint
from unbraid.constraints.automata import automaton
from unbraid.constraints.grammars import UnsupportedGrammar
from unbraid.constraints.grammars.reader import read_grammar
from unbraid.constraints.language import Nested, OutputLanguage, Restricted, TextExcept
from unbraid.constraints.notations.texts import between, in_quotes
from unbraid.constraints.printers.gbnf import to_gbnf
from unbraid.constraints.printers.lark import to_lark
from unbraid.constraints.printers.regex import to_regex
from unbraid.core.custom_tools import Grammar, Syntax
from unbraid.core.json_text import quote
from unbraid.errors import Place
from unbraid.schema.regular import Node, Repeat, chars, matches

from ..support.examples import examples
from .client_grammars import APPLY_PATCH, EXPRESSIONS, VALUES, follows
from .grammar_engines import LlamaCppGrammar, LlguidanceGrammar

FIELD = Place("tools", 0, "format", "definition")


def read(definition: str, syntax: Syntax = "lark") -> Node:
    return read_grammar(Grammar(syntax, definition), FIELD)


def language(node: Node | None, free: Node) -> OutputLanguage:
    assert node is not None
    return OutputLanguage(Restricted(node, free, Unenforced("here", "it")), {})


def judged(node: Node, texts: list[str]) -> dict[str, list[bool]]:
    """Which of the texts each engine lets through, in JSON's quotes."""
    whole = language(in_quotes(node), in_quotes(Repeat(chars("az"))))
    found = {"lark": list(map(LlguidanceGrammar(to_lark(whole).grammar).accepts, map(quote, texts)))}
    gbnf = to_gbnf(whole)
    if not gbnf.unenforced:
        verdicts = LlamaCppGrammar(gbnf.grammar).judge_all(list(map(quote, texts)))
        found["gbnf"] = [verdict == "complete" for verdict in verdicts]
    if not isinstance(node, Nested):
        found["node"] = [matches(node, text) for text in texts]
        found["regex"] = [re.fullmatch(to_regex(whole).grammar, quote(text)) is not None for text in texts]
    return found


def check(grammar: str, texts: list[str]) -> dict[str, list[bool]]:
    """All say of these texts what Lark says."""
    expected = [follows(grammar, text) for text in texts]
    found = judged(read(grammar), texts)
    for who, said in found.items():
        wrong = [text for text, right, one in zip(texts, expected, said, strict=True) if right is not one]
        assert wrong == [], who
    return found


PATCHES = [
    "*** Begin Patch\n*** Add File: a b\n+x\n*** End Patch",
    '*** Begin Patch\n*** Add File: a\n+"\\n\t{}é😀\n+\n*** Delete File: b\n*** End Patch\n',
    "*** Begin Patch\n*** Update File: a\n*** Move to: b\n@@\n@@ f():\n-1\n+2\n 3\n*** End of File\n*** End Patch\n",
    "*** Begin Patch\n*** Update File: a\n*** Update File: b\n*** End Patch\n",
    "*** Begin Patch\n*** End Patch",
    "*** Begin Patch\n*** Add File: a\n*** End Patch",
    "*** Begin Patch\n*** Add File: \n+x\n*** End Patch",
    "*** Begin Patch\n*** Add File: a\nx\n*** End Patch",
    "*** Begin Patch\n*** Delete File: a\n*** End Patch\n\n",
    "*** Begin Patch\n*** Update File: a\n@@ \n*** End Patch\n",
    "*** Begin Patch\n*** Update File: a\n*** End of File\n*** End Patch\n",
    "",
]


def test_the_grammar_of_apply_patch() -> None:
    found = check(APPLY_PATCH, PATCHES)
    assert set(found) == {"lark", "gbnf", "node", "regex"}
    assert sum(found["gbnf"]) == 4


@pytest.mark.parametrize(
    ("grammar", "texts"),
    [
        (EXPRESSIONS, ["1", "-1.5e3*(2 + 3)", "(1", "1+", " 1 \n- 2 ", "((2))*3", "1 2", "()", ""]),
        (VALUES, ['"a\\"<"', "<[null,NULL]>", "[]", "<<null>", '["\\', "nul", '[<"é">]']),
        ('start: "a".."c" "x"~2 "y"~1..2 [/z/i]', ["axxy", "bxxyyZ", "cxy", "dxxy", "axxyyy"]),
        ('start: ("a" | b)+ // a comment\nb.2: "b"i # one more\n  | "c" -> other\n', ["aBbc", "", "ad", "c"]),
        (
            "?start: item (_SEP item)*\n!item: WORD | INT\n_SEP: /,\\s/\n%import common (WORD, INT)",
            ["a, 1", "a,b", "1"],
        ),
        ("start: X\nX.1: /[^\\W\\d]+|\\u00e9{2}/", ["ab", "éé", "a1"]),
        ("start: A B\n%import common.DIGIT -> A\n%import common.HEXDIGIT -> B", ["1f", "f1", "11"]),
        (
            'start: NAME "=" CNAME NEWLINE\nNAME: LETTER+\n%import common.LETTER\n%import common.CNAME\n'
            "%import common.NEWLINE",
            ["a=_b1\n", "a=1\n", "a=b\r\n\n", "a=b"],
        ),
        ('start: list\nlist: | list "," item\nitem: "x"', ["", ",x", ",x,x", "x", ","]),
        ('start: a\na: "(" a ")" a | ', ["", "()", "(()())()", "(()", ")("]),
        ('start: "a"\n     | "b"\n\n     | ("c"\n | "d")\n', ["a", "b", "d", "cd", ""]),
        ('start:\n     | "b"', ["b", ""]),
        ("start: /(?:a|bc)*d{2,3}/", ["dd", "abcddd", "bd", "abdd"]),
        ('start: "\\x41\\u00e9\\n\\"\\\\"', ['Aé\n"\\', "A"]),
    ],
    ids=str,
)
def test_what_grammars_mean(grammar: str, texts: list[str]) -> None:
    found = check(grammar, texts)
    assert "gbnf" in found


def test_recursion_that_only_repeats_is_regular() -> None:
    for grammar in (
        'start: start "," /x/ | /x/',
        'start: /x/ "," start | /x/',
        'start: start "+" start | "-" start | start "!" | /[0-9]/',
    ):
        assert not isinstance(read(grammar), Nested)
    check('start: start "+" start | "-" start | start "!" | /[0-9]/', ["1", "--1!+2!!", "1+", "1-2", "!1", "-1+-2"])


def test_a_rule_that_begins_with_another_that_begins_with_it() -> None:
    grammar = 'start: a\na: b "x" | "x"\nb: a "y" | "(" a ")"'
    node = read(grammar)
    assert isinstance(node, Nested)
    assert node.left_recursive
    found = check(grammar, ["x", "xyx", "(x)x", "xyxyx", "xy", "(xx"])
    assert set(found) == {"lark"}, "the others do not take it, and say so"


def test_where_only_the_end_tells_what_it_was() -> None:
    found = check('start: a "c" | b "d"\na: "x" a | "x"\nb: "x" b "y" | "x"', ["xxc", "xxyd", "xd", "xxd", "xyc"])
    assert set(found) == {"lark"}, "llama.cpp would have to follow both, and is not asked to"


def test_a_regular_expression_is_matched_as_a_whole() -> None:
    for definition in (r"[a-c]+\d", r"^(?:[a-c]+\d)$"):
        assert [matches(read(definition, "regex"), text) for text in ("ab1", "xab1", "ab1\n", "")] == [
            True,
            False,
            False,
            False,
        ]


# --- Refused -------------------------------------------------------------------------------------------------------

BAD = {
    "no start": ('begin: "a"', "no rule `start`"),
    "undefined": ("start: a", "`a` is used and not defined"),
    "defined twice": ('start: "a"\nstart: "b"', "line 2: `start` is defined twice"),
    "never ends": ('start: "a" start', "`start` never comes to an end"),
    "bad regex": ("start: /a(/", "is never closed"),
    "unclosed group": ('start: ("a"', "the grammar ends where ) should be"),
    "unclosed string": ('start: "a', "does not belong there"),
    "terminal with a rule": ('start: A\nA: b\nb: "x"', "the terminal `A` refers to the rule `b`"),
    "range": ('start: "ab".."c"', "is no range of characters"),
    "counts": ('start: "a"~3..2', "the wrong way round"),
    "special token": ("start: <|end|>", "does not belong there"),
    "half a pair": ('start: "\ud83d"', "half of a surrogate pair"),
    "escaped half": (r'start: "\ud83d"', "is no character"),
}
UNSUPPORTED = {
    "declare": ("start: A\n%declare A", "line 2: `%declare` is not supported"),
    "override": ('start: "a"\n%override start: "b"', "`%override` is not supported"),
    "import of a file": ("start: A\n%import .other.A", "`%import` of something else than `common`"),
    "unknown import": ("start: A\n%import common.PYTHON", "`%import common.PYTHON` is not supported"),
    "template": ('start: a{"x"}\na{x}: x', "not supported"),
    "lookahead": ("start: /a(?=b)/", r"line 1: /a(?=b)/: `(?=` at 1 is no plain group"),
    "lookbehind": ("start: /(?<!a)b/", "is no plain group"),
    "back reference": (r"start: /(a)\1/", r"`\1` is no plain escape"),
    "word boundary": (r"start: /\ba/", r"`\b` is no plain escape"),
    "flag": ("start: /a b/x", "the flag `x` is not known"),
    "too many rules": ("start: a0\n" + "\n".join(f'a{at}: "x"' for at in range(1001)), "more than 1000"),
    "too deep": ("start: " + "(" * 60 + '"a"' + ")" * 60, "nest deeper"),
    "repeats too much": ('start: (("a"~1000)~1000)~1000', "too large"),
    "repeats too often": ('start: "a"~100000', "more than 1000 times"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_with_a_grammar_is_said(name: str) -> None:
    grammar, says = BAD[name]
    with pytest.raises(InvalidTools, match=re.escape(says)) as raised:
        read(grammar)
    assert raised.value.field == FIELD
    assert str(raised.value).startswith(FIELD)


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_a_grammar_that_is_not_supported_is_not_enforced_and_says_so(name: str) -> None:
    definition, says = UNSUPPORTED[name]
    with pytest.raises(UnsupportedGrammar, match=re.escape(says)):
        read(definition)
    format = {"type": "grammar", "syntax": "lark", "definition": definition}
    made = constraint("hermes", tools=[{"type": "custom", "name": "f", "format": format}], tool_choice="required")
    assert [says in each.what for each in made.unenforced("gbnf")] == [True]
    assert made.to_gbnf()


def test_what_is_wrong_with_a_regular_expression_is_said() -> None:
    with pytest.raises(InvalidTools, match=re.escape(FIELD)):
        read("(a", "regex")
    with pytest.raises(UnsupportedGrammar, match=re.escape("`(?!` at 0 is no plain group")):
        read("(?!a)b", "regex")


def test_rules_that_double_each_other_do_not_grow_without_bound() -> None:
    doubled = "start: a0\n" + "\n".join(f"a{at}: a{at + 1} a{at + 1}" for at in range(60)) + '\na60: "x"?'
    node = read(doubled)
    assert isinstance(node, Nested)
    assert len(list(OutputLanguage(node, {}).nodes())) < 50_000
    chained = "start: a0\n" + "\n".join(f'a{at}: "(" a{at + 1} ")" | "y"' for at in range(500)) + '\na500: "x"'
    assert judged(read(chained), ["((y))", "((y)"])["lark"] == [True, False]


# --- Random grammars -----------------------------------------------------------------------------------------------


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    some = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        some.map(lambda items: f"({' | '.join(items)})"),
        some.map(" ".join).map(lambda text: f"({text})"),
        st.tuples(inner, st.sampled_from(["?", "*", "+", "~2", "~0..2"])).map(lambda pair: f"({pair[0]}){pair[1]}"),
    )


def expressions(*names: str) -> st.SearchStrategy[str]:
    leaves = st.sampled_from(['"a"', '"b"', '"ab"', "/[ab]/", "/a+/", "/b?a/", *names])
    return st.recursive(leaves, _grown, max_leaves=6)


TEXTS = ["".join(text) for size in range(5) for text in product("ab", repeat=size)]


@examples(3)
@given(st.tuples(expressions("one", "two", "ONE"), expressions("two", "start"), expressions("one"), expressions()))
def test_random_grammars_mean_what_lark_says(bodies: tuple[str, ...]) -> None:
    names = ("start", "one", "two", "ONE")
    grammar = "\n".join(f"{name}: {body}" for name, body in zip(names, bodies, strict=True))
    try:
        lark.Lark(grammar, parser="earley", lexer="dynamic_complete")
        read(grammar)
    except (lark.exceptions.GrammarError, InvalidTools):
        assume(False)
    check(grammar, TEXTS)


@examples(5)
@given(
    expressions(),
    st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=3, unique=True),
)
def test_texts_without_words(expression: str, words: list[str]) -> None:
    """An automaton, and the syntaxes that print it, take what a grammar takes but for the texts with one of the words
    in them."""
    node = read(f"start: {expression}")
    expected = [matches(node, text) and not any(word in text for word in words) for text in TEXTS]
    assume(any(expected))
    found = automaton(node, tuple(words))

    def accepted(text: str) -> bool:
        at = 0
        for char in text:
            moves = [to for ranges, to in found.states[at].moves if any(a <= ord(char) <= b for a, b in ranges)]
            if not moves:
                return False
            (at,) = moves
        return found.states[at].ends

    assert [accepted(text) for text in TEXTS] == expected
    whole = language(between(node, words, words[0]), TextExcept(()))
    assert [re.fullmatch(to_regex(whole).grammar, text) is not None for text in TEXTS] == expected
    gbnf = LlamaCppGrammar(to_gbnf(whole).grammar).judge_all(list(TEXTS))
    assert [verdict == "complete" for verdict in gbnf] == expected
    assert list(map(LlguidanceGrammar(to_lark(whole).grammar).accepts, TEXTS)) == expected
