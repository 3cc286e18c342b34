"""What ends a turn: the tokens that a model stops at, and those that close a turn in the template.

Mostly the two are the same, and the format and the tokenizer name them. Where neither names what the template writes
after an answer, it is learned from there. Where messages have headers, a token may close each message of a turn without
ending the turn (harmony's `<|end|>`): a turn is closed by it in the template, and no model stops at it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...core.grammar import Format
from ...templates.prompt.builder import PromptBuilder
from ..values import Messages
from .bridges import Bridges, NoBridge
from .stand_ins import NEXT, SYSTEM, USER, Shape


def ends_of_turns(
    builder: PromptBuilder, format: Format, ends: Iterable[str], variables: Mapping[str, Any]
) -> tuple[frozenset[str], list[str]]:
    """The texts of the tokens that close a turn in the template, and of those that a model stops at.

    ends: tokens that end an output, by their text, as the tokenizer's files name them.
    """
    known = [text for text in dict.fromkeys([*format.ends, *ends]) if text in builder.controls.ids]
    learned = _learned(Bridges(builder, frozenset(known)), variables)
    separates = format.headers is not None and learned in format.headers.ends
    stops = known if learned is None or separates else [*known, learned]
    return frozenset([*known, *([learned] if learned else [])]), stops


def _learned(bridges: Bridges, variables: Mapping[str, Any]) -> str | None:
    """The token that the template closes an answer with, if it is none that is known."""
    histories: tuple[Messages, ...] = ([USER], [SYSTEM, USER])
    for history in histories:
        try:
            regions = bridges.short([*history, Shape().message(), NEXT], variables, prompt=True)
        except NoBridge:
            continue
        after, (closing, until) = regions.last_value(len(history)), regions.end_of_turn(len(history))
        if after is None or closing is not None:
            return None
        return next((token.text for token in reversed(regions.tokens) if after <= token.begin < until), None)
    return None
