"""The engines that the tests ask about grammars: that they can be asked, and what they are known to say."""

from __future__ import annotations

from typing import Any

import pytest

from .grammar_engines import (
    EngineCrash,
    LlamaCppGrammar,
    LlguidanceGrammar,
    Output,
    Unparsable,
    Verdict,
    XGrammarGrammar,
    byte_tokens,
    llama_cpp_accepts,
    llama_cpp_tokens,
)

Cases = list[tuple[str, Output, Verdict]]

# SmolLM2's: one special token that does not end the output, and one that does.
START, END = 1, 2

TOKENS = byte_tokens("ab", "hello", special=["<tool>", "</tool>"])
AB, TOOL, TOOL_END = TOKENS.id("ab"), TOKENS.id("<tool>"), TOKENS.id("</tool>")


# llama.cpp

LLAMA_CPP: Cases = [
    ('root ::= "yes" | "no"', "yes", "complete"),
    ('root ::= "yes" | "no"', "ye", "incomplete"),
    ('root ::= "yes" | "no"', "yesno", "refused"),
    ('root ::= "yes" | "no"', "", "incomplete"),
    ('root ::= "yes"?', "", "complete"),
    ('root ::= "yes"', ["yes", END], "complete"),
    ('root ::= "yes"', ["ye", END], "refused"),
    ('root ::= "yes"*', ["yes", END, "yes"], "refused"),
    ('root ::= my-rule{2,3} [^"]\nmy-rule ::= [\\u4e00-\\u9fff] . | "\\U0001F600é"', "漢x😀é!", "complete"),
    ('root ::= my-rule{2,3} [^"]\nmy-rule ::= [\\u4e00-\\u9fff] . | "\\U0001F600é"', '漢x😀é"', "refused"),
    ("root ::= [^]", "a", "refused"),  # to xgrammar this is any character
    # A rule of characters takes a special token for its text; a token in a rule is only ever the token.
    (f'root ::= "a" <[{START}]> "b"', ["a", START, "b"], "complete"),
    (f'root ::= "a" <[{START}]> "b"', "a<|im_start|>b", "refused"),
    ('root ::= "a" <|im_start|> "b"', ["a", START, "b"], "complete"),
    ('root ::= "a<|im_start|>b"', ["a", START, "b"], "complete"),
    ('root ::= "a<|im_start|>b"', "a<|im_start|>b", "complete"),
    ('root ::= [^"]*', ["a", START, "b"], "complete"),
    (f"root ::= !<[{START}]>* <[{START}]>", ["one two", START], "complete"),
    (f"root ::= !<[{START}]>*", ["one", START], "refused"),
    # Tokens that end the output are never part of it, whatever the grammar says.
    (f'root ::= "a" <[{END}]> "b"', ["a", END], "refused"),
    # A token that is only part of a character is refused where any token but one may be.
    (f"root ::= !<[{START}]>*", "漢", "refused"),
]


@pytest.mark.parametrize(("gbnf", "output", "verdict"), LLAMA_CPP)
def test_llama_cpp(gbnf: str, output: Output, verdict: Verdict) -> None:
    grammar = LlamaCppGrammar(gbnf)
    assert grammar.judge(output) == verdict
    assert grammar.judge(output) == verdict, "what it was asked before must not matter"
    assert grammar.accepts(output) is llama_cpp_accepts(gbnf, output) is (verdict == "complete")
    assert grammar.admits(output) is (verdict != "refused")


@pytest.mark.parametrize(
    ("gbnf", "message"),
    [
        ("root ::= other", "Undefined rule identifier 'other'"),
        ('root ::= root "a" | "a"', "left recursion"),
        ('start ::= "a"', "does not contain a 'root' symbol"),
        ('root ::= under_score\nunder_score ::= "a"', "expecting"),
        ("root ::= <think>", "invalid token '<think>'"),
        ('root ::= "\\\'"', "unknown escape"),
        ("root ::= [a-z]{3000}", "number of repetitions"),
    ],
)
def test_llama_cpp_refuses_grammars(gbnf: str, message: str) -> None:
    with pytest.raises(Unparsable, match=message):
        LlamaCppGrammar(gbnf).judge("a")


