"""The raw text of a call that broke off, out of what a client has of it: in every format, wherever it broke off."""

from __future__ import annotations

from operator import attrgetter

import pytest

from unbraid import Format, Message, Parser, ToolCall, UnbraidError, render
from unbraid.formats import all_formats
from unbraid.templates.prompt.beginnings import completed, list_so_far, render_begun

ARGUMENTS = '{"city": "Paris, \\"the\\" 1st", "n": 12, "flag": true, "o": {"a": [1, "b"], "c": null}, "last": "x y"}'
CALLS = (ToolCall("alpha", '{"q": 1}', "alpha0123"), ToolCall("beta", ARGUMENTS, "beta01234"))
WITH_CALLS = [format for format in all_formats() if format.tools is not None]
STEP = 17


def parsed(format: Format, *texts: str) -> list[ToolCall]:
    parser = Parser(format, prompt="")
    for text in texts:
        parser.feed(text)
    parser.finish(end_of_turn=True)
    return list(parser.message.tool_calls)


@pytest.mark.parametrize("format", WITH_CALLS, ids=attrgetter("name"))
def test_what_was_written_of_a_call(format: Format) -> None:
    written = render(format, Message(CALLS))
    whole = [(call.name, call.arguments) for call in parsed(format, written)]
    tried = 0
    for at in range(STEP, len(written), STEP):
        parser = Parser(format, prompt="")
        parser.feed(written[:at])
        parser.finish()
        parts = parser.message.parts
        if not parts or not isinstance(cut := parts[-1], ToolCall) or cut.name != "beta":
            continue
        begun = render_begun(format, (), [CALLS[0], ToolCall("beta", cut.arguments, CALLS[1].id)])
        if not written.startswith(begun):  # it was cut inside a marker, which may be text then
            continue
        tried += 1
        assert [(call.name, call.arguments) for call in parsed(format, begun, written[len(begun) :])] == whole
    assert tried > len(ARGUMENTS) / STEP / 2
    in_string = ToolCall("beta", ARGUMENTS[: ARGUMENTS.rindex(" y")], CALLS[1].id)
    assert render_begun(format, (), [CALLS[0], in_string]) == written[: written.rindex("x y") + 1]


@pytest.mark.parametrize("format", WITH_CALLS, ids=attrgetter("name"))
def test_what_comes_between_calls(format: Format) -> None:
    before, between = list_so_far(format, CALLS[:1])
    assert between
    assert render(format, Message((CALLS[0], ToolCall("beta", "{}")))).startswith(before + between)


def test_json_is_completed() -> None:
    assert '{"a": "bqx"}' in completed('{"a": "b')
    assert '{"a": "b"}' in completed('{"a": "b\\u00')
    assert set(completed('{"a": tru')) == {'{"a": true}', '{"a": true, "qx": 1}'}
    assert '{"a": [1, {"b": 2}]}' in completed('{"a": [1, {"b": 2')
    assert "{}" in completed("")
    assert list(completed("no JSON")) == []


def test_what_is_no_beginning_is_refused() -> None:
    with pytest.raises(UnbraidError, match="no beginning of JSON"):
        render_begun(WITH_CALLS[0], (), [ToolCall("alpha", "no JSON")])
