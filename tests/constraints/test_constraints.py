"""Constraints: what they accept parses (law 11), and they accept what they should and nothing else.

The texts are random walks through the masks of llguidance on real tokenizers; `HYPOTHESIS_PROFILE=long` takes more than
a thousand walks a format. The same texts are given to llama.cpp and, where it is installed, to xgrammar.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from functools import cache
from math import ceil
from operator import attrgetter
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
import unbraid.tokens
from unbraid import (
    Constraint,
    Format,
    Message,
    NotRegular,
    NotTokens,
    Speech,
    Text,
    ToolCall,
)
from unbraid.constraints.derive import Derivation
from unbraid.constraints.markup import MarkupNodes
from unbraid.constraints.masks import Masks
from unbraid.constraints.printers import GrammarSyntax
from unbraid.core import grammar, notations
from unbraid.core.compiler.compiler import ECHO, compile_format
from unbraid.core.machine.scopes import CITED, ScopeRule
from unbraid.format_checks import NOT_ENFORCED

from ..support import real_tokenizers
from ..support.examples import LONG
from ..support.real_tokenizers import encode_plain
from ..support.strategies import data_in_strings, node_of
from .cases import (
    ALIKE,
    ANSWER,
    COMPOSED,
    FORMATS,
    NOW,
    SCHEMAS,
    SEARCH_ANYTHING,
    THOROUGH,
    TOOLS,
    UNKNOWN,
    closers,
    ends,
    requests,
    tokenizer_of,
    tool,
    tried,
    vocabulary,
    whole_turn,
)
from .grammar_engines import LlamaCppGrammar, LlguidanceGrammar, Tokens, XGrammarGrammar, llama_cpp_tokens
from .walks import constraint_accepts, walk


def check_message(
    message: Message, request: dict[str, Any], constraint: Constraint, syntax: GrammarSyntax = "lark"
) -> bool:
    """Law 11, and what the request asked for. False where the arguments do not follow their schema in what the syntax
    cannot say."""
    wrong = ""
    try:
        _check_message(message, request)
    except jsonschema.ValidationError as error:
        wrong = str(error.absolute_path[0])
    assert not wrong or any(wrong in loose.where for loose in constraint.unenforced(syntax))
    return not wrong


def _check_message(message: Message, request: dict[str, Any]) -> None:
    assert [one for one in message.diagnostics if one.kind not in NOT_ENFORCED] == []
    calls = message.tool_calls
    choice = request.get("tool_choice", "auto")
    if not request.get("tools") or choice == "none":
        assert not calls
    if choice == "required" or isinstance(choice, dict):
        assert calls
    if isinstance(choice, dict) or request.get("parallel_tool_calls") is False:
        assert len(calls) <= 1
    if isinstance(choice, dict):
        assert [call.name for call in calls] == [choice["function"]["name"]]
    for call in calls:
        assert call.complete
        if call.name in SCHEMAS:
            validate(json.loads(call.arguments), SCHEMAS[call.name])
        else:
            assert isinstance(json.loads(call.arguments), dict)
    if "response_format" in request and not calls:
        text = message.content
        if text.startswith("<think>"):  # the reasoning belongs to the content, and the answer comes after it
            text = text.partition("</think>")[2]
        answer = json.loads(text)
        schema = request["response_format"].get("json_schema", {}).get("schema", {"type": "object"})
        validate(answer, schema)


def validate(value: object, schema: Any) -> None:
    _validator(json.dumps(schema)).validate(value)


@cache
def _validator(schema: str) -> jsonschema.Draft202012Validator:
    """To check the schema itself takes longer than any value."""
    jsonschema.Draft202012Validator.check_schema(json.loads(schema))
    return jsonschema.Draft202012Validator(json.loads(schema), format_checker=jsonschema.FormatChecker())


@pytest.mark.parametrize("name", FORMATS)
def test_11_agreement(name: str) -> None:
    tokenizer = tokenizer_of(name)
    words = vocabulary(tokenizer)
    format = unbraid.find(name).for_version(words.version)
    ways = closers(format, tokenizer)
    every = tried(name)
    most = 1000 if LONG else 15 if name in THOROUGH else 3
    done = 0
    for seed in range(ceil(most / len(every))):
        for kind, request in every.items():
            constraint = unbraid.constraint(name, tokenizer=tokenizer, **request)
            chance = random.Random(f"{name} {kind} {seed}")
            ids = walk(constraint.masks(ends(words)), ends(words), ways, chance, size=chance.choice([0, 20, 60]))
            assert ids is not None, kind
            tools = request.get("tools")
            message = whole_turn(name, ids, tools=tools, tokenizer=tokenizer, prompt=request.get("prompt"))
            check_message(message, request, constraint)
            done += 1
    assert done >= most


@pytest.mark.parametrize("format", [*unbraid.all_formats(), *COMPOSED], ids=lambda one: one.name)
def test_every_syntax_accepts_all_of_the_language(format: Format) -> None:
    """Derived from the language itself: a syntax that refuses one of these is too narrow."""
    chance = random.Random(format.name)
    kinds = list(requests(format).items())
    for _ in range(100 if LONG else 6 if format.name in THOROUGH else 2):
        kind, request = chance.choice(kinds)
        if request.get("tools"):
            request = {**request, "tools": chance.choice([TOOLS, ALIKE])}
            if isinstance(request.get("tool_choice"), dict):
                name = request["tools"][1]["function"]["name"]
                request["tool_choice"] = {"type": "function", "function": {"name": name}}
        constraint = unbraid.constraint(format, **request)
        derivation = Derivation(constraint.language, chance, UNKNOWN)
        texts = [text for text in (derivation.text() for _ in range(8)) if text is not None and len(text) < 2_000]
        valid = []
        for text in texts:
            message = whole_turn(format, text, tools=request.get("tools"), prompt=request.get("prompt"))
            if check_message(message, request, constraint, "gbnf"):
                valid.append(text)
        lark = LlguidanceGrammar(constraint._lark)
        assert [text for text in valid if not lark.accepts(text)] == [], kind
        # The vocabulary that llama.cpp is tried with lacks a few control characters.
        known = [text for text in texts if not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", text)]
        assert LlamaCppGrammar(constraint.to_gbnf()).refused(known) == [], kind


@pytest.mark.parametrize("kind", ["auto", "auto, one call"])
@pytest.mark.parametrize("format", [one for one in unbraid.all_formats() if one.answer], ids=lambda one: one.name)
def test_what_stands_around_answers_is_admitted_by_every_syntax(format: Format, kind: str) -> None:
    """Answers that end, and go on after calls: llguidance cuts lexemes, and takes the longest."""
    request = requests(format)[kind]
    constraint = unbraid.constraint(format, **request)
    answer = unbraid.render(format, unbraid.Message((unbraid.Text("content", "hello"),)))
    call = unbraid.render(format, unbraid.Message((unbraid.ToolCall("now", "{}", "abcdefghij"),)))
    thought = () if format.reasoning is None else (unbraid.Text("reasoning", "so"),)
    whole = unbraid.render(format, unbraid.Message((*thought, unbraid.Text("content", "hello"))))
    written = (answer, call, answer + call, call + answer + call, whole, whole + call + answer + call)
    texts = list(dict.fromkeys([*written, *(text.removeprefix(format.prompt) for text in written)]))
    admitted = {*texts} - {*LlamaCppGrammar(constraint.to_gbnf()).refused(texts)}
    assert admitted
    assert [text for text in texts if LlguidanceGrammar(constraint._lark).accepts(text) != (text in admitted)] == []


@cache
def walks_over_text(name: str, kind: str) -> tuple[Constraint, list[str]]:
    """The constraint for text alone, and texts that it accepts, which are checked as well."""
    tokenizer = real_tokenizers.qwen3_huggingface()
    words, format = vocabulary(tokenizer), unbraid.find(name)
    request = requests(format)[kind]
    constraint = unbraid.constraint(name, **request)
    ways = closers(format, tokenizer)
    texts = []
    for seed in range(40 if LONG else 2):
        masks = Masks(constraint.to_lark(), words, ends(words))
        chance = random.Random(f"{name} {kind} {seed}")
        ids = walk(masks, ends(words), ways, chance, size=chance.choice([0, 15, 30]))
        assert ids is not None
        text = b"".join(words.token_bytes(token) or b"" for token in ids).decode()
        message = whole_turn(name, text, tools=request.get("tools"), prompt=request.get("prompt"))
        check_message(message, request, constraint)
        texts.append(text)
    return constraint, texts


every_walk = pytest.mark.parametrize(("name", "kind"), [(name, kind) for name in FORMATS for kind in tried(name)])


@every_walk
def test_every_engine_accepts_the_same_texts(name: str, kind: str) -> None:
    """One walk for all of them: regular expressions, llama.cpp, and below xgrammar."""
    constraint, texts = walks_over_text(name, kind)
    try:
        expression = re.compile(constraint.to_regex())
    except NotRegular:
        assert kind.startswith(("auto", "required", "json", "named"))  # where any JSON may come
    else:
        assert [text for text in texts if not expression.fullmatch(text)] == []
    pytest.importorskip("xllamacpp")
    # The vocabulary that it is tried with lacks a few control characters, and bytes of planes that nobody uses.
    speakable = [text for text in texts if not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\U00040000-\U000effff]", text)]
    assert LlamaCppGrammar(constraint.to_gbnf()).refused(speakable) == []


@every_walk
def test_xgrammar_accepts_the_same_texts(name: str, kind: str) -> None:
    pytest.importorskip("xgrammar", reason="xgrammar needs torch: `make test-engines` has both")
    constraint, texts = walks_over_text(name, kind)
    ebnf = XGrammarGrammar.from_ebnf(constraint.to_ebnf())
    tag = XGrammarGrammar.from_structural_tag(constraint.to_structural_tag())
    assert [text for text in texts if not ebnf.accepts(text)] == []
    # Its integers with bounds can be 0, but not be spelled -0.
    assert [text for text in texts if not tag.accepts(text) and not re.search(r"-0\b", text)] == []


# --- What is accepted ----------------------------------------------------------------------------------------------

CALL = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
OTHER = '<tool_call>\n{"name": "search", "arguments": {"query": "x", "more": [1, {"a": null}]}}\n</tool_call>'
STRICT = '<tool_call>\n{"name": "place", "arguments": {"at": [1, 2.5], "zoom": null, "far": true}}\n</tool_call>'
THINK = "<think>\nwell\n</think>\n\n"
JSON = '{"city": "Paris", "days": 3}'

# Request, texts that it accepts, texts that it refuses; for qwen3, as text.
ACCEPTED: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "no tools": ({}, ["", "hi", THINK + "hi", "a < b"], [CALL, "hi </think>", "<think> never closed"]),
    "auto": (
        {"tools": TOOLS},
        ["", "hi", CALL, CALL + "\n" + OTHER, "I look.\n" + CALL, THINK + CALL, CALL + " done", STRICT],
        [
            "<tool_call>",
            CALL.replace("now", "unknown"),
            CALL[:-3],
            STRICT.replace("2.5", '"2.5"'),
            STRICT.replace("true", "1"),
            STRICT.replace(', "zoom": null', "").replace('"at": [1, 2.5], ', ""),
            OTHER.replace('{"query"', '"query"'),
        ],
    ),
    "one call": ({"tools": TOOLS, "parallel_tool_calls": False}, ["hi", CALL, "a" + CALL + "b"], [CALL + CALL]),
    "none": ({"tools": TOOLS, "tool_choice": "none"}, ["hi", THINK + "hi"], [CALL, "hi" + CALL, "<tool_call>"]),
    "required": (
        {"tools": TOOLS, "tool_choice": "required"},
        [CALL, CALL + "\n" + OTHER, THINK + CALL, "\n" + CALL + "\n"],
        ["", "hi", "I look." + CALL, CALL + "done", THINK, CALL + "\n\n"],
    ),
    "named": (
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "now"}}},
        [CALL, THINK + CALL],
        ["hi", OTHER, CALL + CALL],
    ),
    "named, as newer clients write it": (
        {"tools": TOOLS, "tool_choice": {"type": "function", "name": "now"}},
        [CALL],
        [OTHER],
    ),
    "allowed tools": (
        {
            "tools": TOOLS,
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "name": "now"}]},
            },
        },
        ["hi", CALL, CALL + CALL],
        [OTHER],
    ),
    "must reason": ({"reasoning": True}, [THINK, THINK + "hi"], ["hi", ""]),
    "must not reason": ({"reasoning": False}, ["hi"], [THINK + "hi", THINK]),
    "reasoning opened": ({"prompt": "<think>\n"}, ["well</think>hi", THINK + "hi"], ["hi", "well"]),
    "json": (
        {"response_format": ANSWER},
        [JSON, THINK + JSON, f" {JSON}"],
        ["hi", JSON + "!", JSON.replace("3", "99"), JSON + "\n"],
    ),
    "json object": (
        {"response_format": {"type": "json_object"}},
        ["{}", JSON, THINK + '{"any": [{}]}'],
        ["[]", "hi", '{"a": "<tool_call>"}'],
    ),
    "json or calls": (
        {"tools": TOOLS, "response_format": ANSWER},
        [JSON, CALL, CALL + OTHER, THINK + CALL],
        ["hi", JSON + CALL, ""],
    ),
    "text": ({"response_format": {"type": "text"}}, ["hi"], [CALL]),
    "nulls": ({"tools": TOOLS, "parallel_tool_calls": None, "tool_choice": {"type": "auto"}}, ["hi", CALL + CALL], []),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_a_request_allows(name: str) -> None:
    request, accepted, refused = ACCEPTED[name]
    constraint = unbraid.constraint("qwen3", **request)
    assert [text for text in accepted if not constraint_accepts(constraint, text)] == []
    assert [text for text in refused if constraint_accepts(constraint, text)] == []


@pytest.mark.parametrize("name", ACCEPTED)
def test_llama_cpp_allows_the_same(name: str) -> None:
    pytest.importorskip("xllamacpp")
    request, accepted, refused = ACCEPTED[name]
    allowed = LlamaCppGrammar(unbraid.constraint("qwen3", **request).to_gbnf())
    assert [text for text in accepted if not allowed.accepts(text)] == []
    assert [text for text in refused if allowed.accepts(text)] == []


@pytest.mark.parametrize("name", ACCEPTED)
def test_xgrammar_allows_the_same(name: str) -> None:
    pytest.importorskip("xgrammar", reason="xgrammar needs torch: `make test-engines` has both")
    request, accepted, refused = ACCEPTED[name]
    constraint = unbraid.constraint("qwen3", **request)
    for allowed in (
        XGrammarGrammar.from_ebnf(constraint.to_ebnf()),
        XGrammarGrammar.from_structural_tag(constraint.to_structural_tag()),
    ):
        assert [text for text in accepted if not allowed.accepts(text)] == []
        loose = [text for text in refused if allowed.accepts(text)]
        assert not loose or constraint.unenforced("structural_tag")


words = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="<[>]"), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(st.from_regex("[a-z][a-z0-9_]{0,6}", fullmatch=True), values, max_size=4)


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
def test_what_is_rendered_is_accepted(name: str, data: st.DataObject) -> None:
    """By the constraint of its format, which is then not too narrow."""
    format = unbraid.find(name)
    parts: list[unbraid.Part] = []
    opening = ""
    if format.transcript is not None:
        opening = f"<|{data.draw(st.sampled_from(format.transcript.languages))}|><|transcribe|><|notimestamps|>"
    if format.reasoning is not None and data.draw(st.booleans()):
        parts.append(Text("reasoning", data.draw(words.map(lambda text: text or "hm"))))
    if text := data.draw(words):
        spoken = format.speech is not None and format.speech.implied
        parts.append(Speech(text) if spoken else Text("content", text))
    if format.tools is not None:
        calls = data.draw(st.lists(st.tuples(st.sampled_from(["f", "fn", "search"]), arguments), max_size=3))
        parts += [ToolCall(called, json.dumps(having, ensure_ascii=False)) for called, having in calls]
    rendered = opening + unbraid.render(name, Message(tuple(parts)))
    tools = [] if format.tools is None else [tool("f", False), tool("fn", True), SEARCH_ANYTHING]
    assert constraint_accepts(unbraid.constraint(name, tools=tools, prompt=""), rendered), rendered


@pytest.mark.parametrize(
    "name", [name for name in FORMATS if isinstance(node_of(unbraid.find(name)), notations.TaggedArguments)]
)
def test_14_a_strict_value_may_quote_markup(name: str) -> None:
    """All but its own closing, the tag of the next argument and the beginning of a further call."""
    strict = tool("f", True, properties={"a": {"type": "string"}, "b": {"type": "string"}}, required=["a", "b"])
    constraint = unbraid.constraint(name, tools=[strict], tool_choice="required", prompt="")
    format = unbraid.find(name)
    for between in (" ", "\nb "):
        text = between.join(data_in_strings(format))
        call = ToolCall("f", json.dumps({"a": text, "b": text}, ensure_ascii=False), "abcdefghi")
        rendered = unbraid.render(name, Message((call,)), tools=[strict])
        assert constraint_accepts(constraint, rendered), rendered
    node = node_of(format)
    assert isinstance(node, notations.TaggedArguments)
    if not isinstance(node, notations.XmlArguments):
        call = ToolCall("f", '{"a": "x", "b": "@"}', "abcdefghi")
        rendered = unbraid.render(name, Message((call,))).replace("@", f"@{node.close.strip()}@")
        assert not constraint_accepts(constraint, rendered)


def scopes_of(rule: ScopeRule) -> Iterator[ScopeRule]:
    """A scope, and those that can open in it."""
    yield rule
    for inner in rule.inner.values():
        yield from scopes_of(inner)


@pytest.mark.parametrize("format", unbraid.all_formats(), ids=attrgetter("name"))
def test_free_text_has_nothing_that_the_parser_takes_for_markup(format: Format) -> None:
    """But citations, which models may write, and calls that are written once more."""
    program = compile_format(format, None)
    forbidden = MarkupNodes(program).markers
    markers = {marker for scope in scopes_of(program.content) for marker in scope.markers}
    keys = {one.key for one in markers if one.role != "citation" and one.strand not in (CITED, ECHO)}
    assert not [key for key in keys if not any(word in key for word in forbidden)]


SPOKEN = "<audio_1>Hi<audio_2><tts_pad>"
STEP_CALL = "<tool_call>function\nnow\n{}</tool_call>"


def test_speech_may_surround_calls() -> None:
    constraint = unbraid.constraint("step-audio-2", tools=TOOLS, tool_choice="required")
    for text in (
        STEP_CALL,
        f"<tts_start>{SPOKEN}<tts_end>{STEP_CALL}",
        f"<tts_start>{SPOKEN}{STEP_CALL}{SPOKEN}<tts_end>",
        f"<think>\nwell\n</think>\n\n<tts_start>{SPOKEN}<tts_end>{STEP_CALL}{STEP_CALL}",
    ):
        assert constraint_accepts(constraint, text), text
    for text in (f"<tts_start>{SPOKEN}<tts_end>", "Hi", f"{SPOKEN}{STEP_CALL}", f"Hi {STEP_CALL}"):
        assert not constraint_accepts(constraint, text), text
    spoken = unbraid.constraint("step-audio-2", tools=TOOLS, prompt="<tts_start>")
    for text in (SPOKEN, f"{SPOKEN}<tts_end>", f"{SPOKEN}<tts_end>{STEP_CALL}", f"{SPOKEN}{STEP_CALL}"):
        assert constraint_accepts(spoken, text), text
    assert not constraint_accepts(spoken, f"{SPOKEN}<tts_start>")


# --- Tokens --------------------------------------------------------------------------------------------------------


def test_a_tokenizer_is_asked_for_its_size_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tokenizer of Hugging Face's lists its whole vocabulary to tell it."""
    tokenizer = real_tokenizers.qwen3_huggingface()
    unbraid.constraint("qwen3", tools=TOOLS, tool_choice="required", tokenizer=tokenizer).masks()
    monkeypatch.setattr(type(vocabulary(tokenizer)), "size", property(lambda self: pytest.fail("asked again")))
    for choice in ("auto", "none"):
        unbraid.constraint("qwen3", tools=TOOLS, tool_choice=choice, tokenizer=tokenizer).masks().allowed()


