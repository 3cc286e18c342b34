"""One chunk heard once, at one temperature: what the model writes, to text and segments, and whether it is believed."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from ..constraints.dialects.token_sets import TokenSets
from ..core.events import Content, Event, Language, Timestamp
from ..engines.base import EngineFailed
from ..parsing import Parser
from .adapters import Adapter, TranscriptionOptions
from .audio.chunking import Chunk
from .audio.decode import RATE
from .listening import ANYTHING, ListenEnd, Listener, Opening
from .transcript import Delta, Detected, Segment, TranscriptEvent, compression_ratio
from .words import Word, placed, words_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """When an output is not believed. The values are those of OpenAI's Whisper."""

    no_speech: float = 0.6
    """Nobody spoke if that is likelier than this, and the words are unlikely too."""
    avg_logprob: float = -1.0
    compression_ratio: float = 2.4
    temperatures: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    """Tried one after the other until one is believed. What has been streamed cannot be taken back, and is not tried
    again."""


@dataclass(frozen=True, slots=True)
class Spent:
    """The tokens of an attempt."""

    prompt: int = 0
    completion: int = 0

    def plus(self, other: Spent) -> Spent:
        return Spent(self.prompt + other.prompt, self.completion + other.completion)


@dataclass
class Attempt:
    """One chunk heard once."""

    listener: Listener
    adapter: Adapter
    chunk: Chunk
    wish: TranscriptionOptions
    temperature: float
    prefix: TokenSets = ANYTHING
    """What the output was made to begin with."""
    heard: ListenEnd | None = None
    no_speech: float | None = None
    """How likely it is that nobody spoke: known before the first text, where the model says it then."""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    text: str = ""
    astray: bool = False
    """The output began with something else."""

    def __post_init__(self) -> None:
        known = self.listener.vocabulary
        self.ends = frozenset(map(known.token_id, self.adapter.format.ends) if known is not None else ())
        """The tokens that end an output."""

    async def events(self) -> AsyncGenerator[TranscriptEvent, None]:
        request = self.adapter.hearing(self.chunk.samples, self.wish, self.temperature)
        self.prefix = request.prefix
        parser = Parser(self.adapter.format, tokenizer=self.listener.vocabulary, keep_message=False)
        segments = _Segments(self)
        async with aclosing(self.listener.listen(request)) as outputs:
            async for output in outputs:
                if isinstance(output, ListenEnd):
                    self.heard, self.no_speech = output, output.no_speech
                    continue
                if isinstance(output, Opening):
                    self.no_speech = output.no_speech
                self.logprobs += [one.logprob for one in output.logprobs]
                for said in segments.read(parser.feed(output.text)) if output.text else ():
                    yield said
                for token in output.ids:  # one by one: each segment has its own
                    segments.take(token, in_prefix=self._note(token))
                    for said in segments.read(parser.feed_tokens([token])):
                        yield said
        if self.heard is None:
            raise EngineFailed("the model ended without saying how")
        self.astray = not self.prefix.accepts(self.tokens)
        for said in segments.read(parser.finish()):
            yield said
        for segment in segments.finish(self.heard):
            yield segment

    def _note(self, token: int) -> bool:
        """Whether a token, the next one, is of those that the output was made to begin with."""
        allowed = self.prefix.allowed(self.tokens)
        self.tokens.append(token)
        self.astray = self.astray or (allowed is not None and token not in allowed)
        return allowed is not None and not self.astray

    @property
    def seconds(self) -> float:
        return len(self.chunk.samples) / RATE

    @property
    def probability(self) -> float | None:
        """How likely the language was, among those that it could be. None where it was given."""
        return None if self.wish.language is not None or not self.logprobs else math.exp(self.logprobs[0])

    @property
    def avg_logprob(self) -> float:
        """Of the text and its end, as OpenAI reckons it: an end that did not come counts, too."""
        logprobs = self.logprobs if self.astray else self.logprobs[len(self.prefix.sets) :]
        ended = bool(self.tokens) and self.tokens[-1] in self.ends
        return sum(logprobs) / max(1, len(logprobs) if ended else len(logprobs) + 1)

    @property
    def spent(self) -> Spent:
        return Spent() if self.heard is None else Spent(self.heard.prompt_tokens, self.heard.completion_tokens)

    def may_be_silence(self, limits: Thresholds) -> bool:
        """Whether nobody may have spoken, as far as that is known now."""
        return self.no_speech is not None and self.no_speech > limits.no_speech

    def is_silence(self, limits: Thresholds) -> bool:
        return self.may_be_silence(limits) and self.avg_logprob < limits.avg_logprob

    def fails(self, limits: Thresholds) -> bool:
        assert self.heard is not None
        repeats = compression_ratio(self.text.strip()) > limits.compression_ratio or self.heard.reason == "loop"
        return repeats or self.avg_logprob < limits.avg_logprob


