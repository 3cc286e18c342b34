"""Law 10, once more for Mistral: what mistral-common encodes for an assistant's turn parses back to that turn, from its
ids."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import pytest
from mistral_common.exceptions import TokenizerException
from mistral_common.protocol.instruct import tool_calls as mistral_calls
from mistral_common.protocol.instruct.chunk import TextChunk, ThinkChunk
from mistral_common.protocol.instruct.messages import AssistantMessage

import unbraid

from ..support import real_tokenizers
from .vendors.turns import IDS, TOOLS, TURNS, Loss, Turn, left_of


@dataclass(frozen=True)
class Encoder:
    version: int
    tekken: bool
    format: str
    ids: bool = False
    """As for templates: whether it writes ids before the arguments."""

    def takes(self, turn: Turn) -> bool:
        """Whether the encoder takes such a turn; if not, it raises an error."""
        if turn.reasoning:
            return self.version >= 13
        return self.version >= 7 or not (turn.content and turn.calls)


ENCODERS = {
    "v2": Encoder(2, False, "mistral-v3"),
    "v3": Encoder(3, False, "mistral-v3"),
    "v3 tekken": Encoder(3, True, "mistral-v3"),
    "v7": Encoder(7, False, "mistral-v3"),
    "v7 tekken": Encoder(7, True, "mistral-v3"),
    "v11": Encoder(11, True, "mistral-v11", ids=True),
    "v13": Encoder(13, True, "mistral-v13"),
}
NO_FINAL_SPACE = Loss(
    "Spaces at the end of the content are stripped, save where reasoning makes it a list of chunks.",
    lambda turn: turn if turn.reasoning else replace(turn, content=turn.content.rstrip(" ")),
)


def encode(encoder: Encoder, turn: Turn) -> list[int]:
    calls = [
        mistral_calls.ToolCall(id=id, function=mistral_calls.FunctionCall(name=name, arguments=arguments))
        for id, (name, arguments) in zip(IDS, turn.calls, strict=False)
    ]
    content: Any = turn.content or None
    if turn.reasoning:
        content = [ThinkChunk(thinking=turn.reasoning), *([TextChunk(text=turn.content)] if turn.content else [])]
    instruct: Any = real_tokenizers.mistral(encoder.version, tekken=encoder.tekken).instruct_tokenizer
    message = AssistantMessage(content=content, tool_calls=calls or None)
    ids: list[int] = instruct.encode_assistant_message(message, is_before_last_user_message=False)
    return ids


PAIRS = [(version, name) for version in ENCODERS for name in TURNS]
TAKEN = [(version, name) for version, name in PAIRS if ENCODERS[version].takes(TURNS[name])]


@pytest.mark.parametrize(("version", "name"), [pair for pair in PAIRS if pair not in TAKEN])
def test_what_mistral_common_refuses_it_refuses(version: str, name: str) -> None:
    with pytest.raises((ValueError, AssertionError, TokenizerException)):
        encode(ENCODERS[version], TURNS[name])


@pytest.mark.parametrize(("version", "name"), TAKEN)
def test_what_mistral_common_encodes_parses_back(version: str, name: str) -> None:
    encoder, turn = ENCODERS[version], TURNS[name]
    ids = encode(encoder, turn)
    tokenizer = real_tokenizers.mistral(encoder.version, tekken=encoder.tekken)
    # The encoders read the arguments and write them anew.
    expected = left_of(turn.rewritten(), (NO_FINAL_SPACE,)).message()
    for size in (len(ids), 1, 2, 3, 4, 5, 6):
        parser = unbraid.parser("mistral", tools=TOOLS, tokenizer=tokenizer)
        assert parser._machine.format.name == encoder.format
        for at in range(0, len(ids), size):
            parser.feed_tokens(ids[at : at + size])
        parser.finish()
        message = parser.message
        assert message == expected
        assert not message.diagnostics
        assert all(re.fullmatch("[a-zA-Z0-9]{9}", call.id) for call in message.tool_calls)
        if encoder.ids:
            assert [call.id for call in message.tool_calls] == IDS[: len(message.tool_calls)]
    masks = unbraid.constraint("mistral", tools=TOOLS, tokenizer=tokenizer).masks()
    for token in ids[:-1]:  # the last one ends the turn
        masks.advance(token)
    assert masks.may_end


def test_the_loss_is_one() -> None:
    assert any(NO_FINAL_SPACE.left(turn) != turn for turn in TURNS.values())
