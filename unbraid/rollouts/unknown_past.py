"""Going on from ids alone: nobody knows which messages they were, so what does it matter which?

Histories of many kinds are tried in the place of the real one: with a system message, with earlier turns, calls and
reasoning, and with each word that switches the template. Where one of them makes a difference, there is a doubt. It is
dispelled if the ids cannot be a rendering of such a history, because a token or a word is missing in them that the
template writes for it. What doubt is left is a reason to refuse: only a prompt that knows its messages will do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..templates.sandbox.budget import stopped_clock
from ..templates.switches import Switches
from .bridges import Bridges, NoBridge
from .regions import Regions
from .shapes import EARLIER, ONE_CALL, SYSTEM, USER, WORD, Shape, call, result
from .values import Messages, Tools

_LONGEST_WORD = 60
_BEFORE = {"role": "user", "content": f"{WORD} long before"}
_ADVICE = "give the prompt as `render` or `extend` returned it, not as ids"
Outcome = tuple[str | None, str | None]
"""The obstacle of going on, and the text of the bridge."""


@dataclass(frozen=True)
class Doubt:
    """What ids alone leave open."""

    reason: str
    evidence: tuple[tuple[str, int], ...]
    """Texts that the prompt has more often than so many times if there is something to the doubt."""
    bridge: bool
    """Whether it is about what follows the turn, and not only about the past."""

    def holds(self, prompt: str) -> bool:
        return all(prompt.count(text) > times for text, times in self.evidence)


class UnknownPast:
    """What one template makes of messages that nobody knows."""

    def __init__(self, bridges: Bridges, switches: Switches) -> None:
        self._bridges = bridges
        self._words = [word for word in switches.words if len(word) <= _LONGEST_WORD]

    def doubts(
        self,
        assumed: Messages,
        tools: Tools | None,
        variables: Mapping[str, Any],
        outcome: Callable[[Messages], Outcome],
    ) -> tuple[Doubt, ...]:
        """What the ids leave open.

        assumed: the history that stands for the unknown one.
        outcome: of going on after a history.
        """
        with stopped_clock():
            base = self._rendered(assumed, tools, variables)
            expected = outcome(assumed)
            doubts = [] if base is None else list(self._tools_doubts(base, assumed, tools, variables))
            for history, what in self._histories(assumed):
                rendered = self._rendered(history, tools, variables)
                if base is None or rendered is None:
                    continue
                obstacle, text = outcome(history)
                bridge = text is not None and text != expected[1]
                if bridge or (obstacle is not None and expected[0] is None):
                    reason = f"with {what} before, {obstacle or 'something else follows the turn'}"
                    doubts.append(Doubt(f"{reason}: {_ADVICE}", self._evidence(base, rendered), bridge))
        return tuple(dict.fromkeys(doubts))

    def answer(
        self, doubts: Sequence[Doubt], ids: Sequence[int], obstacle: str | None
    ) -> tuple[str | None, str | None]:
        """The obstacle and the refusal for these ids."""
        encoder = self._bridges.builder.encoder
        assert encoder is not None
        spelled = b"".join(encoder.vocabulary.token_bytes(id) or b"" for id in ids)
        prompt = spelled.decode("utf-8", "replace")
        held = [doubt for doubt in doubts if doubt.holds(prompt)]
        refusal = next((doubt.reason for doubt in held if doubt.bridge), None)
        return obstacle or next((doubt.reason for doubt in held), None), refusal

    def _histories(self, assumed: Messages) -> list[tuple[Messages, str]]:
        last = assumed[-1]
        answer = Shape().message()
        two = Shape(content=False, calls=(call(6), call(7))).message()
        histories: list[tuple[Messages, str]] = [
            ([SYSTEM, USER], "a system message"),
            ([_BEFORE, answer, last], "earlier turns"),
            ([_BEFORE, ONE_CALL.message(), result(), answer, last], "an earlier call"),
            ([SYSTEM, last, two, result(6), result(7)], "a system message and two results"),
            ([last, ONE_CALL.message(), result()], "a result"),
            (EARLIER, "reasoning and a call since the user's last message"),
            ([*EARLIER, answer, last], "an earlier call after reasoning"),
            ([_BEFORE, Shape(reasoning=True).message(), last], "earlier reasoning"),
        ]
        for word in self._words:
            spoken = f"{WORD} {word} {WORD}"
            histories += [
                ([{**SYSTEM, "content": spoken}, USER], f"{word!r} in a system message"),
                ([{**last, "content": spoken}], f"{word!r} in a message"),
                ([{**last, "content": word}], f"{word!r} as a message"),
                ([_BEFORE, {**answer, "content": spoken}, last], f"{word!r} in an earlier turn"),
            ]
        return histories

    def _tools_doubts(
        self, base: Regions, assumed: Messages, tools: Tools | None, variables: Mapping[str, Any]
    ) -> list[Doubt]:
        """Whether the prompt shows these tools."""
        without = self._rendered(assumed, None, variables)
        if not tools or without is None:
            return []
        lines = set(_own_text(without).split("\n"))
        shown: list[str] = []
        run: list[str] = []
        for line in [*_own_text(base).split("\n"), None]:
            if line is not None and (line not in lines or not line.strip()):
                run.append(line)
            elif run:
                shown.append("\n".join(run).strip())
                run = []
        reason = f"the prompt does not show these tools: {_ADVICE}"
        return [_Missing(reason, ((text, 0),), False) for text in shown if text]

    def _rendered(self, history: Messages, tools: Tools | None, variables: Mapping[str, Any]) -> Regions | None:
        try:
            return self._bridges.regions(history, tools, variables, prompt=True)
        except NoBridge:
            return None

    def _evidence(self, base: Regions, rendered: Regions) -> tuple[tuple[str, int], ...]:
        """What the template writes for a history that it does not write for the assumed one."""
        texts = dict.fromkeys([*self._words, *(token.text for token in rendered.tokens)])
        return tuple(
            (text, base.text.count(text)) for text in texts if rendered.text.count(text) > base.text.count(text)
        )


class _Missing(Doubt):
    """A doubt that holds if the prompt lacks its texts."""

    def holds(self, prompt: str) -> bool:
        return not super().holds(prompt)


def _own_text(regions: Regions) -> str:
    """What the template itself writes, with a line's end in the place of what messages say."""
    pieces, at = [], 0
    for low, high, _ in regions.trace.spans:
        pieces.append(regions.text[at:low])
        at = high
    return "\n".join([*pieces, regions.text[at:]])
