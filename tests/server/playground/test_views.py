"""The views: what the page is told of outputs, chunks and constraints, by the code that also runs in the browser."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

import unbraid
from unbraid import Parser, UnbraidError, all_formats
from unbraid.cli import main
from unbraid.core.grammar import Format
from unbraid.errors import OverBudget
from unbraid.metering import Meter, metered
from unbraid.server.playground.samples import TOOLS
from unbraid.server.playground.views import answer, answer_in_browser

from ...formats.vendors.templates import QWEN3
from ...support.places import SHARED, absent
from ...support.running_server import folded
from . import write_recorded

FORMATS = list(all_formats())
HELLO = "<think>\nHm.\n</think>\n\nHello.\n<tool_call>\n"
HELLO += '{"name": "get_weather", "arguments": {"city": "Paris 🦙"}}\n</tool_call>'


def ask(view: str, **fields: Any) -> Any:
    return json.loads(answer({}, view, json.dumps(fields)))


@pytest.mark.parametrize("format", FORMATS, ids=lambda one: one.name)
def test_every_format_has_outputs_to_begin_with_and_chunks_do_not_change_them(format: Format) -> None:
    samples = ask("samples", format=format.name)["samples"]
    assert samples
    sample = samples[0]
    cuts = ask("cut", text=sample["text"])["cuts"]
    asked = {"format": format.name, "text": sample["text"], "tools": sample["tools"], "cuts": cuts}
    found = ask("apart", **asked, prompt=sample.get("prompt"))
    assert found["same"] == {"whole": True, "characters": True}
    assert found["ends"] == [*cuts, len(sample["text"]), len(sample["text"])]
    pieces = [(event["start"], event["end"]) for event in found["events"] if event["strand"] != "diagnostic"]
    assert sum(end - start for start, end in pieces) == len(sample["text"]), "every character has its strand"


def test_events_say_which_part_of_the_message_they_are() -> None:
    found = ask("apart", format="qwen3", text=HELLO, cuts=[3, 9, 40, 41])
    parts: dict[int, str] = {}
    for event in found["events"]:
        if event["part"] is not None:
            parts[event["part"]] = parts.get(event["part"], "") + (event.get("text") or event.get("fragment") or "")
    message = unbraid.parse("qwen3", HELLO)
    assert list(parts.values()) == [message.reasoning, message.content, message.tool_calls[0].arguments]
    assert found["message"]["content"] == message.content


@pytest.mark.parametrize("format", FORMATS, ids=lambda one: one.name)
def test_the_reference_shows_how_a_format_writes_each_strand(format: Format) -> None:
    found = ask("reference", format=format.name)
    assert found["pieces"]
    if format.tools is not None:
        assert "call" in {strand for strand, _ in found["pieces"]}


@pytest.mark.parametrize("kind", ["format", "cases", "response_template"])
def test_a_format_is_exported_as_the_command_prints_it(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"format": [], "cases": ["--cases"], "response_template": ["--response-template"]}[kind]
    main(["export", "hermes", *options])
    assert ask("export", format="hermes", kind=kind)["text"] == capsys.readouterr().out


def test_what_cannot_be_exported_is_told() -> None:
    with pytest.raises(UnbraidError, match="XML with entities"):
        ask("export", format="minicpm-5", kind="response_template")
    with pytest.raises(UnbraidError, match="kind must be"):
        ask("export", format="qwen3", kind="poem")


def test_every_kind_of_diagnostic_is_in_the_reference() -> None:
    kinds = dict(ask("reference", format="qwen3")["diagnostics"])
    named = {name: value for name, value in vars(unbraid.diagnostics).items() if name.isupper()}
    assert set(kinds) == {value for value in named.values() if isinstance(value, str)}
    assert all(kinds.values())


def test_a_diagnostic_says_what_kind_it_is() -> None:
    events = ask("apart", format="qwen3", text=HELLO.replace("get_weather", "launch"), cuts=[], tools=TOOLS)["events"]
    [told] = [event for event in events if event["kind"] == "Diagnostic"]
    assert told["diagnostic"] == unbraid.diagnostics.UNKNOWN_TOOL


def test_cuts_beyond_the_text_or_twice_are_none() -> None:
    assert ask("apart", format="qwen3", text="Hello", cuts=[-4, 0, 2, 2, 5, 99])["ends"] == [2, 5, 5]
    assert ask("apart", format="qwen3", text="", cuts=[1])["ends"] == [0]


@pytest.mark.parametrize("cuts", [[], [3, 9, 40, 70], list(range(1, len(HELLO)))], ids=["whole", "few", "all"])
def test_chunks_of_openai_are_those_that_a_client_reads(cuts: list[int]) -> None:
    steps = ask("chunks", format="qwen3", text=HELLO, cuts=cuts, dialect="openai")["steps"]
    assert len(steps) == len(cuts) + 2
    *frames, done = [frame for step in steps for frame in step]
    assert done == "data: [DONE]"
    message = folded([json.loads(frame.removeprefix("data: ")) for frame in frames])[0]
    whole = unbraid.parse("qwen3", HELLO)
    assert (message["content"], message["reasoning_content"]) == (whole.content, whole.reasoning)
    assert message["finish_reason"] == "tool_calls"
    [call] = message["tool_calls"]
    assert call["function"] == {"name": "get_weather", "arguments": whole.tool_calls[0].arguments}


@pytest.mark.parametrize(("dialect", "last"), [("responses", "response.completed"), ("anthropic", "message_stop")])
def test_chunks_of_other_dialects(dialect: str, last: str) -> None:
    steps = ask("chunks", format="qwen3", text=HELLO, cuts=[5, 50], dialect=dialect)["steps"]
    frames = [json.loads(frame.partition("data: ")[2]) for step in steps for frame in step]
    assert frames[-1]["type"] == last
    assert "Paris" in json.dumps(frames)


def test_chunks_of_an_output_that_was_cut_off_say_so() -> None:
    text = HELLO[: HELLO.index("Paris") + 2]
    steps = ask("chunks", format="qwen3", text=text, cuts=[], dialect="openai", end_of_turn=False)["steps"]
    assert '"finish_reason":"length"' in steps[-1][-2]


def test_chunks_of_a_custom_tool() -> None:
    tools = [{"type": "custom", "custom": {"name": "run"}}]
    text = '<tool_call>\n{"name": "run", "arguments": {"input": "ls -l"}}\n</tool_call>'
    for dialect in ("openai", "responses"):
        steps = ask("chunks", format="qwen3", text=text, cuts=[], tools=tools, dialect=dialect)["steps"]
        assert "ls -l" in json.dumps(steps)


# Constraints


def test_grammars_come_in_every_syntax_with_what_each_does_not_enforce() -> None:
    found = {
        one["name"]: one for one in ask("grammars", format="qwen3", tools=TOOLS, tool_choice="required")["syntaxes"]
    }
    assert set(found) == {"lark", "gbnf", "ebnf", "structural_tag", "regex"}
    made = unbraid.constraint("qwen3", tools=TOOLS, tool_choice="required")
    assert found["gbnf"]["grammar"] == made.to_gbnf()
    assert found["gbnf"]["unenforced"] == [[one.where, one.what] for one in made.unenforced("gbnf")]
    assert "nest" in found["regex"]["error"], "what a syntax cannot say is told in its place"


def test_a_walk_says_what_may_come_at_each_character() -> None:
    found = ask("walk", format="qwen3", tools=TOOLS, tool_choice="required", text='<tool_call>{"name": "getx')
    assert found["refused"] == len('<tool_call>{"name": "get')
    here = found["places"][-1]
    assert found["labels"][here["next"]] == ["_"]
    assert here["forced"].startswith("_weather")
    assert not here["may_end"]
    first = found["labels"][found["places"][0]["next"]]
    assert first == ["tab", "line break", "space", "<"]


def test_characters_are_told_in_words() -> None:
    found = ask("walk", format="qwen3", tools=TOOLS, tool_choice="none", text="")
    assert found["labels"][found["places"][0]["next"]][0] == "any character"
    assert found["places"][0]["may_end"]


def test_what_costs_too_much_is_left_to_the_planner() -> None:
    """Only so does the server begin it again where it holds up nobody."""
    with pytest.raises(OverBudget), metered(Meter(0.0)):
        ask("grammars", format="glm-4.7", tools=[{**TOOLS[0], "strict": True}], tool_choice="required")
    with pytest.raises(OverBudget), metered(Meter(0.0)):
        ask("apart", format="qwen3", text=HELLO * 40, cuts=[])


# Templates


@pytest.mark.skipif(not (SHARED / "templates").exists(), reason=absent(SHARED / "templates"))
def test_a_template_or_a_configuration_can_be_pasted() -> None:
    source = (SHARED / "templates" / f"{QWEN3.file}.jinja").read_text(encoding="utf-8")
    by_template = ask("detect", template=source)
    by_config = ask("detect", template=json.dumps({"chat_template": source, "eos_token": "<|im_end|>"}))
    assert by_template["format"] == by_config["format"] == "qwen3"
    assert by_template["verified"]
    assert by_template["reasons"]
    assert ask("apart", template=source, text=HELLO, cuts=[])["format"] == "qwen3"
    assert ask("samples", template=source)["samples"]


def test_the_format_of_a_pasted_output_is_guessed() -> None:
    [best, *_] = ask("guess", text=HELLO)["guesses"]
    assert best["sure"] == "certain"
    assert "qwen3" in (best["format"], *best["same"])
    assert ask("guess", text="It rains in Paris.")["guesses"] == []


# Requests that are not right


@pytest.mark.parametrize(
    ("view", "fields", "told"),
    [
        ("nothing", {}, "there are formats"),
        ("apart", {"format": "no-such"}, "no format named"),
        ("apart", {"format": "qwen3", "text": 3}, "text must be text"),
        ("apart", {"format": "qwen3", "text": "x" * 60_000}, "the playground takes"),
        ("apart", {"format": "qwen3", "cuts": ["1"]}, "whole numbers"),
        ("apart", {"format": "qwen3", "tools": "[{"}, "tools is not JSON"),
        ("apart", {"format": "qwen3", "tools": [3]}, "tools[0]"),
        ("apart", {"format": "qwen3", "emit_unknown": "yes"}, "true or false"),
        ("chunks", {"format": "qwen3", "dialect": "morse"}, "there are openai"),
        ("detect", {"template": "  "}, "paste a chat template"),
        ("detect", {"template": '{"chat_template": '}, "neither a template nor JSON"),
        ("walk", {"format": "qwen3", "tool_choice": "maybe"}, "maybe"),
        ("spell", {"model": "other", "ids": [1]}, "--tokenizer"),
        ("save", {"kind": "doc"}, "kind"),
        ("save", {"kind": "srt", "segments": [{}]}, "segments"),
    ],
)
def test_what_is_wrong_is_told(view: str, fields: dict[str, Any], told: str) -> None:
    with pytest.raises(UnbraidError, match=re.escape(told)):
        ask(view, **fields)
    assert told in json.loads(answer_in_browser(view, json.dumps(fields)))["error"]


@pytest.mark.parametrize("body", ["", "[]", "{", "\ud800"])
def test_a_body_that_is_no_object_is_told(body: str) -> None:
    with pytest.raises(UnbraidError, match="the body"):
        answer({}, "apart", body)


def test_schemas_that_were_mended_are_warned_of() -> None:
    tools = [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "str"}}}}]
    assert ask("apart", format="qwen3", text="", tools=tools)["warnings"]


def test_subtitles_are_those_of_the_api() -> None:
    segments = [{"start": 0.5, "end": 1.25, "text": " Hello "}, {"start": 2, "end": 3661, "text": "a --> b"}]
    assert ask("save", kind="srt", segments=segments)["text"].startswith("1\n00:00:00,500 --> 00:00:01,250\nHello\n")
    assert "01:01:01.000" in ask("save", kind="vtt", segments=segments)["text"]


# About where a tokenizer cuts


def test_cuts_are_places_in_the_text() -> None:
    chance = random.Random(0)
    for _ in range(50):
        text = "".join(chance.choices("ab<>/ \n🦙é漢0_{}[]THINK", k=chance.randrange(40)))
        cuts = ask("cut", text=text)["cuts"]
        assert cuts == sorted(set(cuts))
        assert all(0 < at < len(text) for at in cuts)


def test_a_parser_says_the_same_as_the_view() -> None:
    parser = Parser("qwen3", markup=True, seed=0)
    events = [*parser.feed(HELLO), *parser.finish(end_of_turn=True)]
    found = ask("apart", format="qwen3", text=HELLO, cuts=[])
    assert [event["kind"] for event in found["events"]] == [type(event).__name__ for event in events]


# Data that other tests write


@pytest.mark.skipif(not (SHARED / "templates").exists(), reason=absent(SHARED / "templates"))
def test_the_recorded_outputs_are_up_to_date() -> None:
    told = "run python -m tests.server.playground.write_recorded"
    assert write_recorded.DOCUMENT.read_text(encoding="utf-8") == write_recorded.document(), told
