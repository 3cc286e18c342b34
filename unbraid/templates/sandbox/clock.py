"""The clock that templates read with `strftime_now`.

Where two renderings are compared, the clock must stand still: else a template that writes the time is not what it was
a moment ago, and what was found of it would depend on the day.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_STOPPED_AT = datetime.datetime(2025, 7, 1, 12)
_stopped: ContextVar[bool] = ContextVar("unbraid_template_clock", default=False)


@contextmanager
def stopped_clock() -> Iterator[None]:
    """It is the same moment for all that is rendered inside, always the same one."""
    token = _stopped.set(True)
    try:
        yield
    finally:
        _stopped.reset(token)


def now() -> datetime.datetime:
    return _STOPPED_AT if _stopped.get() else datetime.datetime.now()
