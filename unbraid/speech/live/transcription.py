"""One utterance while it is spoken: sound goes in, words come out that are never taken back.

    live = LiveTranscription(transcriber, TranscriptionOptions())
    live.add(samples)    # more and more of it
    live.end()
    async for text in live.words():  # by another task: "Ask not", " what your country", " can do for you."
        ...

All that is there is transcribed as soon as the pass before is done; `agreement` says which words are certain. The text
of an utterance is what `words` has given, joined: there is no other. The language is found in the pass that first
hears words, and holds until another is spoken after a pause (`language_changes`): then what was said before it is
settled, and the rest is heard anew. At the end, a pass that has not all of the sound is given up, and one last pass
hears what is not certain yet.

The law of this module: the work and the memory for a second of sound have a bound. At pauses, what was heard is settled
(`_settle`) and its sound dropped, so that no pass has more than the model takes. `behind` says how much sound waits;
who adds it is to wait where that is much (`caught_up`).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from dataclasses import replace

import numpy as np

from ..attempt import Attempt, Attempts, AttemptTokens, Thresholds
from ..audio.chunking import Chunk, cut, is_silent
from ..audio.decode import RATE, Samples
from ..decoding.language_changes import LEAST, LanguageQuestion, may_change
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
_KNOWN = 2.0  # seconds after a pause by which the language is known


class _Changed(Exception):
    """Another language is spoken from here on."""

    def __init__(self, at: int) -> None:
        self.at = at
        """The samples before it."""


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
        self._asks = may_change(transcriber.listener, transcriber.adapter, options)
        """Whether there may be several languages."""
        self._spoken: str | None = None
        """The language that is spoken now."""
        self.languages: list[str] = []
        """All that were spoken."""
        self.language: str | None = None
        """The first of them."""
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
        self._pauses: list[int] = []
        """The samples before each pause after which the language may be another one."""
        self._asked = 0
        """The samples of which it was last looked whether they are in one language."""
        self._last: list[HeardPiece] | None = None
        """What the last pass has heard, where it is to be believed."""

    # What is heard

    def add(self, samples: Samples, *, silent: bool = False) -> None:
        """More sound. `silent`: nobody speaks in it, so that a pause goes on."""
        if not silent:
            self._pauses += [self._quiet_at] if self._quiet_at and self._asks else []
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
                over = False
                try:
                    if self._count >= self._most or (self._quiet_at >= _LONG * RATE):
                        certain = await self._settle_before(self._end_of_part())
                    elif self._ended:
                        certain, over = self._told(await self._settle(self._count)), True
                    else:
                        certain = self._told(await self._pass_while_it_lasts())
                except _Changed as change:
                    certain = await self._settle_language(change.at)
                if certain:
                    yield certain
                if over:
                    return
        finally:
            self._over = True
            self._held = []
            self._room.set()

    async def _work(self) -> None:
        """Wait until there is something to do."""
        while not self._ended and self._count < self._most:
            new = self._count - self._covered
            enough = _STEP if self._covered else _FIRST
            if self._pauses and self._pauses[-1] >= self._covered:
                enough = LEAST  # of less, no language is known
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

    def _end_of_part(self) -> int:
        """Up to where a stretch that has become long is settled: a pause, or as much as the model takes."""
        if self._quiet_at >= _LONG * RATE:
            return min(self._quiet_at, self._most)
        # No later than a pass can take, and after all words that are certain.
        least = max(self._certain_until, self._most // 2)
        rest = (self._most - least) / RATE
        if rest <= _SHORT:
            return least
        return len(next(cut([self._sound(self._most)], longest=self._most / RATE, search=rest)).samples)

    async def _settle_before(self, at: int) -> str:
        """Settle what was said before, and drop its sound. Returns what goes out."""
        certain = self._told(await self._settle(at))
        rest, quiet, pauses = self._sound(self._count)[at:], self._quiet_at, self._pauses
        self._held, self._count = [rest], len(rest)
        self._begin()
        self._quiet_at = max(0, quiet - at)
        self._pauses = [pause - at for pause in pauses if pause > at]
        if self._asks:
            self._spoken = None  # it is found anew, as in each chunk of a recording
        return certain

    async def _settle_language(self, at: int) -> str:
        """The same, where another language is spoken from there on."""
        self._pauses, self._last = [pause for pause in self._pauses if pause > at], None
        return await self._settle_before(at)

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
            question = self._question(sound)
            for temperature in temperatures:
                attempt = self._attempt(sound, temperature, question)
                await attempt.decode()
                if question is not None and await self._takes_another(question):
                    attempt = self._attempt(sound, temperature)
                    await attempt.decode()
                question = None
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

    def _question(self, sound: Samples) -> LanguageQuestion | None:
        """Whether the stretch goes on in another language after a pause. It is asked when a little was said since, and
        once more when that is enough to know."""
        edges = [0, *(pause for pause in self._pauses if pause < len(sound)), len(sound)]
        knows = edges[-1] - edges[-2] >= _KNOWN * RATE or self._ended or self._quiet_at > 0
        if self._asked > edges[-2] and not knows:
            return None
        chunk = Chunk(0.0, sound, talk=tuple((begin / RATE, end / RATE) for begin, end in itertools.pairwise(edges)))
        return LanguageQuestion.of(self._transcriber.listener, self._transcriber.adapter, chunk, self._options, self)

    async def _takes_another(self, question: LanguageQuestion) -> bool:
        """Whether it takes another attempt, because all is in one language after all. Raises `_Changed` if not."""
        division = await question.divided() if question.doubtful else None
        if division is not None:
            raise _Changed(len(division.parts[0].samples))
        self._asked = until = len(question.chunk.samples)
        begin = max(pause for pause in self._pauses if pause < until)
        knows = until - begin >= _KNOWN * RATE or self._quiet_at > 0
        self._pauses = [pause for pause in self._pauses if pause >= (until if knows else begin)]
        return bool(question.doubtful)

    def _attempt(self, sound: Samples, temperature: float, question: LanguageQuestion | None = None) -> Attempt:
        listener, adapter = self._transcriber.listener, self._transcriber.adapter
        options = self._options
        if self._spoken is not None and adapter.supports_language_detection:
            options = replace(options, language=self._spoken, languages=())
        after = self._agreement.tokens if self._goes_on and self.language_is_known else ()
        chunk = Chunk(0.0, sound, speech=((0.0, len(sound) / RATE),))  # it is an utterance: somebody speaks
        return Attempt(listener, adapter, chunk, options, temperature, self, after, question)

    @property
    def language_is_known(self) -> bool:
        """Whether the next pass has nothing to choose before the text."""
        adapter = self._transcriber.adapter
        detects = adapter.supports_language_detection
        return not detects or self._spoken is not None or self._options.language is not None

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
        if self._spoken is None and self._found is not None:
            self._spoken = self._found.language
            if self.language is None:
                self.language, self.probability = self._found.language, self._found.probability
            if self._spoken is not None and self._spoken not in self.languages:
                self.languages.append(self._spoken)
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
