"""Calls whose arguments an operator wants checked: what goes out, streamed and whole."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from unbraid import Message, find
from unbraid.core.message import Fold
from unbraid.core.tools import Tools
from unbraid.parsing import Parser
from unbraid.plugins.checked_calls import parser_for

INVALID, REPEATED = "UNBRAID_INVALID_ARGUMENTS", "UNBRAID_REPEATED_ARGUMENTS"
WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
}
OPEN = {"name": "open", "parameters": {"type": "object", "properties": {"o": {"type": "object"}}}}
TOOLS = Tools([WEATHER, OPEN])


def call(*arguments: tuple[str, str], name: str = "get_weather") -> str:
    inside = "".join(f'<param name="{key}">{value}</param>' for key, value in arguments)
    return f'<function name="{name}">{inside}</function>'


def read(text: str, format: str = "minicpm5", chunk: int = 1) -> Message:
    parser = parser_for(find(format), TOOLS, keep_message=False)
    fold = Fold()
    for at in range(0, len(text), chunk):
        fold.add(parser.feed(text[at : at + chunk]))
    fold.add(parser.finish(end_of_turn=True))
    return fold.message()


def calls(text: str, format: str = "minicpm5") -> list[tuple[str, str]]:
    """The calls of a text, which are the same in a stream and in one piece."""
    streamed, whole = read(text, format), read(text, format, len(text))
    assert streamed.content == whole.content
    found = [[(one.name, one.arguments) for one in message.tool_calls] for message in (streamed, whole)]
    assert found[0] == found[1]
    return found[0]


def test_nothing_is_checked_unless_it_is_wanted() -> None:
    assert type(parser_for(find("minicpm5"), TOOLS)) is Parser
    assert calls(call(("city", "Rome"), ("city", "Bonn"), ("x", "1"))) == [
        ("get_weather", '{"city": "Rome", "city": "Bonn", "x": 1}')
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((("city", "Rome"), ("days", "3")), '{"city": "Rome", "days": 3}'),
        ((("city", "Rome"), ("other", "1")), '{"city": "Rome"}'),
        ((("City", "Rome"),), None),
        ((("days", "3"),), None),
        ((("city", "Rome"), ("city", "Bonn")), None),
    ],
)
def test_arguments_that_do_not_fit_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    arguments: tuple[tuple[str, str], ...],
    expected: str | None,
) -> None:
    monkeypatch.setenv(INVALID, "drop")
    with caplog.at_level(logging.WARNING):
        assert calls(call(*arguments)) == ([] if expected is None else [("get_weather", expected)])
    assert ("is left out" in caplog.text) == (expected is None)


def test_the_calls_that_go_out_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(INVALID, "drop")
    text = f"A{call(('days', '3'))}{call(('city', 'Rome'))}B"
    parser = parser_for(find("minicpm5"), TOOLS, keep_message=False)
    events = [*parser.feed(text), *parser.finish(end_of_turn=True)]
    assert {event.index for event in events if hasattr(event, "index")} == {0}
    assert read(text).content.split() == ["A", "B"]


def test_what_comes_twice_is_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REPEATED, "list")
    assert calls(call(("city", "Rome"), ("days", "1"), ("city", "Bonn"))) == [
        ("get_weather", '{"city": ["Rome", "Bonn"], "days": 1}')
    ]
    nested = '{"o": {"a": 1.50, "b": [{"a": 2, "a": 1e3}], "a": "x"}}'
    text = f'<tool_call>\n{{"name": "open", "arguments": {nested}}}\n</tool_call>'
    assert calls(text, "hermes") == [("open", '{"o": {"a": [1.50, "x"], "b": [{"a": [2, 1e3]}]}}')]


def test_both_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REPEATED, "list")
    monkeypatch.setenv(INVALID, "drop")
    assert calls(call(("city", "Rome"), ("x", "1"), ("city", "Bonn"))) == [
        ("get_weather", '{"city": ["Rome", "Bonn"]}')
    ]


def test_what_fits_is_not_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REPEATED, "list")
    arguments = '{ "city":"R\\u006fme" ,"days": 3.0}'
    text = f'<tool_call>\n{{"name": "get_weather", "arguments": {arguments}}}\n</tool_call>'
    assert calls(text, "hermes") == [("get_weather", arguments)]


def test_a_call_that_is_cut_off_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(INVALID, "drop")
    parser = parser_for(find("minicpm5"), TOOLS, keep_message=False)
    fold = Fold()
    fold.add(parser.feed(call(("days", "3")).partition("</function>")[0]))
    fold.add(parser.finish())
    assert [(one.name, one.complete) for one in fold.message().tool_calls] == [("get_weather", False)]
