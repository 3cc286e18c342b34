"""What users can get wrong. No model output ever raises (law 8); these are for bad arguments."""

from __future__ import annotations


class UnbraidError(ValueError):
    """Base of all errors that unbraid raises for bad input."""


class UnknownFormat(UnbraidError):
    """No format of that name; the message lists the nearest ones."""


class MissingTokens(UnbraidError):
    """The tokenizer lacks tokens that the format cannot do without; the message names them."""


class InvalidTools(UnbraidError):
    """`tools` is not a list of function definitions; the message says which one and why."""


class InvalidSchema(UnbraidError):
    """A JSON schema that no constraint can be made of; the message says where and what to change."""


class SchemaWarning(UserWarning):
    """A JSON schema has a mistake in it. It is read as what was probably meant; the message says where and how."""


class InvalidFormat(UnbraidError):
    """A grammar that contradicts itself; the message says where."""


class InvalidSnapshot(UnbraidError):
    """A snapshot that was not taken from a parser of this format and version."""
