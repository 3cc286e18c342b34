"""What the parser's stack is made of.

Every state is a frame: `step` does what it can with the text at hand and returns False when it needs more. Frames hold
plain values only, so that a parser can be saved at any point.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from .. import diagnostics

if TYPE_CHECKING:
    from ..events import Event
    from .machine import Machine

TEXT, MARKUP, NAME, ARGUMENTS, PENDING = range(5)
"""What becomes of a piece of input: text of the strand around it, markup, a call's name, its arguments; or arguments
whose meaning is still open, until `Machine.resolve_pending`."""


class Malformed(Exception):
    """A call does not follow the grammar. This never leaves the parser: what was read so far is kept, and reading goes
    on at the next marker."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        self.message = message


def wait(machine: Machine) -> bool:
    """False, since more input is needed; and where none comes, the call is not finished."""
    if machine.at_end:
        raise Malformed(diagnostics.UNFINISHED_CALL, "")
    return False


class Frame(ABC):
    """A state on the parser's stack."""

    __slots__ = ()
    kind: ClassVar[str]

    @property
    def in_string(self) -> bool:
        """Whether what comes next stands inside a string argument, where all is data."""
        return False

    @abstractmethod
    def step(self, machine: Machine) -> bool:
        """Do what can be done with the buffer; False when more input is needed."""

    def fast_path(self, machine: Machine, text: str) -> Event | None:
        """The one event that all of `text` makes, where that is plain and nothing else changes here; otherwise None,
        and nothing is done. Only a short cut, for what most deltas are."""
        return None

    @abstractmethod
    def save(self) -> list[Any]:
        """The state as plain values."""
