"""The parser's options and its mistakes of use: unknown tools, reasoning left in place, snapshots, ids."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import unbraid
from unbraid import Content, Format, InvalidSnapshot, Part, Speech, UnbraidError
from unbraid.core.grammar import Call, CallList, Calls, Either, Name
from unbraid.core.notations import Arguments

from ..support.parsing import broken, call, content, kinds, parse, reasoning


def hermes(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


def step(name: str, arguments: str = "{}") -> str:
    return f"<tool_call>function\n{name}\n{arguments}</tool_call>"


# --- Unknown tools -------------------------------------------------------------------------------------------------

TOOLS = [{"name": "f"}]
F = '{"name": "f", "arguments": {}}'
U = '{"name": "u", "arguments": {}}'


def test_an_unknown_tool_is_text() -> None:
    text = f"a\n{hermes(U)}\nb"
    message = parse("hermes", text, tools=TOOLS)
    assert message.parts == (content(text),)
    assert kinds(message) == ["unknown_tool"]


def test_an_unknown_tool_is_passed_on_when_asked() -> None:
    message = parse("hermes", f"a\n{hermes(U)}\nb", tools=TOOLS, unknown_tools="emit")
    assert message.parts == (content("a"), call("u"), content("b"))
    assert kinds(message) == ["unknown_tool"]


def test_no_tools_given_and_no_tools_there() -> None:
    assert parse("hermes", hermes(U)).parts == (call("u"),)
    assert parse("hermes", hermes(U), tools=[]).parts == (content(hermes(U)),)


@pytest.mark.parametrize("unknown", ["text", "emit"])
def test_a_broken_call_to_an_unknown_tool(unknown: str) -> None:
    text = hermes('{"name": "u", "arguments": {"a": True}}')
    message = parse("hermes", text, tools=TOOLS, unknown_tools=unknown)
    expected = content(text) if unknown == "text" else broken("u", '{"a": True}')
    assert message.parts == (expected,)


@pytest.mark.parametrize(
    ("listed", "parts"),
    [
        ([F, U], (call("f"), content(f", {U}"), content("x"))),
        ([U, F], (content(f"[TOOL_CALLS][{U}"), call("f"), content("x"))),
        ([U, U], (content(f"[TOOL_CALLS][{U}, {U}]x"),)),
        ([F, U, F], (call("f"), content(f", {U}"), call("f"), content("x"))),
    ],
)
def test_unknown_tools_in_a_list(listed: list[str], parts: tuple[Part, ...]) -> None:
    message = parse("mistral", f"[TOOL_CALLS][{', '.join(listed)}]x", tools=TOOLS)
    assert message.settled().parts == unbraid.Message(parts).settled().parts
    assert kinds(message) == ["unknown_tool"] * listed.count(U)


def test_an_unknown_tool_stays_in_its_strand_but_is_not_spoken() -> None:
    in_reasoning = parse("qwen3", f"<think>\nhm\n{hermes(U)}\nso\n</think>\n\nok", tools=TOOLS)
    assert in_reasoning.parts == (reasoning(f"hm\n{hermes(U)}\nso"), content("ok"))
    in_speech = parse("step-audio-2", f"<tts_start>hi{step('u')}yo<tts_end>ok", tools=TOOLS)
    assert in_speech.parts == (Speech("hi"), content(step("u")), Speech("yo"), content("ok"))
    in_both = parse("step-audio-2", f"<tts_start>hi<think>a{step('u')}b</think>yo", tools=TOOLS)
    assert in_both.parts == (Speech("hi"), reasoning(f"a{step('u')}b"), Speech("yo"))


# --- Reasoning that is left where it is ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "text", "parts"),
    [
        ("qwen3", f"<think>\nwhy\n</think>\n\nso{hermes(F)}", (content("<think>\nwhy\n</think>\n\nso"), call("f"))),
        ("qwen3", f"<think>\nwhy{hermes(F)}</think>so", (content("<think>\nwhy"), call("f"), content("</think>so"))),
        ("deepseek-r1", "why\n</think>\n\nso", (content("why\n</think>\n\nso"),)),
        ("mistral", "[THINK]why[/THINK]so[TOOL_CALLS]f{}", (content("[THINK]why[/THINK]so"), call("f"))),
        (
            "step-audio-2",
            "<tts_start>hi<think>why</think>yo<audio_1><tts_end><think>ok",
            (Speech("hi"), content("<think>why</think>"), Speech("yo", (1,)), content("<think>ok")),
        ),
    ],
)
def test_separate_reasoning_false(format: str, text: str, parts: tuple[Part, ...]) -> None:
    message = parse(format, text, separate_reasoning=False)
    assert message.parts == parts
    assert kinds(message) == []


def test_separate_reasoning_false_after_a_prompt_that_opened_it() -> None:
    assert parse("qwen3", "why</think>so", prompt="<think>\n", separate_reasoning=False).content == "why</think>so"
    message = parse("step-audio-2", "why</think>hi", prompt="<tts_start><think>\n", separate_reasoning=False)
    assert message.parts == (content("why</think>"), Speech("hi"))


# --- Lists ---------------------------------------------------------------------------------------------------------


def test_a_call_that_begins_like_another_way_and_is_not() -> None:
    """Each of two ways to write calls is tried once where the text stands."""
    calls = Calls(
        "<calls>",
        Either(
            "<call",
            Call(('<call id="', Name(), '">', Arguments(), "</call>")),
            CallList(Call(('<call name="', Name(), '">', Arguments(), "</call>"))),
        ),
        "</calls>",
    )
    text = '<calls><call name="f">{}</call></calls>so'
    message = parse(Format("two-ways", tools=calls), text)
    assert message.content == text
    assert message.diagnostics


# --- What users can get wrong --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [{"format": "mistral"}, {"version": 0}, {"version": None}],
)
def test_a_snapshot_of_another_parser_is_refused(change: dict[str, Any]) -> None:
    snapshot = unbraid.parser("qwen3").snapshot() | change
    with pytest.raises(InvalidSnapshot, match="qwen3"):
        unbraid.parser("qwen3").restore(snapshot)


@pytest.mark.parametrize("snapshot", [{}, {"version": 1, "format": "qwen3"}])
def test_what_is_no_snapshot_is_refused(snapshot: dict[str, Any]) -> None:
    with pytest.raises(InvalidSnapshot):
        unbraid.parser("qwen3").restore(snapshot)


SNAPSHOTS = {
    "content": ("qwen3", "a", "b"),
    "arguments": ("qwen3", '<tool_call>{"name": "f", "arguments": {"a": ', "1}}</tool_call>"),
    "arguments first": ("qwen3", '<tool_call>{"arguments": {"a": ', '1}, "name": "f"}</tool_call>'),
    "broken": ("qwen3", '<tool_call>{"name": "f", "arguments": {a: ', "1}}</tool_call>"),
    "codes": ("step-audio-2", "<tts_start>a<audio_1>", "<audio_2>b<tts_end>"),
}


@pytest.mark.parametrize(("format", "before", "after"), SNAPSHOTS.values(), ids=SNAPSHOTS)
def test_a_snapshot_does_not_change_when_the_parser_goes_on(format: str, before: str, after: str) -> None:
    first = unbraid.parser(format, seed=7)
    first.feed(before)
    snapshot = first.snapshot()
    first.feed(after)
    for _ in range(2):
        other = unbraid.parser(format, seed=7)
        other.restore(snapshot)
        other.feed(after)
        assert other.message == first.message


def test_a_finished_parser_takes_nothing() -> None:
    parser = unbraid.parser("qwen3")
    parser.feed("a")
    parser.finish()
    with pytest.raises(UnbraidError, match="finished"):
        parser.feed("b")
    with pytest.raises(UnbraidError, match="finished"):
        parser.feed_tokens([1])
    with pytest.raises(UnbraidError, match="finished"):
        parser.finish()
    assert parser.message.content == "a"


def test_a_restored_parser_can_be_finished_too() -> None:
    parser = unbraid.parser("qwen3")
    parser.finish()
    other = unbraid.parser("qwen3")
    other.restore(parser.snapshot())
    with pytest.raises(UnbraidError, match="finished"):
        other.feed("b")


def test_no_message_without_keep_message() -> None:
    parser = unbraid.parser("qwen3", keep_message=False)
    assert parser.feed("a") == [Content("a", 0, 1)]
    with pytest.raises(UnbraidError, match="keep_message"):
        _ = parser.message


def test_feed_tokens_needs_a_tokenizer() -> None:
    with pytest.raises(UnbraidError, match="tokenizer"):
        unbraid.parser("qwen3").feed_tokens([1])
    with pytest.raises(UnbraidError, match="tokenizer"):
        unbraid.parse("qwen3", [1])


# --- Ids -----------------------------------------------------------------------------------------------------------


def ids(format: str, text: str, **options: Any) -> list[str]:
    return [one.id for one in parse(format, text, **options).tool_calls]


def some_calls(format: str) -> Iterator[str]:
    return (hermes(F) if format == "hermes" else "[TOOL_CALLS]f{}" for _ in range(500))


@pytest.mark.parametrize(("format", "shape"), [("hermes", "call_[0-9A-Za-z]{24}"), ("mistral", "[0-9A-Za-z]{9}")])
def test_ids_are_unique(format: str, shape: str) -> None:
    made = ids(format, "".join(some_calls(format)))
    assert len(set(made)) == len(made) == 500
    assert all(re.fullmatch(shape, one) for one in made)


def test_ids_are_reproducible_with_a_seed_and_only_then() -> None:
    text = "[TOOL_CALLS]f{}" * 5
    assert ids("mistral", text, seed=1) == ids("mistral", text, seed=1)
    assert not {*ids("mistral", text, seed=1)} & {*ids("mistral", text, seed=2)}
    first, second = (unbraid.parse("mistral", text).tool_calls for _ in range(2))
    assert not {one.id for one in first} & {one.id for one in second}


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("mistral-v11", "[TOOL_CALLS]f[CALL_ID]abc123XYZ[ARGS]{}"),
        ("mistral", "[TOOL_CALLS]f[CALL_ID]abc123XYZ{}"),
        ("mistral", '[TOOL_CALLS][{"id": "abc123XYZ", "name": "f", "arguments": {}}]'),
        ("mistral", '[TOOL_CALLS][{"arguments": {}, "id": "abc123XYZ", "name": "f"}]'),
        ("hermes", hermes('{"id": "abc123XYZ", "type": "function", "name": "f", "arguments": {}}')),
    ],
)
def test_the_model_s_own_id_is_kept(format: str, text: str) -> None:
    message = parse(format, text)
    assert [one.id for one in message.tool_calls] == ["abc123XYZ"]
    assert kinds(message) == []


@pytest.mark.parametrize("id", ['"abc123XYZ"', "5", "null"])
def test_an_id_that_comes_after_the_name_is_too_late(id: str) -> None:
    """The call has been sent with an id by then."""
    message = parse("hermes", hermes(f'{{"name": "f", "id": {id}, "arguments": {{}}}}'))
    assert message.parts == (call("f"),)
    assert message.tool_calls[0].id.startswith("call_")


def test_an_id_that_comes_twice_is_replaced() -> None:
    message = parse("mistral-v11", "[TOOL_CALLS]f[CALL_ID]abc123XYZ{}[TOOL_CALLS]g[CALL_ID]abc123XYZ{}")
    first, second = message.tool_calls
    assert first.id == "abc123XYZ" != second.id
    assert re.fullmatch("[0-9A-Za-z]{9}", second.id)
    assert kinds(message) == ["duplicate_id"]


def test_a_model_s_id_that_was_already_made_up_is_replaced() -> None:
    (made,) = ids("mistral", "[TOOL_CALLS]f{}", seed=3)
    message = parse("mistral", f"[TOOL_CALLS]f{{}}[TOOL_CALLS]g[CALL_ID]{made}{{}}", seed=3)
    assert len({one.id for one in message.tool_calls}) == 2
    assert kinds(message) == ["duplicate_id"]
