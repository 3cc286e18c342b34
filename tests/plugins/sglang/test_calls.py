"""Detectors of calls, in SGLang."""

from __future__ import annotations

import asyncio
import json
from operator import attrgetter
from typing import Any

import pytest

import unbraid
from unbraid import Format, Message, Text, ToolCall
from unbraid.plugins import sglang as plugin

from .cases import FORMATS, STEP_CALL, streamed, tools
from .package import Chat, is_before_0_5_23


def test_step_audio_2_calls(installed: Any) -> None:
    detector = plugin.StepAudio2Detector()
    assert detector.has_tool_call(STEP_CALL)
    assert not detector.has_tool_call("How can I help?")
    assert not detector.has_tool_call("")
    known = tools(installed)
    text = f"Let me see.\n{STEP_CALL}<tool_call>function\nsearch\n{{}}</tool_call>\nSo."
    found = detector.detect_and_parse(text, known)
    assert found.normal_text == "Let me see.\n\nSo."
    assert [(c.tool_index, c.name, c.parameters) for c in found.calls] == [
        (0, "get_weather", '{"city": "上海"}'),
        (1, "search", "{}"),
    ]
    assert detector.detect_and_parse("Hi.", known).normal_text == "Hi."


def test_one_item_for_what_comes_of_a_call_at_a_time(installed: Any) -> None:
    detector, known = plugin.StepAudio2Detector(), tools(installed)
    assert (detector.prev_tool_call_arr, detector.streamed_args_for_tool) == ([], [])
    steps = []
    for piece in ["Well. <tool_call>function\n", "get_weather\n", '{"ci', 'ty": "上', '海"}', "</tool_call>", " So."]:
        found = detector.parse_streaming_increment(piece, known)
        steps.append((found.normal_text, [(c.tool_index, c.name, c.parameters) for c in found.calls]))
    assert steps == [
        ("Well. ", []),
        ("", []),
        ("", [(0, "get_weather", '{"ci')]),
        ("", [(0, None, 'ty": "上')]),
        ("", [(0, None, '海"}')]),
        ("", []),
        (" So.", []),
    ]
    assert detector.prev_tool_call_arr == [{"name": "get_weather", "arguments": {"city": "上海"}}]
    assert detector.streamed_args_for_tool == ['{"city": "上海"}']
    assert detector.incomplete_tool_call_indices == set()
    assert detector.current_tool_id == 0


def test_what_is_held_back_comes_at_the_end(installed: Any) -> None:
    parser = installed.FunctionCallParser(tools(installed), "step_audio_2")
    assert parser.parse_stream_chunk("a <tool_call>func") == ("a ", [])
    assert parser.parse_stream_end() == ("", [])  # law 16: a call that is cut off before its name is not shown
    parser = installed.FunctionCallParser(tools(installed), "step_audio_2")
    assert parser.parse_stream_chunk("a <tool_ca") == ("a ", [])
    assert parser.parse_stream_end() == ("<tool_ca", [])
    assert parser.parse_stream_end() == ("", [])
    untouched = installed.FunctionCallParser(tools(installed), "step_audio_2")
    assert untouched.parse_stream_end() == ("", [])
    reasoning = installed.ReasoningParser("step-audio2")
    assert reasoning.parse_stream_chunk("<thi") == ("", "")
    assert reasoning.parse_stream_end() == ("", "<thi")
    assert reasoning.parse_stream_end() == ("", "")


def test_a_call_that_breaks_off(installed: Any) -> None:
    """Streamed, it has been seen to begin; whole, it is text."""
    text = STEP_CALL[:-15]
    parser = installed.FunctionCallParser(tools(installed), "step_audio_2")
    content, calls = streamed(parser, text)
    assert (content, calls) == ("", [("get_weather", '{"city": "上')])
    assert parser.detector.incomplete_tool_call_indices == {0}
    # The server sends what the one has and the other lacks: nothing.
    assert parser.detector.prev_tool_call_arr[-1]["arguments"] == parser.detector.streamed_args_for_tool[-1]
    assert installed.FunctionCallParser(tools(installed), "step_audio_2").parse_non_stream(text) == (text, [])


