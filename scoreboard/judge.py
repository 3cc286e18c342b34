"""What a peer made of a stream, against what was meant.

A fault is something that a client of the peer would see: characters that were lost or invented, markup in the text,
text in the wrong strand, calls and arguments that differ, a call that was cut off and yet looks whole. Whitespace at
the ends of a strand is a matter of taste, and so is what becomes of a call of a tool that nobody offered; both are
noted and are no faults.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import unbraid
from tests.support.strategies import literals_of

from .streams import Stream

FAULTS = {
    "raises": "the parser raised an exception",
    "lost": "characters or calls that were written are gone",
    "invented": "characters or calls that nobody wrote",
    "leaked": "markup in the answer or the reasoning",
    "misplaced": "text in the wrong strand",
    "call": "another number of calls, or another name",
    "arguments": "arguments that are not what was written, or are not JSON",
    "cut-call": "a call that was cut off, with arguments that look whole",
}


@dataclass(frozen=True)
class Call:
    name: str
    arguments: str
    complete: bool | None = None
    """Whether the peer says that the call is whole; None if it says nothing about that."""


@dataclass(frozen=True)
class Reply:
    """What came of a stream."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    error: str = ""

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Reply:
        calls = tuple(Call(*one) for one in fields.get("calls", ()))
        return cls(fields.get("content") or "", fields.get("reasoning") or "", calls, fields.get("error", ""))

    def settled(self) -> tuple[object, ...]:
        """What two replies have in common that say the same."""
        calls = [(call.name, _value(call.arguments)) for call in self.calls if call.complete is not False]
        return self.content.strip(), self.reasoning.strip(), json.dumps(calls), bool(self.error)


@dataclass(frozen=True)
class Verdict:
    faults: tuple[str, ...]
    exact: bool
    """Whether whitespace at the ends is as it was written, too."""
    unknown: str = ""
    """What became of a call of an unknown tool: call, text or nothing."""


def judge(stream: Stream, reply: Reply) -> Verdict:
    if reply.error:
        return Verdict(("raises",), exact=False)
    if stream.cut_off:
        return _judge_cut_off(stream, reply)
    if not stream.meant.offered and not reply.calls:
        return _judge_unknown(stream, reply)
    content, reasoning = stream.meant.turn.content + stream.meant.after, stream.meant.turn.reasoning
    calls = _call_faults(stream.meant.turn.calls, reply.calls)
    texts = _text_faults(stream, content, reasoning, reply)
    exact = (reply.content, reply.reasoning) == (content, reasoning)
    return Verdict(_ordered(calls | texts), exact, "" if stream.meant.offered else "call")


def _ordered(faults: set[str]) -> tuple[str, ...]:
    return tuple(fault for fault in FAULTS if fault in faults)


def _judge_unknown(stream: Stream, reply: Reply) -> Verdict:
    ((_, arguments),) = stream.meant.turn.calls
    (value,) = json.loads(arguments).values()
    return Verdict((), exact=True, unknown="text" if value in reply.content else "nothing")


# Texts


def _text_faults(stream: Stream, content: str, reasoning: str, reply: Reply) -> set[str]:
    if _same(reply.content, content) and _same(reply.reasoning, reasoning):
        return set()
    if _leaks(stream, content + reasoning, reply):
        return {"leaked"}
    before, after = _characters(content + reasoning), _characters(reply.content + reply.reasoning)
    if before == after:
        return {"misplaced"}
    return {name for name, rest in (("lost", before - after), ("invented", after - before)) if rest}


def _same(one: str, other: str) -> bool:
    """Up to whitespace: at the ends, and between what stands before a call and after it."""
    return one.strip() == other.strip() or ("\n\n" in other and one.split() == other.split())


def _characters(text: str) -> Counter[str]:
    return Counter("".join(text.split()))


