"""One attempt at a chunk: decoded once, at one temperature, to text and segments.

The model's tokens go through the parser of its format, and `segments` makes a transcript's events of what the parser
says. `Attempt` then says whether the output passes the `Thresholds`.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from ..constraints.printers.token_sets import TokenSets
from ..engines.base import EngineFailed, TokenLogprob
from ..parsing import Parser
from .audio.chunking import Chunk
from .decoding.language_changes import LanguageQuestion
from .listening import ANYTHING, Adapter, ListenEnd, Listener, Opening
from .options import TranscriptionOptions
from .segments import SegmentReader
from .transcript import Delta, Detected, TranscriptEvent, compression_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """When an output is rejected. The values are those of OpenAI's Whisper, except for the last three."""

    no_speech: float = 0.6
    """A chunk is silence if that is likelier than this, and the average logprob is low, too."""
    avg_logprob: float = -1.0
    compression_ratio: float = 2.4
    temperatures: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    """Tried in order, until an output passes."""
    hopeless_logprob: float = -2.0
    """An output below this is not believed at all, even if there is no better one: its words are guesses."""
    doubtful: float = 0.2
    """A chunk in which no detector heard a voice, and of which no output passes, is silence if that is likelier than
    this: its words are guesses, too."""
    most_tokens: int = 672
    """No further temperature is tried once a chunk has cost so many tokens: three times what 30 seconds may have."""


@dataclass(frozen=True, slots=True)
class AttemptTokens:
    """How many tokens an attempt read and wrote."""

    prompt: int = 0
    completion: int = 0

    def plus(self, other: AttemptTokens) -> AttemptTokens:
        return AttemptTokens(self.prompt + other.prompt, self.completion + other.completion)