def test_a_marker_cannot_be_spelled_out() -> None:
    """As ordinary tokens it would be text to the parser, and free text in which anything goes to the constraint."""
    tokenizer = real_tokenizers.qwen3_huggingface()
    words = vocabulary(tokenizer)
    spelled = encode_plain(tokenizer, "<tool_call>")
    assert len(spelled) > 1
    opening, closing = words.token_id("<tool_call>"), words.token_id("</tool_call>")
    assert opening is not None
    assert closing is not None
    for choice in ("auto", "none", "required"):
        masks = unbraid.constraint("qwen3", tools=TOOLS, tool_choice=choice, tokenizer=tokenizer).masks()
        assert masks.accepted(spelled) < len(spelled)
        assert masks.accepted([opening]) == (choice != "none")
        for text in ("<think>", "</think>", "</tool_call>", "<|im_start|>"):
            ids = encode_plain(tokenizer, text)
            assert masks.accepted(ids) < len(ids) or text == "<|im_start|>"
    # Nor can what stands for a marker in an argument leave the call: there the text is data, and the token forbidden.
    call = unbraid.constraint("qwen3", tools=TOOLS, tool_choice="required", tokenizer=tokenizer).masks()
    for token in [opening, *encode_plain(tokenizer, '{"name": "search", "arguments": {"query": "')]:
        call.advance(token)
    assert call.accepted([closing]) == 0
    assert call.accepted(encode_plain(tokenizer, "</tool_call>")) > 1