def test_llama_cpp_judges_many_outputs_at_once() -> None:
    assert LlamaCppGrammar('root ::= "a"+').judge_all(["", "a", "aaa", "ab"]) == [
        "incomplete",
        "complete",
        "complete",
        "refused",
    ]


def test_llama_cpp_falls_over_a_token_that_goes_on_where_a_token_is_due() -> None:
    grammar = LlamaCppGrammar(f'root ::= "a" !<[{START}]>*')
    assert llama_cpp_tokens("ab") != llama_cpp_tokens("a") + llama_cpp_tokens("b")
    assert grammar.accepts(["a", "b"])
    with pytest.raises(EngineCrash, match="Unexpected empty grammar stack"):
        grammar.accepts("ab")
    assert grammar.accepts(["a", "b"]), "it is there again"


@pytest.mark.parametrize(
    ("triggers", "output", "verdict"),
    [
        (["<call>"], "no call", "complete"),
        (["<call>"], "a <call>1", "complete"),
        (["<call>"], "a <call>x", "refused"),
        (["<call>"], "a <call>", "incomplete"),
        (["a (<call>)"], "a <call>1", "complete"),
        (["a (<call>)"], "b <call>x", "complete"),
    ],
)
def test_llama_cpp_awaits_texts(triggers: list[str | int], output: Output, verdict: Verdict) -> None:
    assert LlamaCppGrammar('root ::= "<call>" [0-9]', triggers).judge(output) == verdict


def test_llama_cpp_awaits_tokens() -> None:
    grammar = LlamaCppGrammar(f'root ::= <[{START}]> "1"', [START])
    outputs: list[Output] = ["any <|im_start|>2", ["any", START], ["any", START, "1"], ["any", START, "2"]]
    assert grammar.judge_all(outputs) == ["complete", "incomplete", "complete", "refused"]


def test_llama_cpp_tokens() -> None:
    assert llama_cpp_tokens("<|im_start|>", special=True) == [START]
    assert START not in llama_cpp_tokens("<|im_start|>")
    with pytest.raises(ValueError, match="no tokens"):
        llama_cpp_tokens("\x04")  # a byte that SmolLM2 lacks


# xgrammar

XGRAMMAR: Cases = [
    ('root ::= "yes" | "no"', "yes", "complete"),
    ('root ::= "yes" | "no"', "ye", "incomplete"),
    ('root ::= "yes" | "no"', "yesno", "refused"),
    ('root ::= "yes"', ["yes", TOKENS.eos], "complete"),
    ('root ::= "yes"', ["ye", TOKENS.eos], "refused"),
    ('root ::= my-rule{2,3} [^]\nmy-rule ::= [\\u4e00-\\u9fff] "x" | "\\U0001F600é"', "漢x😀é\n", "complete"),
    # A rule of characters takes a special token for its text; a token in a rule is only ever the token.
    (f'root ::= "a" Token({TOOL}) "b"', ["a", TOOL, "b"], "complete"),
    (f'root ::= "a" Token({TOOL}) "b"', "a<tool>b", "refused"),
    (f"root ::= Token({TOOL}, {TOOL_END})+", [TOOL, TOOL_END], "complete"),
    ('root ::= "a<tool>b"', ["a", TOOL, "b"], "complete"),
    ('root ::= [^"]*', ["a", TOOL, "b"], "complete"),
    (f"root ::= ExcludeToken({TOOL}, {TOOL_END})* Token({TOOL})", ["漢 hello", AB, TOOL], "complete"),
    (f"root ::= ExcludeToken({TOOL})*", ["a", TOOL], "refused"),
    (f'root ::= "a" ExcludeToken({TOOL})*', [AB], "refused"),
    (f'root ::= "a" Token({TOKENS.eos}) "b"', ["a", TOKENS.eos], "refused"),
    # Text without certain strings: of tokens too.
    ('root ::= TagDispatch(excludes=("<tool>", "<x>")) "<x>"', "a <too <x>", "complete"),
    ('root ::= TagDispatch(excludes=("<tool>", "<x>")) "<x>"', "a <tool>", "refused"),
    ('root ::= TagDispatch(excludes=("<tool>", "<x>")) "<x>"', ["a ", TOOL], "refused"),
    ('root ::= TagDispatch(excludes=("<tool>", "<x>")) "<x>"', "a <x> <x>", "refused"),
]


