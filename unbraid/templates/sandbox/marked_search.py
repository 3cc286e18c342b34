"""Comparisons that see past the marks of control tokens.

A template's own `'</think>'` is marked, a message's is not (`control_tokens`). Where a template looks for its text in
a message (`in`, `==`, `split`, `replace`), it means the characters. So a needle loses its marks, unless the haystack
has marks too.
"""

from __future__ import annotations

from typing import Any

from ..control_tokens import MARK, unmark
from ..symbolic_text import Symbol, called


def needle(value: Any, haystack: str) -> Any:
    """What to look for in `haystack`: `value`, or each item of it, without marks that the haystack cannot have."""
    if isinstance(value, str):
        return unmark(value) if MARK in value and MARK not in haystack else value
    if isinstance(value, tuple | list):
        return type(value)(needle(each, haystack) for each in value)
    return value


def contains(item: Any, container: Any) -> bool:
    """`item in container`."""
    if isinstance(item, str):
        if isinstance(container, str):
            item = needle(item, container)
            if isinstance(item, Symbol):
                return bool(called("__contains__", container, item))
        elif isinstance(container, list | tuple):
            container = needle(container, item)
    return bool(item in container)


def equals(left: Any, right: Any) -> bool:
    """`left == right`."""
    if isinstance(left, str) and isinstance(right, str):
        left, right = needle(left, right), needle(right, left)
    return bool(left == right)