def test_xgrammar_wants_the_token() -> None:
    pytest.importorskip("xgrammar", reason="xgrammar needs torch: `make test-engines` has both")
    tokenizer = real_tokenizers.qwen3_huggingface()
    words = vocabulary(tokenizer)
    opening, closing, end = map(words.token_id, ("<tool_call>", "</tool_call>", "<|im_end|>"))
    assert opening is not None
    assert closing is not None
    assert end is not None
    tokens = Tokens(tuple(words.token_bytes(token) or b"" for token in range(words.size)), end, ())
    body = encode_plain(tokenizer, '{"name": "now", "arguments": {}}')
    constraint = unbraid.constraint("qwen3", tools=TOOLS, tool_choice="required", tokenizer=tokenizer)
    for allowed in (
        XGrammarGrammar.from_structural_tag(constraint.to_structural_tag(), tokens),
        XGrammarGrammar.from_ebnf(constraint.to_ebnf(), tokens),
    ):
        assert allowed.accepts([opening, *body, closing])
        assert not allowed.accepts([*encode_plain(tokenizer, "<tool_call>"), *body, closing])


def test_llama_cpp_wants_the_token() -> None:
    """A format whose markers are tokens of the vocabulary that llama.cpp is tried with."""
    pytest.importorskip("xllamacpp")
    format = Format("small", tools=grammar.Calls("<|im_start|>", grammar.Call((notations.JsonCall(),)), "<repo_name>"))
    words = SmolVocabulary()
    opening, closing = words.token_id("<|im_start|>"), words.token_id("<repo_name>")
    assert opening is not None
    assert closing is not None
    constraint = unbraid.constraint(format, tools=[NOW], tool_choice="required", tokenizer=words)
    allowed = LlamaCppGrammar(constraint.to_gbnf())
    body = '{"name": "now", "arguments": {}}'
    assert allowed.accepts([opening, body, closing])
    assert not allowed.accepts(["<|im_start|>", body, closing])
    assert not allowed.accepts(f"<|im_start|>{body}<repo_name>")


