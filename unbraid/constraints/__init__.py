"""Constraints: what a model may write, as grammars for the engines that enforce them while they sample.

`request` reads what is asked for, `builder` makes a `Language` of it, `printers` write that as grammars, and
`constraint` is what users see. Nothing below this package imports it, so that parsing alone does not load it.
"""

from __future__ import annotations

from ..errors import InvalidSchema
from .constraint import AllPrinted, Constraint, constraint, forced_prefix
from .determinize.written import NotContinued
from .language import Unenforced
from .printers.regex import NotRegular
from .printers.token_sets import NotTokens, TokenSets

__all__ = [
    "AllPrinted",
    "Constraint",
    "InvalidSchema",
    "NotContinued",
    "NotRegular",
    "NotTokens",
    "TokenSets",
    "Unenforced",
    "constraint",
    "forced_prefix",
]
