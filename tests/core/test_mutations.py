"""What models get wrong, tried on every format: a call stays what it was, or the difference is reported.

The texts are what the renderer writes; `tests/formats/vendors` tries the same on what the vendors' templates write.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

import unbraid
from unbraid import Format, Message, Part, Text, ToolCall, diagnostics
from unbraid.core.grammar import CallList, Notation
from unbraid.core.notations import TaggedArguments

from ..support import strategies
from ..support.cases import each_format
from ..support.mutations import MUTATIONS, check, said, spaced
from ..support.notations import nodes_in

CALLING = [format for format in strategies.FORMATS if format.tools is not None]
CALLS = (ToolCall("get_weather", '{"a": "Paris, France", "n": 2}'), ToolCall("f", '{"t": true, "l": ["x", 1]}'))
OPTIONS: dict[str, Any] = {"tools": strategies.TYPED_TOOLS, "prompt": "", "seed": 7}


def notation_node(format: Format) -> Notation | None:
    """How the format writes arguments."""
    return next((node for node in nodes_in(format.tools) if isinstance(node, Notation)), None)


def lasts(format: Format) -> list[str]:
    """The tags that calls in a list end with."""
    parts = {node.call.parts[-1] for node in nodes_in(format.tools) if isinstance(node, CallList)}
    return [part.strip() for part in parts if isinstance(part, str) and any(map(str.isalnum, part))]


def texts_of(format: Format) -> list[tuple[Part, ...]]:
    """Messages with a call, of a format."""
    return [CALLS[:1], CALLS[1:]] if format.headers else [CALLS[:1], (Text("content", "Let me see."), CALLS[1])]


@cache
def mutations(format: Format, mutation: str) -> list[tuple[str, str]]:
    """Texts with a call, and what one mutation makes of them."""
    texts = [unbraid.render(format, Message(parts)) for parts in texts_of(format)]
    return [(text, changed) for text in texts for changed in MUTATIONS[mutation](format, text, OPTIONS)]


@each_format(CALLING)
def test_what_is_rendered_is_read(format: Format) -> None:
    for parts in texts_of(format):
        text = unbraid.render(format, Message(parts))
        assert said(unbraid.parse(format, text, **OPTIONS)) == said(Message(parts))


MUTATED = [(format, mutation) for format in CALLING for mutation in MUTATIONS if mutations(format, mutation)]


@pytest.mark.parametrize(
    ("format", "mutation"), MUTATED, ids=[f"{mutation}-{format.name}" for format, mutation in MUTATED]
)
def test_a_call_stays_what_it_was_or_the_difference_is_reported(format: Format, mutation: str) -> None:
    for text, changed in mutations(format, mutation):
        check(format, text, changed, OPTIONS)


@each_format(format for format in CALLING if format.headers is None)
def test_whitespace_between_the_parts_of_a_call_says_nothing(format: Format) -> None:
    """Where no value and no name can mean it: after markup, and before it."""
    assert format.tools is not None
    text = unbraid.render(format, Message(CALLS))
    for changed in spaced(format, text, OPTIONS):
        message = unbraid.parse(format, changed, **OPTIONS)
        # Without a marker, a call to an unknown name may as well be an answer.
        assert said(message) == said(Message(CALLS)) or message.diagnostics or format.tools.bare, changed


def with_quotes(format: Format, quote: str) -> tuple[str, str]:
    """A text with calls, and the same with other quotes around attributes."""
    text = unbraid.render(format, Message(CALLS))
    return text, re.sub(r'="(\w+)"', rf"={quote}\1{quote}", text)


@each_format(format for format in CALLING if len(set(with_quotes(format, ""))) > 1)
@pytest.mark.parametrize("quote", ["'", ""])
def test_attributes_in_other_quotes_or_none_are_the_same(format: Format, quote: str) -> None:
    message = unbraid.parse(format, with_quotes(format, quote)[1], **OPTIONS)
    assert said(message) == said(Message(CALLS))
    assert {one.kind for one in message.diagnostics} == {diagnostics.REPAIRED}


@each_format(CALLING)
def test_a_call_that_is_cut_off_anywhere_is_the_same_or_not_complete(format: Format) -> None:
    text = unbraid.render(format, Message(CALLS))
    whole = said(unbraid.parse(format, text, **OPTIONS))
    for size in range(len(text)):
        message = unbraid.parse(format, text[:size], **OPTIONS)
        complete = [call for call in said(message) if call[2]]
        assert complete == whole[: len(complete)]
        if len(complete) < len(message.tool_calls):
            assert message.diagnostics


@each_format(format for format in CALLING if isinstance(notation_node(format), TaggedArguments))
def test_a_closing_tag_too_many_after_an_argument_loses_nothing(format: Format) -> None:
    notation = notation_node(format)
    assert isinstance(notation, TaggedArguments)
    text = unbraid.render(format, Message(CALLS[:1]))
    close = notation.close.strip()
    assert close in text
    for at in [found.end() for found in re.finditer(re.escape(close), text)]:
        message = unbraid.parse(format, text[:at] + close + text[at:], **OPTIONS)
        assert said(message) == said(Message(CALLS[:1]))
        assert [diagnostic.kind for diagnostic in message.diagnostics] == [diagnostics.REPAIRED]
        assert message.content == ""


@each_format(filter(lasts, CALLING))
def test_the_end_of_a_call_in_a_list_twice_loses_nothing(format: Format) -> None:
    text = unbraid.render(format, Message(CALLS))
    for last in lasts(format):
        message = unbraid.parse(format, text.replace(last, last * 2), **OPTIONS)
        assert said(message) == said(Message(CALLS))
        assert [diagnostic.kind for diagnostic in message.diagnostics] == [diagnostics.REPAIRED] * 2
        assert message.content == ""
