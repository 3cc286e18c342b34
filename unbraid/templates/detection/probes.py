"""Probes: turns of an assistant to render templates with, made of words that no template contains.

Every `qz…` word in the output shows where a part of the turn went. Everything else is the template's own text.

A template gets a probe in several ways. Reasoning has no agreed place in a message: `CompiledTemplate.render` gives it
under the three usual names, and some templates read it from other fields, from parts of the content, or from blocks
(`messages_with_reasoning`). Variables turn reasoning on and off (`switches`). Names that a template does not mention
are not tried.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

Strand = Literal["content", "reasoning", "calls"]
USER, NEXT_USER = "qzquestion", "qzsequel"
CONTENT, REASONING = "qzanswer", "qzponder"


@dataclass(frozen=True)
class ProbeCall:
    name: str
    arguments: Mapping[str, Any]
    id: str
    """It contains the function's name, as Kimi's ids do. `TemplateCapabilities.adapt` shortens it if necessary."""


@dataclass(frozen=True)
class ProbeTurn:
    """One turn of the assistant, to be rendered."""

    label: str
    """Its name in the reasons of a verdict."""
    content: str = ""
    reasoning: str | None = None
    """None if the turn has none. Empty reasoning is given to the template, and some write markers for it."""
    calls: tuple[ProbeCall, ...] = ()

    @property
    def strands(self) -> tuple[Strand, ...]:
        """The strands that it has."""
        there: dict[Strand, object] = {"content": self.content, "reasoning": self.reasoning, "calls": self.calls}
        return tuple(strand for strand, part in there.items() if part)

    def message(self) -> dict[str, Any]:
        """The turn as a message of a chat API, without its reasoning (see `messages_with_reasoning`)."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
                }
                for call in self.calls
            ]
        return message


LOOKUP = ProbeCall("qzlookup", {"qzcity": "qzparis", "qzdays": 37}, "functions.qzlookup:0")
RECORD = ProbeCall("qzrecord", {"qzcity": "qzoslo", "qzdays": 58}, "functions.qzrecord:1")
AGAIN = ProbeCall("qzlookup", {"qzcity": "qzrome", "qzdays": 64}, "functions.qzlookup:2")
KINDS = ProbeCall(
    "qzgather",
    {
        "qztext": "qzword",
        "qzrate": 12.5,
        "qzdone": True,
        "qzlist": ["qzitem", "qzthing"],
        "qztree": {"qzleaf": "qzgreen"},
    },
    "functions.qzgather:0",
)
SYMBOLS = ProbeCall("qzspell", {"qzsigns": "qz &lt; & é <b> 日本"}, "functions.qzspell:0")
"""What a template writes with entities must be read with them, and what it writes as it is must not."""
NO_ARGUMENTS = ProbeCall("qzping", {}, "functions.qzping:0")

ANSWER = ProbeTurn("an answer", content=CONTENT)
REASONED = ProbeTurn("an answer after reasoning", content=CONTENT, reasoning=REASONING)
CALL = ProbeTurn("a call", calls=(LOOKUP,))
CALLS = ProbeTurn("two calls", calls=(LOOKUP, RECORD))
REASONED_CALL = ProbeTurn("a call after reasoning", reasoning=REASONING, calls=(LOOKUP,))
# Formats are derived from these. The others show whether the derived format holds.
THREE_CALLS = ProbeTurn("three calls", calls=(LOOKUP, RECORD, AGAIN))
CALL_WITH_CONTENT = ProbeTurn("a call after content", content=CONTENT, calls=(LOOKUP,))
ALL_STRANDS = ProbeTurn("a call after reasoning and content", content=CONTENT, reasoning=REASONING, calls=(LOOKUP,))
EMPTY_REASONING = ProbeTurn("an answer after empty reasoning", content=CONTENT, reasoning="")
CALL_OF_ALL_KINDS = ProbeTurn("arguments of all kinds", calls=(KINDS,))
CALL_WITH_SYMBOLS = ProbeTurn("an argument with symbols", calls=(SYMBOLS,))
CALL_WITHOUT_ARGUMENTS = ProbeTurn("a call without arguments", calls=(NO_ARGUMENTS,))

TURNS = (
    ANSWER,
    REASONED,
    CALL,
    CALLS,
    REASONED_CALL,
    THREE_CALLS,
    CALL_WITH_CONTENT,
    ALL_STRANDS,
    EMPTY_REASONING,
    CALL_OF_ALL_KINDS,
    CALL_WITH_SYMBOLS,
    CALL_WITHOUT_ARGUMENTS,
)


