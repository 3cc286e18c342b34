"""The trace that a request belongs to: the headers `traceparent` and `tracestate`, as W3C's Trace Context has them.

The standard says what becomes of headers that are malformed, and `trace_context` follows it: a `traceparent` that
cannot be read, or that comes twice, is as good as none, and takes `tracestate` with it; a `tracestate` that cannot be
read is dropped alone. What is well-formed is passed on as it came: a server that adds no span of its own must not
change it. With `spans`, OpenTelemetry reads the same headers and writes its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

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


def trace_context(parents: Sequence[str], states: Sequence[str]) -> Mapping[str, str]:
    """The headers to pass on: both, `traceparent` alone, or none. Given are the values of each header as it came."""
    parent = parents[0].strip(" \t") if len(parents) == 1 else ""
    found = _PARENT.fullmatch(parent)
    if found is None or (found[1] == "00" and found[5] is not None):
        return {}
    state = _state(states)
    return {PARENT: parent, STATE: state} if state else {PARENT: parent}


def trace_id(headers: Mapping[str, str]) -> str | None:
    """The id of the trace in what `trace_context` has returned."""
    return headers[PARENT].split("-")[1] if PARENT in headers else None


def _state(states: Sequence[str]) -> str:
    """The header in one line; empty where it is malformed."""
    members = [member for state in states for part in state.split(",") if (member := part.strip(" \t"))]
    keys = {member.partition("=")[0] for member in members}
    if len(members) > _MOST_MEMBERS or len(keys) < len(members) or not all(map(_MEMBER.fullmatch, members)):
        return ""
    if len(",".join(members)) > _LONGEST:
        members = [member for member in members if len(member) <= _LONG_MEMBER]
    while len(",".join(members)) > _LONGEST:
        members.pop()
    return ",".join(members)