@dataclass(frozen=True, slots=True)
class _Spoken:
    """Some text, and the tokens that spell it: from `first` to `last` of the output."""

    text: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class _Stretch:
    """What was said between two times of the chunk."""

    begin: float
    end: float
    spoken: tuple[_Spoken, ...]
    tokens: tuple[int, ...]

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.spoken)


class _Segments:
    """What the parser says of the tokens, to the text and the segments of the recording."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._said: str | None = None
        """The language, by the model."""
        self._begin = 0.0
        self._spoken: list[_Spoken] = []
        self._next = 0
        """The first token that has not shown itself as text yet."""
        self._tokens: list[int] = []
        self._done: list[_Stretch] = []

    def take(self, token: int, in_prefix: bool) -> None:
        """The next token, before what the parser says of it."""
        if in_prefix:
            self._next = len(self._attempt.tokens)
        elif token not in self._attempt.ends:
            self._tokens.append(token)

    def read(self, events: Iterable[Event]) -> Iterator[TranscriptEvent]:
        attempt = self._attempt
        last = len(attempt.tokens) - 1
        for event in events:
            if isinstance(event, Content):
                if not attempt.text and self._language is not None:  # not before: where nothing is said, no language is
                    yield Detected(self._language, None if self._said is None else attempt.probability)
                self._spoken.append(_Spoken(event.text, min(self._next, last), last))
                attempt.text += event.text
                yield Delta(event.text)
            elif isinstance(event, Language):
                self._said = event.code
                if attempt.text and self._language is not None:  # some servers say it last
                    yield Detected(self._language, attempt.probability)
            elif isinstance(event, Timestamp):
                self._time(max(self._begin, min(event.seconds, attempt.seconds)))
            self._next = last + 1

    def finish(self, heard: ListenEnd) -> Iterator[Segment]:
        self._close(self._attempt.seconds)
        attempt, start = self._attempt, self._attempt.chunk.start
        for stretch, words in zip(self._done, self._words(heard), strict=True):
            yield Segment(
                round(start + (words[0].start if words else stretch.begin), 2),
                round(start + (words[-1].end if words else stretch.end), 2),
                stretch.text,
                self._language,
                stretch.tokens,
                attempt.temperature,
                attempt.avg_logprob,
                heard.no_speech,
                tuple(
                    replace(word, start=round(start + word.start, 2), end=round(start + word.end, 2)) for word in words
                ),
            )

    def _words(self, heard: ListenEnd) -> Iterator[list[Word]]:
        """Of each stretch, with times of the chunk. None where the model did not tell them."""
        if not heard.times:
            yield from ([] for _ in self._done)
            return
        times, logprobs = heard.times, self._attempt.logprobs
        if len(times) != len(self._attempt.tokens) + 1:
            raise EngineFailed(f"the model told {len(times)} times of {len(self._attempt.tokens)} tokens and their end")
        by_stretch = [
            words_of(
                [
                    Word(
                        piece.text,
                        times[piece.first],
                        times[piece.last + 1],
                        sum(map(math.exp, logprobs[piece.first : piece.last + 1])) / (piece.last + 1 - piece.first),
                    )
                    for piece in stretch.spoken
                ]
            )
            for stretch in self._done
        ]
        # All at once: a word may last until the next begins, of whichever stretch it is.
        found = iter(placed([word for words in by_stretch for word in words], self._attempt.chunk.samples))
        for words in by_stretch:
            yield [next(found) for _ in words]

    @property
    def _language(self) -> str | None:
        adapter = self._attempt.adapter
        if self._attempt.astray:
            return None
        if adapter.supports_language_detection:
            return self._said
        return self._said or adapter.language or self._attempt.wish.language

    def _time(self, seconds: float) -> None:
        """The end of a segment, or the beginning of one. Its token belongs to it."""
        token = self._tokens[-1:]
        if not self._close(seconds):
            self._tokens = token
        self._begin = seconds

    def _close(self, end: float) -> bool:
        stretch = _Stretch(self._begin, end, tuple(self._spoken), tuple(self._tokens))
        if not stretch.text.strip():
            return False
        self._done.append(stretch)
        self._spoken, self._tokens = [], []
        return True
