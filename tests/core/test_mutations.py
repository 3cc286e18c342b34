"""What models get wrong, tried on every format: a call stays what it was, or the difference is reported.

The texts are what the renderer writes; `tests/formats/vendors` tries the same on what the vendors' templates write.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

import unbraid
from unbraid import Format, Message, Text, ToolCall, diagnostics
from unbraid.core.grammar import CallList, Notation
from unbraid.core.notations import TaggedArguments

from ..support import strategies
from ..support.mutations import MUTATIONS, check, said, spaced
from ..support.notations import nodes_in

every_format = pytest.mark.parametrize("format", strategies.FORMATS, ids=[f.name for f in strategies.FORMATS])
CALLS = (ToolCall("get_weather", '{"a": "Paris, France", "n": 2}'), ToolCall("f", '{"t": true, "l": ["x", 1]}'))
OPTIONS: dict[str, Any] = {"tools": strategies.TYPED_TOOLS, "prompt": "", "seed": 7}


@every_format
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_call_stays_what_it_was_or_the_difference_is_reported(format: Format, mutation: str) -> None:
    if format.tools is None:
        return
    for parts in (CALLS[:1], CALLS[1:]) if format.headers else (CALLS[:1], (Text("content", "Let me see."), CALLS[1])):
        text = unbraid.render(format, Message(parts))
        assert said(unbraid.parse(format, text, **OPTIONS)) == said(Message(parts))
        for changed in MUTATIONS[mutation](format, text, OPTIONS):
            check(format, text, changed, OPTIONS)


@every_format
def test_whitespace_between_the_parts_of_a_call_says_nothing(format: Format) -> None:
    """Where no value and no name can mean it: after markup, and before it."""
    if format.tools is None or format.headers is not None:
        return
    text = unbraid.render(format, Message(CALLS))
    for changed in spaced(format, text, OPTIONS):
        message = unbraid.parse(format, changed, **OPTIONS)
        # Without a marker, a call to an unknown name may as well be an answer.
        assert said(message) == said(Message(CALLS)) or message.diagnostics or format.tools.bare, changed


@every_format
@pytest.mark.parametrize("quote", ["'", ""])
def test_attributes_in_other_quotes_or_none_are_the_same(format: Format, quote: str) -> None:
    if format.tools is None:
        return
    text = unbraid.render(format, Message(CALLS))
    changed = re.sub(r'="(\w+)"', rf"={quote}\1{quote}", text)
    message = unbraid.parse(format, changed, **OPTIONS)
    assert said(message) == said(Message(CALLS))
    assert {one.kind for one in message.diagnostics} == ({diagnostics.REPAIRED} if changed != text else set())


@every_format
def test_a_call_that_is_cut_off_anywhere_is_the_same_or_not_complete(format: Format) -> None:
    if format.tools is None:
        return
    text = unbraid.render(format, Message(CALLS))
    whole = said(unbraid.parse(format, text, **OPTIONS))
    for size in range(len(text)):
        message = unbraid.parse(format, text[:size], **OPTIONS)
        complete = [call for call in said(message) if call[2]]
        assert complete == whole[: len(complete)]
        if len(complete) < len(message.tool_calls):
            assert message.diagnostics


@every_format
def test_a_closing_tag_too_many_after_an_argument_loses_nothing(format: Format) -> None:
    if format.tools is None or not isinstance(notation := notation_node(format), TaggedArguments):
        return
    text = unbraid.render(format, Message(CALLS[:1]))
    close = notation.close.strip()
    for at in [found.end() for found in re.finditer(re.escape(close), text)]:
        message = unbraid.parse(format, text[:at] + close + text[at:], **OPTIONS)
        assert said(message) == said(Message(CALLS[:1]))
        assert [diagnostic.kind for diagnostic in message.diagnostics] == [diagnostics.REPAIRED]
        assert message.content == ""


@every_format
def test_the_end_of_a_call_in_a_list_twice_loses_nothing(format: Format) -> None:
    if format.tools is None:
        return
    text = unbraid.render(format, Message(CALLS))
    lasts = {node.call.parts[-1] for node in nodes_in(format.tools) if isinstance(node, CallList)}
    for last in [one.strip() for one in lasts if isinstance(one, str) and any(map(str.isalnum, one))]:
        message = unbraid.parse(format, text.replace(last, last * 2), **OPTIONS)
        assert said(message) == said(Message(CALLS))
        assert [diagnostic.kind for diagnostic in message.diagnostics] == [diagnostics.REPAIRED] * 2
        assert message.content == ""


def notation_node(format: Format) -> Notation | None:
    """How the format writes arguments."""
    return next((node for node in nodes_in(format.tools) if isinstance(node, Notation)), None)
