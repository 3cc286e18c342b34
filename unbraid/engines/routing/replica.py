"""One replica: its engine, what it runs of ours, and what is known of its health.

Three things can keep requests away from it: checks that fail (`down`), its breaker, and its own word that it is full
(`busy_until`). Whatever changes is logged here, in one line.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Literal

from ..base import Engine, EngineBusy, EngineDown, EngineError
from .breaker import Breaker, State, Try
from .reports import Reporting
from .rules import Routing
from .slowness import FirstPieces

log = logging.getLogger(__package__)
ReplicaState = State | Literal["down"]
_BUSY = (429, 503)
_LONGEST_REASON = 300


class Replica:
    """One of the engines. What has no underscore may be read for metrics."""

    def __init__(self, engine: Engine, name: str, routing: Routing, *, alone: bool = False) -> None:
        """`alone`: there is no other replica, so it is never left out for what requests say."""
        self.engine = engine
        self.name = name
        """The URL of a server, without credentials."""
        self.running = 0
        self.requests = 0
        """Requests so far, those that were moved to it included."""
        self.failures = 0
        """Requests that have failed by its fault so far."""
        self.moved = 0
        """Outputs that it had begun and that another went on with."""
        self.failed_checks = 0
        """Checks that failed since the last one that succeeded, or since a request that began after the first of them
        was answered: a server with much to do may be late with a check, and do its work all the same."""
        self.busy_until = 0.0
        """Until when it is full, as it said itself."""
        self.used = 0
        """The number of its last request among those of all replicas."""
        self.breaker = Breaker(routing.breaker, routing.clock, routing.chance, self._told)
        self.first_pieces = FirstPieces(routing.slowness)
        self.look = asyncio.Event()
        """Set to have it checked now."""
        self._routing = routing
        self._alone = alone
        self._others = 0
        """How many requests of others it had when it last said so."""
        self._unwell = 0.0
        """When the first of the failed checks failed."""

    @property
    def state(self) -> ReplicaState:
        """`down` if its checks fail; otherwise that of its breaker."""
        return "down" if self.down else self.breaker.refresh()

    @property
    def down(self) -> bool:
        return self.failed_checks >= self._routing.failures

    @property
    def load(self) -> int:
        """How many requests it has: ours, and those of others by its own last word."""
        return self.running + self._others

    @property
    def latency(self) -> float | None:
        """Seconds to the first piece of the last request that had one."""
        return self.first_pieces.latest

    # Requests

    def begin(self) -> Try:
        """A request goes to it."""
        self.running += 1
        self.requests += 1
        begun = self.breaker.begin()
        self.first_pieces.waiting[begun] = begun.began
        if begun is self.breaker.probe:
            log.info("%s is tried with one request", self.name)
        return begun

    def first_piece(self, one: Try, others: Iterable[Replica]) -> None:
        """The first piece has come."""
        pieces = self.first_pieces
        now = one.first = self._routing.clock()
        seconds = now - one.began
        pieces.waiting.pop(one, None)
        pieces.add(seconds)
        if self.failed_checks and one.began > self._unwell and not self.down:
            self.failed_checks = 0
        if one is self.breaker.probe:
            limit = pieces.limit(other.first_pieces for other in others)
            if limit is not None and seconds > limit:
                self.breaker.fail(one, f"it is still slow: {seconds:.1f} seconds", fatal=False, slow=True)

    def end(self, one: Try, error: EngineError | None) -> None:
        """The request has ended: by a failure of the engine, or because all has come or no more is wanted."""
        now = self._routing.clock()
        self.running -= 1
        self.first_pieces.waiting.pop(one, None)
        if error is None and one.first is not None:
            self.breaker.succeed(one)
            return
        if error is None:  # nobody wanted to wait any longer, or the request was at fault
            self.first_pieces.give_up(now - one.began)
        elif is_busy(error):
            wait = error.retry_after if isinstance(error, EngineDown) else 0.0
            self.busy_until = now + min(wait, self._routing.breaker.longest)
        else:
            self.failures += 1
            self.look.set()
            if not self._alone:
                self.breaker.fail(one, one_line(error), fatal=error.status is None)
                return
        self.breaker.pass_over(one)

    def leave_if_slow(self, others: Iterable[Replica]) -> bool:
        """Leave it out if it is much slower than the others."""
        if not self.first_pieces.is_slow(self._routing.clock(), (other.first_pieces for other in others)):
            return False
        self.breaker.open("its first pieces come much later than the others'", broken=False)
        return True

    # Checks

    async def check(self) -> EngineError | None:
        """Ask the engine whether it takes requests, and return what it says if not."""
        was_down = self.down
        try:
            await self.engine.check()
        except EngineError as error:
            if not self.failed_checks:
                self._unwell = self._routing.clock()
            self.failed_checks += 1
            if self.down and not was_down:
                log.warning("%s is left out: %d checks failed: %s", self.name, self.failed_checks, one_line(error))
            return error
        self.failed_checks = 0
        reported = self.engine.reported if isinstance(self.engine, Reporting) else None
        self._others = 0 if reported is None else max(0, reported.running + reported.waiting - self.running)
        if was_down:
            log.info("%s is back: its check succeeded", self.name)
            self.breaker.try_now()
        return None

    def _told(self, state: State, reason: str) -> None:
        if state == "open":
            self.first_pieces.times.clear()
            seconds = self.breaker.until - self._routing.clock()
            log.warning("%s is left out for %.1f seconds: %s", self.name, seconds, reason)
        else:
            log.info("%s is back: %s", self.name, reason)


def is_busy(error: EngineError) -> bool:
    """Whether the engine is well, and only takes no more now."""
    return isinstance(error, EngineBusy) or error.status in _BUSY


def one_line(error: EngineError) -> str:
    """What an error says, fit for a line of a log."""
    return " ".join(str(error).split())[:_LONGEST_REASON]
