"""Where people change their language within a chunk.

A model is told one language for all that it writes. It says which it hears in a step of the decoder; the encoder's pass
over the sound is what costs. So a chunk is looked at twice, and mostly once:

1. Of each stretch between two pauses, the listener says the languages from what it has of the whole chunk
   (`ListenRequest.stretches`). Nearly every chunk ends here: no stretch seems to be in another language than the chunk.
2. Where one does, it is heard by itself. If it is in another language then, so is each of the others. The likeliest
   languages in a row, of which a change makes each less likely (Viterbi), say where the chunk is to be divided.

What a stretch sounds like in its chunk leans to its neighbours, and by itself a short one may sound like a related
language: a change is one that both speak for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..audio.chunking import Chunk, Spans
from ..listening import Adapter, ListenEnd, Listener, tells_languages
from ..options import TranscriptionOptions

LEAST = 1.0
"""Seconds that a stretch has at least: of less, no language is known."""
_EDGE = 0.1  # seconds around a stretch that are heard with it
_DOUBT = 0.3  # a stretch is heard by itself if the chunk's language is less likely than this
_CHANGE = 2.5  # what a change costs, as a difference of logarithms
_IN_CHUNK = 0.5  # how much what is heard in the chunk counts beside what is heard by itself
_FLOOR = 1e-3  # the least that a language is taken to be likely

Chances = Mapping[int, float]
"""The probability of each language, by its token."""
Evidence = NDArray[np.float64]
"""Of each stretch, in rows, the logarithm of each language's probability."""


def stretches(talk: Spans) -> Spans:
    """The parts of speech between pauses. Those that are too short belong to what is nearer to them."""
    parts = list(talk)
    while len(parts) > 1:
        at = min(range(len(parts)), key=lambda number: parts[number][1] - parts[number][0])
        if parts[at][1] - parts[at][0] >= LEAST:
            break
        before = parts[at][0] - parts[at - 1][1] if at else np.inf
        after = parts[at + 1][0] - parts[at][1] if at + 1 < len(parts) else np.inf
        first = at - 1 if before <= after else at
        parts[first : first + 2] = [(parts[first][0], parts[first + 1][1])]
    return tuple(parts)


@dataclass(frozen=True)
class Division:
    """A chunk in parts of one language each."""

    parts: tuple[Chunk, ...]
    languages: tuple[str, ...]
    """The codes of all languages that are spoken in it."""


def may_change(listener: Listener, adapter: Adapter, options: TranscriptionOptions) -> bool:
    """Whether the user has named several languages, and the listener tells those of parts."""
    if options.language is not None or len(options.languages) < 2:
        return False
    return tells_languages(listener) and len(adapter.languages(options)) > 1


@dataclass
class LanguageQuestion:
    """Whether a chunk is in several languages."""

    listener: Listener
    adapter: Adapter
    chunk: Chunk
    options: TranscriptionOptions
    codes: Mapping[int, str]
    """The code of each language that may be spoken, by its token."""
    stretches: Spans
    recording: object = None
    heard: Sequence[Chances] = ()
    """What is heard of the stretches in the chunk."""
    most: int = 0
    """The language of most of it, by that: which one of `codes`."""
    doubtful: Sequence[int] = ()
    """Those that may be in another language than the chunk."""

    @classmethod
    def of(
        cls, listener: Listener, adapter: Adapter, chunk: Chunk, options: TranscriptionOptions, recording: object = None
    ) -> LanguageQuestion | None:
        """None where the chunk can only be in one."""
        parts = stretches(chunk.talk)
        if len(parts) < 2 or not may_change(listener, adapter, options):
            return None
        parts = tuple((max(0.0, begin - _EDGE), min(chunk.seconds, end + _EDGE)) for begin, end in parts)
        return cls(listener, adapter, chunk, options, adapter.languages(options), parts, recording)

    def put(self, heard: Sequence[Chances]) -> bool:
        """Take what is heard of the stretches in the chunk. Returns whether there may be several languages."""
        seconds = np.array([end - begin for begin, end in self.stretches])
        chances = self._table(heard)
        self.heard, self.most = heard, int((seconds @ chances).argmax())
        self.doubtful = [int(at) for at in np.flatnonzero(chances[:, self.most] < _DOUBT)]
        return bool(self.doubtful)

    async def divided(self) -> Division | None:
        """The parts of the chunk; None where all of it is in one language after all."""
        in_chunk, doubtful = self._evidence(self.heard), list(self.doubtful)
        evidence = (1 + _IN_CHUNK) * in_chunk
        evidence[doubtful] = await self._by_themselves(doubtful) + _IN_CHUNK * in_chunk[doubtful]
        if set(likeliest_row(evidence)) == {self.most}:
            return None
        others = [at for at in range(len(self.heard)) if at not in doubtful]
        evidence[others] = await self._by_themselves(others) + _IN_CHUNK * in_chunk[others]
        row = likeliest_row(evidence)
        codes = list(self.codes.values())
        cuts = [self._cut(at) for at in range(1, len(row)) if row[at] != row[at - 1]]
        return Division(self._parts(cuts), tuple(dict.fromkeys(codes[at] for at in row))) if cuts else None

    def _table(self, heard: Sequence[Chances]) -> NDArray[np.float64]:
        return np.array([one[token] for one in heard for token in self.codes]).reshape(-1, len(self.codes))

    def _evidence(self, heard: Sequence[Chances]) -> Evidence:
        logs: Evidence = np.log(np.maximum(self._table(heard), _FLOOR))
        return logs

    async def _by_themselves(self, which: Sequence[int]) -> Evidence:
        return self._evidence(await asyncio.gather(*(self._alone(*self.stretches[at]) for at in which)))

    async def _alone(self, begin: float, end: float) -> Chances:
        """The languages of a stretch that is heard by itself."""
        sound = self.chunk.after(begin).until(end - begin).samples
        request = replace(self.adapter.request(sound, self.options, 0.0), recording=self.recording)
        request = replace(request, max_tokens=1, words=False)
        choices: Chances = {}
        async with aclosing(self.listener.listen(request)) as outputs:
            async for output in outputs:
                choices = output.choices if isinstance(output, ListenEnd) else choices
        return choices

    def _cut(self, at: int) -> float:
        """Where it is quietest before a stretch."""
        return self.chunk.quietest(self.stretches[at - 1][1] - _EDGE, self.stretches[at][0] + _EDGE)

    def _parts(self, cuts: Sequence[float]) -> tuple[Chunk, ...]:
        parts: list[Chunk] = []
        rest, gone = self.chunk, 0.0
        for cut in cuts:
            parts.append(rest.until(cut - gone))
            rest, gone = rest.after(cut - gone), cut
        return (*parts, rest)


def likeliest_row(evidence: Evidence) -> list[int]:
    """The likeliest languages in a row."""
    score = evidence[0]
    comes_from: list[NDArray[np.int64]] = []
    for row in evidence[1:]:
        best = int(score.argmax())
        changed = score[best] - _CHANGE
        comes_from.append(np.where(score >= changed, np.arange(len(score)), best))
        score = np.maximum(score, changed) + row
    languages = [int(score.argmax())]
    for before in reversed(comes_from):
        languages.append(int(before[languages[-1]]))
    return languages[::-1]
