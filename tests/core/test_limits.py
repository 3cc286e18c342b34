"""Limits: floods, long names, depth, and what is held back."""

from __future__ import annotations

import json

import pytest

import unbraid
from unbraid import Diagnostic, Limits

from ..support.parsing import broken, call, content, kinds, parse


def hermes(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


TOOLS = [{"name": "f"}]
F = '{"name": "f", "arguments": {}}'
FLOODS: dict[str, tuple[str, str, str, set[str]]] = {
    "brackets where a key should be": ("mistral-v11", "[TOOL_CALLS]f{", "{", {"malformed_json", "unfinished_call"}),
    "brackets in arguments": ("mistral-v11", '[TOOL_CALLS]f{"a":', "[", {"too_deep", "unfinished_call"}),
    "brackets in a JSON call": ("hermes", f"<tool_call>{F[:-3]}", '{"a":', {"too_deep", "unfinished_call"}),
    "brackets before the name": (
        "hermes",
        '<tool_call>{"arguments": ',
        "[",
        {"too_deep", "too_long", "unfinished_call"},
    ),
    "brackets in an ignored value": ("hermes", f'<tool_call>{F[:-1]}, "type": ', "[", {"too_deep", "unfinished_call"}),
    "brackets in a string": ("hermes", f'<tool_call>{F[:-3]}"', "[", {"unfinished_call"}),
    "backslashes in a string": ("hermes", f'<tool_call>{F[:-3]}"', "\\", {"unfinished_call"}),
    "brackets as content": ("mistral", "", "[", set()),
    "openers of reasoning": ("qwen3", "", "<think>", {"unclosed"}),
    "openers of two scopes": ("step-audio-2", "", "<think><tts_start>", {"unclosed", "stray_closer"}),
    "openers and closers": ("step-audio-2", "", "<tts_start><think><tts_end></think>", {"unclosed", "stray_closer"}),
    "closers": ("qwen3", "", "</think>", {"stray_closer"}),
    "openers of calls": ("hermes", "", "<tool_call>", {"malformed_call", "repaired", "too_long", "unfinished_call"}),
    "markers of calls": (
        "mistral-v13",
        "",
        "[TOOL_CALLS]",
        {"malformed_call", "repaired", "too_long", "unfinished_call"},
    ),
    "calls to unknown tools": ("mistral", "", "[TOOL_CALLS]u{}", {"unknown_tool"}),
    "a long name": ("mistral", "[TOOL_CALLS]", "n", {"too_long"}),
    "a long name in JSON": ("hermes", '<tool_call>{"name": "', "n", {"too_long"}),
    "a long name in escapes": ("hermes", '<tool_call>{"name": "', "\\u00e9", {"too_long"}),
    "a long id": ("mistral-v11", "[TOOL_CALLS]f[CALL_ID]", "n", {"too_long"}),
    "a long key": ("hermes", '<tool_call>{"', "n", {"too_long"}),
    "a long number": ("mistral-v11", '[TOOL_CALLS]f{"a": ', "1", {"too_long", "unfinished_call"}),
    "a name that does not come": ("hermes", '<tool_call>{"arguments": {"a": "', "x", {"too_long", "unfinished_call"}),
    "space where a call should be": ("hermes", "<tool_call>", " ", {"too_long", "unfinished_call"}),
    "space after a call": ("hermes", f"<tool_call>{F}", " ", {"unclosed"}),
    "brackets after a call": ("hermes", f"<tool_call>{F}", "}", {"malformed_call", "unclosed"}),
    "audio codes": ("step-audio-2", "<tts_start>", "<audio_17>", set()),
    "audio in a marker": ("step-audio-2", "<tts_start><tool", "<tts_pad>", set()),
}


@pytest.mark.parametrize(("format", "start", "flood", "expected"), FLOODS.values(), ids=FLOODS)
@pytest.mark.parametrize(("total", "size"), [(200_000, 20_000), (20_000, 1)], ids=["in pieces", "by characters"])
def test_floods(format: str, start: str, flood: str, expected: set[str], total: int, size: int) -> None:
    """Whatever comes without an end, the parser holds little, and says what is wrong."""
    limits = Limits(held=1000)
    parser = unbraid.parser(format, tools=TOOLS, keep_message=False, limits=limits, seed=7)
    text = start + flood * (total // len(flood))
    seen: set[str] = set()
    for at in range(0, len(text), size):
        events = parser.feed(text[at : at + size])
        seen |= {event.kind for event in events if isinstance(event, Diagnostic)}
        if at % 1000 == 0:
            assert len(json.dumps(parser.snapshot())) < 20_000
    seen |= {event.kind for event in parser.finish() if isinstance(event, Diagnostic)}
    assert seen == expected


def test_the_name_limit_is_exact() -> None:
    long = "n" * 256
    assert parse("mistral", f"[TOOL_CALLS]{long}{{}}").parts == (call(long),)
    assert kinds(parse("mistral", f"[TOOL_CALLS]{long}n{{}}")) == ["too_long"]
    assert parse("hermes", hermes(f'{{"name": "{long}", "arguments": {{}}}}')).parts == (call(long),)
    assert kinds(parse("hermes", hermes(f'{{"name": "{long}n", "arguments": {{}}}}'))) == ["too_long"]


def test_what_is_held_too_long_becomes_text() -> None:
    text = hermes('{"arguments": {"a": "' + "x" * 2000 + '"}, "name": "f"}')
    assert parse("hermes", text).parts[0] == call("f", '{"a": "' + "x" * 2000 + '"}')
    message = parse("hermes", text, limits=Limits(held=1000))
    assert message.parts == (content(text),)
    assert kinds(message) == ["too_long"]


@pytest.mark.parametrize(("depth", "diagnostics"), [(512, []), (513, ["too_deep"])])
def test_the_depth_limit_is_exact(depth: int, diagnostics: list[str]) -> None:
    """Arguments that are too deep are passed on, unchecked, up to their last bracket."""
    arguments = '{"a":' * depth + "1" + "}" * depth
    message = parse("mistral-v11", f"[TOOL_CALLS]f{arguments}x")
    assert message.parts == (
        unbraid.ToolCall("f", arguments, complete=not diagnostics),
        content("x"),
    )
    assert kinds(message) == diagnostics


def test_a_number_that_is_too_long() -> None:
    arguments = '{"a": 1234567}'
    message = parse("mistral-v11", f"[TOOL_CALLS]f{arguments}x", limits=Limits(number=6))
    assert message.parts == (broken("f", arguments), content("x"))
    assert kinds(message) == ["too_long"]
