"""Stop texts, looked for in token ids: servers cut them off the text that they send, but not off the ids.

A stop text may begin and end inside tokens. `StopTexts` holds tokens back while they may be part of one. What stands
before it in its first token is spelled in other tokens, so that the output stays ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..core.vocabulary import Vocabulary, WholeVocabulary
from .base import Piece, TokenLogprob
from .retokenize import spell_most


@dataclass(frozen=True, slots=True)
class Token:
    """One token of the output."""

    id: int
    data: bytes
    logprob: TokenLogprob | None = None


def as_tokens(ids: Iterable[int], vocabulary: Vocabulary) -> list[Token]:
    """Tokens and their bytes."""
    return [Token(token, vocabulary.token_bytes(token) or b"") for token in ids]


def as_piece(tokens: Sequence[Token]) -> Piece:
    """Tokens as an engine gives them."""
    logprobs = tuple(token.logprob for token in tokens if token.logprob is not None)
    return Piece(tuple(token.id for token in tokens), logprobs=logprobs)


class StopTexts:
    """Holds tokens back for as long as they may be the beginning of a stop text, and ends with the first that is whole.

    A parser that was fed ids takes no text, so what a cut token leaves over is spelled in other tokens. Bytes that the
    vocabulary has no tokens for are left out.
    """

    def __init__(self, texts: Iterable[str], vocabulary: WholeVocabulary) -> None:
        self.found: str | None = None
        """The stop text that ended the output."""
        self._stops = [(text.encode(), text) for text in texts if text]
        self._vocabulary = vocabulary
        self._held: list[Token] = []

    def push(self, token: Token) -> list[Token]:
        """The tokens that are certainly no part of a stop text. Once one is found: those before it, and then none."""
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
        released: list[Token] = []
        for token, logprob in zip(piece.ids, [*unknown, *piece.logprobs], strict=True):
            released += self.push(Token(token, self._vocabulary.token_bytes(token) or b"", logprob))
        return as_piece(released)

    def flush(self) -> list[Token]:
        """All that is still held back."""
        released, self._held = self._held, []
        return released

    def _release(self, end: int) -> tuple[list[Token], bytes]:
        """The tokens that end by byte `end` of what is held, and the bytes of the next one before `end`."""
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