@dataclass
class Attempt:
    """One chunk, decoded once. Everything but the first eight attributes is known after `decode`."""

    listener: Listener
    adapter: Adapter
    chunk: Chunk
    options: TranscriptionOptions
    temperature: float
    recording: object = None
    """Which recording the chunk is of; see `ListenRequest`."""
    after: tuple[int, ...] = ()
    """The tokens of words that are certain already. The output begins with them, and goes on from there."""
    question: LanguageQuestion | None = None
    """Whether the chunk is in several languages. If it may be, the attempt is given up."""
    prefix: TokenSets = ANYTHING
    """What the output must begin with."""
    end: ListenEnd | None = None
    no_speech: float | None = None
    """The probability of silence. Some listeners give it with the first piece, others at the end or not at all."""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    text: str = ""
    events: list[TranscriptEvent] = field(default_factory=list)
    until: float = 0.0
    """Up to which second of the chunk the output has the words, by the model: often a whole second, rounded up."""
    said: float = 0.0
    """When the last word ends, in seconds of the chunk; 0 where the listener does not time words."""
    goes_on: bool = False
    """The output ends with the time at which something else begins."""
    prefix_missing: bool = False
    """The output did not begin with its prefix."""
    detected: Detected | None = None
    """The language, once something is decoded."""
    garbled: bool = False
    """The output has bytes that are no characters."""

    def __post_init__(self) -> None:
        vocabulary = self.listener.vocabulary
        ends = self.adapter.format.ends
        self.ends = frozenset(map(vocabulary.token_id, ends) if vocabulary is not None else ())
        """The tokens that end an output."""

    async def decode(self) -> None:
        """Decode the chunk."""
        async for _ in self.deltas():
            pass

    async def deltas(self) -> AsyncGenerator[Delta, None]:
        """Decode the chunk. The text comes as it is decoded: it is all of the output's text, or its beginning."""
        count = 0
        request = self.adapter.request(self.chunk.samples, self.options, self.temperature)
        request = replace(request, speech=self.chunk.speech, recording=self.recording)
        if self.after:
            certain = (frozenset({token}) for token in self.after)
            request = replace(request, prefix=TokenSets((*request.prefix.sets, *certain)), goes_on=True)
        if self.question is not None:
            request = replace(request, stretches=self.question.stretches, languages=frozenset(self.question.codes))
        self.prefix = request.prefix
        parser = Parser(self.adapter.format, tokenizer=self.listener.vocabulary, keep_message=False)
        reader = SegmentReader(self)
        async with aclosing(self.listener.listen(request)) as outputs:
            async for output in outputs:
                if isinstance(output, ListenEnd):
                    self.end, self.no_speech = output, output.no_speech
                    continue
                if isinstance(output, Opening):
                    self.no_speech = output.no_speech
                    if self.question is not None and self.question.put(output.languages):
                        return
                self.logprobs += output.logprobs
                if output.text:
                    reader.read(parser.feed(output.text))
                for token in output.ids:  # one by one, to know the tokens of each piece of text
                    reader.take(token, in_prefix=self._note(token))
                    reader.read(parser.feed_tokens([token]))
                ready = reader.deltas(count)
                count += len(ready)
                self.detected = reader.detected
                for delta in ready:
                    yield delta
        if self.end is None:
            raise EngineFailed("the model's output ended without a ListenEnd")
        self.prefix_missing = not self.prefix.accepts(self.tokens)
        reader.read(parser.finish())
        self.events = reader.finish(self.end)
        self.until, self.said, self.goes_on = reader.until, reader.said, reader.goes_on

    def _note(self, token: int) -> bool:
        """Take the next token. Returns whether it belongs to the prefix."""
        allowed = self.prefix.allowed(self.tokens)
        self.tokens.append(token)
        self.prefix_missing = self.prefix_missing or (allowed is not None and token not in allowed)
        return allowed is not None and not self.prefix_missing

    @property
    def probability(self) -> float | None:
        """The probability of the language among the candidates. None if it was given."""
        is_known = self.options.language is not None or not self.logprobs
        return None if is_known else math.exp(self.logprobs[0].logprob)

    @property
    def avg_logprob(self) -> float:
        """The average over the text and its end, as OpenAI computes it: a missing end counts as a token, too."""
        logprobs = self.logprobs if self.prefix_missing else self.logprobs[len(self.prefix.sets) :]
        ended = bool(self.tokens) and self.tokens[-1] in self.ends
        return sum(one.logprob for one in logprobs) / max(1, len(logprobs) if ended else len(logprobs) + 1)

    @property
    def counts(self) -> AttemptTokens:
        return (
            AttemptTokens() if self.end is None else AttemptTokens(self.end.prompt_tokens, self.end.completion_tokens)
        )

    def is_silence(self, limits: Thresholds) -> bool:
        """Whether nobody spoke, by the model's own account."""
        unlikely = self.no_speech is not None and self.no_speech > limits.no_speech
        return unlikely and self.avg_logprob < limits.avg_logprob

    def repeats(self, limits: Thresholds) -> bool:
        assert self.end is not None
        return compression_ratio(self.text.strip()) > limits.compression_ratio or self.end.reason == "loop"

    def fails(self, limits: Thresholds) -> bool:
        """Whether it is worth while to try again."""
        return self.repeats(limits) or self.avg_logprob < limits.avg_logprob or self.garbled

    def believable(self, limits: Thresholds) -> bool:
        """Whether nothing speaks against what was decoded so far: it is likely, no repetition, and no silence."""
        logprobs = self.logprobs[len(self.prefix.sets) :]
        average = sum(one.logprob for one in logprobs) / max(1, len(logprobs))
        quiet = self.no_speech is not None and self.no_speech > limits.no_speech
        repeated = compression_ratio(self.text.strip()) > limits.compression_ratio
        return not (quiet or repeated or self.garbled or self.prefix_missing) and average >= limits.avg_logprob

    def hopeless(self, limits: Thresholds) -> bool:
        """Whether it is better to have no words than these: they are improbable, and repeated or no characters; or
        very improbable."""
        if self.avg_logprob < limits.hopeless_logprob:
            return True
        return self.avg_logprob < limits.avg_logprob and (self.repeats(limits) or self.garbled)

    def doubtful(self, limits: Thresholds) -> bool:
        """Whether nothing but an output that passes shows that somebody spoke."""
        return self.chunk.speech is None and self.no_speech is not None and self.no_speech > limits.doubtful

    def better_than(self, other: Attempt, limits: Thresholds) -> bool:
        """Of two that fail: one without repetitions, one without broken characters, the more likely one."""
        return self._worth(limits) > other._worth(limits)

    def _worth(self, limits: Thresholds) -> tuple[bool, bool, float]:
        return not self.repeats(limits), not self.garbled, self.avg_logprob


class Attempts:
    """The attempts at one chunk, at one temperature after the other, and the best of them."""

    def __init__(self, limits: Thresholds) -> None:
        self.counts = AttemptTokens()
        self.best: Attempt | None = None
        """None if nobody spoke, or if no attempt is to be believed."""
        self.refused = False
        """Whether somebody may have spoken, but no attempt is to be believed."""
        self._limits = limits

    def add(self, attempt: Attempt) -> bool:
        """Add an attempt that was decoded. Returns whether it was the last: nobody spoke, it passes, or all have cost
        too much."""
        limits = self._limits
        self.counts = self.counts.plus(attempt.counts)
        if attempt.is_silence(limits):
            self.best, self.refused = None, False
            return True
        if not attempt.fails(limits):
            self.best, self.refused = attempt, False
            return True
        if attempt.hopeless(limits) or attempt.doubtful(limits):
            self.refused = self.best is None
        elif self.best is None or attempt.better_than(self.best, limits):
            self.best, self.refused = attempt, False
        return self.counts.completion >= limits.most_tokens
