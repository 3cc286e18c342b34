"""Marker hints: formats whose markers occur in a template's source, for templates that render no calls.

A hint names a format and proves nothing, so what it leads to is never `verified`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from ...core.grammar import Call, CallPart, CallsBody, Either, Format, Maybe
from ...formats import all_formats, find
from .affixes import tags
from .matching import Match
from .probing.evidence import Evidence

_TELLTALES = (("lfm2", ("<|tool_list_start|>", "List of tools: [")),)
"""Words of templates that describe tools and never show a call."""
MOST = 3
"""How many names to suggest."""


@dataclass(frozen=True)
class MarkerHint:
    """A format, and the words of the template that point to it."""

    format: Format
    words: tuple[str, ...]

    def __str__(self) -> str:
        said = [f"`{word}`" for word in self.words]
        return f"its text has {' and '.join(said)}, as templates of {self.format.name} have"


def marker_hints(evidence: Evidence) -> list[MarkerHint]:
    """The formats whose call markers occur in the template, the likeliest first."""
    source = evidence.template.source
    found = []
    for format in all_formats():
        markers = list(dict.fromkeys(_markers(format)))
        there = [marker for marker in markers if marker in source]
        if there and there[0] == markers[0]:
            speaks = format.speech is None or bool(format.speech.open and format.speech.open.strip() in source)
            found.append((speaks, len(there) / len(markers), len(there), MarkerHint(format, tuple(there))))
    found.sort(key=lambda each: each[:3], reverse=True)
    telling = [
        MarkerHint(find(name), tuple(word for word in words if word in source))
        for name, words in _TELLTALES
        if any(word in source for word in words)
    ]
    return [*telling, *(each[-1] for each in found)]


def nearest_formats(found: list[Match], evidence: Evidence) -> tuple[str, ...]:
    """Names of formats to suggest if none reads the template: those that read its calls, then those whose markers look
    like the ones it writes."""
    reading = [each.format.name for each in found if each.reads_calls]
    openers: dict[str, list[str]] = {}
    for format in all_formats():
        if marker := next(_markers(format), ""):
            openers.setdefault(marker, []).append(format.name)
    written = dict.fromkeys(tag for each in evidence.rendered if each.turn.calls for tag in tags(each.text))
    alike = [name for tag in written for marker in get_close_matches(tag, openers, MOST) for name in openers[marker]]
    return tuple(dict.fromkeys((*reading, *alike)))[:MOST]


def _markers(format: Format) -> Iterator[str]:
    """The tags of a format's calls, the opening one first."""
    if format.tools is None or format.tools.bare or format.headers is not None:
        return
    yield from tags(format.tools.open) or [format.tools.open.strip()]
    yield from tags(format.tools.close)
    for part in _parts(format.tools.body):
        if isinstance(part, str):
            yield from tags(part)
        elif isinstance(part, Maybe):
            yield from tags(part.marker)


def _parts(body: CallsBody) -> tuple[CallPart, ...]:
    if isinstance(body, Either):
        return _parts(body.second)
    return body.parts if isinstance(body, Call) else body.call.parts
