"""Load balancing: several engines with the same model as one engine.

A request goes to the engine with the fewest requests of ours. It is tried again on another only as long as no output
has come. Engines are checked in the background; one whose checks fail several times in a row gets no requests until a
check succeeds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import count

from ..core.vocabulary import Vocabulary
from .base import Engine, EngineDown, EngineError, EngineFailed, Finish, Generation, Load, Piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """How replicas are checked."""

    check_interval: float = 5.0
    """Seconds from one check of a replica to the next."""
    failures: int = 3
    """After how many failed checks in a row a replica gets no more requests."""


@dataclass(eq=False, slots=True)
class Replica:
    """One of the engines, and its state."""

    engine: Engine
    running: int = 0
    failures: int = 0
    """Checks that failed since the last one that succeeded."""
    suspect: bool = False
    """The last request or check failed."""
    used: int = 0
    look: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to have it checked now."""


_DEFAULT = Routing()


class Routed:
    """Several engines as one. Of those that are up, the least loaded gets the next request."""

    def __init__(self, engines: Sequence[Engine], routing: Routing = _DEFAULT) -> None:
        if not engines:
            raise EngineError("no engine was named: give the address of at least one")
        self.replicas = [Replica(engine) for engine in engines]
        self._routing = routing
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
        tried: list[Replica] = []
        problems: list[EngineError] = []
        while (replica := self._choose(tried)) is not None:
            tried.append(replica)
            begun = False
            replica.running += 1
            try:
                async with aclosing(replica.engine.generate(request)) as outputs:
                    async for output in outputs:
                        begun = True
                        yield output
                replica.suspect = False
                return
            except (EngineDown, EngineFailed) as error:
                replica.suspect = True
                replica.look.set()
                if begun:
                    raise
                problems.append(error)
            finally:
                replica.running -= 1
        raise self._worst(problems)

    async def check(self) -> None:
        """Return if any of the engines is up."""
        self._watch()
        problems: list[EngineError] = []
        checks = [asyncio.create_task(self._check(replica)) for replica in self.replicas]
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

    def _choose(self, tried: Sequence[Replica]) -> Replica | None:
        """The least loaded engine that is up. One whose last request failed is taken only if there is no other."""
        up = [replica for replica in self.replicas if replica.failures < self._routing.failures]
        left = [replica for replica in up if replica not in tried]
        if not left:
            return None
        found = min(left, key=lambda replica: (replica.suspect, replica.running, replica.used))
        found.used = next(self._uses)
        return found

    def _worst(self, problems: Sequence[EngineError]) -> EngineError:
        """The error to raise where no engine could do it: one that says when to try again, if there is any."""
        down = [problem for problem in problems if isinstance(problem, EngineDown)]
        if down:
            return min(down, key=lambda problem: problem.retry_after)
        if problems:
            return problems[-1]
        return EngineDown(f"all {len(self.replicas)} engines are down", retry_after=self._routing.check_interval)

    async def _check(self, replica: Replica) -> EngineError | None:
        try:
            await replica.engine.check()
        except EngineError as error:
            replica.failures += 1
            replica.suspect = True
            return error
        replica.failures = 0
        replica.suspect = False
        return None

    def _watch(self) -> None:
        """Start the checks, with the first use: a task needs a loop to run in."""
        if not self._watchers:
            self._watchers = [asyncio.create_task(self._watch_one(replica)) for replica in self.replicas]

    async def _watch_one(self, replica: Replica) -> None:
        while True:
            try:
                async with asyncio.timeout(self._routing.check_interval):
                    await replica.look.wait()
            except TimeoutError:
                pass
            replica.look.clear()
            await self._check(replica)
