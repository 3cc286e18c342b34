"""One utterance while it is spoken: sound goes in, words come out that are never taken back.

    live = LiveTranscription(transcriber, TranscriptionOptions())
    live.add(samples)    # more and more of it
    live.end()
    async for text in live.words():  # by another task: "Ask not", " what your country", " can do for you."
        ...

All that is there is transcribed as soon as the pass before is done; `agreement` says which words are certain. The text
of an utterance is what `words` has given, joined: there is no other. The language is found in the pass that first
hears words, and holds for the utterance. At the end, a pass that has not all of the sound is given up, and one last
pass hears what is not certain yet.

The law of this module: the work and the memory for a second of sound have a bound. At pauses, what was heard is settled
(`_settle`) and its sound dropped, so that no pass has more than the model takes. `behind` says how much sound waits;
who adds it is to wait where that is much (`caught_up`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

import numpy as np

from ..attempt import Attempt, Attempts, AttemptTokens, Thresholds
from ..audio.chunking import Chunk, cut, is_silent
from ..audio.decode import RATE, Samples
from ..languages import is_unspaced
from ..listening import goes_on_from_words
from ..options import TranscriptionOptions
from ..transcriber import Transcriber
from ..transcript import Delta, Detected
from .agreement import Agreement, HeardPiece, pieces_of

_STEP = 0.3  # seconds of new sound that are worth a pass
_FIRST = 0.7  # seconds before the first pass: of less, models make things up
_LONG = 12.0  # seconds after which a pause settles what was heard
_MARGIN = 0.1  # of what the model takes: sound that comes while a pass is made
_BEHIND = 30.0  # seconds that may wait
_SHORT = 0.1  # seconds: less is no word


class LiveTranscription:
    """One utterance. Its methods belong to one event loop."""

    def __init__(
        self, transcriber: Transcriber, options: TranscriptionOptions, thresholds: Thresholds | None = None
    ) -> None:
        transcriber.check(options)
        self._transcriber = transcriber
        self._options = replace(options, timestamps=False, words=False, vad=None)
        self._thresholds = thresholds or Thresholds()
        self._goes_on = goes_on_from_words(transcriber.listener)
        self._most = round(transcriber.adapter.max_seconds * (1 - _MARGIN) * RATE)
        self._held: list[Samples] = []
        self._count = 0
        """The samples that are held: of the stretch that is heard now."""
        self._ended = False
        self._over = False
        """Whether `words` has ended: nobody listens any more."""
        self._changed = asyncio.Event()
        self._no_more = asyncio.Event()
        """Set at the end."""
        self._room = asyncio.Event()
        self._room.set()
        self._begin()
        self.language: str | None = None
        self.probability: float | None = None
        self.counts = AttemptTokens()
        self.seconds = 0.0
        """How much sound was added."""
        self.passes = 0
        self.text = ""
        """All that `words` has given."""

    def _begin(self) -> None:
        """A new stretch of sound."""
        self._agreement = Agreement()
        self._covered = 0
        """The samples that the last pass has heard."""
        self._certain_until = 0
        """The samples that all certain words lie in."""
        self._quiet_at = 0
        """The samples before the pause that the sound ends with. 0: it ends with speech, or nobody knows."""
        self._last: list[HeardPiece] | None = None
        """What the last pass has heard, where it is to be believed."""

    # What is heard

    def add(self, samples: Samples, *, silent: bool = False) -> None:
        """More sound. `silent`: nobody speaks in it, so that a pause goes on."""
        if not silent:
            self._quiet_at = 0
        if len(samples) and not self._over:
            self._held.append(samples)
            self._count += len(samples)
            self.seconds += len(samples) / RATE
            if self.behind > _BEHIND:
                self._room.clear()
            self._changed.set()

    def pause(self) -> None:
        """The sound ends with a pause: all its words are whole. Speech may go on after it."""
        self._quiet_at = self._count
        self._changed.set()

    def end(self) -> None:
        """There is no more of it."""
        self._ended = True
        self._changed.set()
        self._no_more.set()

    @property
    def behind(self) -> float:
        """Seconds that no pass has heard."""
        return (self._count - self._covered) / RATE

    async def caught_up(self) -> None:
        """Wait until little sound waits."""
        await self._room.wait()

    # What is said

    async def words(self) -> AsyncGenerator[str, None]:
        """The text, as it becomes certain. Ends when all was heard. Raises what the listener does."""
        try:
            while True:
                await self._work()
                if self._count >= self._most or (self._quiet_at >= _LONG * RATE):
                    async for text in self._settled_part():
                        yield text
                    continue
                if self._ended:
                    if certain := self._told(await self._settle(self._count)):
                        yield certain
                    return
                if certain := self._told(await self._pass_while_it_lasts()):
                    yield certain
        finally:
            self._over = True
            self._held = []
            self._room.set()

    async def _work(self) -> None:
        """Wait until there is something to do."""
        while not self._ended and self._count < self._most:
            new = self._count - self._covered
            enough = _STEP if self._covered else _FIRST
            if new >= enough * RATE or self._quiet_at > self._covered:
                return
            self._changed.clear()
            await self._changed.wait()

    async def _pass_while_it_lasts(self) -> str:
        """A pass that is given up if the end comes, and it lacks a part of what was said."""
        until = self._count
        hearing = asyncio.create_task(self._pass())
        ending = asyncio.create_task(self._no_more.wait())
        try:
            await asyncio.wait((hearing, ending), return_when=asyncio.FIRST_COMPLETED)
            if not hearing.done() and until < (self._quiet_at or self._count):
                return ""
            return await hearing
        finally:
            for task in (hearing, ending):
                task.cancel()
            await asyncio.gather(hearing, ending, return_exceptions=True)

    async def _pass(self) -> str:
        """Hear all of the stretch once more. Returns what has become certain."""
        until, before = self._count, self._covered
        whole = self._quiet_at > 0
        heard = await self._heard(until, (0.0,))
        self._last = heard
        if heard is None:
            self._agreement.doubt()
            return ""
        text = self._agreement.take(heard, whole=whole)
        if text:
            self._certain_until = before
        return text

    async def _settled_part(self) -> AsyncGenerator[str, None]:
        """Settle what was said before a pause, or as much as the model takes, and drop its sound."""
        if self._quiet_at >= _LONG * RATE:
            at = min(self._quiet_at, self._most)
        else:
            # No later than a pass can take, and after all words that are certain.
            least = max(self._certain_until, self._most // 2)
            sound = self._sound(self._most)
            rest = (self._most - least) / RATE
            at = len(next(cut([sound], longest=self._most / RATE, search=rest)).samples) if rest > _SHORT else least
        if text := self._told(await self._settle(at)):
            yield text
        rest_of_it = self._sound(self._count)[at:]
        self._held, self._count = [rest_of_it], len(rest_of_it)
        self._begin()

    async def _settle(self, until: int) -> str:
        """Hear a stretch for the last time. Returns the rest of its text."""
        heard_all = self._covered >= self._quiet_at > 0 or self._covered >= until == self._count
        if self._last is not None and heard_all:
            return self._agreement.finish(self._last)  # nobody has spoken since
        heard = await self._heard(until, self._transcriber.temperatures(self._options))
        return "" if heard is None else self._agreement.finish(heard)

    async def _heard(self, until: int, temperatures: tuple[float, ...]) -> list[HeardPiece] | None:
        """What the model says to the stretch, at the first temperature that gives something to believe. None where
        there is nothing."""
        sound = self._sound(until)
        attempts = Attempts(self._thresholds)
        if until >= _SHORT * RATE and not is_silent(sound):
            for temperature in temperatures:
                attempt = self._attempt(sound, temperature)
                await attempt.decode()
                self.passes += 1
                if attempts.add(attempt):
                    break
        best = attempts.best
        if best is not None and len(temperatures) == 1 and best.fails(self._thresholds):
            best = None  # not the best of several: the next pass hears more
        self.counts = self.counts.plus(attempts.counts)
        self._covered = max(self._covered, until)
        if self.behind <= _BEHIND:
            self._room.set()
        return None if best is None else self._pieces(best)

    def _attempt(self, sound: Samples, temperature: float) -> Attempt:
        listener, adapter = self._transcriber.listener, self._transcriber.adapter
        options = self._options
        if self.language is not None and adapter.supports_language_detection:
            options = replace(options, language=self.language, languages=())
        after = self._agreement.tokens if self._goes_on and self.language_is_known else ()
        chunk = Chunk(0.0, sound, speech=((0.0, len(sound) / RATE),))  # it is an utterance: somebody speaks
        return Attempt(listener, adapter, chunk, options, temperature, self, after)

    @property
    def language_is_known(self) -> bool:
        """Whether the next pass has nothing to choose before the text."""
        adapter = self._transcriber.adapter
        detects = adapter.supports_language_detection
        return not detects or self.language is not None or self._options.language is not None

    def _pieces(self, attempt: Attempt) -> list[HeardPiece]:
        self._found = None
        pieces: list[HeardPiece] = []
        for event in attempt.events:
            if isinstance(event, Detected):
                self._found = event
            elif isinstance(event, Delta):
                tokens = tuple(one.token for one in event.logprobs)
                pieces.append(HeardPiece(event.text, tokens))
        if self._transcriber.listener.vocabulary is None:
            return pieces_of("".join(piece.text for piece in pieces))
        return pieces

    _found: Detected | None = None
    """The language of the last pass."""

    def _told(self, text: str) -> str:
        """Text that goes out now. The language of the pass is that of the utterance from here on."""
        if not text:
            return ""
        if self.language is None and self._found is not None:
            self.language, self.probability = self._found.language, self._found.probability
        if not self.text:
            text = text.lstrip()
        elif not self.text[-1].isspace() and text[0].isalnum() and not self._agreement_goes_on(text):
            text = f" {text}"
        self.text += text
        return text

    def _agreement_goes_on(self, text: str) -> bool:
        """Whether text follows without a space: within a stretch always, between two in scripts that have none."""
        return is_unspaced(text) or "".join(piece.text for piece in self._agreement.certain) != text

    def _sound(self, until: int) -> Samples:
        if len(self._held) > 1:
            self._held = [np.concatenate(self._held)]
        return self._held[0][:until] if self._held else np.zeros(0, np.float32)
