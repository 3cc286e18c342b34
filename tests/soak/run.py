"""`make soak`: many streams at once while replicas are killed and restarted, with hostile requests beside them.

    python -m tests.soak.run --streams 1000 --seconds 600

Every reply is compared with the truth. What the server holds is looked at all the time: it must be flat under load, and
gone after it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random
from statistics import mean
from typing import Any

from .client import be_hostile, converse
from .processes import ReplicaProcess, ServerProcess

REPLICAS = 4
_MESSAGES = 500
"""How many messages a second all replicas send together; with many streams each is slower."""
_LOOK = 1.0
_TREND = 60
"""Looks that a third of the time must have for a trend. A server that has just begun grows by what it uses for the
first time."""
_HOSTILE = 8
"""How many hostile clients there are, one request after the other."""


@dataclass
class Figures:
    """What a soak has found."""

    replies: int = 0
    hostile: int = 0
    kills: int = 0
    moved: int = 0
    problems: list[str] = field(default_factory=list)
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    under_load: list[dict[str, Any]] = field(default_factory=list)

    def leaks(self) -> list[str]:
        """What the server still holds after the load, or held more and more of under it."""
        found = [
            f"{name}: {self.before[name]} before, {self.after[name]} after"
            for name, more in (("sockets", 24), ("tasks", 4), ("files", 0), ("threads", 40))
            if self.after[name] > self.before[name] + more
        ]
        third = len(self.under_load) // 3
        if third >= _TREND:
            for name, share, more in (("memory", 1.1, 16e6), ("sockets", 1.25, 50), ("tasks", 1.25, 50)):
                middle = mean(look[name] for look in self.under_load[third : 2 * third])
                last = mean(look[name] for look in self.under_load[2 * third :])
                if last > share * middle + more:
                    found.append(f"{name} under load grow: {middle:.0f}, then {last:.0f}")
        return found

    def __str__(self) -> str:
        looks = self.under_load or [self.after]
        held = {name: f"{min(each[name] for each in looks)}-{max(each[name] for each in looks)}" for name in self.after}
        return (
            f"{self.replies} replies, {len(self.problems)} of them wrong; {self.kills} replicas killed, {self.moved} "
            f"outputs moved; {self.hostile} hostile requests\nbefore {self.before}\nunder load {held}\n"
            f"after {self.after}"
        )


async def soak(
    streams: int, kill_every: float, is_over: Callable[[Figures], bool], pace: float | None = None
) -> Figures:
    """Run until `is_over`, and then until all that runs has ended."""
    gap = streams / _MESSAGES if pace is None else pace
    replicas = [ReplicaProcess(gap) for _ in range(REPLICAS)]
    for replica in replicas:
        assert replica.line() == "ready\n"
    server = ServerProcess([replica.url for replica in replicas])
    try:
        return await _Soak(replicas, server, kill_every, is_over).run(streams)
    finally:
        for process in (*replicas, server):
            process.stop()


class _Soak:
    def __init__(
        self,
        replicas: list[ReplicaProcess],
        server: ServerProcess,
        kill_every: float,
        is_over: Callable[[Figures], bool],
    ) -> None:
        self._replicas, self._server, self._kill_every, self._is_over = replicas, server, kill_every, is_over
        self._numbers = count(1)
        self._ended = False
        self.figures = Figures()

    async def run(self, streams: int) -> Figures:
        figures = self.figures
        await asyncio.gather(self._one(), self._one())  # what is made with the first requests is no leak
        figures.before = await asyncio.to_thread(self._server.held, collect=True)
        clients = [asyncio.create_task(self._converse()) for _ in range(streams)]
        clients += [asyncio.create_task(self._be_hostile(Random(seed))) for seed in range(_HOSTILE)]
        others = [asyncio.create_task(self._kill()), asyncio.create_task(self._look())]
        await asyncio.gather(*clients)
        self._ended = True
        await asyncio.gather(*others)
        figures.after = await self._settled()
        figures.moved = figures.after["moved"]
        return figures

    async def _converse(self) -> None:
        while not self._over():
            await self._one()

    async def _one(self) -> None:
        problem = await converse(self._server.port, next(self._numbers))
        self.figures.replies += 1
        self.figures.problems += [problem] if problem else []

    async def _be_hostile(self, chance: Random) -> None:
        while not self._over():
            problem = await be_hostile(self._server.port, chance)
            self.figures.hostile += 1
            self.figures.problems += [problem] if problem else []
            await asyncio.sleep(0.2)

    def _over(self) -> bool:
        return self._is_over(self.figures)

    async def _kill(self) -> None:
        """Kill one replica after the other, and start each again, for as long as new requests come."""
        chance = Random(0)
        while not self._over():
            await asyncio.sleep(self._kill_every)
            replica = chance.choice(self._replicas)
            replica.stop()
            self.figures.kills += 1
            replica.start()
            await asyncio.to_thread(replica.line)

    async def _look(self) -> None:
        while not self._ended:
            self.figures.under_load.append(await asyncio.to_thread(self._server.held))
            await asyncio.sleep(_LOOK)

    async def _settled(self) -> dict[str, Any]:
        """What the server holds when nothing comes any more. Connections end a little later than requests do."""
        before = self.figures.before
        for _ in range(60):
            held = await asyncio.to_thread(self._server.held, collect=True)
            if held["tasks"] <= before["tasks"] + 4 and held["sockets"] <= before["sockets"] + 24:
                break
            await asyncio.sleep(0.5)
        return held


def main() -> int:
    options = argparse.ArgumentParser(description="Many streams at once while replicas are killed and restarted.")
    options.add_argument("--streams", type=int, default=1000)
    options.add_argument("--seconds", type=float, default=600.0)
    options.add_argument("--kill-every", type=float, default=10.0)
    asked = options.parse_args()
    ends: list[float] = []

    def is_over(_: Figures) -> bool:
        if not ends:  # the load begins now
            ends.append(time.monotonic() + asked.seconds)
        return time.monotonic() > ends[0]

    figures = asyncio.run(soak(asked.streams, asked.kill_every, is_over))
    print(figures)
    wrong = [*figures.problems, *figures.leaks()]
    print("\n".join(wrong[:20]) or "all is well")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
