"""What a parser asks of a tokenizer (`Vocabulary`), and token ids to text, one at a time (`Detokenizer`)."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping
from inspect import getattr_static
from typing import Any, Protocol, TypeGuard


class Vocabulary(Protocol):
    """What a parser needs to know of a tokenizer."""

    @property
    def version(self) -> int | None:
        """Mistral's tokenizer version (e.g. 3, 7, 11, 13), where the tokenizer has one."""
        ...

    @property
    def dummy_prefix(self) -> bool:
        """SentencePiece-style: the text's first token carries a space that isn't in the text."""
        ...

    def token_id(self, text: str) -> int | None:
        """The id of the single token whose text is exactly `text`, None when there is none."""
        ...

    def token_bytes(self, token: int) -> bytes | None:
        """The bytes the token stands for (special/added/control tokens: their own text in UTF-8).

        None for an id outside the vocabulary.
        """
        ...


class TokenizerView:
    """Base of a Vocabulary that is only a view of its tokenizer. Two views of one tokenizer are equal, so that what is
    cached for one serves the other."""

    def __init__(self, tokenizer: object) -> None:
        self._of = tokenizer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenizerView) and self._of is other._of

    def __hash__(self) -> int:
        return id(self._of)


class WholeVocabulary(Vocabulary, Protocol):
    """What it takes to say of every token whether it may come next."""

    @property
    def size(self) -> int:
        """One more than the highest token id."""
        ...

    @property
    def special(self) -> frozenset[int]:
        """The tokens that are no ordinary text: special, added and control tokens."""
        ...


def is_whole(vocabulary: Vocabulary | None) -> TypeGuard[WholeVocabulary]:
    """Whether `vocabulary` can list its tokens, which spelling needs. Nothing is read: to count them takes a while."""
    absent = object()
    return all(getattr_static(vocabulary, name, absent) is not absent for name in ("size", "special"))


_utf_8 = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    __slots__ = ("_bytes", "_decoder", "_drop_space", "_texts", "clean")

    def __init__(self, vocabulary: Vocabulary, texts: dict[int, str] | None = None) -> None:
        """texts: where to keep the text of tokens that are whole characters."""
        self._texts = {} if texts is None else texts
        self._bytes = vocabulary.token_bytes
        self._decoder = _utf_8("replace")
        self._drop_space = vocabulary.dummy_prefix
        """Still before the first token, whose leading space is the tokenizer's and not the model's."""
        self.clean = not self._drop_space
        """Whether the next token stands for itself: all tokens before it have given their text. One without any text,
        as a dummy prefix is, belongs with the next."""

    def decode(self, token: int) -> str | None:
        """The text that this token completes; None for an id that is not in the vocabulary."""
        alone = self.clean
        if alone and (cached := self._texts.get(token)):
            return cached
        data = self._bytes(token)
        if data is None:
            return None
        if self._drop_space:
            self._drop_space = False
            data = data.removeprefix(b" ")
        text = self._decoder.decode(data)
        self.clean = bool(text) and not self._decoder.getstate()[0]
        if alone and self.clean:
            self._texts[token] = text
        return text

    def flush(self) -> str:
        """What is left of a character whose rest does not come: U+FFFD, or nothing."""
        if self.clean:
            return ""
        self._drop_space = False
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        self.clean = True
        return text

    @property
    def inside(self) -> bool:
        """Whether a character is not whole yet."""
        return bool(self._decoder.getstate()[0])

    def text(self, ids: Iterable[int], token_placeholders: Mapping[int, str]) -> str:
        """All of `ids` as text, with the characters that stand for the tokens in `token_placeholders`."""
        return "".join(
            token_placeholders[token]
            if token in token_placeholders
            else (self._bytes(token) or b"").decode("utf-8", "replace")
            for token in ids
        )

    def save(self) -> list[Any]:
        if self.clean:
            return []
        pending, flag = self._decoder.getstate()
        return [pending.hex(), flag, self._drop_space]

    def load(self, saved: list[Any]) -> None:
        if not saved and self.clean:
            return
        pending, flag, self._drop_space = saved or ("", 0, False)
        self._decoder.setstate((bytes.fromhex(pending), flag))
        self.clean = not saved
