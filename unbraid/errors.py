"""Errors for what users can get wrong. No model output ever raises; these are for bad arguments.

An error about one part of a chat request carries the path to it (`Place`), as its `field` and inside its message.
Servers whose API has other names for that part put another place there (`UnbraidError.rename`): no text is rewritten.
The place is set where the error is raised, or by `about` around a check that knows no request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Keys = tuple[str | int, ...]


class Place(str):
    """A part of a request: the keys and indexes that lead to it, and how messages write them.

    Place("tools", 0) / "function"      # written tools[0].function; its path is ("tools", 0, "function")
    Place("tools", 0, text="tool 'f'")  # the same path as tools[0], written otherwise
    """

    path: Keys

    def __new__(cls, *path: str | int, text: str | None = None) -> Place:
        place = super().__new__(cls, _spelled(path) if text is None else text)
        place.path = path
        return place

    def __truediv__(self, step: str | int) -> Place:
        if isinstance(step, int):
            return Place(*self.path, step, text=f"{self}[{step}]")
        return Place(*self.path, step, text=f"{self}.{step}" if self else step)

    @property
    def plain(self) -> str:
        """The path alone, as clients are told it."""
        return _spelled(self.path)

    def __reduce__(self) -> tuple[Any, ...]:
        return _place, (self.path, str(self))


def _place(path: Keys, text: str) -> Place:
    return Place(*path, text=text)


def _spelled(path: Keys) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".")


class UnbraidError(ValueError):
    """Base of all errors that unbraid raises for bad input.

        UnbraidError(Place("tools", 0), " must be an object")

    message: its pieces, places among them.
    field: what is to be changed, where it is not the first place in the message.
    """

    field: str | None = None
    """The part of the request that is to be changed, where there is one."""

    def __init__(self, *message: str, field: str | None = None) -> None:
        super().__init__(*message)
        field = next((piece for piece in message if isinstance(piece, Place)), None) if field is None else field
        if field is not None:
            self.field = field

    def __str__(self) -> str:
        return "".join(map(str, self.args))

    def begin_with(self, place: Place) -> None:
        """Have the text of this place be a place, where the message begins with it."""
        first, *others = self.args or ("",)
        if not isinstance(first, Place) and first.startswith(place):
            self.args = (place, first[len(place) :], *others)

    def rename(self, place_of: Callable[[str], str]) -> None:
        """Put another place for each that is named."""
        self.args = tuple(place_of(piece) if isinstance(piece, Place) else piece for piece in self.args)
        self.field = None if self.field is None else place_of(self.field)


class Renaming:
    """Errors raised inside of it have another place for each that they name."""

    __slots__ = ("_place_of",)

    def __init__(self, place_of: Callable[[str], str]) -> None:
        self._place_of = place_of

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, UnbraidError):
            error.rename(self._place_of)


class UnknownFormat(UnbraidError):
    """No format of that name; the message lists the nearest ones."""

    field = "format"


class MissingTokens(UnbraidError):
    """The tokenizer lacks tokens that the format cannot do without; the message names them."""


class InvalidTools(UnbraidError):
    """`tools` is not a list of function definitions; the message says which one and why."""

    field = "tools"


class InvalidSchema(UnbraidError):
    """A JSON schema that no constraint can be made of; the message says where and what to change."""

    field = "tools"


class OverBudget(UnbraidError):
    """Something that would take more time to work out than one request may; the message names the part of it."""


class SchemaWarning(UserWarning):
    """A JSON schema has a mistake in it. It is read as what was probably meant; the message says where and how."""


class InvalidFormat(UnbraidError):
    """A grammar that contradicts itself; the message says where."""


class InvalidSnapshot(UnbraidError):
    """A snapshot that was not taken from a parser of this format and version."""


@contextmanager
def about(place: Place) -> Iterator[None]:
    """Errors raised inside are about this part of a request, unless they name another."""
    try:
        yield
    except UnbraidError as error:
        error.begin_with(place)
        if "field" not in vars(error):  # a class has one that is less exact
            error.field = place
        raise
