"""Texts that end the output, where it comes as token ids: servers leave them out of the text, but not of the ids."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.vocabulary import Vocabulary
from .base import Piece, TokenLogprob


class StopTexts:
    """Holds tokens back for as long as they may be the beginning of a stop text, and cuts there once one is whole."""

    def __init__(self, texts: Sequence[str], vocabulary: Vocabulary) -> None:
        self._texts = [text.encode() for text in texts if text]
        self._vocabulary = vocabulary
        self._held: list[tuple[int, bytes, TokenLogprob | None]] = []
        self.found = False
        """A stop text is whole."""

    def feed(self, piece: Piece) -> Piece | None:
        """What is certainly no part of a stop text."""
        unknown = [None] * (len(piece.ids) - len(piece.logprobs))
        for token, logprob in zip(piece.ids, [*unknown, *piece.logprobs], strict=True):
            self._held.append((token, self._vocabulary.token_bytes(token) or b"", logprob))
        held = b"".join(data for _, data, _ in self._held)
        self.found = any(text in held for text in self._texts)
        return self._release(min((self._begins(held, text) for text in self._texts), default=len(held)))[0]

    def finish(self) -> tuple[list[Piece], str | None]:
        """What was held back, up to the first stop text, and that text. Where it begins inside of a token, the rest of
        the token is given as text."""
        held = b"".join(data for _, data, _ in self._held)
        at, found = min(((held.find(text), text) for text in self._texts if text in held), default=(len(held), None))
        piece, cut = self._release(at)
        rest = self._held[0][1][: at - cut] if self._held else b""
        pieces = [] if piece is None else [piece]
        if rest:
            pieces.append(Piece(text=rest.decode("utf-8", "replace")))
        return pieces, None if found is None else found.decode()

    def _release(self, at: int) -> tuple[Piece | None, int]:
        """The tokens that end at byte `at` of what is held or before, and how many bytes they are."""
        count = size = 0
        while count < len(self._held) and size + len(self._held[count][1]) <= at:
            size += len(self._held[count][1])
            count += 1
        gone, self._held = self._held[:count], self._held[count:]
        if not gone:
            return None, 0
        logprobs = tuple(logprob for _, _, logprob in gone if logprob is not None)
        return Piece(tuple(token for token, _, _ in gone), logprobs=logprobs), size

    @staticmethod
    def _begins(held: bytes, text: bytes) -> int:
        """Where `text` stands in `held`, or may come to stand once there is more."""
        at = held.find(text)
        if at >= 0:
            return at
        first = max(0, len(held) - len(text) + 1)
        return next((at for at in range(first, len(held)) if text.startswith(held[at:])), len(held))