class SmolVocabulary:
    """The tokens of SmolLM2 that the test above needs."""

    version = None
    dummy_prefix = False

    def token_id(self, text: str) -> int | None:
        ids = llama_cpp_tokens(text, special=True)
        return ids[0] if len(ids) == 1 else None

    def token_bytes(self, token: int) -> bytes | None:
        return None


def test_the_grammar_sleeps_until_a_call_begins() -> None:
    fields = unbraid.constraint("qwen3", tools=TOOLS).to_llama_cpp()
    assert fields["grammar_lazy"] is True
    assert fields["grammar_triggers"] == [{"type": 1, "value": "<tool_call>"}]
    assert fields["preserved_tokens"] == ["<tool_call>"]
    woken = LlamaCppGrammar(fields["grammar"])
    assert woken.accepts(f"{CALL}\n{OTHER} and text </think> after it")
    assert not woken.accepts(f"{CALL}<tool_call>")
    assert not woken.accepts("hi")
    tokenizer = real_tokenizers.qwen3_huggingface()
    [trigger] = unbraid.constraint("qwen3", tools=TOOLS, tokenizer=tokenizer).to_llama_cpp()["grammar_triggers"]
    assert trigger == {"type": 0, "value": "<tool_call>", "token": 151657}
    for request in ({"tool_choice": "required"}, {"tool_choice": "none"}, {"response_format": ANSWER}):
        assert "grammar_lazy" not in unbraid.constraint("qwen3", tools=TOOLS, **request).to_llama_cpp()


