"""What a printer returns: the grammar in its dialect, what it does not enforce, and what an engine must know of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ...schema.regular import Chars, Text
from ..language import Token, Unenforced

T_co = TypeVar("T_co", bound="str | dict[str, Any]", covariant=True)


@dataclass(frozen=True, slots=True)
class Point:
    """A point in a deterministic grammar."""

    next: tuple[Text | Chars | Token, ...]
    """What may come there,"""
    only: bool
    """and whether nothing else may: no rule, no free text, and no end."""


@dataclass(frozen=True, slots=True)
class Printed(Generic[T_co]):
    """A language in one dialect."""

    grammar: T_co
    unenforced: tuple[Unenforced, ...] = ()
    """What the dialect cannot express."""
    too_ambiguous: str | None = None
    """The place of what leaves too many alternatives open for llama.cpp. Only GBNF says it; the grammar is right, but
    must not be given to llama.cpp."""
    points: tuple[Point, ...] = ()
    """The different points of the grammar, where it is deterministic: only GBNF is."""
