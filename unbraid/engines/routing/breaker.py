"""A circuit breaker: leaves a replica out that fails, whatever its health check says, then tries it with one request.

    closed     it gets requests; failures are counted
    open       it is left out for a while, twice as long each time that it fails again soon after
    half-open  the while is over: it gets one request, the probe, which closes or opens it

Only requests that began after the last opening count. A replica that breaks fails all that it runs, and what ended well
was begun before it broke: neither says how it is now. For the same reason a breaker that is open stays as it is if a
request fails for which there was no other replica; if that request succeeds, the breaker closes.

Time passes only when it is looked at: `refresh` makes an open breaker half-open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Literal

from .rules import BreakerRules

State = Literal["closed", "open", "half-open"]


class Try:
    """One request on one replica."""

    __slots__ = ("began", "era", "first")

    def __init__(self, began: float, era: int) -> None:
        self.began = began
        self.era = era
        self.first: float | None = None
        """When its first piece came."""


class Breaker:
    """The state of one replica. `told` is called with the new state and the reason, whenever it opens or closes."""

    def __init__(
        self,
        rules: BreakerRules,
        clock: Callable[[], float],
        chance: Callable[[], float],
        told: Callable[[State, str], None],
    ) -> None:
        self.state: State = "closed"
        self.failures = 0
        """Requests that failed since the last one that succeeded."""
        self.broken = False
        """Why it is open: because it fails, or only because it is slow."""
        self.length = 0.0
        """Seconds that it was last left out, without the jitter."""
        self.until = 0.0
        """When it is to be tried again, while it is open."""
        self.probe: Try | None = None
        """The request that it is tried with, while it is half-open."""
        self._rules = rules
        self._clock = clock
        self._chance = chance
        self._told = told
        self._era = 0
        self._closed = float("-inf")
        self._outcomes: deque[bool] = deque(maxlen=rules.outcomes)

    def refresh(self) -> State:
        """The state now."""
        if self.state == "open" and self._clock() >= self.until:
            self.state = "half-open"
        elif self.state == "half-open" and self._is_proved():
            self._close()
        return self.state

    def begin(self) -> Try:
        """A request goes to the replica, whatever the state. On one that is half-open, the first is the probe."""
        begun = Try(self._clock(), self._era)
        if self.refresh() == "half-open" and self.probe is None:
            self.probe = begun
        return begun

    def succeed(self, ended: Try) -> None:
        """The request did what was asked for."""
        self._release(ended)
        if ended.era != self._era:
            return
        if self.state != "closed":
            self._close()
        self.failures = 0
        self._outcomes.append(True)

    def fail(self, ended: Try, reason: str, *, fatal: bool, slow: bool = False) -> None:
        """The request failed by the replica's fault. `fatal` is what one request is enough for."""
        probed = ended is self.probe
        self._release(ended)
        if ended.era != self._era:
            return
        self.failures += 1
        self._outcomes.append(False)
        if (self.state == "closed" and (fatal or self._too_many())) or (self.state == "half-open" and probed):
            self.open(reason, broken=not slow)

    def pass_over(self, ended: Try) -> None:
        """The request ended and says nothing about the replica."""
        self._release(ended)

    def open(self, reason: str, *, broken: bool = True) -> None:
        """Leave the replica out. `broken`: it fails, and is not only slow."""
        self.broken = broken
        now, rules = self._clock(), self._rules
        again = self.state == "half-open" or now - self._closed <= self.length
        self.length = min(rules.longest, 2 * self.length) if again else rules.shortest
        self.until = now + self.length * (1.0 + rules.jitter * self._chance())
        self._era += 1
        self.probe = None
        self.state = "open"
        self._told("open", reason)

    def try_now(self) -> None:
        """Do not wait any longer: the replica was restarted."""
        self.until = min(self.until, self._clock())

    def _is_proved(self) -> bool:
        """Whether the probe has given output for long enough. Its end may be minutes away."""
        begun = None if self.probe is None else self.probe.first
        return begun is not None and self._clock() - begun >= self._rules.trial

    def _too_many(self) -> bool:
        found, rules = self._outcomes, self._rules
        often = 2 * len(found) >= rules.outcomes and found.count(False) >= rules.rate * len(found)
        return self.failures >= rules.failures or often

    def _close(self) -> None:
        self._closed = self._clock()
        self.failures = 0
        self._outcomes.clear()
        self.probe = None
        self.state = "closed"
        self._told("closed", "it answers again")

    def _release(self, ended: Try) -> None:
        if ended is self.probe:
            self.probe = None
