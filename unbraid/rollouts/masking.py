"""Masks: for each id of a prompt which message it belongs to, whether it was sampled, and whether a message says it.

Masks follow from where the text comes from (`templates.traced_text`), never from what it looks like. Where the template
has `{% generation %}` blocks, they say what was sampled.

A token counts for its last character, as in `core.tally`: so each token has one place. A tokenizer says what bytes a
token has. Mostly these are the bytes of the text, one after the other. Some tokenizers put a space before a text,
swallow whitespace after a control token, or normalise what they read. So tokens are matched with the text from both
ends, and only what is left in the middle is shared out evenly (`last_characters`).
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.vocabulary import Vocabulary
from ..templates.prompt.builder import PromptBuilder, TracedPrompt
from .bridges import Bridge, Bridges, NoBridge
from .regions import Regions, Stretches, difference
from .shapes import NEXT, ONE_CALL, USER, Shape, result
from .values import NOBODY, Messages, TrainingMasks


class Masker:
    """Makes the masks of one template's prompts."""

    def __init__(self, builder: PromptBuilder, bridges: Bridges, closers: frozenset[str]) -> None:
        assert builder.encoder is not None
        self._vocabulary = builder.encoder.vocabulary
        self._controls = builder.controls
        self._bridges = bridges
        self._closers = closers
        self._prompts: dict[str, str] = {}

    def of(
        self,
        ids: Sequence[int],
        prompt: TracedPrompt,
        messages: Messages,
        variables: Mapping[str, Any],
        *,
        prompted: bool,
        continues: bool,
    ) -> TrainingMasks:
        """Of a prompt that was rendered with these messages.

        prompted: it ends with the generation prompt.
        continues: its last message is for the model to go on with, so none of it was sampled.
        """
        regions = Regions(prompt, self._controls, self._closers)
        number = len(messages) - continues
        turns = [
            (*regions.sampled(at, self._generation_prompt(messages[at - 1] if at else None, variables)), at)
            for at, message in enumerate(messages[:number])
            if message.get("role") == "assistant"
        ]
        turns_written = Stretches(turns)
        sampled = Stretches((begin, end, 1) for begin, end in regions.generation_blocks()) or turns_written
        values = Stretches((begin, end, 1) for begin, end, _ in regions.trace.spans)
        places = last_characters(ids, regions.text, self._vocabulary)
        owners = [turns_written.at(at) for at in places]
        prompt_at = self._prompt_at(regions, messages, variables) if prompted else len(regions.text)
        return TrainingMasks(
            tuple(
                owner if owner is not None else NOBODY if at >= prompt_at else regions.message_at(at)
                for at, owner in zip(places, owners, strict=True)
            ),
            tuple(sampled.at(at) is not None for at in places),
            tuple(values.at(at) is not None for at in places),
        )

    def differing_blocks(self, variables: Mapping[str, Any]) -> str | None:
        """How `{% generation %}` blocks differ from what a model writes; None if they do not, or if there are none."""
        messages = [USER, Shape().message(), NEXT]
        try:
            regions = self._bridges.short(messages, variables, prompt=False)
        except NoBridge:
            return None
        blocks = regions.generation_blocks()
        begin, end = regions.sampled(1, self._generation_prompt(USER, variables))
        if not blocks or blocks == [(begin, end)]:
            return None
        texts = [regions.text[low:high] for low, high in blocks]
        return (
            f"the generation blocks of the template have {texts!r} of a turn of which a model writes "
            f"{regions.text[begin:end]!r}: the masks are those of the blocks"
        )

    def _prompt_at(self, regions: Regions, messages: Messages, variables: Mapping[str, Any]) -> int:
        """Where the generation prompt begins at the end of a prompt."""
        text = self._generation_prompt(messages[-1] if messages else None, variables)
        return len(regions.text) - len(text) if regions.text.endswith(text) else len(regions.text)

    def _generation_prompt(self, last: Mapping[str, Any] | None, variables: Mapping[str, Any]) -> str:
        """What the template writes where the model is to begin, after such a message."""
        after_result = last is not None and last.get("role") in ("tool", "function")
        key = json.dumps([after_result, variables], sort_keys=True, default=str)
        if key not in self._prompts:
            history: Messages = [USER, ONE_CALL.message(), result()] if after_result else [USER]
            try:
                with_it = self._bridges.short(history, variables, prompt=True)
                without = self._bridges.short(history, variables, prompt=False)
            except NoBridge:
                return ""
            at = difference(with_it.text, without.text)
            if at == len(with_it.text) and with_it.regions[-1].message == NOBODY:  # it is always written
                at = with_it.regions[-1].begin
            at = next((token.begin for token in with_it.tokens if token.begin < at < token.end), at)
            self._prompts[key] = with_it.text[at:]
        return self._prompts[key]

    def of_bridge(
        self, bridge: Bridge, ids: Sequence[int], number: int, new: Messages, variables: Mapping[str, Any]
    ) -> TrainingMasks:
        """What the ids of a bridge to new messages are. The messages are counted on from the turn."""
        regions, size = bridge.regions, len(ids)
        text = regions.text[bridge.begin :]
        places = [at + bridge.begin for at in last_characters(ids, text, self._vocabulary)]
        values = Stretches((begin, end, 1) for begin, end, _ in regions.trace.spans)
        prompt_at = self._prompt_at(regions, new, variables)
        owners = [regions.message_at(at) if at < prompt_at else NOBODY for at in places]
        moved = tuple(NOBODY if owner < 0 else max(owner, bridge.turn) - bridge.turn + number for owner in owners)
        return TrainingMasks(moved, (False,) * size, tuple(values.at(at) is not None for at in places))


_SPACE = b" \t\r\n"


def last_characters(ids: Sequence[int], text: str, vocabulary: Vocabulary) -> list[int]:
    """For each token the index of its last character in `text`; -1 for one before the first."""
    data = text.encode("utf-8", "replace")
    pieces = [vocabulary.token_bytes(id) or b"" for id in ids]
    ends = _ends(pieces, data)
    if len(data) == len(text):
        return [end - 1 for end in ends]
    starts = [0]
    for character in text:
        starts.append(starts[-1] + len(character.encode("utf-8", "replace")))
    return [bisect_left(starts, end) - 1 for end in ends]


def _ends(pieces: Sequence[bytes], data: bytes) -> list[int]:
    """Where each piece ends in the data."""
    ends: list[int] = []
    at = 0
    for piece in pieces:
        end = _after(piece, data, at)
        if end is None:
            break
        at = end
        ends.append(at)
    if len(ends) == len(pieces):
        return ends
    back: list[int] = []
    until = len(data)
    for piece in reversed(pieces[len(ends) :]):
        if until - len(piece) < at or not data.endswith(piece, at, until):
            break
        back.append(until)
        until -= len(piece)
    middle = pieces[len(ends) : len(pieces) - len(back)]
    weight, total = 0, sum(map(len, middle)) or 1
    for piece in middle:
        weight += len(piece)
        ends.append(at + (until - at) * weight // total)
    return [*ends, *reversed(back)]


def _after(piece: bytes, data: bytes, at: int) -> int | None:
    """The end of a piece that stands at `at`, give or take whitespace that the tokenizer added or dropped."""
    if data.startswith(piece, at):
        return at + len(piece)
    if piece.startswith(b" ") and data.startswith(piece[1:], at):
        return at + len(piece) - 1
    begin = at
    while begin < len(data) and data[begin] in _SPACE:
        begin += 1
    return begin + len(piece) if begin > at and data.startswith(piece, begin) else None
