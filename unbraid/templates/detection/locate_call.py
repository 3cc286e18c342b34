"""Locating a probe call in rendered text: where its name and arguments are, and in which notation.

Four notations are tried in turn: one JSON object, a name and a JSON object, a Python call, and tagged arguments. The
result is the span of the call and the parts of a grammar that describe it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...core.grammar import CallId, CallPart, Name, NameInId
from ...core.notations import Arguments, JsonCall, PythonArguments, TaggedArguments
from ...schema.kinds import kind_of
from .affixes import shared_end, shared_start
from .affixes import tags as tags_of
from .probes import KINDS, ProbeCall

_decode = json.JSONDecoder().raw_decode


@dataclass(frozen=True)
class LocatedCall:
    """The span of a call between its markers, and its grammar."""

    start: int
    end: int
    parts: tuple[CallPart, ...]


def find_call(text: str, call: ProbeCall, id: str | None, start: int = 0, all_kinds: str = "") -> LocatedCall | None:
    """Find the call in the text, from `start` on; None if it is written in no notation that a grammar has.

    all_kinds: what the template rendered for a call with arguments of all types.
    """
    name = text.find(call.name, start)
    if name < 0:
        return None
    if id is not None and call.name in id and (at := text.find(id, start)) >= 0 and at <= name:
        # The id contains the name. If the name also stands alone, that is the place that counts.
        alone = text.find(call.name, at + len(id))
        name = alone if alone >= 0 else name
    return (
        _json_call(text, call, id, name, start)
        or _named_call(text, call, id, name, start)
        or _python_call(text, call, name)
        or _tagged_call(text, call, name, all_kinds)
    )


# `{"name": …, "arguments": {…}}`


def _json_call(text: str, call: ProbeCall, id: str | None, name: int, start: int) -> LocatedCall | None:
    for begin in _braces(text, start, name):
        decoded = _object(text, begin)
        if decoded is None or decoded[1] <= name:
            continue
        value, end = decoded
        names = [key for key, item in value.items() if item == call.name]
        arguments = [key for key, item in value.items() if _is_arguments(item, call)]
        if len(names) != 1 or len(arguments) != 1:
            continue
        ids = [key for key, item in value.items() if id is not None and item == id]
        others = tuple(key for key in value if key not in (*names, *arguments, *ids))
        keys = list(value)
        number = _number_first(value, keys[0]) if not ids and keys[0] not in (*names, *arguments) else ""
        if number:
            ids, others = [number], tuple(key for key in others if key != number)
        return LocatedCall(
            begin,
            end,
            (
                JsonCall(
                    name=names[0],
                    arguments=(arguments[0],),
                    id=ids[0] if ids else "id",
                    id_first=bool(ids) and keys[0] == ids[0],
                    ignored=others or ("type",),
                ),
            ),
        )
    return None


def _number_first(value: dict[str, Any], key: str) -> str:
    """The first key of a call, if its value is a number: then the number serves as the id."""
    return key if str(value[key]).isdecimal() else ""


def _is_arguments(value: object, call: ProbeCall) -> bool:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return False
    return isinstance(value, dict) and value == dict(call.arguments)


def _braces(text: str, start: int, before: int) -> Iterator[int]:
    """The positions of opening braces before a position, the nearest first."""
    at = text.rfind("{", start, before)
    while at >= 0:
        yield at
        at = text.rfind("{", start, at)


def _object(text: str, at: int) -> tuple[dict[str, Any], int] | None:
    try:
        value, end = _decode(text, at)
    except (ValueError, RecursionError):
        return None
    return (value, end) if isinstance(value, dict) else None


# `name … {…}`


def _named_call(text: str, call: ProbeCall, id: str | None, name: int, start: int) -> LocatedCall | None:
    at = text.find("{", name)
    while at >= 0:
        decoded = _object(text, at)
        if decoded is not None and decoded[0] == dict(call.arguments):
            head, begin = _head(text, call, id, name, start, at)
            return LocatedCall(begin, decoded[1], (*head, Arguments()))
        at = text.find("{", at + 1)
    return None


def _head(text: str, call: ProbeCall, id: str | None, name: int, start: int, end: int) -> tuple[list[CallPart], int]:
    """The grammar of what comes before the arguments (name, id, or both in one), and where it begins."""
    stop = name + len(call.name)
    at = -1 if id is None else text.find(id, start, end)
    if id is None or at < 0:
        return [Name(), *_literal(text[stop:end])], name
    after = at + len(id)
    if at <= name < after:
        # The call's number is at the end of the id.
        inside = re.fullmatch(r"(.*?)(\d*)", id[stop - at :])
        assert inside is not None
        return [NameInId(text[at:name], inside[1]), *_literal(text[after:end])], at
    if at > name:
        return [Name(), *_literal(text[stop:at]), CallId(), *_literal(text[after:end])], name
    return [CallId(), *_literal(text[after:name]), Name(), *_literal(text[stop:end])], at


def _literal(text: str) -> list[CallPart]:
    return [text] if text else []


# `name(key=value, …)`


def _python_call(text: str, call: ProbeCall, name: int) -> LocatedCall | None:
    at = name + len(call.name)
    keys = list(call.arguments)
    if not text.startswith("(", at) or any(f"{key}=" not in text[at:] for key in keys):
        return None
    last = text.find(f"{keys[-1]}=", at) if keys else at
    end = text.find(")", last)
    return None if end < 0 else LocatedCall(name, end + 1, (Name(), "(", PythonArguments(), ")"))


# `<key>…</key>`


def _tagged_call(text: str, call: ProbeCall, name: int, all_kinds: str) -> LocatedCall | None:
    """From two arguments: what comes before a key, between key and value, and after a value."""
    start = name + len(call.name)
    places = _places(text, call, start)
    if len(places) != 2:
        return None
    before, between = text[start : places[0].key], text[places[0].end : places[1].key]
    lead = shared_end(before, between).lstrip()
    close = between.removesuffix(lead)
    kept = close.rstrip()
    if not lead or not kept or not text.startswith(kept, places[1].end):
        return None
    middle = places[0].middle
    if middle == places[1].middle:
        tags = TaggedArguments(open=f"{lead}{{key}}{middle}", close=close)
    else:
        typed = _with_kinds(lead, close, all_kinds)
        if typed is None:
            return None
        tags = typed
    end = places[1].end + len(close if text.startswith(close, places[1].end) else kept)
    return LocatedCall(name, end, (Name(), *_literal(before.removesuffix(lead)), tags))


def _with_kinds(lead: str, close: str, text: str) -> TaggedArguments | None:
    """The tags if they name the type of a value. `text` has a value of each type."""
    name = text.find(KINDS.name)
    places = _places(text, KINDS, name + len(KINDS.name)) if name >= 0 else []
    if len(places) != len(KINDS.arguments):
        return None
    middles = {kind_of(value): place.middle for place, value in zip(places, KINDS.arguments.values(), strict=True)}
    opening, ending = shared_start(*middles.values()), shared_end(*middles.values())
    words: dict[str, list[str]] = {}
    for kind, middle in middles.items():
        words.setdefault(middle[len(opening) : len(middle) - len(ending)], []).append(kind)
    if "" in words:
        return None
    # No probe is null: it goes with the other non-strings, or gets a word of its own.
    others = next((kinds for kinds in words.values() if "boolean" in kinds and "number" in kinds), None)
    if others is None:
        words["null"] = ["null"]
    else:
        others.append("null")
    head, space, prefix = opening.partition(" ") if " " in opening else opening.partition("\n")
    quote = prefix[-1:] if prefix[-1:] in ("'", '"') else ""
    if quote:
        close_said, ending = ending[:1], ending[1:]
    elif prefix:
        tag = next(iter(tags_of(ending)), "")
        close_said, ending = ending[: ending.find(tag) + len(tag)], ending[ending.find(tag) + len(tag) :]
    else:
        close_said = ""
    return TaggedArguments(
        open=f"{lead}{{key}}{head}{{kind}}{ending}",
        close=close,
        kind=f"{space}{prefix}{{}}{close_said}",
        kinds=tuple((word, tuple(kinds)) for word, kinds in words.items()),
    )


@dataclass(frozen=True)
class _ArgumentPlace:
    """The place of one argument."""

    key: int
    middle: str
    """The text between key and value."""
    end: int
    """Where the value ends."""


def _places(text: str, call: ProbeCall, start: int) -> list[_ArgumentPlace]:
    """The places of the arguments, as far as they come in order."""
    places = []
    at = start
    for key, value in call.arguments.items():
        begin = text.find(key, at)
        spelled = _spelled(text, begin + len(key), value) if begin >= 0 else None
        if spelled is None:
            break
        places.append(_ArgumentPlace(begin, text[begin + len(key) : spelled[0]], spelled[1]))
        at = spelled[1]
    return places


def _spelled(text: str, at: int, value: Any) -> tuple[int, int] | None:
    """The span of a value, written as JSON or as Python prints it; a string is bare."""
    ways = [value] if isinstance(value, str) else [json.dumps(value), str(value)]
    spans = [(place, place + len(way)) for way in ways if (place := text.find(way, at)) >= 0]
    return min(spans, default=None)