def test_a_call_to_an_unknown_tool_is_text(installed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    known = tools(installed, "search")
    assert streamed(installed.FunctionCallParser(known, "step_audio_2"), STEP_CALL) == (STEP_CALL, [])
    assert installed.FunctionCallParser(known, "step_audio_2").parse_non_stream(STEP_CALL) == (STEP_CALL, [])
    monkeypatch.setenv("SGLANG_FORWARD_UNKNOWN_TOOLS", "1")
    assert streamed(installed.FunctionCallParser(known, "step_audio_2"), STEP_CALL)[1] == [
        ("get_weather", '{"city": "上海"}')
    ]
    _, [item] = installed.FunctionCallParser(known, "step_audio_2").parse_non_stream(STEP_CALL)
    assert (item.tool_index, item.name) == (0, "get_weather")


@pytest.mark.parametrize("choice", ["text", "emit", "drop"])
def test_unknown_tools_as_the_operator_wants_them(installed: Any, monkeypatch: pytest.MonkeyPatch, choice: str) -> None:
    monkeypatch.setenv("UNBRAID_UNKNOWN_TOOLS", choice)
    known = tools(installed, "search")
    content, calls = streamed(installed.FunctionCallParser(known, "step_audio_2"), STEP_CALL)
    assert content == (STEP_CALL if choice == "text" else "")
    assert [name for name, _ in calls] == (["get_weather"] if choice == "emit" else [])


FORWARDS = {"hermes": False, "kimi_k2": True, "qwen3_coder": True, "inkling": True, "gemma4": True}
"""Detectors of SGLang's, and whether they pass calls to unknown tools on."""


@pytest.mark.parametrize("name", sorted(FORWARDS))
def test_unknown_tools_as_sglang_has_them(sglang: Any, name: str) -> None:
    """Some of SGLang's detectors pass a call to an unknown tool on, whatever the setting."""
    text = unbraid.render(name, Message((ToolCall("get_weather", '{"city": "Rome"}'),)))
    known = tools(sglang, "search")
    _, theirs = sglang.FunctionCallParser(known, name).parse_non_stream(text)
    plugin.install()
    ours = sglang.FunctionCallParser(known, f"unbraid-{name}").parse_non_stream(text)[1]
    assert [(call.name, json.loads(call.parameters)) for call in ours] == [
        (call.name, json.loads(call.parameters)) for call in theirs
    ]
    assert bool(ours) == FORWARDS[name]


@pytest.mark.parametrize("name", ["functionary-v3.2", "hunyuan-a13b"])
def test_an_answer_without_a_call(installed: Any, name: str) -> None:
    """The markers around it are taken off, streamed or not, whether or not there are tools, if SGLang asks."""
    text = unbraid.render(name, Message((Text("content", "Hi."),)))
    assert text != "Hi."
    known = tools(installed)
    assert streamed(installed.FunctionCallParser(known, f"unbraid-{name}"), text) == ("Hi.", [])
    assert installed.FunctionCallParser(known, f"unbraid-{name}").parse_non_stream(text) == ("Hi.", [])
    without_tools = text if is_before_0_5_23(installed) else "Hi."
    assert installed.FunctionCallParser([], f"unbraid-{name}").parse_non_stream(text) == (without_tools, [])


@pytest.mark.parametrize("name", ["functionary-v3.2", "hunyuan-a13b"])
def test_an_answer_through_the_server(installed: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    text = unbraid.render(name, Message((Text("content", "Hi."),)))
    chat = Chat(monkeypatch, f"unbraid-{name}", None)
    without_tools = text if is_before_0_5_23(installed) else "Hi."
    for request, answer in (({}, without_tools), ({"tools": [tool.model_dump() for tool in tools(installed)]}, "Hi.")):
        assert asyncio.run(chat.stream([*text], **request))["content"] == answer
        assert chat.whole(text, **request)["content"] == answer
        assert chat.whole(text, **request)["finish_reason"] == "stop"


@pytest.mark.parametrize("name", ["kimi_k2", "kimi_k3", "hermes", "qwen3_coder"])
def test_two_calls_to_one_tool_have_two_numbers(sglang: Any, name: str) -> None:
    """SGLang makes the ids of Kimi's calls of them."""
    plugin.install(replace=True)
    calls = [ToolCall("get_weather", f'{{"city": "{city}"}}', "") for city in ("Bonn", "Rome")]
    text = unbraid.render(name, Message(tuple(calls)))
    _, items = sglang.FunctionCallParser(tools(sglang), name).parse_non_stream(text)
    assert [item.tool_index for item in items] == [0, 1]


with_tools = pytest.mark.parametrize(
    "format", [format for format in FORMATS if format.tools is not None], ids=attrgetter("name")
)


@with_tools
def test_whitespace_beside_calls_is_no_answer(installed: Any, format: Format) -> None:
    text = unbraid.render(unbraid.compose(tools=format.name), Message((ToolCall("get_weather", "{}", "abcdefghi"),)))
    parser = installed.FunctionCallParser(tools(installed), f"unbraid-{format.name}")
    for before in ("", "\n", "\n\n", " \n\n\n "):
        content, [item] = parser.parse_non_stream(before + text)
        assert (content, item.name) == ("", "get_weather")


@with_tools
def test_a_call_that_is_cut_off_is_not_run(installed: Any, format: Format) -> None:
    """At every cut: a whole reply has none but the calls of the whole output. A stream has begun the others, and the
    server is told that they are not complete."""
    given = {"city": "a long name"}
    calls = [ToolCall("get_weather", json.dumps(given), "abcdefghi")] * 2
    text = unbraid.render(unbraid.compose(tools=format.name), Message((Text("content", "So."), *calls)))
    known, name = tools(installed), f"unbraid-{format.name}"
    for cut in range(len(text)):
        _, items = installed.FunctionCallParser(known, name).parse_non_stream(text[:cut])
        assert [json.loads(item.parameters) for item in items] == [given] * len(items)
        parser = installed.FunctionCallParser(known, name)
        _, streamed_calls = streamed(parser, text[:cut], 7)
        incomplete = parser.detector.incomplete_tool_call_indices
        done = [arguments for at, (_, arguments) in enumerate(streamed_calls) if at not in incomplete]
        assert [json.loads(arguments) for arguments in done] == [given] * len(items)


def test_a_result_that_somebody_holds_stays_as_it_is(installed: Any) -> None:
    detector, known = plugin.StepAudio2Detector(), tools(installed)
    pieces = ["Well. ", "So. ", "<tool_call>function\n", "get_weather\n", '{"city": "', "a", "b", '"}', "</tool_call>"]
    held = [detector.parse_streaming_increment(piece, known) for piece in pieces]
    assert len({id(result) for result in held}) == len(held)
    assert [result.normal_text for result in held[:2]] == ["Well. ", "So. "]
    assert [[call.parameters for call in result.calls] for result in held[4:]] == [
        ['{"city": "'],
        ["a"],
        ["b"],
        ['"}'],
        [],
    ]


def test_a_result_that_nobody_holds_is_used_again(installed: Any) -> None:
    detector, known = plugin.StepAudio2Detector(), tools(installed)
    result = detector.parse_streaming_increment("a", known)
    expected = type(result)(normal_text="b", calls=[])
    place = id(result)
    calls = result.calls
    del result
    again = detector.parse_streaming_increment("b", known)
    assert id(again) == place
    assert again == expected
    assert again.model_fields_set == expected.model_fields_set
    assert again.calls is not calls