@pytest.mark.parametrize(("ebnf", "output", "verdict"), XGRAMMAR)
def test_xgrammar(ebnf: str, output: Output, verdict: Verdict) -> None:
    assert XGrammarGrammar.from_ebnf(ebnf, TOKENS).judge(output) == verdict
    in_tag = {"type": "grammar", "grammar": ebnf}
    assert XGrammarGrammar.from_structural_tag(in_tag, TOKENS).judge(output) == verdict


@pytest.mark.parametrize(
    "ebnf",
    [
        "root ::= other",
        "root ::= <[1]>",
        "root ::= !<[1]>",
        "root ::= <tool>",
        "root ::= .",
        'root ::= "a" |',
        'root ::= "a"\nroot ::= "b"',
        "root ::= Token(100000)",
    ],
)
def test_xgrammar_refuses_grammars(ebnf: str) -> None:
    with pytest.raises(Unparsable):
        XGrammarGrammar.from_ebnf(ebnf, TOKENS)


@pytest.mark.parametrize(
    ("format", "output", "verdict"),
    [
        ({"type": "token", "token": TOOL}, [TOOL], "complete"),
        ({"type": "token", "token": "<tool>"}, [TOOL], "complete"),
        ({"type": "token", "token": TOOL}, "<tool>", "refused"),
        ({"type": "plus", "content": {"type": "token", "token": TOOL}}, [], "incomplete"),
        ({"type": "any_tokens", "exclude_tokens": [TOOL]}, ["漢", TOOL], "refused"),
        ({"type": "any_text", "excludes": ["<x>"]}, "a <x", "complete"),
        ({"type": "any_text", "excludes": ["<x>"]}, "a <x>", "refused"),
        ({"type": "dispatch", "rules": [["<t>", {"type": "const_string", "value": "1"}]]}, "a <t>1 b", "complete"),
        ({"type": "dispatch", "rules": [["<t>", {"type": "const_string", "value": "1"}]]}, "a <t>2", "refused"),
    ],
)
def test_xgrammar_structural_tags(format: dict[str, Any], output: Output, verdict: Verdict) -> None:
    assert XGrammarGrammar.from_structural_tag(format, TOKENS).judge(output) == verdict


def test_xgrammar_refuses_structural_tags() -> None:
    with pytest.raises(Unparsable, match="not recognized"):
        XGrammarGrammar.from_structural_tag({"type": "nothing"}, TOKENS)


def test_xgrammar_lark() -> None:
    grammar = XGrammarGrammar.from_lark(f'start: "a" <[{TOOL}]> /[0-9]+/', TOKENS)
    assert grammar.accepts(["a", TOOL, "12"])
    assert not grammar.accepts("a<tool>12")
    with pytest.raises(Unparsable, match="not supported"):
        XGrammarGrammar.from_lark('%llguidance {}\nstart: "a"', TOKENS)


# llguidance


@pytest.mark.parametrize(
    ("lark", "output", "verdict"),
    [
        ('start: "yes" | "no"', "yes", "complete"),
        ('start: "yes" | "no"', "ye", "incomplete"),
        ('start: "yes" | "no"', "yesno", "refused"),
        ('start: "yes"', ["yes", TOKENS.eos], "complete"),
        ('start: "yes"', ["ye", TOKENS.eos], "refused"),
        ('start: "a" <tool> "b"', ["a", TOOL, "b"], "complete"),
        (f'start: "a" <[{TOOL}]> "b"', ["a", TOOL, "b"], "complete"),
        (f'start: "a" <[{TOOL}]> "b"', "a<tool>b", "refused"),
        # A special token is never text.
        ('start: "a<tool>b"', ["a", TOOL, "b"], "refused"),
        ('start: /[^"]*/', ["a", TOOL, "b"], "refused"),
        ('start: /[^"]*/', ["a<tool>", AB], "complete"),
    ],
)
def test_llguidance(lark: str, output: Output, verdict: Verdict) -> None:
    grammar = LlguidanceGrammar(lark, TOKENS)
    assert grammar.judge(output) == verdict
    assert grammar.judge(output) == verdict, "what it was asked before must not matter"


@pytest.mark.parametrize("lark", ["start: other", "start: <nothing>", 'root: "a"'])
def test_llguidance_refuses_grammars(lark: str) -> None:
    with pytest.raises(Unparsable):
        LlguidanceGrammar(lark, TOKENS)
