"""Hostile texts and messages, drawn once for a format and shared by all tests of a law.

To draw a text takes several times as long as to try a law on it. So the texts of a format are drawn with the first test
that asks for them, half as many again as a property test tries, and every law sees all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid import Format, Limits, Message

from . import strategies
from .examples import examples

PROMPTS = ["", "<think>\n", "[THINK]", "<tts_start>", "<tts_start>\n<think>\n"]
TOOLS: list[Any] = [None, [{"name": "f"}, {"name": "get_weather"}], strategies.TYPED_TOOLS]


def each_format(formats: Iterable[Format] = strategies.FORMATS) -> pytest.MarkDecorator:
    """A test for each of these formats: those that it says something about."""
    chosen = list(formats)
    return pytest.mark.parametrize("format", chosen, ids=[format.name for format in chosen])


@dataclass(frozen=True)
class Case:
    """One output of a model, and how it is read."""

    text: str
    pieces: Sequence[str]
    """The text, cut somewhere."""
    sizes: Sequence[int]
    """Places in the text."""
    prompt: str
    tools: Any
    limits: Limits
    other_text: str
    """A text that has nothing to do with the format."""

    @property
    def options(self) -> dict[str, Any]:
        return {"prompt": self.prompt, "tools": self.tools}


@cache
def cases(format: Format) -> list[Case]:
    """Hostile texts of a format."""
    drawn: list[Case] = []
    cuts = st.composite(strategies.cuts)

    @examples(1.5)
    @given(data=st.data())
    def draw(data: st.DataObject) -> None:
        text = data.draw(strategies.hostile(format))
        drawn.append(
            Case(
                text,
                data.draw(cuts(text)),
                data.draw(st.lists(st.integers(0, len(text)), max_size=8, unique=True)),
                data.draw(st.sampled_from([*PROMPTS, format.prompt])),
                data.draw(st.sampled_from(TOOLS)),
                data.draw(st.sampled_from([Limits(), Limits(depth=2, name=5, number=3, held=30)])),
                data.draw(st.text()),
            )
        )

    draw()
    return drawn


@cache
def messages(format: Format) -> list[tuple[Message, Sequence[int]]]:
    """Messages of a format, each with sizes to cut its text into."""
    drawn: list[tuple[Message, Sequence[int]]] = []

    @examples(1.5)
    @given(message=strategies.messages(format), sizes=st.lists(st.integers(1, 6), min_size=1, max_size=6))
    def draw(message: Message, sizes: list[int]) -> None:
        drawn.append((message, sizes))

    draw()
    return drawn


def cut(text: str, sizes: Sequence[int]) -> list[str]:
    """A text in pieces of these sizes, over and over."""
    pieces: list[str] = []
    at = 0
    while at < len(text):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(text[at : at + size])
        at += size
    return pieces
