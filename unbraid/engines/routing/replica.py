"""One replica: its engine, the requests that it runs for us, and its health.

Three things keep requests away from a replica: failed checks (`down`), its circuit breaker, and its own answer that it
is full (`busy_until`). Every change is logged here, in one line.

The breaker leaves out a replica whose requests fail, whatever its health check says:

    closed     the replica gets requests; failures are counted
    open       the replica is left out for a while; the while doubles if it fails again soon after
    half-open  the while is over: the replica gets one request, the probe, which closes or opens the breaker

Only requests that began after the last opening count. A replica that breaks fails all that it runs, and requests that
end well then began before it broke: neither tells its state now. So an open breaker ignores the failure of a request
for which there was no other replica. If that request succeeds, the breaker closes. No timer runs: `refresh` makes an
open breaker half-open.

A replica is also left out if it is slow: if most of its last requests were late to their first piece. Late is measured
by the median of the others, since a long prompt takes long anywhere. A request that still waits counts by how long it
has waited, so a replica that hangs is noticed before its requests time out. A replica whose checks fail has its
silent outputs go on elsewhere at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from statistics import median
from typing import Literal, Protocol, runtime_checkable

from ..base import Engine, EngineBusy, EngineDown, EngineError, EngineFailed, Load
from .rules import BreakerRules, Routing, SlownessRules

log = logging.getLogger(__package__)
BreakerState = Literal["closed", "open", "half-open"]
ReplicaState = BreakerState | Literal["down"]
_BUSY = (429, 503)
_LONGEST_REASON = 300


class Try:
    """One request on one replica."""

    __slots__ = ("_broken", "began", "era", "first", "pieces", "seen", "task")

    def __init__(self, began: float, era: int) -> None:
        self.began = began
        self.era = era
        self.first: float | None = None
        """When its first piece came."""
        self.pieces = 0
        self.seen = 0
        """How many pieces had come when the replica's first check failed."""
        self.task: asyncio.Task[object] | None = None
        """The task that waits for the next piece."""
        self._broken: EngineError | None = None

    def break_off(self, error: EngineError) -> None:
        """Have the task that waits for the next piece raise `error`."""
        if self.task is not None and self._broken is None and not self.task.cancelling():
            self._broken = error
            self.task.cancel()

    def broken(self, task: asyncio.Task[object] | None) -> EngineError | None:
        """In a task that was cancelled: the error that it should raise, if that is why."""
        return None if self._broken is None or task is None or task.uncancel() else self._broken


class Breaker:
    """The circuit breaker of one replica. It calls `on_change` with the new state and the reason when it opens or
    closes."""

    def __init__(
        self,
        rules: BreakerRules,
        clock: Callable[[], float],
        chance: Callable[[], float],
        on_change: Callable[[BreakerState, str], None],
    ) -> None:
        self.state: BreakerState = "closed"
        self.failures = 0
        """Requests that failed since the last one that succeeded."""
        self.broken = False
        """True if it opened because the replica fails, False if the replica is only slow."""
        self.length = 0.0
        """Seconds that the replica was last left out, without the jitter."""
        self.until = 0.0
        """When the replica is to be tried again. Only while open."""
        self.probe: Try | None = None
        """The request that the replica is tried with. Only while half-open."""
        self._rules = rules
        self._clock = clock
        self._chance = chance
        self._on_change = on_change
        self._era = 0
        self._closed = float("-inf")
        self._outcomes: deque[bool] = deque(maxlen=rules.outcomes)

    def refresh(self) -> BreakerState:
        """The state now."""
        if self.state == "open" and self._clock() >= self.until:
            self.state = "half-open"
        elif self.state == "half-open" and self._is_proved():
            self._close()
        return self.state

    def begin(self) -> Try:
        """Note that a request goes to the replica, in any state. In half-open, the first is the probe."""
        attempt = Try(self._clock(), self._era)
        if self.refresh() == "half-open" and self.probe is None:
            self.probe = attempt
        return attempt

    def succeed(self, ended: Try) -> None:
        """Note that a request succeeded."""
        self._release(ended)
        if ended.era != self._era:
            return
        if self.state != "closed":
            self._close()
        self.failures = 0
        self._outcomes.append(True)

    def fail(self, ended: Try, reason: str, *, fatal: bool, slow: bool = False) -> None:
        """Note that a request failed by the replica's fault. One `fatal` failure opens the breaker."""
        probed = ended is self.probe
        self._release(ended)
        if ended.era != self._era:
            return
        self.failures += 1
        self._outcomes.append(False)
        if (self.state == "closed" and (fatal or self._too_many())) or (self.state == "half-open" and probed):
            self.open(reason, broken=not slow)

    def pass_over(self, ended: Try) -> None:
        """Note that a request ended in a way that says nothing about the replica."""
        self._release(ended)

    def open(self, reason: str, *, broken: bool = True) -> None:
        """Leave the replica out. `broken`: because it fails, and not only because it is slow."""
        self.broken = broken
        now, rules = self._clock(), self._rules
        again = self.state == "half-open" or now - self._closed <= self.length
        self.length = min(rules.longest, 2 * self.length) if again else rules.shortest
        self.until = now + self.length * (1.0 + rules.jitter * self._chance())
        self._era += 1
        self.probe = None
        self.state = "open"
        self._on_change("open", reason)

    def try_now(self) -> None:
        """End the wait: the replica was restarted."""
        self.until = min(self.until, self._clock())

    def _is_proved(self) -> bool:
        """Whether the probe has given output for long enough. Its end may be minutes away."""
        first = None if self.probe is None else self.probe.first
        return first is not None and self._clock() - first >= self._rules.trial

    def _too_many(self) -> bool:
        outcomes, rules = self._outcomes, self._rules
        often = 2 * len(outcomes) >= rules.outcomes and outcomes.count(False) >= rules.rate * len(outcomes)
        return self.failures >= rules.failures or often

    def _close(self) -> None:
        self._closed = self._clock()
        self.failures = 0
        self._outcomes.clear()
        self.probe = None
        self.state = "closed"
        self._on_change("closed", "it answers again")

    def _release(self, ended: Try) -> None:
        if ended is self.probe:
            self.probe = None


