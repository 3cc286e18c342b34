"""Work done once per tokenizer object, and forgotten with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class Remembered(Generic[T]):
    """Calls `work_out` once for each tokenizer and keeps the answer while the tokenizer lives.

    Callers make a parser per request from one long-lived tokenizer, so the second request must not pay again.
    The answer must not refer to the tokenizer: it would keep its own key alive, and neither would ever be freed.
    """

    def __init__(self, work_out: Callable[[Any], T]) -> None:
        self._work_out = work_out
        self._kept: WeakKeyDictionary[Any, T] = WeakKeyDictionary()

    def __call__(self, tokenizer: Any) -> T:
        try:
            kept = self._kept.get(tokenizer)
        except TypeError:  # it cannot be hashed or weakly referred to, so nothing can be kept for it
            return self._work_out(tokenizer)
        if kept is None:
            kept = self._kept[tokenizer] = self._work_out(tokenizer)
        return kept


class OfTokenizer:
    """A Vocabulary that is nothing but a view of its tokenizer: two views of one tokenizer are the same, so that what a
    parser has worked out for one serves for the other."""

    def __init__(self, tokenizer: object) -> None:
        self._of = tokenizer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OfTokenizer) and self._of is other._of

    def __hash__(self) -> int:
        return id(self._of)
