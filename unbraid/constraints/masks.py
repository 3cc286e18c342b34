"""Token masks by llguidance: which tokens may come next, step by step, for engines that show their logits.

Compiled grammars and tokenizers are kept; a `Masks` is a copy of a compiled grammar's start. This is the one module of
the package that needs a library, so it is imported when it is needed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Hashable, Iterable
from functools import lru_cache
from typing import cast

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from ..core.vocabulary import WholeVocabulary
from ..errors import UnbraidError

# A model picks the tokens that it knows; those that llguidance would force are not always the ones.
_OPTIONS = '%llguidance {"no_forcing": true}\n'
# Most tokens cannot begin a marker. llguidance decides on all of them at once where a text admits them all.
_SLICES = [r"[^<\[]+", *LLTokenizer.general_slices()]


_NEEDED = "masks need a vocabulary that is hashable and knows its `size` and `special` tokens"


class Masks:
    """The tokens that a grammar admits. `allowed` before a token is chosen, `advance` after."""

    def __init__(self, lark: str, vocabulary: WholeVocabulary, ends: Iterable[int], size: int = 0) -> None:
        """`ends` are the tokens that end the output. `size` is that of the model's vocabulary, if the tokenizer's is
        smaller: the tokens beyond it have no text."""
        end_ids = frozenset(ends)
        if not isinstance(vocabulary, Hashable):
            raise UnbraidError(_NEEDED)
        self._matcher = _compiled(lark, vocabulary, end_ids, size).deep_copy()
        self._mask = bytearray((_tokenizer(vocabulary, end_ids, size).vocab_size + 31) // 32 * 4)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._mask))

    def allowed(self) -> bytes:
        """A bit for each token, the lowest first; the ends are among them where the output may end."""
        self._matcher.unsafe_compute_mask_ptr(self._address, len(self._mask))
        self._check()
        return bytes(self._mask)

    def advance(self, token: int) -> None:
        """Go on after a token; one that was not allowed is an error."""
        if not 0 <= token < len(self._mask) * 8:
            raise UnbraidError(f"token {token} is not in the vocabulary")
        self._matcher.consume_token(token)
        self._check()

    def accepted(self, tokens: Iterable[int]) -> int:
        """How many of these could come, one after the other."""
        return self._matcher.validate_tokens(list(tokens))

    @property
    def may_end(self) -> bool:
        return self._matcher.is_accepting()

    @property
    def must_end(self) -> bool:
        return self._matcher.is_stopped()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise UnbraidError(f"the constraint cannot go on: {self._matcher.get_error().splitlines()[0]}")


class Uncompilable(UnbraidError):
    """A grammar that llguidance does not take."""


class _Spelled(TokenizerWrapper):
    """A vocabulary as llguidance takes it."""

    def __init__(self, vocabulary: WholeVocabulary, special: frozenset[int], end: int, size: int) -> None:
        self.tokens = [vocabulary.token_bytes(token) or b"" for token in range(max(vocabulary.size, size))]
        self.special_token_ids = sorted(special)
        self.eos_token_id = end
        self.bos_token_id = None
        self.is_tokenizer_wrapper = True

    def __call__(self, text: str) -> list[int]:
        raise NotImplementedError("nothing is forced, so nothing is encoded")


@lru_cache(maxsize=8)
def _tokenizer(vocabulary: Hashable, ends: frozenset[int], size: int) -> LLTokenizer:
    if not hasattr(vocabulary, "special"):
        raise UnbraidError(_NEEDED)
    if not ends:
        raise UnbraidError("the tokenizer has none of the tokens that end a turn: name one with ends=…")
    whole = cast(WholeVocabulary, vocabulary)
    if not all(isinstance(end, int) and 0 <= end < whole.size for end in ends):
        raise UnbraidError("ends are ids of tokens in the vocabulary")
    spelled = _Spelled(whole, whole.special | ends, min(ends), size)
    return LLTokenizer(spelled, eos_token=sorted(ends), slices=_SLICES)


@lru_cache(maxsize=256)
def _compiled(lark: str, vocabulary: Hashable, ends: frozenset[int], size: int) -> LLMatcher:
    matcher = LLMatcher(_tokenizer(vocabulary, ends, size), _OPTIONS + lark, log_level=0)
    if matcher.is_error():
        raise Uncompilable(matcher.get_error())
    # Copies know the first mask, too.
    matcher.compute_bitmask()
    return matcher


def compiles(lark: str) -> bool:
    """Whether llguidance takes the grammar, whatever the vocabulary."""
    return not LLMatcher.validate_grammar(LLMatcher.grammar_from_lark(lark))
