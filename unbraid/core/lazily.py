"""Search patterns that are compiled when first used, so that importing stays fast."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def lazily(make: Callable[[], Callable[P, T]]) -> Callable[P, T]:
    """The function that `make` returns, made with its first call."""
    made: Callable[P, T] | None = None

    def call(*args: P.args, **more: P.kwargs) -> T:
        nonlocal made
        if made is None:
            made = make()
        return made(*args, **more)

    return call
