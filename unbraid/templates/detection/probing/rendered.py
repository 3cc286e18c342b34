"""A rendered probe: what a template wrote for one turn, and what of the turn is in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .probes import USER, ProbeCall, ProbeTurn


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
        """The same turn, if the template ends it here and writes something else after it."""
        return rendered_turn(self.turn, self.prompt, self.text[:end], self.ids, self.circumstance)

    @property
    def tail(self) -> str:
        """The text after the last word of the probe."""
        return self.text[self.last :]


def rendered_turn(
    turn: ProbeTurn, prompt: str, text: str, ids: tuple[str, ...], circumstance: str = ""
) -> RenderedTurn:
    """What the text shows of a turn."""
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
