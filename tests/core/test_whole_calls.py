"""Calls that come whole are read at once (`core/machine/whole_calls.py`), and come to the same as step by step.

A parser that reports markup goes step by step: so its events, without the markup, are what all others must be.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

import unbraid
from unbraid import (
    Content,
    Event,
    Format,
    Markup,
    Message,
    Reasoning,
    SpeechText,
    Text,
    ToolCall,
    ToolCallArguments,
)
from unbraid.core.machine.machine import Machine
from unbraid.stream_checks import run

from ..support import strategies
from ..support.byte_vocabulary import WordVocabulary
from ..support.cases import cases, each_format, messages
from ..support.examples import LONG

with_calls = each_format(format for format in strategies.FORMATS if format.tools is not None)
KINDS = {"city": "string", "days": "integer", "hot": "boolean", "all": "array"}
SCHEMA = {"type": "object", "properties": {key: {"type": kind} for key, kind in KINDS.items()}}
TOOLS: list[dict[str, Any]] = [{"name": "get_weather", "parameters": SCHEMA}, {"name": "f"}]
CALLS = (
    ToolCall("get_weather", '{"city": "New York\\u0041, \\"NY\\"", "days": 3, "hot": true}', ""),
    ToolCall("f", '{"a": "Berlin", "b": {"c": [1, null]}}', ""),
)
BITS = (" ", "\n", '"', "<", ">", "}", "{", "[", "x", "\\", ",", ":", "&", "0")
AT_ONCE = {"hermes", "kimi-k2", "qwen3-coder", "glm-4.5", "deepseek-v3.2", "minimax-m2", "mistral-v13", "granite-3"}


def joined(events: Iterable[Event]) -> list[Event]:
    """The events without markup, with neighbouring text as one, and the arguments of a call."""
    kept: list[Event] = []
    for event in events:
        last = kept[-1] if kept else None
        if isinstance(event, ToolCallArguments) and isinstance(last, ToolCallArguments):
            kept[-1] = ToolCallArguments(last.index, last.fragment + event.fragment, last.start, event.end)
        elif (
            isinstance(event, Content | Reasoning | SpeechText) and type(event) is type(last) and last.end > last.start
        ):
            kept[-1] = replace(last, text=last.text + event.text, end=event.end)
        elif not isinstance(event, Markup):
            kept.append(event)
    return kept


def spanless(events: Iterable[Event]) -> list[Event]:
    """The same where arguments are written anew: there the place of a bracket is a matter of taste."""
    return [ToolCallArguments(e.index, e.fragment, 0, 0) if isinstance(e, ToolCallArguments) else e for e in events]


def comes_to_the_same(format: Format, pieces: Sequence[Any], **options: Any) -> None:
    at_once, events = run(format, pieces, markup=False, **options)
    by_steps, all_events = run(format, pieces, markup=True, **options)
    assert spanless(joined(events)) == spanless(joined(all_events)), pieces
    assert [(call.id, call.raw) for call in at_once.tool_calls] == [(c.id, c.raw) for c in by_steps.tool_calls]


def changed(text: str, count: int) -> Iterator[str]:
    """The text with a character more or less, somewhere."""
    chance = random.Random(text)
    for _ in range(count):
        at = chance.randrange(len(text))
        yield text[:at] + chance.choice(("", *BITS)) + text[at + chance.randrange(2) :]


def tokens(text: str) -> list[str]:
    """Deltas as tokenizers cut them: words, and runs of signs, with the line break after them."""
    return re.findall(r"\s?\w+|\s?[^\w\s]+\n?|\s+", text)


def rendered(format: Format) -> str:
    said = Text("content", "One moment.") if format.headers is None else Text("content", "")
    return unbraid.render(format, Message((said, *CALLS) if said.text else CALLS))


@with_calls
def test_hostile_texts(format: Format) -> None:
    for case in cases(format):
        comes_to_the_same(format, [case.text], limits=case.limits, **case.options)


@with_calls
def test_what_messages_are_written_as(format: Format) -> None:
    for message, _ in messages(format):
        comes_to_the_same(format, [unbraid.render(format, message)], tools=strategies.TYPED_TOOLS)


@with_calls
@pytest.mark.parametrize("tools", [TOOLS, None], ids=["tools", "none"])
def test_a_call_with_a_mistake(format: Format, tools: Any) -> None:
    text = rendered(format)
    for other in (text, *changed(text, 400 if LONG else 12)):
        comes_to_the_same(format, [other], tools=tools, prompt="")
    for other in (text, *changed(text, 200 if LONG else 5)):
        comes_to_the_same(format, tokens(other), tools=tools, prompt="")
    comes_to_the_same(format, list(text), tools=tools, prompt="")


def by_tags(format: Format, text: str) -> tuple[WordVocabulary, list[int]]:
    """A vocabulary in which all tags are tokens, and the text in it."""
    tags = list(dict.fromkeys(re.findall(r"<[^<>\s]+>|\[[A-Z_]+\]|｜[^｜<>\s]+｜", text)))
    vocabulary = WordVocabulary(*(bytes([byte]) for byte in range(256)), *map(str.encode, tags), special=len(tags))
    pieces = re.split("(" + "|".join(map(re.escape, tags)) + ")", text) if tags else [text]
    ids = [id for piece in pieces for id in ([256 + tags.index(piece)] if piece in tags else piece.encode())]
    return vocabulary, ids


@each_format(format for format in strategies.FORMATS if format.tools is not None and format.speech is None)
def test_token_ids(format: Format) -> None:
    for text in (rendered(format), *changed(rendered(format), 100 if LONG else 4)):
        vocabulary, ids = by_tags(format, text)
        comes_to_the_same(format, [ids], tools=TOOLS, prompt="", tokenizer=vocabulary)
        at_once, by_steps = (
            unbraid.Parser(format, tools=TOOLS, prompt="", tokenizer=vocabulary, label_tokens=True, markup=markup)
            for markup in (False, True)
        )
        for parser in (at_once, by_steps):
            parser.feed_tokens(ids)
            parser.finish()
        assert at_once.token_strands == by_steps.token_strands
        assert at_once.token_markup == by_steps.token_markup
        assert at_once.tally.attempts == by_steps.tally.attempts


@with_calls
def test_it_is_read_at_once(format: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    take_call = Machine.take_call

    def counted(machine: Machine, name: str, *rest: Any) -> None:
        taken.append(name)
        take_call(machine, name, *rest)

    monkeypatch.setattr(Machine, "take_call", counted)
    text = unbraid.render(format, Message((ToolCall("get_weather", '{"city": "Berlin", "days": 3}', ""),)))
    message = unbraid.parse(format, text, tools=TOOLS, prompt="")
    assert [call.name for call in message.tool_calls] == ["get_weather"]
    assert taken == ["get_weather"] or format.name not in AT_ONCE
