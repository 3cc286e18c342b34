"""Beam search: several beginnings of an output are followed at once, and the one that is likeliest in the end is it.

As OpenAI's Whisper does it: each step keeps the likeliest of what could follow any of the beams, until as many have
ended as there are beams, and then the one with the highest logprob a token is told. Nothing is told before. Only here
the search goes on while one that has not ended is likelier than all that have: or else those without commas would win,
for they end first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...engines.base import TokenLogprob
from .alignment import Attention
from .sampling import Logits, Step, Writing, logprobs_of, loops


@dataclass(frozen=True, slots=True)
class _Beam:
    """A beginning, after the prefix."""

    said: tuple[TokenLogprob, ...] = ()
    looks: tuple[Attention, ...] = ()
    total: float = 0.0
    ended: bool = False

    @property
    def tokens(self) -> list[int]:
        return [one.token for one in self.said]

    @property
    def score(self) -> float:
        """The logprob a token. What ends it is no token of the text."""
        return self.total / max(1, len(self.said) - self.ended)

    def followed_by(self, token: int, logprob: float, look: Attention | None, ends: bool) -> _Beam:
        said = (*self.said, TokenLogprob(token, b"", logprob))
        return _Beam(said, self.looks if look is None else (*self.looks, look), self.total + logprob, ends)


@dataclass
class BeamWriting:
    """One output, with `width` beams: like `Writing`, which chooses what comes before the beams part."""

    trunk: Writing
    width: int
    reason: str | None = None
    _live: list[_Beam] = field(default_factory=lambda: [_Beam()])
    _ended: list[_Beam] = field(default_factory=list)

    @property
    def begun(self) -> Sequence[int]:
        return self.trunk.begun

    @property
    def written(self) -> Sequence[int]:
        return self.trunk.written

    @property
    def looks(self) -> list[Attention]:
        return self.trunk.looks

    @property
    def no_speech(self) -> float | None:
        return self.trunk.no_speech

    @property
    def choices(self) -> dict[int, float]:
        return self.trunk.choices

    def step(self, logits: Logits, looks: NDArray[np.float32] | None = None) -> Step:
        """As `Writing.step` does it; the rows are those of the beams."""
        if self.trunk.in_prefix:
            step = self.trunk.step(logits, looks)
            self.reason = self.trunk.reason
            return step
        self.trunk.note_silence(logits[0])
        parents = self._grow(logits, looks)
        self.reason = self._over()
        if self.reason is None:
            return Step((), tuple(parents), tuple(beam.said[-1].token for beam in self._live))
        best = self._best()
        self.reason = "stop" if best.ended else self.reason
        self.trunk.written += best.tokens
        self.trunk.looks += best.looks
        return Step(best.said)

    def _grow(self, logits: Logits, looks: NDArray[np.float32] | None) -> list[int]:
        """Each beam a token longer. Says of each which one it was before."""
        found: list[tuple[float, int, int, float]] = []
        for row, beam in enumerate(self._live):
            allowed = logits[row].copy()
            self.trunk.rules.apply(allowed, beam.tokens, self.trunk.timestamps)
            logprobs = logprobs_of(allowed)
            likeliest = np.argpartition(-logprobs, min(self.width, len(logprobs) - 1))[
                : self.width + 1
            ]  # one more, for one may end it
            found += [(beam.total + float(logprobs[at]), row, int(at), float(logprobs[at])) for at in likeliest]
        found.sort(key=lambda one: -one[0])
        live: list[_Beam] = []
        parents: list[int] = []
        for total, row, token, logprob in found:
            if len(live) == self.width or total == -np.inf:
                break
            ends = token == self.trunk.rules.end
            longer = self._live[row].followed_by(token, logprob, None if looks is None else looks[row], ends)
            if ends:
                self._ended.append(longer)
            else:
                live.append(longer)
                parents.append(row)
        self._live = live
        return parents

    def _over(self) -> str | None:
        if not self._live:
            return "stop"
        best = self._live[0]
        if len(self._ended) >= self.width and max(beam.total for beam in self._ended) >= best.total:
            return "stop"
        if len(self.trunk.begun) + len(best.said) >= self.trunk.limit:
            return "length"
        return "loop" if loops(best.tokens) else None

    def _best(self) -> _Beam:
        """One that has not ended counts only where too few have, and one that goes round in circles where none has."""
        others = self._live[: max(0, self.width - len(self._ended))]
        if self.reason == "loop" and self._ended:
            others = []
        return max([*self._ended, *others], key=lambda beam: beam.score)
