"""A weak cache: work done once for each tokenizer object, and forgotten with it.

Callers make a parser for each request from one long-lived tokenizer, so the second request must not pay again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class WeakCache(Generic[T]):
    """Calls `compute` once for each tokenizer and keeps the result while the tokenizer lives.

    The result must not refer to the tokenizer: it would keep its own key alive, and neither would ever be freed.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._kept: WeakKeyDictionary[Any, T] = WeakKeyDictionary()

    def __call__(self, tokenizer: Any) -> T:
        try:
            kept = self._kept.get(tokenizer)
        except TypeError:  # no hash or no weak reference: nothing can be kept for it
            return self._compute(tokenizer)
        if kept is None:
            kept = self._kept[tokenizer] = self._compute(tokenizer)
        return kept


class TokenizerView:
    """Base of a Vocabulary that is only a view of its tokenizer. Two views of one tokenizer are equal, so that what is
    cached for one serves the other."""

    def __init__(self, tokenizer: object) -> None:
        self._of = tokenizer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenizerView) and self._of is other._of

    def __hash__(self) -> int:
        return id(self._of)