def _leaks(stream: Stream, meant: str, reply: Reply) -> bool:
    seen = reply.content + "\n" + reply.reasoning
    markers = _markup(stream.meant.format)
    if any(seen.count(marker) > meant.count(marker) for marker in markers):
        return True
    # The beginning of a marker, where the output was cut off in it.
    rest = [text.strip() for text in (reply.content, reply.reasoning)]
    return stream.cut_off and any(
        text.endswith(marker[:size]) and not meant.strip().endswith(marker[:size])
        for text in rest
        for marker in markers
        for size in range(2, len(marker))
    )


@cache
def _markup(name: str) -> tuple[str, ...]:
    """Literals of a format that no prose has."""
    return tuple(one for one in literals_of(unbraid.find(name)) if len(one) > 3 and not one.isalnum())


# Calls


def _call_faults(meant: Sequence[tuple[str, str]], calls: Sequence[Call]) -> set[str]:
    faults: set[str] = set()
    if len(calls) != len(meant):
        faults |= {"call", "lost" if len(calls) < len(meant) else "invented"}
    for (name, arguments), call in zip(meant, calls, strict=False):
        if name != call.name:
            faults.add("call")
        elif call.complete is False or _value(call.arguments) != _value(arguments):
            faults.add("arguments")
    return faults


def _value(arguments: str) -> str | None:
    """Arguments in one spelling; None where they are no JSON object."""
    try:
        value = json.loads(arguments)
    except ValueError:
        return None
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else None


# Streams that end early


def _judge_cut_off(stream: Stream, reply: Reply) -> Verdict:
    turn, size = stream.meant.turn, len(stream.text)
    reasoning = _so_far(stream, turn.reasoning, 0)
    after = stream.meant.text.find(turn.reasoning) + len(turn.reasoning) if turn.reasoning else 0
    content = _so_far(stream, turn.content, after)
    # Where calls have no marker, what begins like one is text until it has a name. So is "Here" of a marker in words.
    worded = _worded(stream) and not reply.reasoning
    bare = (_bare(stream.meant.format) or worded) and stream.text.endswith(reply.content)
    faults = set() if bare and not reply.calls else _text_faults(stream, content, reasoning, reply)
    places = [_place(stream.meant.text, arguments) for _, arguments in turn.calls]
    for at, (name, arguments) in enumerate(turn.calls):
        whole = size >= places[at][1] and (at + 1 < len(places) and size > places[at + 1][0])
        call = reply.calls[at] if at < len(reply.calls) else None
        if call is None:
            faults |= {"call", "lost"} if whole else set()
        elif whole:
            faults |= _call_faults([(name, arguments)], [call])
        elif size < places[at][1] and _looks_whole(call, arguments):
            faults.add("cut-call")
    if len(reply.calls) > len(turn.calls):
        faults |= {"call", "invented"}
    return Verdict(_ordered(faults), exact=not faults)


@cache
def _bare(name: str) -> bool:
    tools = unbraid.find(name).tools
    return tools is not None and tools.bare


def _worded(stream: Stream) -> bool:
    """Whether all of the output is the beginning of a marker that is spelled in words, as an answer may begin, too."""
    text = stream.text.strip()
    is_words = text.replace(" ", "").isalpha()
    return is_words and any(marker.startswith(text) for marker in _markup(stream.meant.format))


def _so_far(stream: Stream, text: str, after: int) -> str:
    """As much of a text as the stream has."""
    start = stream.meant.text.find(text.strip(), after)
    return text.strip()[: max(0, len(stream.text) - start)]


def _place(text: str, arguments: str) -> tuple[int, int]:
    """Where the last value of a call stands: `corpus` draws it so that it stands there once."""
    value = list(json.loads(arguments).values())[-1]
    start = text.find(value)
    return start, start + len(value)


def _looks_whole(call: Call, arguments: str) -> bool:
    if call.complete is not None:
        return call.complete
    value = _value(call.arguments)
    return value is not None and value != _value(arguments) and value != "{}"
