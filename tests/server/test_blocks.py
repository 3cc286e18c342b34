"""Blocks are the events of a turn, in every format: one at a time, nothing lost, and the same for every cut."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid import Format, Speech, Text
from unbraid.server.generation.blocks import Block, Blocks, events_of_message

from ..support import strategies

every_format = pytest.mark.parametrize("format", strategies.FORMATS, ids=[f.name for f in strategies.FORMATS])
Told = list[tuple[str, str, bool, str]]


def closed(steps: Iterable[tuple[str, Block, str]]) -> Told:
    """The blocks that the steps tell. Checks that each is opened and closed once, one after the other."""
    told: Told = []
    growing: list[str] | None = None
    for kind, block, text in steps:
        if kind == "open":
            assert growing is None
            assert block.index == len(told)
            growing = []
        elif kind == "delta":
            assert growing is not None
            growing.append(text)
        else:
            assert growing is not None
            assert "".join(growing) == block.text
            told.append((block.kind, block.name, block.complete, block.text))
            growing = None
    assert growing is None
    return told


def blocks_of(format: Format, pieces: Iterable[str]) -> tuple[Told, unbraid.Message]:
    parser = unbraid.parser(format, seed=7, prompt="")
    blocks = Blocks()
    steps = [(kind, block, text) for piece in pieces for kind, block, text in blocks.feed(parser.feed(piece))]
    steps += blocks.feed(parser.finish())
    steps += blocks.finish()
    return closed(steps), parser.message


@every_format
@given(data=st.data())
def test_blocks_are_the_message_and_no_cut_changes_them(format: Format, data: st.DataObject) -> None:
    text = data.draw(strategies.hostile(format))
    told, message = blocks_of(format, data.draw(st.composite(strategies.cuts)(text)))
    assert told == blocks_of(format, [text])[0]
    calls = [(name, complete, written) for kind, name, complete, written in told if kind == "call"]
    assert calls == [(call.name, call.complete, call.arguments) for call in message.tool_calls]
    thought = [part.text for part in message.parts if isinstance(part, Text) and part.strand == "reasoning"]
    assert "".join(written for kind, _, _, written in told if kind == "reasoning") == "".join(thought)
    said = "".join(
        part.text
        for part in message.parts
        if isinstance(part, Speech) or (isinstance(part, Text) and part.strand == "content")
    )
    assert "".join("".join(written for kind, _, _, written in told if kind == "text").split()) == "".join(said.split())
    again = Blocks()
    settled = [*again.feed(list(events_of_message(message))), *again.finish()]
    assert closed(settled) == told