class FirstPieces:
    """How long one replica took to its first pieces, and which requests wait for theirs."""

    __slots__ = ("_rules", "latest", "times", "waiting")

    def __init__(self, rules: SlownessRules) -> None:
        self._rules = rules
        self.times: deque[float] = deque(maxlen=rules.requests)
        self.waiting: dict[object, float] = {}
        """When each request without a piece began, oldest first."""
        self.latest: float | None = None
        """The last time to a first piece."""

    def add(self, seconds: float) -> None:
        self.latest = seconds
        self.times.append(seconds)

    def give_up(self, seconds: float) -> None:
        """Note that a request ended without a piece. If that took long, the piece would have taken longer."""
        if seconds >= self._rules.seconds:
            self.times.append(seconds)

    def worth_a_look(self, now: float) -> bool:
        """Whether the replica can be slow at all. Mostly it cannot, and nothing has to be compared."""
        oldest = next(iter(self.waiting.values()), now)
        return max(now - oldest, self.times[-1] if self.times else 0.0) >= self._rules.seconds

    def is_slow(self, now: float, others: Iterable[FirstPieces]) -> bool:
        """Whether most of the last requests were late."""
        limit = self.limit(others)
        if limit is None:
            return False
        waits = [now - began for began in self.waiting.values() if now - began > limit]
        recent = [*waits, *reversed(self.times)][: self._rules.requests]
        return 2 * sum(seconds > limit for seconds in recent) > self._rules.requests

    def limit(self, others: Iterable[FirstPieces]) -> float | None:
        """The seconds after which a first piece is late, or None while the others have too few requests to compare."""
        usual = [seconds for other in others for seconds in other.times]
        if 2 * len(usual) < self._rules.requests:
            return None
        return max(self._rules.seconds, self._rules.factor * median(usual))


@runtime_checkable
class Reporting(Protocol):
    """An engine that reports its own load."""

    @property
    def reported(self) -> Load | None:
        """The last report, if any."""
        ...


