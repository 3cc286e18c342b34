"""One engine made of several that do the same: requests go to the one with the least to do."""

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
    """How replicas are watched."""

    check_interval: float = 5.0
    """Seconds from one check of a replica to the next."""
    failures: int = 3
    """How many checks that fail in a row make a replica be left out until one goes well."""


@dataclass(eq=False, slots=True)
class Replica:
    """One of the engines, and what is known of how it is."""

    engine: Engine
    running: int = 0
    failures: int = 0
    """Checks that failed since one went well."""
    suspect: bool = False
    """The last request or check failed."""
    used: int = 0
    look: asyncio.Event = field(default_factory=asyncio.Event)
    """Set where it is to be checked now."""


_DEFAULT = Routing()


class Routed:
    """Several engines as one.

    A request goes to the engine with the fewest requests of ours. Where it fails before the first piece of output, it
    goes to another one; after that, never. All engines are checked in the background, and at once where a request
    failed. One whose checks fail again and again gets no requests until one goes well.
    """

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
        """Requests of ours: what waits inside of the engines runs, seen from here."""
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
        """Return if any of the engines is well."""
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
        """The least loaded of those that are not down; those that failed last, only where there is no other."""
        up = [replica for replica in self.replicas if replica.failures < self._routing.failures]
        left = [replica for replica in up if replica not in tried]
        if not left:
            return None
        found = min(left, key=lambda replica: (replica.suspect, replica.running, replica.used))
        found.used = next(self._uses)
        return found

    def _worst(self, problems: Sequence[EngineError]) -> EngineError:
        """What to say where none could do it: when to try again, if that may help."""
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
        """Watch all engines, from the first use on: a task needs a loop to run in."""
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
