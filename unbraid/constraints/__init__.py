"""What a model may write, for the engines that enforce it while they sample."""

from __future__ import annotations

from .constraint import Constraint, constraint, forced_prefix
from .regex import NotRegular
from .schemas import InvalidSchema, Loosened
from .token_sets import NotTokens, TokenSets

__all__ = [
    "Constraint",
    "InvalidSchema",
    "Loosened",
    "NotRegular",
    "NotTokens",
    "TokenSets",
    "constraint",
    "forced_prefix",
]
