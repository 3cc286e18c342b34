"""Readers: an engine's chunks turned into pieces, token counts and a finish reason.

Each engine streams chunks of its own shape: JSON messages over HTTP, result objects inside the process. A `Reader`
takes the chunks of one output, in order. `read` gives the tokens of a chunk, `end` what follows the last one. Whoever
drives it (`engines.server`, `engines.vllm.local`, the listeners of `unbraid.speech`) needs no more than these two.

`Reader` says nothing about what an output ends with, so that speech can end with more than a `Finish`. `OutputReader`
is for text engines: a subclass writes `parse`, which fills in the counts and the reason, and gets stop texts and the
`Finish` for free.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Generic, TypeVar

from ..core.vocabulary import Vocabulary
from .base import EngineFailed, Finish, FinishReason, Generation, Piece
from .retokenize import is_whole
from .stops import StopTexts, as_piece

Chunk = TypeVar("Chunk")
End = TypeVar("End")


class Reader(ABC, Generic[Chunk, End]):
    """Reads the chunks of one output. `End` is what the output ends with: a `Finish`, where text is generated."""

    over: bool = False
    """The output has ended, though the engine may not know it: abort the request."""

    @abstractmethod
    def read(self, chunk: Chunk) -> Piece | None:
        """The tokens that go out now, None if there are none. Some may be held back until later."""

    @abstractmethod
    def finish(self) -> End | None:
        """How the output ended, None if the engine has not said that it did."""

    def held(self) -> list[Piece]:
        """What `read` has held back until the end."""
        return []

    def end(self, source: str) -> list[Piece | End]:
        """What follows the last chunk. Raises `EngineFailed`, naming `source`, if the engine stopped half-way."""
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
        """The tokens in `chunk`, None if there are none."""

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
    """The finish reason in an engine's words. Whatever is not known is a stop."""
    return _REASONS.get(word, "stop")


def token_bytes(vocabulary: Vocabulary | None, token: int, text: str | None = None) -> bytes:
    """The bytes of a token, from its text where there is no vocabulary."""
    found = None if vocabulary is None else vocabulary.token_bytes(token)
    return (text or "").encode() if found is None else found


def as_text(request: Generation, vocabulary: Vocabulary | None) -> bool:
    """Whether to read the output as text although there are ids.

    A stop text may begin inside a token. To cut ids there takes the whole vocabulary. Without it, only the server can
    cut, and it cuts the text. Then all of the output is text, since a parser takes either ids or text.
    """
    return bool(request.stop) and not is_whole(vocabulary)
