"""Replicas that do what a test says, and a clock and a chance that a test decides."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from unbraid.engines import EngineDown, EngineError, EngineFailed, Finish, Generation, Load, Piece
from unbraid.engines.http.refusals import refusal
from unbraid.engines.routing import Routed, Routing

REQUEST = Generation(prompt=(1, 2))


@dataclass
class Clock:
    """Time that passes only when it is told to."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now

    def pass_time(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class ScriptedEngine:
    """Fails, or answers after some seconds of the clock. What it does can be changed at any time."""

    clock: Clock
    error: EngineError | None = None
    after: int = 0
    """After how many pieces it fails."""
    seconds: float = 0.1
    """How long the first piece takes."""
    asked: int = 0
    running: int = 0
    healthy: bool = True
    vocabulary: None = None
    context: None = None
    model: str = "scripted"
    load: Load = field(default_factory=Load)

    async def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        self.asked += 1
        self.running += 1
        try:
            for at in range(request.written, 3):
                if self.error is not None and at == self.after:
                    raise self.error
                if at == request.written:
                    self.clock.pass_time(self.seconds)
                yield Piece((at,))
            yield Finish("stop", 2 + request.written, 3 - request.written)
        finally:
            self.running -= 1

    async def check(self) -> None:
        if not self.healthy:
            raise EngineDown("it is not well")

    async def close(self) -> None:
        pass


DEAD = EngineFailed("the connection broke")
OUT_OF_REACH = EngineDown("it cannot be reached")
FAILING = refusal(500, "CUDA error")
FULL = refusal(429, "later", 7.0)
RESTING = refusal(503, "loading", 3.0)


class Fleet:
    """Some replicas as one engine. Health checks never run by themselves, and there is no jitter."""

    def __init__(self, count: int, **rules: object) -> None:
        self.clock = Clock()
        self.engines = [ScriptedEngine(self.clock) for _ in range(count)]
        routing = Routing(check_interval=1e9, clock=self.clock, chance=lambda: 0.0, **rules)  # type: ignore[arg-type]
        self.routed = Routed(self.engines, routing)

    @property
    def states(self) -> list[str]:
        return [replica.state for replica in self.routed.replicas]

    def asked(self) -> list[int]:
        return [engine.asked for engine in self.engines]

    async def ask(self, times: int = 1) -> list[str]:
        """Requests one after another, and how each of them ended."""
        found: list[str] = []
        for _ in range(times):
            try:
                outputs = [output async for output in self.routed.generate(REQUEST)]
                found.append(outputs[-1].reason if isinstance(outputs[-1], Finish) else "?")
            except EngineError as error:
                found.append(type(error).__name__)
        return found

    async def usual(self, times: int = 8) -> None:
        """Enough requests for all to know what is usual."""
        assert set(await self.ask(times * len(self.engines))) == {"stop"}
