"""The call that is being read, before and after it is accepted.

Until the name of a call is known, nothing of it goes out: it may turn out to be no call at all. Its pieces wait here
with what each of them would mean (`held`). `Machine.accept_call` sends them out, `Machine.end_call` gives them back as
text.
"""

from __future__ import annotations

TEXT, MARKUP, NAME, ARGUMENTS, PENDING, KEPT = range(6)
"""The role of a piece of input:

TEXT is text of the strand around it. MARKUP, NAME and ARGUMENTS are parts of a call. PENDING is an argument that can be
read in two ways, until `Machine.resolve_pending`. KEPT is the text of a call that was none: it is never spoken.
"""

Held = tuple[int, str, str, int, int]
"""A piece that waits: its role, its text, the value it stands for, and its span."""


class PendingCall:
    """State of one call. Plain values only, so that a snapshot can hold it."""

    __slots__ = (
        "accepted",
        "complete",
        "flawed",
        "has_arguments",
        "held",
        "held_size",
        "id",
        "index",
        "name",
        "pending",
        "pending_at",
        "raw",
        "rejected",
        "unnamed",
    )

    def __init__(self) -> None:
        self.index = 0
        self.name = ""
        self.id = ""
        self.unnamed = False
        """Whether the model left its name out. Its arguments may tell which tool it is for."""
        self.accepted = False
        self.rejected = False
        self.has_arguments = False
        self.complete = False
        self.flawed = False
        """Whether one of its arguments, where they come one by one, is not sound JSON."""
        self.pending: list[str] = []
        """The pieces of an argument that can still be read in two ways. They follow each other without a gap."""
        self.pending_at = 0
        self.held: list[Held] = []
        self.held_size = 0
        self.raw: list[str] = []
        """What the model wrote for it, where that is kept."""
