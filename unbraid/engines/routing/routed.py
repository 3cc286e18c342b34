"""`Routed`: several engines as one.

A request is tried on one replica after another (`choice`) until one gives its first piece. After that a second try
would give a different answer, so a failure is passed on. How many tries there may be is in `retries`. Replicas are
checked in the background, too; one whose checks fail several times in a row gets no requests until a check succeeds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from contextvars import Context
from itertools import count

from ...core.vocabulary import Vocabulary
from ..base import (
    Engine,
    EngineBusy,
    EngineDown,
    EngineError,
    Finish,
    Generation,
    Load,
    Piece,
    PromptTooLong,
    Unsupported,
)
from .choice import choose
from .replica import Replica, log, one_line
from .retries import RetryBudget
from .rules import Routing

_DEFAULT = Routing()


class Routed:
    """Several engines as one. Of those that are well, the least loaded gets the next request.

    names: what logs and metrics call the engines.
    """

    def __init__(
        self, engines: Sequence[Engine], routing: Routing = _DEFAULT, names: Sequence[str] | None = None
    ) -> None:
        if not engines:
            raise EngineError("no engine was named: give the address of at least one")
        called = names or [f"replica {number}" for number in range(1, len(engines) + 1)]
        alone = len(engines) == 1
        self.replicas = [
            Replica(engine, name, routing, alone=alone) for engine, name in zip(engines, called, strict=True)
        ]
        self._routing = routing
        self._budget = RetryBudget(routing.retries, routing.clock)
        self._uses = count(1)
        self._watchers: list[asyncio.Task[None]] = []

    @property
    def model(self) -> str:
        return next((replica.engine.model for replica in self.replicas if replica.engine.model), "")

    @property
    def vocabulary(self) -> Vocabulary | None:
        return next((each.engine.vocabulary for each in self.replicas if each.engine.vocabulary is not None), None)

    @property
    def context(self) -> int | None:
        known = [replica.engine.context for replica in self.replicas if replica.engine.context is not None]
        return min(known, default=None)

    @property
    def load(self) -> Load:
        """Requests of ours. Whether one waits inside its engine is not known here."""
        return Load(sum(replica.running for replica in self.replicas))

    async def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        self._watch()
        self._budget.request()
        tried: list[Replica] = []
        problems: list[EngineError] = []
        while (replica := self._next(tried, problems)) is not None:
            tried.append(replica)
            one = replica.begin()
            begun = False
            problem: EngineError | None = None
            try:
                async with aclosing(replica.engine.generate(request)) as outputs:
                    async for output in outputs:
                        if not begun:
                            begun = True
                            replica.first_piece(one, self._others(replica))
                        yield output
                return
            except (Unsupported, PromptTooLong):
                raise  # wrong here is wrong everywhere
            except EngineError as error:
                problem = error
                if begun:
                    raise
                problems.append(error)
            finally:
                replica.end(one, problem)
        raise self._worst(problems)

    def _next(self, tried: Sequence[Replica], problems: Sequence[EngineError]) -> Replica | None:
        """The replica for the next try, None if there is to be no more."""
        retries = self._routing.retries
        if len(tried) > retries.most:
            return None
        self._leave_slow_ones_out()
        found = choose(self.replicas, tried, self._routing.clock())
        if found is None:
            return None
        if tried:
            reason = one_line(problems[-1])
            if not self._budget.retry():
                log.warning("a request is not moved from %s, as too many were: %s", tried[-1].name, reason)
                return None
            log.warning("a request moves from %s to %s: %s", tried[-1].name, found.name, reason)
        found.used = next(self._uses)
        return found

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
        """The error to raise where no replica could do it: one that says when to try again, if there is any."""
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
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        await asyncio.gather(*(replica.engine.close() for replica in self.replicas))

    def _watch(self) -> None:
        """Start the checks, with the first use: a task needs a loop to run in."""
        if not self._watchers:
            # In a context of their own: they go on, and are not part of the request that happens to be first.
            self._watchers = [
                asyncio.create_task(self._watch_one(replica), context=Context()) for replica in self.replicas
            ]

    async def _watch_one(self, replica: Replica) -> None:
        while True:
            try:
                async with asyncio.timeout(self._routing.check_interval):
                    await replica.look.wait()
            except TimeoutError:
                pass
            replica.look.clear()
            await replica.check()