class Replica:
    """One of the engines. Names without an underscore may be read for metrics."""

    def __init__(self, engine: Engine, name: str, routing: Routing) -> None:
        self.engine = engine
        self.name = name
        """The URL of a server, without credentials."""
        self.running = 0
        self.requests = 0
        """Requests so far, including those that moved here."""
        self.failures = 0
        """Requests so far that failed by its fault."""
        self.moved = 0
        """Outputs that began here and went on at another replica."""
        self.failed_checks = 0
        """Failed checks in a row. A request that began after the first of them and is answered resets the count: a busy
        server may be late with a check, and work all the same."""
        self.busy_until = 0.0
        """Until when it is full, by its own answer."""
        self.used = 0
        """The number of its last request, counted over all replicas."""
        self.breaker = Breaker(routing.breaker, routing.clock, routing.chance, self._log_change)
        self.first_pieces = FirstPieces(routing.slowness)
        self._tries: set[Try] = set()
        self.look = asyncio.Event()
        """Set it to have the replica checked now."""
        self.alone = False
        """There is no other replica, so failed requests never leave it out."""
        self.leaving = False
        """It gets no more requests, and is closed when those that it runs have ended."""
        self._routing = routing
        self._others = 0
        """Requests of other clients, by its last report."""
        self._unwell = 0.0
        """When the first of `failed_checks` failed."""

    @property
    def state(self) -> ReplicaState:
        """`down` if its checks fail, otherwise the state of its breaker."""
        return "down" if self.down else self.breaker.refresh()

    @property
    def down(self) -> bool:
        return self.failed_checks >= self._routing.failures

    @property
    def load(self) -> int:
        """How many requests it has: ours, and those of other clients by its last report."""
        return self.running + self._others

    @property
    def latency(self) -> float | None:
        """Seconds to the first piece of the last request that had one."""
        return self.first_pieces.latest

    # Requests

    def begin(self) -> Try:
        """Note that a request goes here."""
        self.running += 1
        self.requests += 1
        attempt = self.breaker.begin()
        self._tries.add(attempt)
        self.first_pieces.waiting[attempt] = attempt.began
        if attempt is self.breaker.probe:
            log.info("%s is tried with one request", self.name)
        return attempt

    def first_piece(self, attempt: Try, others: Iterable[Replica]) -> None:
        """Note that the first piece has come."""
        pieces = self.first_pieces
        now = attempt.first = self._routing.clock()
        seconds = now - attempt.began
        pieces.waiting.pop(attempt, None)
        pieces.add(seconds)
        if self.failed_checks and attempt.began > self._unwell and not self.down:
            self.failed_checks = 0
        if attempt is self.breaker.probe:
            limit = pieces.limit(other.first_pieces for other in others)
            if limit is not None and seconds > limit:
                self.breaker.fail(attempt, f"it is still slow: {seconds:.1f} seconds", fatal=False, slow=True)

    def end(self, attempt: Try, error: EngineError | None) -> None:
        """Note that the request has ended. `error` is the engine's failure, or None if the output is complete or nobody
        wants more of it."""
        now = self._routing.clock()
        self.running -= 1
        if self.leaving:
            self.look.set()
        self._tries.discard(attempt)
        self.first_pieces.waiting.pop(attempt, None)
        if error is None and attempt.first is not None:
            self.breaker.succeed(attempt)
            return
        if error is None:  # nobody wanted to wait any longer, or the request was at fault
            self.first_pieces.give_up(now - attempt.began)
        elif is_busy(error):
            wait = error.retry_after if isinstance(error, EngineDown) else 0.0
            self.busy_until = now + min(wait, self._routing.breaker.longest)
        else:
            self.failures += 1
            self.look.set()
            if not self.alone:
                self.breaker.fail(attempt, one_line(error), fatal=error.status is None)
                return
        self.breaker.pass_over(attempt)

    def leave_if_slow(self, others: Iterable[Replica]) -> bool:
        """Leave the replica out if it is much slower than the others."""
        if not self.first_pieces.is_slow(self._routing.clock(), (other.first_pieces for other in others)):
            return False
        self.breaker.open("its first pieces come much later than the others'", broken=False)
        return True

    # Checks

    async def check(self) -> EngineError | None:
        """Check the engine, and return the error if it takes no requests."""
        was_down = self.down
        try:
            await self.engine.check()
        except EngineError as error:
            if not self.failed_checks:
                self._unwell = self._routing.clock()
                for attempt in self._tries:
                    attempt.seen = attempt.pieces
            self.failed_checks += 1
            if self.down and not was_down:
                log.warning("%s is left out: %d checks failed: %s", self.name, self.failed_checks, one_line(error))
            if self.down and not self.alone:
                self._break_off_silent_ones(error)
            return error
        self.failed_checks = 0
        reported = self.engine.reported if isinstance(self.engine, Reporting) else None
        self._others = 0 if reported is None else max(0, reported.running + reported.waiting - self.running)
        if was_down:
            log.info("%s is back: its check succeeded", self.name)
            self.breaker.try_now()
        return None

    def _break_off_silent_ones(self, error: EngineError) -> None:
        """Move outputs to other replicas if they have not advanced since the first failed check. A busy server may be
        late with its checks, and work all the same."""
        for attempt in [attempt for attempt in self._tries if attempt.pieces == attempt.seen]:
            attempt.break_off(EngineFailed(f"its checks fail: {error}"))

    def _log_change(self, state: BreakerState, reason: str) -> None:
        if state == "open":
            self.first_pieces.times.clear()
            seconds = self.breaker.until - self._routing.clock()
            log.warning("%s is left out for %.1f seconds: %s", self.name, seconds, reason)
        else:
            log.info("%s is back: %s", self.name, reason)


def is_busy(error: EngineError) -> bool:
    """Whether the engine is well, and only full now."""
    return isinstance(error, EngineBusy) or error.status in _BUSY


def one_line(error: EngineError) -> str:
    """The text of an error, in one line of a log."""
    return " ".join(str(error).split())[:_LONGEST_REASON]
