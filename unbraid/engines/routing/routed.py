"""`Routed`: several engines as one.

A request is tried on one replica after another (`choice`) until one gives its first piece. If that one fails later, the
output goes on at another (`partial_output`). Replicas are also checked in the background. One whose checks fail
several times in a row gets no requests until a check succeeds, and its silent outputs go on elsewhere.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from contextvars import Context
from itertools import count

from ...core.vocabulary import Vocabulary
from ...fairness import FairQueue
from ..base import (
    Engine,
    EngineBusy,
    EngineDown,
    EngineError,
    EngineFailed,
    EngineTimeout,
    Finish,
    Generation,
    Load,
    Piece,
    PromptTooLong,
    Unsupported,
    turn,
)
from .choice import Affinity, Digests, choose
from .partial_output import PartialOutput, WentOnDifferently, may_go_on
from .replica import Replica, log, one_line
from .rules import RetryRules, Routing


class RetryBudget:
    """How many retries there may be: a share of the recent requests, and a few besides.

    Without a budget, replicas that fail under load would get each request several times. When a replica dies, all its
    requests come back at once: those without output may use a share of all that run, besides. Outputs that have begun
    always move, and count as no retries: they are work that exists already. Requests and retries count less the older
    they are, at the same rate, so there are no windows with edges.
    """

    def __init__(self, rules: RetryRules, clock: Callable[[], float]) -> None:
        self._rules = rules
        self._clock = clock
        self._at = clock()
        self._requests = 0.0
        self._retries = 0.0

    def request(self) -> None:
        """Count a new request."""
        self._age()
        self._requests += 1.0

    def retry(self, running: int = 0) -> bool:
        """Whether a request may be tried again. If so, the retry is counted. `running`: how many requests run, given if
        this one was on a replica that died."""
        self._age()
        rules = self._rules
        if self._retries + 1.0 > rules.minimum + rules.share * self._requests + rules.moves * running:
            return False
        self._retries += 1.0
        return True

    def _age(self) -> None:
        now = self._clock()
        if now > self._at:
            left = math.exp((self._at - now) / self._rules.window)
            self._requests *= left
            self._retries *= left
            self._at = now


_DEFAULT = Routing()
_MOST_WAITING = 8192
"""Requests that wait here for a replica."""


class _Journey:
    """The replicas that one request has visited."""

    def __init__(self, digests: Digests) -> None:
        self.digests = digests
        """The digests of the prompt."""
        self.tries = 0
        self.tried: list[Replica] = []
        """Replicas that failed since the last piece, in order. They are not tried now."""
        self.problems: list[EngineError] = []
        self.broken: EngineError | None = None
        """The error that broke off the output, if it had begun."""

    def failed(self, error: EngineError, came: bool) -> None:
        """Note that the last replica failed. `came`: after it had given output."""
        self.problems.append(error)
        if came:
            self.broken = error
            del self.tried[:-1]

    def lost(self, why: EngineError | str | None = None) -> EngineError:
        """The error for an output that has begun and cannot go on."""
        assert self.broken is not None
        last = self.problems[-1]
        reason = why or ("there is none that may be tried now" if last is self.broken else last)
        error = type(self.broken)(f"{self.broken}; it cannot go on at another replica: {reason}")
        error.status = self.broken.status
        return error


class Routed:
    """Several engines as one. The next request goes to the replica that has its prompt cached, or to the least loaded.

    names: the names of the engines in logs and metrics.
    """

    def __init__(
        self, engines: Sequence[Engine], routing: Routing = _DEFAULT, names: Sequence[str] | None = None
    ) -> None:
        if not engines:
            raise EngineError("no engine was named: give the address of at least one")
        called = names or [f"replica {number}" for number in range(1, len(engines) + 1)]
        self._start(routing)
        self.have([Replica(engine, name, routing) for engine, name in zip(engines, called, strict=True)])

    def _start(self, routing: Routing) -> None:
        self.replicas: list[Replica] = []
        self._routing = routing
        self._budget = RetryBudget(routing.retries, routing.clock)
        self._affinity = Affinity(routing.affinity)
        self._uses = count(1)
        self._turns = FairQueue(routing.parallel or sys.maxsize, _MOST_WAITING)
        self._watching = False
        self._watchers: dict[Replica, asyncio.Task[None]] = {}
        self._changes = False
        """Whether replicas come and go."""
        self._nobody = ""
        """Why there is no replica, if there is none."""

    def have(self, replicas: Sequence[Replica]) -> None:
        """Have these replicas from now on. One that goes gets no further requests; its outputs end there, or move if it
        fails."""
        gone = [replica for replica in self.replicas if replica not in replicas]
        self.replicas = list(replicas)
        self._turns.places = max(1, len(self.replicas)) * (self._routing.parallel or sys.maxsize)
        for replica in gone:
            log.info("%s is gone, with %d outputs that go on there", replica.name, replica.running)
            replica.leaving = True
            replica.look.set()
        for replica in (*gone, *self.replicas):
            replica.alone = not self._others(replica)
        if self._watching:
            self._watch()

    @property
    def model(self) -> str:
        return next((replica.engine.model for replica in self.replicas if replica.engine.model), "")

    @property
    def vocabulary(self) -> Vocabulary | None:
        return next((each.engine.vocabulary for each in self.replicas if each.engine.vocabulary is not None), None)

    @property
    def context(self) -> int | None:
        return min((each.engine.context for each in self.replicas if each.engine.context is not None), default=None)

    @property
    def load(self) -> Load:
        """Requests of ours. Whether one waits inside its engine is unknown here."""
        return Load(sum(replica.running for replica in self.replicas), self._turns.waiting)

    async def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        await self._located()
        place = await turn(self._turns, self.model or "the engine")
        try:
            if not self._watching:  # on first use: a task needs a running loop
                self._watch()
            self._budget.request()
            partial = PartialOutput(request)
            may_move = self._changes or len(self.replicas) > 1
            journey = _Journey(self._affinity.digests(request.prompt) if may_move else ())
            while (replica := self._next(journey, partial)) is not None:
                attempt = replica.begin()
                came = False
                problem: EngineError | None = None
                try:
                    async with aclosing(
                        partial.rest(replica.engine) if partial else replica.engine.generate(request)
                    ) as outputs:
                        while True:
                            attempt.task = task = asyncio.current_task()
                            try:
                                output = await anext(outputs)
                            except StopAsyncIteration:
                                return
                            except asyncio.CancelledError:
                                if (broken := attempt.broken(task)) is None:
                                    raise
                                raise broken from None
                            finally:
                                attempt.task = None
                            attempt.pieces += 1
                            if not came:
                                came = True
                                replica.first_piece(attempt, self._others(replica))
                            if may_move:
                                _note(partial, output)
                            yield output
                except (Unsupported, PromptTooLong) as error:
                    if journey.broken is None:
                        raise  # wrong here is wrong everywhere
                    raise journey.lost(error) from error
                except WentOnDifferently as error:
                    raise journey.lost(error) from error
                except EngineError as error:
                    problem = error
                    if came and not (may_move and may_go_on(error)):
                        raise
                    journey.failed(error, came)
                finally:
                    replica.end(attempt, problem)
                if came and (end := partial.end()) is not None:
                    yield end
                    return
                if came and (why := partial.why_not()) is not None:
                    raise journey.lost(why)
            raise self._worst(journey.problems) if journey.broken is None else journey.lost()
        finally:
            place.leave()

    def _next(self, journey: _Journey, partial: PartialOutput) -> Replica | None:
        """The replica for the next try, or None if there is to be no more."""
        if journey.tries > self._routing.retries.most:
            return None
        self._leave_slow_ones_out()
        replica = choose(self.replicas, journey.tried, self._routing.clock(), self._affinity, journey.digests)
        if replica is None:
            return None
        if journey.tries:
            before, problem = journey.tried[-1], journey.problems[-1]
            reason, died = one_line(problem), problem.status is None and not isinstance(problem, EngineTimeout)
            what = f"an output of {partial} so far" if partial else "a request"
            always = died and partial
            if not always and not self._budget.retry(self.load.running if died else 0):
                log.warning("%s is not moved from %s, as too many were: %s", what, before.name, reason)
                return None
            log.warning("%s moves from %s to %s: %s", what, before.name, replica.name, reason)
            before.moved += bool(partial)
        replica.used = next(self._uses)
        self._affinity.note(journey.digests, replica)
        journey.tries += 1
        journey.tried.append(replica)
        return replica

    def _leave_slow_ones_out(self) -> None:
        now = self._routing.clock()
        for replica in self.replicas:
            if replica.state == "closed" and replica.first_pieces.worth_a_look(now):
                stay = sum(other.state == "closed" for other in self._others(replica))
                if stay >= self._routing.slowness.left * len(self.replicas):
                    replica.leave_if_slow(self._others(replica))

    def _others(self, replica: Replica) -> list[Replica]:
        return [other for other in self.replicas if other is not replica]

    def _worst(self, problems: Sequence[EngineError]) -> EngineError:
        """The error to raise if every replica failed: one that says when to try again, if there is any."""
        if not self.replicas and not problems:
            return EngineDown(f"there is no server now: {self._nobody}", retry_after=self._routing.check_interval)
        if not problems:
            return EngineDown(f"all {len(self.replicas)} engines are down", retry_after=self._routing.check_interval)
        down = [problem for problem in problems if isinstance(problem, EngineDown)]
        if not down:
            return problems[-1]
        soonest = min(down, key=lambda problem: problem.retry_after)
        if len(problems) == 1 or not any(isinstance(problem, EngineBusy) for problem in problems):
            return soonest
        busy = EngineBusy(str(soonest), soonest.retry_after)
        busy.status = 429 if all(problem.status == 429 for problem in problems) else 503
        return busy

    async def check(self) -> None:
        """Return if any of the engines is up."""
        await self._located()
        self._watch()
        problems: list[EngineError] = []
        checks = [asyncio.create_task(replica.check()) for replica in self.replicas]
        try:
            for done in asyncio.as_completed(checks):
                problem = await done
                if problem is None:
                    return
                problems.append(problem)
        finally:
            for check in checks:
                check.cancel()
        raise self._worst(problems)

    async def close(self) -> None:
        replicas, watchers = {*self.replicas, *self._watchers}, tuple(self._watchers.values())
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)
        await asyncio.gather(*(replica.engine.close() for replica in replicas))

    async def _located(self) -> None:
        """Wait until it is known which replicas there are."""

    def _watch(self) -> None:
        """Start the checks of replicas that have none."""
        self._watching = True
        for replica in self.replicas:
            if replica not in self._watchers:
                # In a context of its own: it outlives the request that happens to be first.
                self._watchers[replica] = asyncio.create_task(self._watch_one(replica), context=Context())

    async def _watch_one(self, replica: Replica) -> None:
        while not replica.leaving or replica.running:
            try:
                rules, soon = self._routing, replica.failed_checks and not replica.down
                async with asyncio.timeout(min(rules.recheck, rules.check_interval) if soon else rules.check_interval):
                    await replica.look.wait()
            except TimeoutError:
                pass
            replica.look.clear()
            if not replica.leaving or replica.running:
                await replica.check()
        del self._watchers[replica]
        await replica.engine.close()


def _note(partial: PartialOutput, output: Piece | Finish) -> None:
    """Keep an output. An engine that gives up a request has failed: nobody asked it to."""
    if isinstance(output, Piece):
        partial.note(output)
    elif output.reason == "abort":
        raise EngineFailed("the engine gave the request up")
