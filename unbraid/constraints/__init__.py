"""What a model may write, for the engines that enforce it while they sample."""

from __future__ import annotations

from .constraint import Constraint, constraint, forced_prefix
from .dialects.regex import NotRegular
from .dialects.token_sets import NotTokens, TokenSets
from .schema_export import InvalidSchema, Loosened

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
