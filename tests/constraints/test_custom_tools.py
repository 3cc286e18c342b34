"""Constraints with custom tools: what a model may write parses back to an input that follows the tool's grammar."""

from __future__ import annotations

import json
import random
import re
from itertools import islice
from typing import Any

import pytest

import unbraid
from unbraid import Constraint, Format, InvalidTools, Message, ToolCall
from unbraid.constraints.derive import Derivation
from unbraid.constraints.printers import GrammarSyntax
from unbraid.core.custom_tools import arguments_of, input_of
from unbraid.format_checks import NOT_ENFORCED

from ..support.examples import LONG
from ..support.real_tokenizers import encode_plain
from .cases import closers, ends, tokenizer_of, vocabulary, whole_turn
from .client_grammars import APPLY_PATCH, EXPRESSIONS, VALUES, custom_tool, follows
from .grammar_engines import LlamaCppGrammar, LlguidanceGrammar, XGrammarGrammar
from .walks import walk

GRAMMARS = {"patches": APPLY_PATCH, "expressions": EXPRESSIONS}
WALKED = ["hermes", "qwen3-coder", "harmony", "mistral-v3", "mistral-v11", "lfm2", "llama-4-pythonic", "minimax-m2"]
FORMATS = [format for format in unbraid.all_formats() if format.tools is not None]
PATCH = "*** Begin Patch\n*** Add File: a\\b \"c\n+if a < b and b > 'c': # </p>\\n\n+\t😀\n*** End Patch\n"
NO_PATCH = PATCH.replace("+if", "if")
CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Characters that the vocabulary which llama.cpp is tried with lacks."""


def prompt(format: Format) -> str | None:
    """Nothing, or the beginning of a header."""
    return "" if format.headers is None else None


def constrained(format: Format, *tools: dict[str, Any], tokenizer: object = None) -> Constraint:
    return unbraid.constraint(
        format, tools=list(tools), tool_choice="required", tokenizer=tokenizer, prompt=prompt(format)
    )


def check(message: Message, grammar: str) -> None:
    """The inputs of all calls follow the grammar."""
    assert [one for one in message.diagnostics if one.kind not in NOT_ENFORCED] == []
    assert message.tool_calls
    for call in message.tool_calls:
        assert list(json.loads(call.arguments)) == ["input"]
        assert follows(grammar, input_of(call.arguments))


@pytest.mark.parametrize("kind", GRAMMARS)
@pytest.mark.parametrize("name", WALKED)
def test_walks_follow_the_grammar(name: str, kind: str) -> None:
    grammar = GRAMMARS[kind]
    tokenizer = tokenizer_of(name)
    words = vocabulary(tokenizer)
    format = unbraid.find(name).for_version(words.version)
    constraint = constrained(format, custom_tool(grammar), tokenizer=tokenizer)
    assert constraint.unenforced("lark") == []
    ways = closers(format, tokenizer)
    for text in ("\n", "\n+", "*** End Patch", "a\n*** End Patch", ")", "1", "1)"):
        ways += [encode_plain(tokenizer, spelled) for spelled in {text, json.dumps(text)[1:-1]}]
    for seed in range(40 if LONG else 2):
        chance = random.Random(f"{name} {kind} {seed}")
        ids = walk(constraint.masks(ends(words)), ends(words), ways, chance, size=chance.choice([0, 20, 60]))
        assert ids is not None
        check(
            whole_turn(format, ids, tools=[custom_tool(grammar)], tokenizer=tokenizer, prompt=prompt(format)), grammar
        )


@pytest.mark.parametrize("format", FORMATS, ids=lambda one: one.name)
def test_every_syntax_says_the_grammar_in_every_format(format: Format) -> None:
    """Texts that are derived from the language follow the grammar, and no syntax refuses them."""
    chance = random.Random(format.name)
    for grammar in GRAMMARS.values() if LONG else [chance.choice(list(GRAMMARS.values()))]:
        tool = custom_tool(grammar)
        constraint = constrained(format, tool)
        assert constraint.unenforced("lark") == constraint.unenforced("gbnf") == []
        derivation = Derivation(constraint.language, chance)
        derived = (derivation.text() for _ in range(200 if LONG else 12))
        short = (text for text in derived if text is not None and len(text) < 2_000)
        texts = list(islice(short, 50 if LONG else 4))
        assert texts
        for text in texts:
            check(whole_turn(format, text, tools=[tool], prompt=prompt(format)), grammar)
        lark = LlguidanceGrammar(constraint._lark)
        assert [text for text in texts if not lark.accepts(text)] == []
        known = [text for text in texts if not CONTROLS.search(text)]
        assert LlamaCppGrammar(constraint.to_gbnf()).refused(known) == []


@pytest.mark.parametrize("name", ["hermes", "qwen3-coder", "harmony", "lfm2", "gemma-4", "minimax-m2", "minimax-m3"])
def test_xgrammar_says_the_grammar(name: str) -> None:
    pytest.importorskip("xgrammar", reason="xgrammar needs torch: `make test-engines` has both")
    format, chance = unbraid.find(name), random.Random(name)
    for grammar in GRAMMARS.values():
        constraint = constrained(format, custom_tool(grammar))
        assert constraint.unenforced("ebnf") == constraint.unenforced("structural_tag") == []
        derivation = Derivation(constraint.language, chance)
        texts = [text for text in (derivation.text() for _ in range(20)) if text is not None and len(text) < 2_000][:5]
        ebnf = XGrammarGrammar.from_ebnf(constraint.to_ebnf())
        tag = XGrammarGrammar.from_structural_tag(constraint.to_structural_tag())
        assert [text for text in texts if not ebnf.accepts(text) or not tag.accepts(text)] == []


@pytest.mark.parametrize("name", ["hermes", "qwen3-coder", "mistral-v3", "lfm2", "gemma-4", "minimax-m2", "minimax-m3"])
def test_what_does_not_follow_the_grammar_cannot_be_written(name: str) -> None:
    format = unbraid.find(name)
    constraint = constrained(format, custom_tool(APPLY_PATCH))
    texts = [
        unbraid.render(format, Message((ToolCall("apply_patch", arguments_of(patch), "abcdefghi"),)))
        for patch in (PATCH, NO_PATCH)
    ]
    assert list(map(LlguidanceGrammar(constraint.to_lark()).accepts, texts)) == [True, False]
    assert list(map(LlamaCppGrammar(constraint.to_gbnf()).accepts, texts)) == [True, False]


def test_free_text_is_one_string() -> None:
    constraint = constrained(unbraid.find("hermes"), custom_tool(None))
    accepts = LlguidanceGrammar(constraint.to_lark()).accepts
    call = '<tool_call>\n{{"name": "apply_patch", "arguments": {}}}\n</tool_call>'.format
    assert accepts(call('{"input": "anything\\n"}'))
    assert not accepts(call('{"input": 3}'))
    assert not accepts(call('{"input": "a", "more": 1}'))
    assert not accepts(call("{}"))


def test_a_named_custom_tool_must_be_called() -> None:
    tools = [custom_tool("a+", "regex", "one"), {"name": "two"}]
    call = '<tool_call>\n{{"name": "{}", "arguments": {}}}\n</tool_call>'.format
    for choice in (
        {"type": "custom", "custom": {"name": "one"}},
        {"type": "custom", "name": "one"},
        {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "required", "tools": [{"type": "custom", "custom": {"name": "one"}}]},
        },
    ):
        constraint = unbraid.constraint("hermes", tools=tools, tool_choice=choice, prompt="")
        accepts = LlguidanceGrammar(constraint.to_lark()).accepts
        assert accepts(call("one", '{"input": "aa"}'))
        assert not accepts(call("one", '{"input": "ab"}'))
        assert not accepts(call("two", "{}"))


def test_tools_with_other_grammars_are_told_apart() -> None:
    tools = unbraid.Tools([custom_tool("a+", "regex", "one"), custom_tool("b+", "regex", "two")])
    swapped = unbraid.Tools([custom_tool("b+", "regex", "one"), custom_tool("a+", "regex", "two")])
    call = '<tool_call>\n{{"name": "{}", "arguments": {{"input": "{}"}}}}\n</tool_call>'.format
    for given, one, two in ((tools, "a", "b"), (swapped, "b", "a")):
        constraint = unbraid.constraint("hermes", tools=given, tool_choice="required", prompt="")
        accepts = LlguidanceGrammar(constraint.to_lark()).accepts
        assert accepts(call("one", one))
        assert accepts(call("two", two))
        assert not accepts(call("one", two))


SYNTAXES: tuple[GrammarSyntax, ...] = ("lark", "gbnf", "ebnf", "structural_tag", "regex")


@pytest.mark.parametrize(
    ("name", "grammar", "enforced"),
    [
        ("hermes", APPLY_PATCH, SYNTAXES),
        ("hermes", VALUES, SYNTAXES[:4]),
        ("qwen3-coder", APPLY_PATCH, SYNTAXES[:4]),
        ("qwen3-coder", EXPRESSIONS, SYNTAXES[:4]),
        ("qwen3-coder", VALUES, ()),  # it nests, and holds `<`
        ("hermes", 'start: a\na: b "x" | "x"\nb: a "y" | "(" a ")"', ("lark",)),
    ],
)
def test_what_a_syntax_cannot_say_is_listed_and_stays_free(
    name: str, grammar: str, enforced: tuple[GrammarSyntax, ...]
) -> None:
    format = unbraid.find(name)
    constraint = constrained(format, custom_tool(grammar))
    text = unbraid.render(format, Message((ToolCall("apply_patch", arguments_of("anything"), ""),)))
    for syntax in SYNTAXES:
        said = [loose for loose in constraint.unenforced(syntax) if "grammar is not enforced" in loose.what]
        assert bool(said) is (syntax not in enforced), syntax
        assert all(loose.where == "tool 'apply_patch': format" for loose in said)
    if "regex" not in enforced:
        assert re.fullmatch(constraint.to_regex(), text)
    assert LlamaCppGrammar(constraint.to_gbnf()).accepts(text) is ("gbnf" not in enforced)
    assert LlguidanceGrammar(constraint.to_lark()).accepts(text) is ("lark" not in enforced)


def test_a_grammar_that_cannot_be_read_names_its_field() -> None:
    tool = {"type": "custom", "custom": {"name": "f", "format": {"type": "grammar", "grammar": {"syntax": "lark"}}}}
    tool["custom"]["format"]["grammar"]["definition"] = "start: a"  # type: ignore[index]
    with pytest.raises(InvalidTools, match="`a` is used and not defined") as raised:
        unbraid.constraint("hermes", tools=[tool])
    assert raised.value.field == "tools[0].custom.format.grammar.definition"


def test_a_pattern_between_tags_may_hold_what_begins_like_the_tag() -> None:
    """Patterns of schemas are written as grammars are."""
    schema = {"type": "object", "properties": {"q": {"type": "string", "pattern": "^<[^x]*$"}}, "required": ["q"]}
    tools = [{"type": "function", "function": {"name": "f", "strict": True, "parameters": schema}}]
    constraint = unbraid.constraint("qwen3-coder", tools=tools, tool_choice="required", prompt="")
    assert constraint.unenforced("lark") == constraint.unenforced("gbnf") == []
    for value, allowed in (("<a></b>", True), ("a", False), ("<x", False), ("</parameter>", False)):
        text = f"<tool_call>\n<function=f>\n<parameter=q>\n{value}\n</parameter>\n</function>\n</tool_call>"
        assert LlguidanceGrammar(constraint.to_lark()).accepts(text) is allowed
        assert LlamaCppGrammar(constraint.to_gbnf()).accepts(text) is allowed