_SCHEMAS: dict[type, dict[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    # Some templates fail without `items` or `properties`.
    list: {"type": "array", "items": {"type": "string"}},
    dict: {"type": "object", "properties": {}, "additionalProperties": {"type": "string"}},
}


def _tool(call: ProbeCall) -> dict[str, Any]:
    properties = {key: {**_SCHEMAS[type(value)], "description": key} for key, value in call.arguments.items()}
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    function = {"name": call.name, "description": f"About {call.name}.", "parameters": parameters}
    return {"type": "function", "function": function}


TOOLS: list[dict[str, Any]] = [_tool(call) for call in (LOOKUP, RECORD, KINDS, SYMBOLS, NO_ARGUMENTS)]


@dataclass(frozen=True)
class RenderedTurn:
    """What a template rendered for one probe turn."""

    turn: ProbeTurn
    """The probe, without what the template left out."""
    prompt: str
    """What the model would have been given."""
    text: str
    """What it would have written, and whatever the template writes after it."""
    last: int
    """Where the last word of the probe ends in the text."""
    ids: tuple[str, ...]
    """The ids of calls that appear in the text."""
    circumstance: str = ""
    """In which way the template was rendered, if it was not the usual one."""
    ends: tuple[int, ...] = ()
    """Where the turn may end, if another one follows."""

    @property
    def label(self) -> str:
        """The name of the probe in the reasons of a verdict."""
        return f"{self.turn.label} {self.circumstance}".strip()

    @property
    def asked(self) -> str:
        """The end of the prompt, from the user's words on."""
        return self.prompt[self.prompt.rfind(USER) :]

    def up_to(self, end: int) -> RenderedTurn:
        """The turn as it would be if the template ended it here and wrote something else after it."""
        return rendered_turn(self.turn, self.prompt, self.text[:end], self.ids, self.circumstance)

    @property
    def tail(self) -> str:
        """The text after the last word of the probe."""
        return self.text[self.last :]


def rendered_turn(
    turn: ProbeTurn, prompt: str, text: str, ids: tuple[str, ...], circumstance: str = ""
) -> RenderedTurn:
    """The turn, without the parts that the text does not show."""
    calls = tuple(call for number, call in enumerate(turn.calls) if _is_written(call, turn.calls[:number], text))
    seen = replace(
        turn,
        content=turn.content if turn.content in text else "",
        reasoning=turn.reasoning if turn.reasoning is not None and turn.reasoning in text else "",
        calls=calls,
    )
    words = [seen.content, seen.reasoning or "", *(call.name for call in calls)]
    words += [word for call in calls for word in _words(call.arguments)]
    last = max((text.rfind(word) + len(word) for word in words if word and word in text), default=0)
    return RenderedTurn(seen, prompt, text, last, tuple(id for id in ids if id in text), circumstance)


def _is_written(call: ProbeCall, before: tuple[ProbeCall, ...], text: str) -> bool:
    """Whether the text has this call. One of the same function may come before it."""
    same_name = any(other.name == call.name for other in before)
    return call.name in text and (not same_name or any(word in text for word in _own_words(call, before)))


def _own_words(call: ProbeCall, before: tuple[ProbeCall, ...]) -> set[str]:
    return set(_words(call.arguments)) - {word for other in before for word in _words(other.arguments)}


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield key
            yield from _words(item)
    elif isinstance(value, list):
        for item in value:
            yield from _words(item)
    elif not isinstance(value, bool):
        yield str(value)


_FIELDS = ("thought", "thoughts", "tool_plan", "chain_of_thought", "thinking_content")
_PARTS = ("thinking", "reasoning", "thought")
"""Parts of the content: `{"type": "thinking", "thinking": …}`."""
UNREAD = "qzunread"
"""A word in each part and block. A template that writes it does not read the form: it writes all of it as it is."""

_ON: dict[str, Any] = {
    **dict.fromkeys(("enable_thinking", "thinking", "add_thoughts", "preserve_thinking", "keep_past_thinking"), True),
    **dict.fromkeys(("skip_thinking", "drop_thinking", "clear_thinking", "truncate_history_thinking"), False),
}
_OFF: dict[str, Any] = dict.fromkeys(("enable_thinking", "thinking"), False)
_LEVELS: dict[bool, dict[str, Any]] = {
    True: {"reasoning_effort": "high", "thinking_mode": "enabled"},
    False: {"reasoning_effort": "none", "thinking_mode": "disabled"},
}
"""Words in place of true and false. Templates that know other words raise; then they are asked without."""


def messages_with_reasoning(message: dict[str, Any], reasoning: str, source: str) -> Iterator[dict[str, Any]]:
    """The message with its reasoning in each place where the template may look for it, the usual one first."""
    yield {**message, "reasoning_content": reasoning}
    for field in _FIELDS:
        if _mentions(source, field):
            yield {**message, field: reasoning}
    content = message["content"]
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    for kind in _PARTS:
        if f"'{kind}'" in source or f'"{kind}"' in source:
            yield {**message, "content": [{"type": kind, kind: reasoning, UNREAD: True}, *parts]}
    if _mentions(source, "blocks"):
        blocks = [{"type": "thoughts", "text": reasoning}, *({**part, "type": "response"} for part in parts)]
        yield {**message, "content": {"blocks": blocks, UNREAD: True}}


def switches(source: str, on: bool) -> Iterator[Mapping[str, Any]]:
    """Variables that turn reasoning on or off, as far as the template mentions them: first all, then without those that
    it may refuse."""
    plain = {name: value for name, value in (_ON if on else _OFF).items() if _mentions(source, name)}
    levels = {name: value for name, value in _LEVELS[on].items() if _mentions(source, name)}
    if levels:
        yield {**plain, **levels}
    if plain:
        yield plain


def _mentions(source: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", source) is not None
