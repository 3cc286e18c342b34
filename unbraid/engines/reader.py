"""Readers: an engine's chunks turned into pieces, token counts and a finish reason.

Each engine streams chunks of its own shape: JSON messages over HTTP, result objects inside the process. A `Reader`
takes the chunks of one output, in order. `read` gives the tokens of a chunk, `end` what follows the last chunk. Its
drivers (`engines.server`, `engines.vllm.local`, the listeners of `unbraid.speech`) need only these two.

`Reader` leaves open what an output ends with, so that speech can end with more than a `Finish`. `OutputReader` is for
text engines: a subclass writes `parse`, which fills in the counts and the reason, and gets stop texts and the `Finish`
for free.

Stop texts are looked for in token ids, since servers cut them off the text that they send, but not off the ids. A stop
text may begin and end inside tokens. `StopTexts` holds tokens back while they may be part of one. The part of its first
token that stands before it is spelled in other tokens, so that the output stays ids.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, TypeVar

from ..core.vocabulary import Vocabulary, WholeVocabulary, is_whole
from ..tokens.retokenize import spell_most
from .base import EngineFailed, Finish, FinishReason, Generation, Piece, TokenLogprob


@dataclass(frozen=True, slots=True)
class OutputToken:
    """One token of the output."""

    id: int
    data: bytes
    logprob: TokenLogprob | None = None


def as_tokens(ids: Iterable[int], vocabulary: Vocabulary) -> list[OutputToken]:
    """Tokens and their bytes."""
    return [OutputToken(token, vocabulary.token_bytes(token) or b"") for token in ids]


def as_piece(tokens: Sequence[OutputToken]) -> Piece:
    """Tokens as an engine gives them."""
    logprobs = tuple(token.logprob for token in tokens if token.logprob is not None)
    return Piece(tuple(token.id for token in tokens), logprobs=logprobs)


class StopTexts:
    """Holds tokens back while they may begin a stop text, and ends the output at the first stop text.

    With the stop text "END", the tokens "Fr", "iE", "ND." come out as "Fr", "i": a parser that was fed ids takes no
    text, so the rest of a cut token is spelled in other tokens. Bytes that the vocabulary cannot spell are left out.
    """

    def __init__(self, texts: Iterable[str], vocabulary: WholeVocabulary) -> None:
        self.found: str | None = None
        """The stop text that ended the output."""
        self._stops = [(text.encode(), text) for text in texts if text]
        self._vocabulary = vocabulary
        self._held: list[OutputToken] = []

    def push(self, token: OutputToken) -> list[OutputToken]:
        """Tokens that can be released because no stop text can start in them. After a match: the tokens before it, then
        nothing."""
        if self.found is not None:
            return []
        self._held.append(token)
        data = b"".join(held.data for held in self._held)
        places = [(data.find(stop), -len(stop), text) for stop, text in self._stops if stop in data]
        if not places:
            return self._release(len(data) - max((_overlap(data, stop) for stop, _ in self._stops), default=0))[0]
        at, _, self.found = min(places)
        released, rest = self._release(at)
        self._held.clear()
        return [*released, *as_tokens(spell_most(self._vocabulary, rest), self._vocabulary)]

    def feed(self, piece: Piece) -> Piece:
        """`push` for all tokens of a piece. Fewer logprobs than tokens are those of the last tokens."""
        unknown = [None] * (len(piece.ids) - len(piece.logprobs))
        released: list[OutputToken] = []
        for token, logprob in zip(piece.ids, [*unknown, *piece.logprobs], strict=True):
            released += self.push(OutputToken(token, self._vocabulary.token_bytes(token) or b"", logprob))
        return as_piece(released)

    def flush(self) -> list[OutputToken]:
        """The tokens that are still held back."""
        released, self._held = self._held, []
        return released

    def _release(self, end: int) -> tuple[list[OutputToken], bytes]:
        """The held tokens that end by byte `end`, and the bytes of the next token before `end`."""
        at = count = 0
        while count < len(self._held) and at + len(self._held[count].data) <= end:
            at += len(self._held[count].data)
            count += 1
        released, self._held = self._held[:count], self._held[count:]
        return released, self._held[0].data[: end - at] if self._held else b""


def _overlap(data: bytes, stop: bytes) -> int:
    """How many bytes at the end of `data` are the beginning of `stop`."""
    for length in range(min(len(data), len(stop) - 1), 0, -1):
        if data.endswith(stop[:length]):
            return length
    return 0


Chunk = TypeVar("Chunk")
End = TypeVar("End")


class Reader(ABC, Generic[Chunk, End]):
    """Reads the chunks of one output. `End` is the type that the output ends with: a `Finish`, if text is generated."""

    over: bool = False
    """The output has ended, but the engine may not know it: abort the request."""

    @abstractmethod
    def read(self, chunk: Chunk) -> Piece | None:
        """The tokens that go out now, or None. Some may be held back until later."""

    @abstractmethod
    def finish(self) -> End | None:
        """How the output ended, or None while it has not."""

    def held(self) -> list[Piece]:
        """The tokens that `read` has held back until the end."""
        return []

    def end(self, source: str) -> list[Piece | End]:
        """The held tokens and the end. Raises `EngineFailed`, naming `source`, if the engine stopped half-way."""
        finish = self.finish()
        if finish is None:
            raise EngineFailed(f"{source} broke off in the middle of an output")
        return [*self.held(), finish]


class OutputReader(Reader[Chunk, Finish]):
    """A reader for an engine that generates text. Subclasses write `parse`, and set these fields in it."""

    stops_itself: ClassVar[bool] = True
    """Whether the engine ends the output at stop texts. If not, the reader does."""

    def __init__(self, request: Generation, vocabulary: Vocabulary | None) -> None:
        self.vocabulary = vocabulary
        self.as_text = as_text(request, vocabulary)
        self.top_logprobs = request.logprobs or 0
        self.prompt_tokens = 0 if isinstance(request.prompt, str) else len(request.prompt)
        self.completion_tokens = 0
        self.cached_tokens = 0
        self.reason: FinishReason | None = None
        self.stopped_by: str | int | None = None
        self._stops = StopTexts(request.stop, vocabulary) if request.stop and is_whole(vocabulary) else None

    @abstractmethod
    def parse(self, chunk: Chunk) -> Piece | None:
        """The tokens in `chunk`, or None."""

    def read(self, chunk: Chunk) -> Piece | None:
        piece = self.parse(chunk)
        if piece is not None and piece.ids and self._stops is not None:
            piece = self._stops.feed(piece)
            self.over = self.over or (self._stops.found is not None and not self.stops_itself)
        return piece if piece is not None and (piece.ids or piece.text) else None

    def held(self) -> list[Piece]:
        tokens = [] if self._stops is None else self._stops.flush()
        return [as_piece(tokens)] if tokens else []

    def finish(self) -> Finish | None:
        if self.reason is None and not self.over:
            return None
        counts = (self.prompt_tokens, self.completion_tokens, self.cached_tokens)
        finish = Finish(self.reason or "stop", *counts, self.stopped_by)
        if self._stops is not None and self._stops.found is not None:
            return replace(finish, reason="stop", stopped_by=self._stops.found)
        return finish


def joined(pieces: Sequence[Piece]) -> Piece:
    """Pieces of ids as one."""
    ids = tuple(token for piece in pieces for token in piece.ids)
    return Piece(ids, logprobs=tuple(one for piece in pieces for one in piece.logprobs))


_REASONS: dict[str, FinishReason] = {"length": "length", "limit": "length", "abort": "abort", "none": "abort"}


def finish_reason(word: str) -> FinishReason:
    """The finish reason for an engine's word. An unknown word is a stop."""
    return _REASONS.get(word, "stop")


def token_bytes(vocabulary: Vocabulary | None, token: int, text: str | None = None) -> bytes:
    """The bytes of a token, from its text if there is no vocabulary."""
    data = None if vocabulary is None else vocabulary.token_bytes(token)
    return (text or "").encode() if data is None else data


def as_text(request: Generation, vocabulary: Vocabulary | None) -> bool:
    """Whether to read the output as text although there are ids.

    A stop text may begin inside a token. Cutting ids there takes the whole vocabulary. Without it, only the server can
    cut, and it cuts the text. Then the whole output is text, since a parser takes either ids or text.
    """
    return bool(request.stop) and not is_whole(vocabulary)
