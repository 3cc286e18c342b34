"""One attempt at a chunk: decoded once, at one temperature, to text and segments.

The model's tokens go through the parser of its format. `_SegmentReader` turns the parser's events into those of a
transcript. `Attempt` then says whether the output passes the `Thresholds`.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from ..constraints.dialects.token_sets import TokenSets
from ..core.events import Content, Event, Language, Timestamp
from ..engines.base import EngineFailed
from ..parsing import Parser
from .adapters import Adapter
from .audio.chunking import Chunk
from .audio.decode import RATE
from .listening import ANYTHING, ListenEnd, Listener, Opening
from .options import TranscriptionOptions
from .transcript import Delta, Detected, Segment, TranscriptEvent, Word, compression_ratio
from .words import fit_to_sound, join_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """When an output is rejected. The values are those of OpenAI's Whisper."""

    no_speech: float = 0.6
    """A chunk is silence if that is likelier than this, and the average logprob is low, too."""
    avg_logprob: float = -1.0
    compression_ratio: float = 2.4
    temperatures: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    """Tried in order, until an output passes. In a stream only the first is tried."""


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """How many tokens an attempt read and wrote."""

    prompt: int = 0
    completion: int = 0

    def plus(self, other: TokenCounts) -> TokenCounts:
        return TokenCounts(self.prompt + other.prompt, self.completion + other.completion)


@dataclass
class Attempt:
    """One chunk, decoded once."""

    listener: Listener
    adapter: Adapter
    chunk: Chunk
    options: TranscriptionOptions
    temperature: float
    prefix: TokenSets = ANYTHING
    """What the output must begin with."""
    end: ListenEnd | None = None
    no_speech: float | None = None
    """The probability of silence. Some listeners give it with the first piece, others at the end or not at all."""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    text: str = ""
    prefix_missing: bool = False
    """The output did not begin with its prefix."""

    def __post_init__(self) -> None:
        vocabulary = self.listener.vocabulary
        ends = self.adapter.format.ends
        self.ends = frozenset(map(vocabulary.token_id, ends) if vocabulary is not None else ())
        """The tokens that end an output."""

    async def events(self) -> AsyncGenerator[TranscriptEvent, None]:
        """Decode the chunk. The other attributes are complete when the events are."""
        request = self.adapter.request(self.chunk.samples, self.options, self.temperature)
        self.prefix = request.prefix
        parser = Parser(self.adapter.format, tokenizer=self.listener.vocabulary, keep_message=False)
        reader = _SegmentReader(self)
        async with aclosing(self.listener.listen(request)) as outputs:
            async for output in outputs:
                if isinstance(output, ListenEnd):
                    self.end, self.no_speech = output, output.no_speech
                    continue
                if isinstance(output, Opening):
                    self.no_speech = output.no_speech
                self.logprobs += [one.logprob for one in output.logprobs]
                for event in reader.read(parser.feed(output.text)) if output.text else ():
                    yield event
                for token in output.ids:  # one by one, to know the tokens of each segment
                    reader.take(token, in_prefix=self._note(token))
                    for event in reader.read(parser.feed_tokens([token])):
                        yield event
        if self.end is None:
            raise EngineFailed("the model's output ended without a ListenEnd")
        self.prefix_missing = not self.prefix.accepts(self.tokens)
        for event in reader.read(parser.finish()):
            yield event
        for segment in reader.finish(self.end):
            yield segment

    def _note(self, token: int) -> bool:
        """Take the next token. Returns whether it belongs to the prefix."""
        allowed = self.prefix.allowed(self.tokens)
        self.tokens.append(token)
        self.prefix_missing = self.prefix_missing or (allowed is not None and token not in allowed)
        return allowed is not None and not self.prefix_missing

    @property
    def seconds(self) -> float:
        return len(self.chunk.samples) / RATE

    @property
    def probability(self) -> float | None:
        """The probability of the language among the candidates. None if it was given."""
        return None if self.options.language is not None or not self.logprobs else math.exp(self.logprobs[0])

    @property
    def avg_logprob(self) -> float:
        """The average over the text and its end, as OpenAI computes it: a missing end counts as a token, too."""
        logprobs = self.logprobs if self.prefix_missing else self.logprobs[len(self.prefix.sets) :]
        ended = bool(self.tokens) and self.tokens[-1] in self.ends
        return sum(logprobs) / max(1, len(logprobs) if ended else len(logprobs) + 1)

    @property
    def counts(self) -> TokenCounts:
        return TokenCounts() if self.end is None else TokenCounts(self.end.prompt_tokens, self.end.completion_tokens)

    def may_be_silence(self, limits: Thresholds) -> bool:
        """Whether the chunk may be silence, by what is known now."""
        return self.no_speech is not None and self.no_speech > limits.no_speech

    def is_silence(self, limits: Thresholds) -> bool:
        return self.may_be_silence(limits) and self.avg_logprob < limits.avg_logprob

    def fails(self, limits: Thresholds) -> bool:
        assert self.end is not None
        repeats = compression_ratio(self.text.strip()) > limits.compression_ratio or self.end.reason == "loop"
        return repeats or self.avg_logprob < limits.avg_logprob


