"""What models get wrong, tried on every format: a call stays what it was, or the difference is reported.

Each text is what the renderer writes for a call, or what the vendor's template does, where the templates are there.
It is then changed in one place: whitespace between two parts, a marker dropped, doubled or written where it does not
belong, other quotes, entities, the end cut off. All such changes are tried. The rule is: the calls are the same, or
there is a diagnostic. (Nothing can be reported of a text that has lost all its markers.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

import unbraid
from unbraid import Format, Markup, Message, Text, ToolCall, ToolCallStart

from ..support import strategies

every_format = pytest.mark.parametrize("format", strategies.FORMATS, ids=[f.name for f in strategies.FORMATS])
CALLS = (ToolCall("get_weather", '{"a": "Paris, France", "n": 2}'), ToolCall("f", '{"t": true, "l": ["x", 1]}'))
OPTIONS = {"tools": strategies.TYPED_TOOLS, "prompt": "", "seed": 7}


def said(message: Message) -> list[tuple[str, object, bool]]:
    calls = message.tool_calls
    return [(c.name, stripped(json.loads(c.arguments)) if c.complete else c.arguments, c.complete) for c in calls]


def stripped(value: object) -> object:
    """A value without the whitespace at the ends of its strings: between tags, a string means it."""
    if isinstance(value, dict):
        return {key: stripped(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [stripped(inner) for inner in value]
    return value.strip() if isinstance(value, str) else value


def places(format: Format, text: str) -> list[tuple[int, int]]:
    """The spans of the markup in a text, and of the names."""
    parser = unbraid.parser(format, markup=True, **OPTIONS)  # type: ignore[arg-type]
    events = [*parser.feed(text), *parser.finish(end_of_turn=True)]
    return [(e.start, e.end) for e in events if isinstance(e, Markup | ToolCallStart) and e.end > e.start]


def spaced(format: Format, text: str) -> Iterator[str]:
    """Whitespace at the ends of each piece of markup, and of each name."""
    for at in sorted({at for place in places(format, text) for at in place}):
        for space in (" ", "\n", "\n\n  "):
            yield text[:at] + space + text[at:]


def dropped(format: Format, text: str) -> Iterator[str]:
    for start, end in places(format, text):
        yield text[:start] + text[end:]


def doubled(format: Format, text: str) -> Iterator[str]:
    for start, end in places(format, text):
        yield text[:end] + text[start:end] + text[end:]


def orphaned(format: Format, text: str) -> Iterator[str]:
    """A marker of the format at the very end, and at the very beginning."""
    for marker in strategies.markers_of(format):
        yield text + marker
        yield marker + text


def requoted(format: Format, text: str) -> Iterator[str]:
    """Other quotes, or entities, in one piece of markup."""
    for start, end in places(format, text):
        piece = text[start:end]
        for old, new in (('"', "'"), ("'", '"'), ('"', ""), ('"', "&quot;"), ("<", "&lt;")):
            if old in piece:
                yield text[:start] + piece.replace(old, new) + text[end:]


MUTATIONS = {mutate.__name__: mutate for mutate in (spaced, dropped, doubled, orphaned, requoted)}


def check(format: Format, text: str, changed: str) -> None:
    expected = said(unbraid.parse(format, text, **OPTIONS))  # type: ignore[arg-type]
    message = unbraid.parse(format, changed, **OPTIONS)  # type: ignore[arg-type]
    if said(message) == expected or message.diagnostics:
        return
    # Without a marker, or a header, it is an answer that happens to look like a call.
    markers = [marker for marker in strategies.markers_of(format) if marker not in ("[", "{")]
    if format.headers is not None:
        markers = [marker for marker in (*format.headers.opens, *format.headers.closes) if marker.strip()]
    assert not any(marker in changed for marker in markers), (changed, said(message))


@every_format
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_call_stays_what_it_was_or_the_difference_is_reported(format: Format, mutation: str) -> None:
    if format.tools is None:
        return
    for parts in (CALLS[:1], CALLS[1:]) if format.headers else (CALLS[:1], (Text("content", "Let me see."), CALLS[1])):
        text = unbraid.render(format, Message(parts))
        assert said(unbraid.parse(format, text, **OPTIONS)) == said(Message(parts))  # type: ignore[arg-type]
        for changed in MUTATIONS[mutation](format, text):
            check(format, text, changed)


@every_format
def test_whitespace_between_the_parts_of_a_call_says_nothing(format: Format) -> None:
    """Where no value and no name can mean it: after markup, and before it."""
    if format.tools is None or format.headers is not None:
        return
    text = unbraid.render(format, Message(CALLS))
    for changed in spaced(format, text):
        message = unbraid.parse(format, changed, **OPTIONS)  # type: ignore[arg-type]
        # Without a marker, a call to an unknown name may as well be an answer.
        assert said(message) == said(Message(CALLS)) or message.diagnostics or format.tools.bare, changed


@every_format
def test_a_call_that_is_cut_off_anywhere_is_the_same_or_not_complete(format: Format) -> None:
    if format.tools is None:
        return
    text = unbraid.render(format, Message(CALLS))
    whole = said(unbraid.parse(format, text, **OPTIONS))  # type: ignore[arg-type]
    for size in range(len(text)):
        message = unbraid.parse(format, text[:size], **OPTIONS)  # type: ignore[arg-type]
        complete = [call for call in said(message) if call[2]]
        assert complete == whole[: len(complete)]
        if len(complete) < len(message.tool_calls):
            assert message.diagnostics
