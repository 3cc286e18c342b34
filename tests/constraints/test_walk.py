"""A constraint followed by hand: what it says may come is what the language allows, at every character."""

from __future__ import annotations

import random
from typing import Any

import pytest

from unbraid import all_formats, constraint
from unbraid.constraints.derive import Derivation
from unbraid.core.grammar import Format
from unbraid.schema.regular import EVERY, without

FORMATS = [format for format in all_formats() if format.transcript is None]
CITY = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
TOOLS: list[dict[str, Any]] = [
    {"name": "get_weather", "strict": True, "parameters": {**CITY, "additionalProperties": False}},
    {"name": "now"},
]


@pytest.mark.parametrize("format", FORMATS, ids=lambda one: one.name)
def test_every_text_of_the_language_can_be_walked_to_its_end(format: Format) -> None:
    choice = "auto" if format.tools is not None else None
    made = constraint(format, tools=TOOLS if format.tools is not None else None, tool_choice=choice)
    texts = Derivation(made.language, random.Random(1))
    for text in filter(None, (texts.text() for _ in range(3))):
        walk = made.walk()
        for at, char in enumerate(text[:400]):
            assert any(low <= ord(char) <= high for low, high in walk.allowed), (text, at)
            assert walk.feed(char), (text, at)
        assert len(text) > 400 or walk.may_end, text


def test_what_is_not_allowed_changes_nothing() -> None:
    walk = constraint("qwen3", tools=TOOLS, tool_choice="required").walk()
    for char in "<tool_call>":
        assert walk.feed(char)
    before = walk.allowed
    for char in map(chr, [low for low, _ in without(EVERY, before)]):
        assert not walk.feed(char)
    assert walk.allowed == before


def test_what_must_come_can_be_walked() -> None:
    walk = constraint("hermes", tools=TOOLS[:1], tool_choice="required").walk()
    forced = walk.forced()
    assert forced == '<tool_call>{"name":"get_weather","arguments":{"city":"'
    assert all(map(walk.feed, forced))
    assert walk.forced() == "", "a string may go on in many ways"
    assert not walk.may_end


def test_only_what_really_must_come_is_forced() -> None:
    """A space that leads elsewhere is a choice, even where whitespace elsewhere says nothing."""
    city = {"type": "string", "enum": ["New York", "New-York", "New -Yorkshire"]}
    tool = {"name": "f", "strict": True, "parameters": {"properties": {"city": city}, "required": ["city"]}}
    walk = constraint("hermes", tools=[tool], tool_choice="required").walk()
    forced = walk.forced()
    assert forced.endswith('"city":"New'), forced
    assert all(map(walk.feed, forced))
    assert walk.feed(" ")
