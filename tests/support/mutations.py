"""What models get wrong: a text with calls, changed in one place.

Whitespace between two parts, a marker dropped, doubled or written where it does not belong, other quotes, entities. All
such changes of a text are tried. The rule is: the calls are the same, or there is a diagnostic. (Nothing can be
reported of a text that has lost all its markers.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import unbraid
from unbraid import Format, Markup, Message, ToolCallStart

from . import strategies

Options = dict[str, Any]
"""Those of the parser."""


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


def places(format: Format, text: str, options: Options) -> list[tuple[int, int]]:
    """The spans of the markup in a text, and of the names."""
    parser = unbraid.parser(format, markup=True, **options)
    events = [*parser.feed(text), *parser.finish(end_of_turn=True)]
    return [(e.start, e.end) for e in events if isinstance(e, Markup | ToolCallStart) and e.end > e.start]


def spaced(format: Format, text: str, options: Options) -> Iterator[str]:
    """Whitespace at the ends of each piece of markup, and of each name."""
    for at in sorted({at for place in places(format, text, options) for at in place}):
        for space in (" ", "\n", "\n\n  "):
            yield text[:at] + space + text[at:]


def dropped(format: Format, text: str, options: Options) -> Iterator[str]:
    for start, end in places(format, text, options):
        yield text[:start] + text[end:]


def doubled(format: Format, text: str, options: Options) -> Iterator[str]:
    for start, end in places(format, text, options):
        yield text[:end] + text[start:end] + text[end:]


def orphaned(format: Format, text: str, options: Options) -> Iterator[str]:
    """A marker of the format at the very end, and at the very beginning."""
    for marker in strategies.markers_of(format):
        yield text + marker
        yield marker + text


def requoted(format: Format, text: str, options: Options) -> Iterator[str]:
    """Other quotes, or entities, in one piece of markup."""
    for start, end in places(format, text, options):
        piece = text[start:end]
        for old, new in (('"', "'"), ("'", '"'), ('"', ""), ('"', "&quot;"), ("<", "&lt;")):
            if old in piece:
                yield text[:start] + piece.replace(old, new) + text[end:]


MUTATIONS = {mutate.__name__: mutate for mutate in (spaced, dropped, doubled, orphaned, requoted)}


def check(format: Format, text: str, changed: str, options: Options) -> None:
    """The calls of the changed text are those of the text, or it is reported."""
    message = unbraid.parse(format, changed, **options)
    if message.diagnostics or said(message) == said(unbraid.parse(format, text, **options)):
        return
    # Without a marker, or a header that says so, it is an answer that happens to look like a call.
    assert not announces_calls(format, changed), (changed, said(message))


def announces_calls(format: Format, text: str) -> bool:
    headers = format.headers
    if headers is None:
        silent = ("[", "{", *(marker.strip() for marker in format.ignored))
        return any(marker in text for marker in strategies.markers_of(format) if marker not in silent)
    opens, closes = ("|".join(map(re.escape, words)) for words in (headers.opens, headers.closes))
    return any(re.search(headers.calls, header) for header in re.findall(f"(?s)(?:{opens}).*?(?:{closes})", text))