@dataclass(frozen=True, slots=True)
class _TextPiece:
    """Some text, and the tokens that spell it: `first` to `last` of the output."""

    text: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class _Span:
    """What was said between two times of the chunk."""

    begin: float
    end: float
    pieces: tuple[_TextPiece, ...]
    tokens: tuple[int, ...]

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


class _SegmentReader:
    """From the parser's events to text and segments."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._written_language: str | None = None
        """The language that the model wrote."""
        self._begin = 0.0
        self._pieces: list[_TextPiece] = []
        self._next = 0
        """The first token that is not part of any text yet."""
        self._tokens: list[int] = []
        self._spans: list[_Span] = []

    def take(self, token: int, in_prefix: bool) -> None:
        """The next token; call it before `read` with the events of that token."""
        if in_prefix:
            self._next = len(self._attempt.tokens)
        elif token not in self._attempt.ends:
            self._tokens.append(token)

    def read(self, events: Iterable[Event]) -> Iterator[TranscriptEvent]:
        attempt = self._attempt
        last = len(attempt.tokens) - 1
        for event in events:
            if isinstance(event, Content):
                if not attempt.text and self._language is not None:  # not earlier: a chunk without text has no language
                    yield Detected(self._language, None if self._written_language is None else attempt.probability)
                self._pieces.append(_TextPiece(event.text, min(self._next, last), last))
                attempt.text += event.text
                yield Delta(event.text)
            elif isinstance(event, Language):
                self._written_language = event.code
                if attempt.text and self._language is not None:  # some servers send it last
                    yield Detected(self._language, attempt.probability)
            elif isinstance(event, Timestamp):
                self._time(max(self._begin, min(event.seconds, attempt.seconds)))
            self._next = last + 1

    def finish(self, end: ListenEnd) -> Iterator[Segment]:
        self._close(self._attempt.seconds)
        attempt, start = self._attempt, self._attempt.chunk.start
        for span, words in zip(self._spans, self._words(end), strict=True):
            yield Segment(
                round(start + (words[0].start if words else span.begin), 2),
                round(start + (words[-1].end if words else span.end), 2),
                span.text,
                self._language,
                span.tokens,
                attempt.temperature,
                attempt.avg_logprob,
                end.no_speech,
                tuple(
                    replace(word, start=round(start + word.start, 2), end=round(start + word.end, 2)) for word in words
                ),
            )

    def _words(self, end: ListenEnd) -> Iterator[list[Word]]:
        """The words of each span, with times of the chunk. Empty lists if the model did not time its tokens."""
        if not end.times:
            yield from ([] for _ in self._spans)
            return
        times, logprobs = end.times, self._attempt.logprobs
        if len(times) != len(self._attempt.tokens) + 1:
            raise EngineFailed(
                f"the model gave {len(times)} times for {len(self._attempt.tokens)} tokens and their end"
            )
        by_span = [
            join_words(
                [
                    Word(
                        piece.text,
                        times[piece.first],
                        times[piece.last + 1],
                        sum(map(math.exp, logprobs[piece.first : piece.last + 1])) / (piece.last + 1 - piece.first),
                    )
                    for piece in span.pieces
                ]
            )
            for span in self._spans
        ]
        # All at once: a word may last until the next one begins, even if that is in another span.
        found = iter(fit_to_sound([word for words in by_span for word in words], self._attempt.chunk.samples))
        for words in by_span:
            yield [next(found) for _ in words]

    @property
    def _language(self) -> str | None:
        adapter = self._attempt.adapter
        if self._attempt.prefix_missing:
            return None
        if adapter.supports_language_detection:
            return self._written_language
        return self._written_language or adapter.language or self._attempt.options.language

    def _time(self, seconds: float) -> None:
        """A timestamp: the end of a segment, or the start of one. Its token belongs to that segment."""
        token = self._tokens[-1:]
        if not self._close(seconds):
            self._tokens = token
        self._begin = seconds

    def _close(self, end: float) -> bool:
        """End the current segment. Returns whether it has text; without text it stays open."""
        span = _Span(self._begin, end, tuple(self._pieces), tuple(self._tokens))
        if not span.text.strip():
            return False
        self._spans.append(span)
        self._pieces, self._tokens = [], []
        return True
