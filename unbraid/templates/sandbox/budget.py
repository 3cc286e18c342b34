"""The budget of a rendering: how many steps, characters and items a template may still make.

Each hook of the sandbox takes the budget of what runs now (`current`) and spends from it: `step` for one operation and
the characters it made, `count` for a list, `weigh` for a value that is about to become text. `TemplateTooMuch` ends the
rendering. Steps and characters are counted, not timed, so that a template passes or fails alike on every machine. What
the counting misses is bound by CPU time of the thread, so that a busy machine does not matter either.

The clock that templates read with `strftime_now` is here as well. It stands still while two renderings are compared
(`stopped_clock`): else a template that writes the time would differ from itself.
"""

from __future__ import annotations

import datetime
from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from ...metering import cpu_time
from ..errors import TemplateTooMuch
from ..traced_text import joined

_TEXT = (str, bytes)
_ITEMS = (list, tuple, set, frozenset, range, KeysView, ValuesView, ItemsView)
_STEPS = 256
"""How many steps pass between two looks at what is left. To read the clock costs more than a step."""
_MADE = 65_536
"""A step that makes more characters than this looks at once."""
_STOPPED_AT = datetime.datetime(2025, 7, 1, 12)


@dataclass(frozen=True, slots=True)
class TemplateLimits:
    """The most that a template may be, write and do. A prompt of a million tokens stays far below."""

    source: int = 1_000_000
    """Characters of the template."""
    output: int = 32_000_000
    """Characters that it may write, and that a single value of it may have."""
    items: int = 1_000_000
    """Items that a list may have."""
    steps: int = 2_000_000
    """Turns of loops, calls, filters and operations."""
    work: int = 200_000_000
    """Characters and items that all operations together may make on the way."""
    seconds: float = 5.0
    """CPU time, as the last resort."""


WHILE_COMPILING = TemplateLimits(output=1_000_000, steps=1_000_000, work=10_000_000, seconds=5)
"""Jinja computes constants while it compiles. What exceeds this is left to the rendering, which has its own limits."""


class Budget:
    """What one rendering has left."""

    __slots__ = ("_deadline", "_look_at", "_most", "_steps", "_work", "limits")

    def __init__(self, limits: TemplateLimits) -> None:
        self.limits = limits
        self._steps = limits.steps
        self._work = limits.work
        self._deadline = cpu_time() + limits.seconds
        self._look_at = max(0, limits.steps - _STEPS)
        self._most = min(limits.output, _MADE)

    def step(self, size: int = 0) -> None:
        """Spend one step, and the characters or items that it made."""
        self._steps -= 1
        self._work -= size
        if self._steps < self._look_at or self._work < 0 or size > self._most:
            self._look(size)

    def pay(self, other: Budget) -> None:
        """Spend what another one has spent."""
        self._steps -= other.limits.steps - other._steps
        self._work -= other.limits.work - other._work
        self._look(0)

    def _look(self, size: int) -> None:
        """Whether there is still something left."""
        if self._steps < 0:
            raise TemplateTooMuch(f"it takes more than {self.limits.steps:,} steps")
        if size > self.limits.output:
            raise TemplateTooMuch(f"it makes a value of more than {self.limits.output:,} characters")
        if self._work < 0:
            raise TemplateTooMuch(f"it makes more than {self.limits.work:,} characters or items")
        self._look_at = max(0, self._steps - _STEPS)
        if cpu_time() > self._deadline:
            raise TemplateTooMuch(f"it runs for longer than {self.limits.seconds:g} seconds")

    def count(self, items: int) -> None:
        """Spend one step that made a list of so many items."""
        if items > self.limits.items:
            raise TemplateTooMuch(f"it makes a list of more than {self.limits.items:,} items")
        self.step(items)

    def collect(self, texts: Iterable[str]) -> str:
        """The texts joined. Texts are taken only until the limit is passed."""
        kept, size = [], 0
        for text in texts:
            kept.append(text)
            size += len(text)
            if size > self.limits.output:
                break
        self.step(size)
        return joined("", kept)

    def weigh(self, value: Any) -> None:
        """Spend roughly what `value` would have as text, before it becomes text. A list that holds the same list again
        and again takes little memory, but its text is endless."""
        if isinstance(value, _TEXT):
            self.step(len(value))
            return
        stack, total, nodes = [value], 0, 0
        while stack:
            one = stack.pop()
            nodes += 1
            if isinstance(one, _TEXT):
                total += len(one)
            elif isinstance(one, dict):
                stack.extend(one)
                stack.extend(one.values())
            elif isinstance(one, _ITEMS):
                stack.extend(one)
            elif isinstance(one, int):
                total += one.bit_length() // 3
            if nodes + len(stack) > self.limits.items:
                raise TemplateTooMuch(f"it makes a value of more than {self.limits.items:,} items")
        self._steps -= nodes // 8
        self.step(total + nodes)


_current: ContextVar[Budget | None] = ContextVar("unbraid_template_budget", default=None)


def current() -> Budget:
    """The budget of what runs now."""
    return _current.get() or Budget(WHILE_COMPILING)


@contextmanager
def spending(limits: TemplateLimits | Budget) -> Iterator[None]:
    """A fresh budget for what runs inside, or one that is shared by several renderings. What is spent inside is spent
    from the one around it as well, if there is one."""
    budget = limits if isinstance(limits, Budget) else Budget(limits)
    outer = _current.get()
    token = _current.set(budget)
    try:
        yield
    finally:
        _current.reset(token)
        if outer is not None:
            outer.pay(budget)


# The clock


_stopped: ContextVar[bool] = ContextVar("unbraid_template_clock", default=False)


@contextmanager
def stopped_clock() -> Iterator[None]:
    """Everything that is rendered inside is rendered at the same fixed moment."""
    token = _stopped.set(True)
    try:
        yield
    finally:
        _stopped.reset(token)


def now() -> datetime.datetime:
    return _STOPPED_AT if _stopped.get() else datetime.datetime.now()
