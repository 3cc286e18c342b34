"""Stand-ins: short messages in the place of those before a turn, which the template cannot tell from the real ones.

What a template writes after a turn depends on the messages before it: on their roles, on which of them have calls or
reasoning, and on the words in them that switch it (`templates.switches`). It does not depend on the rest of their
texts. So a text that contains no such word is replaced by a short one, and one that does stays. What follows each other
in the same way three times is told as twice. A long conversation thus has a short stand-in, which many conversations
share: what the template does is worked out once for all of them, by its key.

    StandIns(switches).of(message)    StandIn(kind=…): equal for messages that the template cannot tell apart
    ShortHistory((…)).messages()          short messages for a conversation

Where a short one could mislead (results that answer no call of the turn before them, equal texts in a template that
compares texts), the conversation stands for itself (`ShortHistory.stands` is False).

Most turns and new messages are plain: no word in them switches the template, no call looks like markup, each result
answers a call. Then few of their fields say of which kind they are (`plain`), and what holds for one of a kind holds
for all (`extension.ExtensionPlan`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..core.message import Text, ToolCall
from ..templates.capabilities import TemplateCapabilities
from ..templates.control_tokens import sanitize_text
from ..templates.switches import Switches
from ..templates.traced_text import REASONING_FIELDS
from .shapes import ARGUMENTS, WORD
from .values import Messages, Turn, key_of

_LONGEST_CYCLE = 6
_TIMES = 3
"""What comes so many times in a row is told as one time less."""
_TEXTS = ("content", *REASONING_FIELDS)
_ARGUMENTS = json.dumps(ARGUMENTS)
_NO_CALL = -1
_PLAIN_FIELDS = frozenset({"role", "content", "name", "tool_call_id"})
_MARKUP = frozenset("<>[]{}|｜\"'`")
Kind = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class StandIn:
    """What a template may see of a message: `kind` has all of it, with places for the texts that say nothing to it."""

    kind: Kind
    keeps: bool = False
    """Whether texts in it stayed what they are."""

    def message(self, number: int, ids: Sequence[str]) -> tuple[dict[str, Any], Sequence[str]]:
        """A short message of this kind, and the ids of the calls that the next ones answer.

        ids: of the calls that it may answer.
        """
        message: dict[str, Any] = {}
        for key, value in self.kind:
            if key in _TEXTS:
                message[key] = _filled(value, f"{WORD} {number}")
            elif key == "tool_calls":
                calls = [_call(each, number, at) for at, each in enumerate(value)]
                message[key], ids = calls, [call["id"] for call in calls]
            elif key == "tool_call_id" and not isinstance(value, str):
                message[key] = ids[value] if 0 <= value < len(ids) else _id(number, 0)
            else:
                message[key] = json.loads(value) if key == "others" else value
        return {**message.pop("others", {}), **message}, ids


def _filled(value: Any, word: str) -> str:
    return value if isinstance(value, str) else f"{value[0]}{word}{value[1]}"


def _id(number: int, at: int) -> str:
    return f"call_qzqzqzqz{number:06}{at:06}"


def _call(kind: Kind, number: int, at: int) -> dict[str, Any]:
    id, name, arguments = kind
    function = {"name": name, "arguments": _ARGUMENTS if arguments is None else arguments}
    return {"id": id or _id(number, at), "type": "function", "function": function}


class StandIns:
    """Makes the stand-ins of one template's messages.

    parsed: they are parsed again, so arguments that look like markup stay, too.
    """

    def __init__(self, switches: Switches, *, parsed: bool = False) -> None:
        self.switches = switches
        self._parsed = parsed

    def of(self, message: Mapping[str, Any], calls: Sequence[str]) -> StandIn:
        """The stand-in of a message as `PromptBuilder.read` returns it.

        calls: the ids of the calls of the last turn before it that has some.
        """
        kind: list[tuple[str, Any]] = []
        others: dict[str, Any] = {}
        keeps = False
        for key, value in message.items():
            if key in _TEXTS and isinstance(value, str):
                text = self.text(value)
                keeps = keeps or (text is value and bool(text))
                kind.append((key, text))
            elif key == "tool_calls":
                calls_kind = tuple(self._call(each) for each in value)
                keeps = keeps or any(id or arguments for id, _, arguments in calls_kind)
                kind.append((key, calls_kind))
            elif key == "tool_call_id" and isinstance(value, str):
                at = calls.index(value) if value in calls else _NO_CALL
                kind.append((key, value if at == _NO_CALL and self.switches.in_text(value) else at))
            elif key in ("role", "name"):
                kind.append((key, value))
            else:
                others[key] = value
        if others:
            kind.append(("others", json.dumps(others, default=repr)))
        return StandIn(tuple(kind), keeps)

    def text(self, text: str) -> str | tuple[str, str]:
        """The text itself if it may switch the template or says nothing; else the whitespace around it."""
        said = text.strip()
        if not said or self.switches.in_text(text):
            return text
        at = text.index(said[0])
        return text[:at], text[at + len(said) :]

    def is_plain_call(self, call: Mapping[str, Any]) -> bool:
        """Whether nothing of a call but its name stays what it is."""
        id, _, arguments = self._call(call)
        return id is None and arguments is None

    def _call(self, call: Mapping[str, Any]) -> Kind:
        function = call["function"]
        arguments, id = function["arguments"], call["id"]
        plain = False
        with suppress(ValueError, RecursionError):
            values = json.loads(arguments)
            plain = isinstance(values, dict) and bool(values) and not self.switches.in_text(arguments)
            plain = plain and (not self._parsed or _is_plain(values))
        return (id if self.switches.in_text(id) else None, function["name"], None if plain else arguments)

    def standing(self, messages: Sequence[Mapping[str, Any]]) -> ShortHistory:
        """A conversation, as `PromptBuilder.read` returns it."""
        return ShortHistory().followed_by(self, messages)


@dataclass(frozen=True)
class ShortHistory:
    """A conversation in short."""

    entries: tuple[StandIn, ...] = ()
    calls: tuple[str, ...] = ()
    """The ids of the calls of the last turn that has some."""
    texts: frozenset[str] = frozenset()
    """All texts, where the template compares them."""
    stands: bool = True
    """Whether the short messages can stand for the conversation."""
    latest: tuple[StandIn, ...] = ()
    """The messages that came last, none left out."""

    @cached_property
    def key(self) -> bytes:
        """The same for conversations that a template cannot tell apart."""
        return key_of(tuple(entry.kind for entry in self.entries))

    def messages(self) -> list[dict[str, Any]]:
        """Short messages that stand for the conversation."""
        result: list[dict[str, Any]] = []
        ids: Sequence[str] = ()
        for number, entry in enumerate(self.entries):
            message, ids = entry.message(number, ids)
            result.append(message)
        return result

    def followed_by(
        self, stand_ins: StandIns, messages: Sequence[Mapping[str, Any]], first: StandIn | None = None
    ) -> ShortHistory:
        """The conversation with more messages.

        first: the stand-in of the first one, where there is one already.
        """
        entries, calls, texts, stands = list(self.entries), self.calls, self.texts, self.stands
        latest: list[StandIn] = []
        for message in messages:
            entry = first if first is not None and not latest else stand_ins.of(message, calls)
            latest.append(entry)
            entries.append(entry)
            _shorten(entries)
            if message.get("tool_calls"):
                calls = tuple(call["id"] for call in message["tool_calls"])
                stands = stands and len(set(calls)) == len(calls)
            elif message.get("role") == "tool":
                stands = stands and message.get("tool_call_id") in calls
            if stand_ins.switches.compares:
                stands = stands and message["content"] not in texts
                texts |= {message["content"]}
        return ShortHistory(tuple(entries), calls, texts, stands, tuple(latest))


def said_otherwise(messages: Messages, text: str) -> list[dict[str, Any]]:
    """The same messages with another text in the place of each of theirs, and another argument in each call."""
    others = []
    for message in messages:
        other = {key: text if key in _TEXTS and value else value for key, value in message.items()}
        if "tool_calls" in message:
            arguments = json.dumps({**ARGUMENTS, "qzother": text})
            other["tool_calls"] = [
                {**call, "function": {**call["function"], "arguments": arguments}} for call in message["tool_calls"]
            ]
        others.append(other)
    return others


def _is_plain(value: Any) -> bool:
    """Whether nothing in a JSON value looks like markup, in whatever notation."""
    if isinstance(value, dict):
        return all(key.isidentifier() and _is_plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return not isinstance(value, str) or not _MARKUP.intersection(value)


def _shorten(entries: list[StandIn]) -> None:
    """Drop the last cycle of messages if it came twice before."""
    for size in range(1, min(_LONGEST_CYCLE, len(entries) // _TIMES) + 1):
        kinds = [entry.kind for entry in entries[-size * _TIMES :]]
        if all(kinds[:size] == kinds[at : at + size] for at in range(size, len(kinds), size)):
            del entries[-size:]
            return


@dataclass(frozen=True, slots=True)
class Plain:
    """A turn and new messages that are plain."""

    kind: Kind
    """Equal for those that the template cannot tell apart."""
    ids: tuple[str, ...]
    """Of the calls of the turn."""
    texts: tuple[tuple[str, str | None], ...]
    """Of each new message the content, and the id of the call that it answers."""

    def inputs(self, capabilities: TemplateCapabilities) -> list[str]:
        """What a recipe takes (`symbolic_text.places`)."""
        inputs = [capabilities.call_id(id) for id in self.ids]
        for content, id in self.texts:
            inputs += [content] if id is None else [content, capabilities.call_id(id)]
        return inputs


def plain(turn: Turn, new: Messages, turns: StandIns, messages: StandIns) -> Plain | None:
    """The turn and the new messages, if they are plain.

    turns, messages: the stand-ins of turns, and of other messages.
    """
    kinds: list[Any] = [turn.stop_id]
    ids: list[str] = []
    strands: set[str] = set()
    for part in turn.message.parts:
        if isinstance(part, Text):
            around = turns.text(part.text)
            keeps = isinstance(around, str) and bool(around.strip())
            if keeps or part.strand in strands or sanitize_text(part.text) != part.text:
                return None
            strands.add(part.strand)
            kinds.append((part.strand, around))
        elif isinstance(part, ToolCall) and part.complete and turns.is_plain_call(part.to_openai()):
            ids.append(part.id)
            kinds.append(part.name)
        else:
            return None
    if len(set(ids)) < len(ids):
        return None
    texts: list[tuple[str, str | None]] = []
    for message in new:
        if type(message) is not dict or not message.keys() <= _PLAIN_FIELDS:
            return None
        role, content, name, id = (message.get(key) for key in ("role", "content", "name", "tool_call_id"))
        if role not in ("user", "tool") or type(content) is not str or sanitize_text(content) != content:
            return None
        around = messages.text(content)
        answers = role == "tool"
        if isinstance(around, str) or (id in ids) != answers or ("tool_call_id" in message) != answers:
            return None
        if "name" in message and (type(name) is not str or sanitize_text(name) != name):
            return None
        kinds.append((role, around, name, ids.index(id) if id is not None and answers else None))
        texts.append((content, id))
    return Plain(tuple(kinds), tuple(ids), tuple(texts)) if texts else None
