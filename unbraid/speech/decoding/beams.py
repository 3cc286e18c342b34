"""Beam search: several hypotheses are extended at once, and the likeliest of them becomes the output.

It follows OpenAI's Whisper: each step keeps the `width` likeliest extensions of all beams, until as many hypotheses
have ended as there are beams; then the one with the highest logprob per token wins. What all hypotheses begin with is
emitted as soon as they do: whichever wins has it.

One thing differs. The search goes on while a live beam is likelier than all that have ended. Without that, hypotheses
without commas win, because they end first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...engines.base import TokenLogprob
from ..listening import EndReason, ListenRequest
from .alignment import Attention
from .sampling import Logits, NextTokens, SamplingDecoding, TokenRules, is_looping, likeliest, log_total


@dataclass(frozen=True, slots=True)
class _Beam:
    """A hypothesis, without the prefix."""

    path: tuple[TokenLogprob, ...] = ()
    attention: tuple[Attention, ...] = ()
    total: float = 0.0
    """The sum of the logprobs."""
    ended: bool = False

    @property
    def tokens(self) -> list[int]:
        return [one.token for one in self.path]

    @property
    def score(self) -> float:
        """The logprob per token; the token that ends the text does not count."""
        return self.total / max(1, len(self.path) - self.ended)

    def extended(self, token: int, logprob: float, attention: Attention | None, ends: bool) -> _Beam:
        path = (*self.path, TokenLogprob(token, b"", logprob))
        seen = self.attention if attention is None else (*self.attention, attention)
        return _Beam(path, seen, self.total + logprob, ends)


@dataclass
class BeamDecoding(SamplingDecoding):
    """An output with `width` beams. Its prefix, which all beams share, is decoded with one row."""

    width: int = 1
    _ended_by: EndReason | None = None
    _live: list[_Beam] = field(default_factory=lambda: [_Beam()])
    _ended: list[_Beam] = field(default_factory=list)
    _agreed: int = 0
    """How many tokens have been emitted: those that all hypotheses begin with."""

    @property
    def reason(self) -> EndReason | None:
        return self._ended_by or super().reason

    def step(
        self,
        logits: Logits,
        attention: NDArray[np.float32] | None = None,
        before: Sequence[NDArray[np.float32]] = (),
        forced: int = 0,
    ) -> NextTokens:
        if self.in_prefix:
            return super().step(logits, attention, before, forced)
        self.note_silence(logits[0])
        self.attention += [one[0] for one in before]  # of the prefix, which has one row
        parents = self._extend(logits, attention)
        self._ended_by = self._end_reason()
        if self._ended_by is None:
            emitted = self._newly_agreed()
            return NextTokens(emitted, tuple(parents), tuple(beam.path[-1].token for beam in self._live))
        best = self._best()
        self._ended_by = "stop" if best.ended else self._ended_by
        self.written += best.tokens
        self.attention += best.attention
        return NextTokens(best.path[self._agreed :])

    def _newly_agreed(self) -> tuple[TokenLogprob, ...]:
        """The tokens that all hypotheses have in the next places."""
        first, *others = (beam.path for beam in (*self._live, *self._ended))
        until = self._agreed
        while until < len(first) and all(
            until < len(path) and path[until].token == first[until].token for path in others
        ):
            until += 1
        emitted, self._agreed = first[self._agreed : until], until
        return emitted

    def _extend(self, logits: Logits, attention: NDArray[np.float32] | None) -> list[int]:
        """Extend the beams by one token, and keep the likeliest. Returns the row that each of them comes from."""
        candidates: list[tuple[float, int, int, float]] = []
        for row, beam in enumerate(self._live):
            allowed = logits[row].copy()
            self.rules.apply(allowed, beam.tokens, self.timestamps)
            total = log_total(allowed)
            for token in likeliest(allowed, self.width + 1):  # one more than beams: one may be the end
                logprob = float(allowed[token]) - total
                candidates.append((beam.total + logprob, row, int(token), logprob))
        candidates.sort(key=lambda candidate: -candidate[0])
        live: list[_Beam] = []
        parents: list[int] = []
        for total, row, token, logprob in candidates:
            if len(live) == self.width or total == -np.inf:
                break
            ends = token == self.rules.end
            extended = self._live[row].extended(token, logprob, None if attention is None else attention[row], ends)
            if ends:
                self._ended.append(extended)
            else:
                live.append(extended)
                parents.append(row)
        self._live = live
        return parents

    def _end_reason(self) -> EndReason | None:
        if not self._live:
            return "stop"
        best = self._live[0]
        if len(self._ended) >= self.width and max(beam.total for beam in self._ended) >= best.total:
            return "stop"
        if len(self.begun) + len(best.path) >= self.limit:
            return "length"
        return "loop" if is_looping(best.tokens) else None

    def _best(self) -> _Beam:
        """The winner. Live beams count only to fill up the width, and looping ones only where nothing has ended."""
        others = self._live[: max(0, self.width - len(self._ended))]
        if self._ended_by == "loop" and self._ended:
            others = []
        return max([*self._ended, *others], key=lambda beam: beam.score)


def decoding_for(request: ListenRequest, rules: TokenRules, room: int) -> SamplingDecoding:
    """The decoding that a request asks for, with at most `room` tokens."""
    limit = room if request.max_tokens is None else min(room, request.max_tokens)
    rng = np.random.default_rng(request.seed or 0)  # so that a recording always gives the same transcript
    common = (rules, request.prefix, request.timestamps, request.temperature, limit, rng, request.goes_on)
    return SamplingDecoding(*common) if request.beams == 1 else BeamDecoding(*common, width=request.beams)
