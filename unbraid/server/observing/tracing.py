"""Traces: spans and who makes them, and the headers that say which trace a request belongs to.

`otel` makes spans of OpenTelemetry. Without it there is a `NO_SPAN`, and the headers `traceparent` and `tracestate` of
a request are passed on to engines. `spans` says what a span is told.

W3C's Trace Context says what becomes of headers that are malformed, and `trace_context` follows it: a `traceparent`
that cannot be read, or that comes twice, is as good as none, and takes `tracestate` with it; a `tracestate` that cannot
be read is dropped alone. Well-formed headers are passed on as they came: a server that adds no span of its own must not
change them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

Attribute = str | int | float | Sequence[str]
Attributes = Mapping[str, Attribute]
PARENT, STATE = "traceparent", "tracestate"
_PARENT = re.compile(
    r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-[ -~]{0,200})?"
)
_MOST_MEMBERS = 32
_LONGEST = 512
"""How many characters of `tracestate` are passed on, as many as the standard asks for."""
_LONG_MEMBER = 128
"""Members that are longer go first where it is too long."""
_MEMBER = re.compile(
    r"(?:[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    r"=[ -+\--<>-~]{0,255}[!-+\--<>-~]"
)


class Span:
    """A span that nobody records."""

    def set(self, attributes: Attributes) -> None:
        """Add attributes."""

    def rename(self, name: str) -> None:
        """Give the span another name."""

    def headers(self) -> Mapping[str, str]:
        """Headers that make the spans of another server children of this one."""
        return {}

    def child(self, name: str, remote: bool, attributes: Attributes) -> Span:
        """A span for a part of the work. `remote`: another server does it."""
        return self

    def fail(self, kind: str) -> None:
        """The work has failed, and not by the fault of the client."""

    def end(self) -> None:
        """The work is over."""


NO_SPAN = Span()


class Tracer(Protocol):
    """Makes the spans of requests."""

    def request(self, method: str, headers: Mapping[str, str], attributes: Attributes) -> Span:
        """The span of a request that came with `headers`."""
        ...

    def close(self) -> None:
        """Send what has not been sent."""
        ...


def trace_context(parents: Sequence[str], states: Sequence[str]) -> Mapping[str, str]:
    """The headers to pass on: both, `traceparent` alone, or none.

    parents, states: the values of `traceparent` and `tracestate` in the request, in the order in which they came.
    """
    parent = parents[0].strip(" \t") if len(parents) == 1 else ""
    match = _PARENT.fullmatch(parent)
    if match is None or (match[1] == "00" and match[5] is not None):
        return {}
    state = _state(states)
    return {PARENT: parent, STATE: state} if state else {PARENT: parent}


def trace_id(headers: Mapping[str, str]) -> str | None:
    """The id of the trace in the headers of `trace_context`."""
    return headers[PARENT].split("-")[1] if PARENT in headers else None


def _state(states: Sequence[str]) -> str:
    """`tracestate` in one line; empty if it is malformed."""
    members = [member for state in states for part in state.split(",") if (member := part.strip(" \t"))]
    keys = {member.partition("=")[0] for member in members}
    if len(members) > _MOST_MEMBERS or len(keys) < len(members) or not all(map(_MEMBER.fullmatch, members)):
        return ""
    if len(",".join(members)) > _LONGEST:
        members = [member for member in members if len(member) <= _LONG_MEMBER]
    while len(",".join(members)) > _LONGEST:
        members.pop()
    return ",".join(members)
