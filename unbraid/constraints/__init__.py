"""What a model may write, for the engines that enforce it while they sample."""

from __future__ import annotations

from .constraint import Constraint, constraint, forced_prefix
from .dialects.regex import NotRegular
from .dialects.token_sets import NotTokens, TokenSets
from .schema_export import InvalidSchema, Unenforced

__all__ = [
    "Constraint",
    "InvalidSchema",
    "NotRegular",
    "NotTokens",
    "TokenSets",
    "Unenforced",
    "constraint",
    "forced_prefix",
]
