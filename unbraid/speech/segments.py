"""From the parser's events to the text and the segments of a chunk.

There is one text; segments and words are views of it. Where the listener times tokens (`ListenEnd.times`), the words
are timed first, and segments are made of the words: one for each sentence, and one on each side of a pause. Otherwise
a segment is what stands between two timestamps of the model. Where there are no times at all, the chunk is one segment,
which lasts as long as somebody speaks in it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ..core.events import Content, Event, Language, Timestamp
from ..engines.base import EngineFailed, TokenLogprob
from .audio.chunking import Chunk
from .languages import known_code, spaced
from .listening import Adapter, ListenEnd, Listener, supports_word_times
from .options import TranscriptionOptions
from .transcript import Delta, Detected, Segment, TranscriptEvent, Word
from .words import fit_to_sound, join_words

_BROKEN = "\ufffd"  # what a decoder of UTF-8 writes for bytes that are no character
_SENTENCE_ENDS = tuple(".?!…。？！｡։؟۔।")
_CLOSING = "\"'”’»)]}」』）"
_PAUSE = 1.0  # seconds between words that separate segments
_LONGEST = 12.0  # seconds of a segment, if it has a pause to be divided at


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
    words: tuple[Word, ...] = ()

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


class ChunkOutput(Protocol):
    """An output as it is decoded: `Attempt`."""

    listener: Listener
    adapter: Adapter
    chunk: Chunk
    options: TranscriptionOptions
    temperature: float
    tokens: list[int]
    logprobs: list[TokenLogprob]
    text: str
    ends: frozenset[int | None]
    prefix_missing: bool
    garbled: bool

    @property
    def probability(self) -> float | None: ...

    @property
    def avg_logprob(self) -> float: ...


class SegmentReader:
    """Reads one output."""

    def __init__(self, attempt: ChunkOutput) -> None:
        self._attempt = attempt
        self._written_language: str | None = None
        """The language that the model wrote."""
        self._begin = 0.0
        self._pieces: list[_TextPiece] = []
        self._next = 0
        """The first token that is not part of any text yet."""
        self._tokens: list[int] = []
        self._spans: list[_Span] = []
        self._last_time: float | None = None
        """The last timestamp that the model wrote."""
        self._deltas: list[_TextPiece] = []
        self.until = self.said = 0.0
        self.goes_on = False
        """See `Attempt`."""

    def take(self, token: int, in_prefix: bool) -> None:
        """The next token; call it before `read` with the events of that token."""
        if in_prefix:
            self._next = len(self._attempt.tokens)
        elif token not in self._attempt.ends:
            self._tokens.append(token)

    def read(self, events: Iterable[Event]) -> None:
        attempt = self._attempt
        last = len(attempt.tokens) - 1
        for event in events:
            if isinstance(event, Content):
                text = event.text.replace(_BROKEN, "")
                attempt.garbled = attempt.garbled or text != event.text
                if not attempt.text and attempt.listener.vocabulary is None:
                    text = spaced(text)  # servers trim, and the text of another chunk may precede it
                if text:
                    self.goes_on = False
                    piece = _TextPiece(text, min(self._next, last), last)
                    self._pieces.append(piece)
                    self._deltas.append(piece)
                    attempt.text += text
            elif isinstance(event, Language):
                self._written_language = known_code(event.code) or event.code
            elif isinstance(event, Timestamp):
                self.goes_on = self._last_time is not None and not "".join(one.text for one in self._pieces).strip()
                self._last_time = max(self._begin, min(event.seconds, attempt.chunk.seconds))
                self._time(self._last_time)
            self._next = last + 1

    def deltas(self, first: int) -> list[Delta]:
        """The text so far, from a piece on; as much of it as the whole output will have."""
        attempt = self._attempt
        last = len(self._deltas)
        if attempt.adapter.supports_timestamps and not supports_word_times(attempt.listener):
            last -= len(self._pieces)  # a segment that is broken off is heard again
        return [Delta(piece.text, self._logprobs(piece)) for piece in self._deltas[first:last]]

    def finish(self, end: ListenEnd) -> list[TranscriptEvent]:
        """All events of the chunk: the language, the text, the segments."""
        open_text = self._close(self._attempt.chunk.seconds)
        if open_text and end.reason == "length" and len(self._spans) > 1 and not end.times:
            self._drop_last()
            open_text = False
        spans = self._timed(end) if end.times else self._spans
        self.said = spans[-1].end if spans and end.times else 0.0
        self.until = self._heard(open_text, end)
        if not self._attempt.text:  # a chunk without text has no language
            return []
        language = self._language
        events: list[TranscriptEvent] = [] if self.detected is None else [self.detected]
        events += [Delta(piece.text, self._logprobs(piece)) for piece in self._deltas]
        return [*events, *(self._segment(span, language, end) for span in spans)]

    @property
    def detected(self) -> Detected | None:
        """The language, where it is known."""
        language, is_given = self._language, self._written_language is None
        return None if language is None else Detected(language, None if is_given else self._attempt.probability)

    def _logprobs(self, piece: _TextPiece) -> tuple[TokenLogprob, ...]:
        attempt, vocabulary = self._attempt, self._attempt.listener.vocabulary
        if vocabulary is None or len(attempt.logprobs) != len(attempt.tokens):
            return ()
        return tuple(
            TokenLogprob(one.token, vocabulary.token_bytes(one.token) or b"", one.logprob)
            for one in attempt.logprobs[piece.first : piece.last + 1]
        )

    def _drop_last(self) -> None:
        """An output that is broken off in the middle of a segment: nobody knows where, so it is heard again."""
        text = self._spans.pop().text
        self._attempt.text = self._attempt.text[: len(self._attempt.text) - len(text)]
        while text:
            text = text[: len(text) - len(self._deltas.pop().text)]

    def _heard(self, open_text: bool, end: ListenEnd) -> float:
        """Up to where the chunk has been heard: to the last time that the model wrote, if there is no text after it.
        An output that is broken off ends with its last word. All others have heard the whole chunk."""
        if self._last_time is not None and not open_text:
            return max(self._last_time, self.said)
        return self.said if self.said and end.reason == "length" else self._attempt.chunk.seconds

    def _segment(self, span: _Span, language: str | None, end: ListenEnd) -> Segment:
        attempt, time = self._attempt, self._attempt.chunk.time
        begin = round(time(span.begin), 2)
        return Segment(
            begin,
            max(begin, round(time(span.end, ends=True), 2)),
            span.text,
            language,
            span.tokens,
            attempt.temperature,
            attempt.avg_logprob,
            end.no_speech,
            tuple(
                replace(word, start=round(time(word.start), 2), end=round(time(word.end, ends=True), 2))
                for word in span.words
            ),
        )

    # Times that the listener found

    def _timed(self, end: ListenEnd) -> list[_Span]:
        """The spans of the words, all of them with their times."""
        attempt = self._attempt
        times = end.times
        if len(times) != len(attempt.tokens) + 1:
            raise EngineFailed(f"the model gave {len(times)} times for {len(attempt.tokens)} tokens and their end")
        pieces = [piece for span in self._spans for piece in span.pieces]
        chances = [math.exp(one.logprob) for one in attempt.logprobs]
        timed = [
            Word(
                piece.text,
                times[piece.first],
                times[piece.last + 1],
                sum(chances[piece.first : piece.last + 1]) / (piece.last + 1 - piece.first),
            )
            for piece in pieces
        ]
        words = fit_to_sound(join_words(timed), attempt.chunk.samples, attempt.chunk.speech)
        joints = [begin for begin, _ in attempt.chunk.joints]
        return list(self._spans_of(words, pieces, joints))

    def _spans_of(self, words: list[Word], pieces: list[_TextPiece], joints: list[float]) -> Iterator[_Span]:
        """Words are made of whole pieces, so the pieces of a group of words are found by their text."""
        at = 0
        for group in _sentences(words, joints):
            first, size, length = at, 0, sum(len(word.text) for word in group)
            while size < length:
                size += len(pieces[at].text)
                at += 1
            mine = tuple(pieces[first:at])
            tokens = tuple(self._attempt.tokens[mine[0].first : mine[-1].last + 1])
            yield _Span(group[0].start, group[-1].end, mine, tokens, tuple(group))

    # Times that the model wrote

    def _time(self, seconds: float) -> None:
        """A timestamp: the end of a segment, or the start of one. Its token belongs to that segment."""
        token = self._tokens[-1:]
        if not self._close(seconds):
            self._tokens = token
        self._begin = seconds

    def _close(self, end: float) -> bool:
        """End the current segment. Returns whether it has text; without text it stays open."""
        begin = self._begin
        spoken = self._attempt.chunk.speech
        if self._last_time is None and spoken:
            begin, end = spoken[0][0], spoken[-1][1]
        span = _Span(begin, end, tuple(self._pieces), tuple(self._tokens))
        if not span.text.strip():
            return False
        self._spans.append(span)
        self._pieces, self._tokens = [], []
        return True

    @property
    def _language(self) -> str | None:
        adapter = self._attempt.adapter
        if self._attempt.prefix_missing:
            return None
        if adapter.supports_language_detection:
            return self._written_language
        return self._written_language or adapter.language or self._attempt.options.language


def _sentences(words: Sequence[Word], joints: Sequence[float]) -> Iterator[list[Word]]:
    """The words in groups: sentences, divided at pauses and where the chunk is joined."""
    group: list[Word] = []
    for word, following in itertools.zip_longest(words, words[1:]):
        group.append(word)
        if following is None or _ends_sentence(word) or _apart(word, following, joints):
            yield from _short(group)
            group = []


def _ends_sentence(word: Word) -> bool:
    return word.text.rstrip().rstrip(_CLOSING).endswith(_SENTENCE_ENDS)


def _apart(word: Word, following: Word, joints: Sequence[float]) -> bool:
    return following.start - word.end >= _PAUSE or any(word.end <= joint <= following.start for joint in joints)


def _short(group: list[Word]) -> Iterator[list[Word]]:
    """A group divided at its longest pauses until its parts are short enough."""
    pauses = [following.start - word.end for word, following in itertools.pairwise(group)]
    if not pauses or group[-1].end - group[0].start <= _LONGEST or max(pauses) <= 0:
        yield group
        return
    at = pauses.index(max(pauses)) + 1
    yield from _short(group[:at])
    yield from _short(group[at:])
