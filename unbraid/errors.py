"""Errors for what users can get wrong. No model output ever raises; these are for bad arguments.

An error about one field of a chat request carries that field's path, such as `tools[0].function.parameters`. Servers
tell it to their clients. It is set where the error is raised, or by `about` around a check that knows no request.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class UnbraidError(ValueError):
    """Base of all errors that unbraid raises for bad input."""

    field: str | None = None
    """The field of the request that is to be changed, where there is one."""

    def __init__(self, message: str = "", *, field: str | None = None) -> None:
        super().__init__(message)
        if field is not None:
            self.field = field


class UnknownFormat(UnbraidError):
    """No format of that name; the message lists the nearest ones."""


class MissingTokens(UnbraidError):
    """The tokenizer lacks tokens that the format cannot do without; the message names them."""


class InvalidTools(UnbraidError):
    """`tools` is not a list of function definitions; the message says which one and why."""

    field = "tools"


class InvalidSchema(UnbraidError):
    """A JSON schema that no constraint can be made of; the message says where and what to change."""


class OverBudget(UnbraidError):
    """Something that would take more time to work out than one request may; the message names the part of it."""

    def __init__(self, message: str = "", *, place: str = "", field: str | None = None) -> None:
        super().__init__(message, field=field)
        self.place = place
        """The part that costs most, as the messages of schemas name it; empty where none is known."""


class SchemaWarning(UserWarning):
    """A JSON schema has a mistake in it. It is read as what was probably meant; the message says where and how."""


class InvalidFormat(UnbraidError):
    """A grammar that contradicts itself; the message says where."""


class InvalidSnapshot(UnbraidError):
    """A snapshot that was not taken from a parser of this format and version."""


@contextmanager
def about(field: str) -> Iterator[None]:
    """Errors raised inside are about this field of a request, unless they name another."""
    try:
        yield
    except UnbraidError as error:
        if "field" not in vars(error):  # a class has one that is less exact
            error.field = field
        raise
