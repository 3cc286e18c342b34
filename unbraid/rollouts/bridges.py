"""The bridge between two turns: all that a template writes after one turn of the model, up to where the next begins.

A trainer has the ids of a prompt and the ids that were sampled. The next prompt is these ids, unchanged, and the ids of
the bridge: the end of the turn, the new messages, the generation prompt. The bridge is read off a rendering of a short
conversation of the same shape (`shapes`), in which the trace says where the turn ends. What the turn says is never
rendered, so it cannot change.

Where the turn ends:
- If the model ended its turn (with a stop token), the bridge begins after the template's own token for that. If the
  template has none in the turn, but begins the next message with the very token that the model stopped at (GLM's
  `<|user|>`), that one is left out.
- If the turn was cut off, the bridge begins with the template's token.

The bridge is encoded behind the token before it, so that it does not matter that it is encoded alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.grammar import Format
from ..templates.control_tokens import MARK
from ..templates.errors import InvalidMessages, TemplateBroken, TemplateRefused
from ..templates.prompt.builder import PromptBuilder
from ..templates.sandbox.budget import stopped_clock
from ..templates.symbolic_text import Record
from .regions import Regions
from .shapes import NEXT, SYSTEM, TOOLS, USER, Shape
from .values import Messages, Tools


class NoBridge(Exception):
    """There is no bridge. The message says why."""


@dataclass(frozen=True)
class Bridge:
    """What follows a turn."""

    text: str
    """With marks."""
    regions: Regions
    begin: int
    """Where it begins in the text of `regions`."""
    turn: int
    """The number of the turn in `regions`."""


class Bridges:
    """Makes the bridges of one template.

    closers: the texts of the tokens that close a turn of the assistant.
    """

    def __init__(self, builder: PromptBuilder, closers: frozenset[str]) -> None:
        self.builder = builder
        self._closers = closers

    def between(
        self,
        history: Messages,
        turn: Mapping[str, Any],
        new: Messages,
        *,
        stopped_at: str | None,
        tools: Tools | None,
        variables: Mapping[str, Any],
        record: Record | None = None,
    ) -> Bridge:
        """The bridge after `turn`.

        stopped_at: the text of the token that ended the turn; None where it was cut off.
        record: notes what the template does with the texts of the new messages.
        """
        number = len(history)
        regions = self.regions([*history, turn, *new], tools, variables, prompt=True, record=record, turn=number)
        begin = _begin(regions, number, stopped_at)
        _check_written(regions, begin, number, new)
        return Bridge(regions.marked_from(begin), regions, begin, number)

    def regions(
        self,
        messages: Messages,
        tools: Tools | None,
        variables: Mapping[str, Any],
        *,
        prompt: bool,
        continued: bool = False,
        record: Record | None = None,
        turn: int = 0,
    ) -> Regions:
        """A traced rendering, cut up.

        continued: it ends inside the last message, which the model continues.
        """
        try:
            traced = self.builder.trace(
                messages,
                tools=tools,
                add_generation_prompt=prompt,
                continue_final_message=continued,
                template_kwargs=variables,
                record=record,
                turn=turn,
            )
        except (InvalidMessages, TemplateBroken, TemplateRefused) as error:
            raise NoBridge(f"the template does not take these messages: {error}") from error
        return Regions(traced, self.builder.controls, self._closers)

    def short(self, messages: Messages, variables: Mapping[str, Any], *, prompt: bool) -> Regions:
        """The regions of a short conversation: without tools, or with one if the template fails without."""
        with stopped_clock():
            try:
                return self.regions(messages, None, variables, prompt=prompt)
            except NoBridge:
                return self.regions(messages, TOOLS, variables, prompt=prompt)

    def encoded(self, text: str, after: str | None) -> tuple[int, ...]:
        """The ids of a bridge.

        after: the text of the token that ended the turn; None where it was cut off.
        """
        encoder, controls = self.builder.encoder, self.builder.controls
        assert encoder is not None
        before = after if after in controls.ids else next(iter(controls.ids), None)
        if before is None or (after is None and text.startswith(MARK)):
            return tuple(encoder.encode(text))
        ids = encoder.encode(MARK + before + text)
        if ids[:1] != [controls.ids[before]]:
            raise NoBridge(f"the tokenizer does not take {before!r} as a token of its own")
        return tuple(ids[1:])


def _begin(regions: Regions, turn: int, stopped_at: str | None) -> int:
    closing, until = regions.end_of_turn(turn)
    if closing is not None:
        return closing.begin if stopped_at is None else closing.end
    if not regions.of(turn):
        raise NoBridge("the template does not write the turn, so nothing says where it ends")
    if regions.message_at(until) == turn:
        raise NoBridge("the template writes the next message into the turn, and no token between them ends it")
    following = next((token for token in regions.tokens if token.begin == until), None)
    return following.end if following is not None and following.text == stopped_at else until


_REPEATED = ("tool_calls", "name", "tool_call_id")
"""What templates write again with a result."""


def _check_written(regions: Regions, begin: int, turn: int, new: Messages) -> None:
    """Raises `NoBridge` unless the bridge has every new message, and nothing that the turn says."""
    present: set[int] = set()
    for low, _, origin in regions.trace.spans:
        if origin.message > turn and origin.field == "content":
            if low < begin:
                raise NoBridge(f"{_ordinal(origin.message - turn, new)} is written before the turn that it follows")
            present.add(origin.message)
        elif origin.message == turn and low >= begin and origin.field not in _REPEATED:
            raise NoBridge(f"the {origin.field} of the turn is written after what follows the turn")
    for number, message in enumerate(new, 1):
        # Its text may have been joined with that of another message.
        if turn + number not in present and any(
            text not in regions.text[begin:] for text in _texts(message.get("content"))
        ):
            raise NoBridge(f"{_ordinal(number, new)} is not written")


def _texts(content: Any) -> list[str]:
    """What a content says."""
    if isinstance(content, str):
        return [content.strip()]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in content or ()]
    return [text.strip() for text in texts if isinstance(text, str)]


def _ordinal(number: int, new: Messages) -> str:
    role = new[number - 1].get("role")
    return f"message {number} of the new ones (role {role})" if len(new) > 1 else f"the new message (role {role})"


def roles(messages: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(str(message.get("role")) for message in messages)


def ends_of_turns(
    builder: PromptBuilder, format: Format, ends: Iterable[str], variables: Mapping[str, Any]
) -> tuple[frozenset[str], list[str]]:
    """The texts of the tokens that close a turn in the template, and of those that a model stops at.

    Mostly the two are the same, and the format and the tokenizer name them. Where neither names what the template
    writes after an answer, it is learned from there. Where messages have headers, a token may close each message of a
    turn without ending the turn (harmony's `<|end|>`): it closes a turn in the template, and no model stops at it.

    ends: tokens that end an output, by their text, as the tokenizer's files name them.
    """
    named = [text for text in dict.fromkeys([*format.ends, *ends]) if text in builder.controls.ids]
    learned = _learned(Bridges(builder, frozenset(named)), variables)
    separates = format.headers is not None and learned in format.headers.ends
    stops = named if learned is None or separates else [*named, learned]
    return frozenset([*named, *([learned] if learned else [])]), stops


def _learned(bridges: Bridges, variables: Mapping[str, Any]) -> str | None:
    """The token that the template closes an answer with, if `format` and tokenizer do not name it."""
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