def test_a_forced_prefix_needs_no_library() -> None:
    tokenizer = real_tokenizers.whisper_like()
    words = vocabulary(tokenizer)

    def token(text: str) -> int:
        found = words.token_id(text)
        assert found is not None
        return found

    languages = ["<|en|>", "<|de|>", "<|fr|>"]
    constraint = unbraid.forced_prefix([languages, ["<|transcribe|>"], ["<|notimestamps|>"]], tokenizer=tokenizer)
    prefix = [token("<|de|>"), token("<|transcribe|>"), token("<|notimestamps|>")]
    text = encode_plain(tokenizer, " Guten Tag")
    sets = constraint.to_token_sets()
    assert sets.allowed([]) == frozenset(map(token, languages))
    assert sets.forced([]) == []
    assert sets.forced(prefix[:1]) == prefix[1:]
    assert sets.allowed(prefix) is None
    assert sets.accepts(prefix + text)
    assert not sets.accepts(prefix[1:] + text)
    masks = constraint.masks([token("<|endoftext|>")])
    assert masks.accepted(prefix + text) == len(prefix + text)
    assert masks.accepted(prefix[1:]) == 0
    with pytest.raises(unbraid.MissingTokens, match=r"<\|xx\|>"):
        unbraid.forced_prefix([["<|xx|>"]], tokenizer=tokenizer)
    for name in ("qwen3", "hermes"):  # free text that must not spell a marker is more than tokens can say
        with pytest.raises(NotTokens, match="single tokens"):
            unbraid.constraint(name, tools=TOOLS, tool_choice="none").to_token_sets()
