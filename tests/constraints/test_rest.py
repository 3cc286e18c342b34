"""The constraint for the rest of an output: after any beginning it allows what the whole constraint allows then.

Texts are derived from the language itself, cut anywhere, and continued as they were and in other ways. llama.cpp and,
where it is installed, xgrammar judge both: the whole text by the whole grammar, the rest by that of the rest.
"""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

import unbraid
from unbraid import Constraint, Format
from unbraid.constraints import NotContinued
from unbraid.constraints.derive import Derivation
from unbraid.constraints.language import Json, OutputLanguage
from unbraid.constraints.printers.ebnf import to_ebnf
from unbraid.tokens import vocabulary as vocabulary_of

from ..support import real_tokenizers
from ..support.examples import LONG
from ..support.real_tokenizers import encode_plain
from .cases import COMPOSED, TOOLS, UNKNOWN, requests
from .grammar_engines import LlamaCppGrammar, XGrammarGrammar

EVERY = pytest.mark.parametrize("format", [*unbraid.all_formats(), *COMPOSED], ids=lambda one: one.name)
_UNUSUAL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Characters that the vocabulary that llama.cpp is tried with lacks."""


def derived(format: Format, chance: random.Random) -> tuple[str, Constraint, list[str]]:
    """A request, its constraint, and texts that it allows."""
    kind, request = chance.choice(list(requests(format).items()))
    constraint = unbraid.constraint(format, **request)
    derivation = Derivation(constraint.language, chance, UNKNOWN)
    texts = [derivation.text() for _ in range(2)]
    return kind, constraint, [text for text in texts if text and len(text) < 1_000 and not _UNUSUAL.search(text)]


def continued(rest: str, chance: random.Random) -> list[str]:
    """The rest as it was, a part of it, and some of it changed."""
    at = chance.randrange(len(rest) + 1)
    other = chance.choice(['"', "}", "<", "\n", "x", "{", "7"])
    return [rest, rest[:at], rest[:at] + other + rest[at:], rest[:at] + rest[at + 1 :], ""]


@EVERY
def test_llama_cpp_goes_on(format: Format) -> None:
    pytest.importorskip("xllamacpp")
    chance = random.Random(f"rest {format.name}")
    for _ in range(40 if LONG else 1):
        kind, constraint, texts = derived(format, chance)
        if constraint.printed("gbnf").too_ambiguous is not None:
            continue  # llama.cpp is not given the whole either
        whole = LlamaCppGrammar(constraint.to_gbnf())
        for text in texts:
            cut = chance.randrange(1, len(text) + 1)
            rest = LlamaCppGrammar(constraint.after(text[:cut]).to_gbnf())
            ends = continued(text[cut:], chance)
            assert rest.judge_all(ends) == whole.judge_all([text[:cut] + end for end in ends]), (kind, text, cut)


@EVERY
def test_xgrammar_goes_on(format: Format) -> None:
    pytest.importorskip("xgrammar", reason="xgrammar needs torch: `make test-engines` has both")
    chance = random.Random(f"rest {format.name}")
    for _ in range(40 if LONG else 1):
        kind, constraint, texts = derived(format, chance)
        whole = XGrammarGrammar.from_ebnf(constraint.to_ebnf())
        for text in texts:
            cut = chance.randrange(1, len(text) + 1)
            after = constraint.after(text[:cut])
            grammars = (
                XGrammarGrammar.from_ebnf(after.to_ebnf()),
                XGrammarGrammar.from_structural_tag(after.to_structural_tag()),
            )
            for end in continued(text[cut:], chance):
                # Between two values there may be more whitespace: that of both is one.
                told = [grammar.judge(end) for grammar in grammars]
                assert told == [whole.judge(text[:cut] + end)] * 2 or end.isspace(), (kind, text, cut, end)


def test_what_was_written_need_not_be_given_at_once() -> None:
    constraint = unbraid.constraint("qwen3", tools=TOOLS, tool_choice="required")
    text = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo", "days": 1'
    step = constraint
    for char in text:
        step = step.after(char)
    assert step.to_gbnf() == constraint.after(text).to_gbnf()


def test_by_tokens() -> None:
    """Markers that are tokens are followed by their ids."""
    tokenizer = real_tokenizers.qwen3_huggingface()
    constraint = unbraid.constraint("qwen3", tools=TOOLS, tool_choice="required", tokenizer=tokenizer)
    [marker] = [vocabulary_of(tokenizer).token_id("<tool_call>")]
    assert marker is not None
    ids = encode_plain(tokenizer, '\n{"name": "get_weather", "arguments": {"city": "Oslo", "days": 1')
    rest = constraint.after([marker, *ids])
    assert rest.to_gbnf() == constraint.after([marker]).after(ids).to_gbnf()
    whole = constraint.masks()
    for token in (marker, *ids):
        whole.advance(token)
    assert constraint.after([marker]).after(ids).masks().allowed() == whole.allowed()
    for say in (Constraint.to_gbnf, Constraint.masks):
        with pytest.raises(NotContinued, match="does not allow"):
            say(constraint.after(encode_plain(tokenizer, "<tool_call>")))
    with pytest.raises(NotContinued, match="not after text"):
        constraint.after("<tool_call>").after(ids).masks()


def test_a_lazy_grammar_goes_on_asleep_or_awake() -> None:
    constraint = unbraid.constraint("qwen3", tools=TOOLS)
    whole = constraint.to_llama_cpp()
    assert constraint.after("Let me see.").to_llama_cpp() == whole
    begun = constraint.after("Let me see. <tool").to_llama_cpp()
    assert begun["grammar_lazy"]
    assert [each["type"] for each in begun["grammar_triggers"]] == [1, 3]
    grammar = LlamaCppGrammar(begun["grammar"], ["(<tool_call>)", f"^{begun['grammar_triggers'][1]['value']}$"])
    call = '\n{"name": "get_weather", "arguments": {"city": "Oslo", "days": 1}}\n</tool_call>'
    verdicts = grammar.judge_all(["_call>" + call, " or <tool_call>" + call, "_call>x", " or", " _call>x"])
    assert verdicts == ["complete", "complete", "refused", "complete", "complete"]
    awake = constraint.after("Let me see. <tool_call>" + call[:20]).to_llama_cpp()
    assert "grammar_lazy" not in awake
    assert LlamaCppGrammar(awake["grammar"]).judge_all([call[20:], call[21:]]) == ["complete", "refused"]


@pytest.mark.parametrize(
    ("written", "say", "message"),
    [
        ("hello", lambda rest: rest.to_gbnf(), "does not allow what was written"),
        ("hello", lambda rest: rest.to_ebnf(), "does not allow what was written"),
        ("<tool_call>", lambda rest: rest.to_regex(), "cannot be said in the syntax 'regex'"),
        ("<tool_call>", lambda rest: rest.to_lark(), "cannot be said in the syntax 'lark'"),
        ("<tool_call>", lambda rest: rest.masks(), "after token ids, and not after text"),
        ([3], lambda rest: rest, "the text of token 3 is not known"),
    ],
)
def test_what_cannot_go_on_says_why(written: Any, say: Any, message: str) -> None:
    constraint = unbraid.constraint("qwen3", tools=TOOLS, tool_choice="required")
    with pytest.raises(NotContinued, match=message):
        say(constraint.after(written))


def test_inside_a_character() -> None:
    tokenizer = real_tokenizers.qwen3_huggingface()
    constraint = unbraid.constraint("qwen3", tools=TOOLS, tokenizer=tokenizer)
    ids = encode_plain(tokenizer, "🦤")
    assert len(ids) > 1
    with pytest.raises(NotContinued, match="inside a character"):
        constraint.after(ids[:1])


@pytest.mark.parametrize("prefix", [[], ['{"q": "a']])
def test_a_character_of_a_string_is_one_rule(prefix: list[str]) -> None:
    """Where it refers to another, xgrammar takes hundreds of times as long for a step."""
    value = Json({"type": "object", "properties": {"q": {"type": "string"}}}, "parameters")
    grammar = to_ebnf(OutputLanguage(value, {}), prefix).grammar
    rules = dict(line.split(" ::= ", 1) for line in grammar.splitlines())
    characters = [body for body in map(rules.get, re.findall(r"(any-\d+)[*+]", grammar)) if body and "[^" in body]
    assert characters
    assert not [body for body in characters if "any-" in body]
