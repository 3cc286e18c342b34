"""Laws of replicas over any course of events: requests that overlap, replicas that break, hang, fill up and recover."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from unbraid.engines import EngineError, Finish, Piece
from unbraid.engines.routing import RetryRules

from ...support.examples import examples
from .scripted import DEAD, FAILING, FULL, OUT_OF_REACH, REQUEST, RESTING, Fleet

ERRORS = {
    "well": None,
    "dead": DEAD,
    "out of reach": OUT_OF_REACH,
    "failing": FAILING,
    "full": FULL,
    "resting": RESTING,
}


class AnyFleet(RuleBasedStateMachine):
    """Requests begin, go on and end in any order; what replicas do changes at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.streams: list[AsyncGenerator[Piece | Finish, None]] = []

    @initialize(count=st.integers(1, 4), short=st.booleans())
    def make(self, count: int, short: bool) -> None:
        self.short = short
        retries = RetryRules(minimum=2.0) if short else RetryRules(minimum=1e9)
        self.fleet = Fleet(count, retries=retries)
        self.requests = 0

    @rule(data=st.data(), kind=st.sampled_from(sorted(ERRORS)), after=st.sampled_from([0, 0, 1, 2]))
    def change(self, data: st.DataObject, kind: str, after: int) -> None:
        engine = data.draw(st.sampled_from(self.fleet.engines))
        engine.error, engine.after = ERRORS[kind], after if kind == "dead" else 0

    @rule(data=st.data(), seconds=st.sampled_from([0.1, 3.0, 30.0]))
    def slow_down(self, data: st.DataObject, seconds: float) -> None:
        data.draw(st.sampled_from(self.fleet.engines)).seconds = seconds

    @rule(seconds=st.sampled_from([0.5, 5.0, 20.0, 200.0]))
    def pass_time(self, seconds: float) -> None:
        self.fleet.clock.pass_time(seconds)

    @rule(data=st.data(), healthy=st.booleans())
    def check(self, data: st.DataObject, healthy: bool) -> None:
        at = data.draw(st.integers(0, len(self.fleet.engines) - 1))
        self.fleet.engines[at].healthy = healthy
        self.runner.run(self.fleet.routed.replicas[at].check())

    @rule()
    def begin(self) -> None:
        """No request is lost while a replica works that checks do not say is down."""
        works = any(
            (engine.error is None or engine.after) and not replica.down
            for engine, replica in zip(self.fleet.engines, self.fleet.routed.replicas, strict=True)
        )
        stream = self.fleet.routed.generate(REQUEST)
        self.requests += 1
        try:
            self.runner.run(anext(stream))
        except EngineError:
            assert not works or self.short
        else:
            self.streams.append(stream)

    @precondition(lambda self: self.streams)
    @rule(data=st.data(), leave=st.booleans())
    def go_on(self, data: st.DataObject, leave: bool) -> None:
        stream = self.streams.pop(data.draw(st.integers(0, len(self.streams) - 1)))
        if leave:
            self.runner.run(stream.aclose())
            return
        try:
            if isinstance(self.runner.run(anext(stream)), Piece):
                self.streams.append(stream)
            else:
                self.runner.run(stream.aclose())
        except EngineError:
            pass

    @invariant()
    def what_runs_is_counted(self) -> None:
        if hasattr(self, "fleet"):
            running = [replica.running for replica in self.fleet.routed.replicas]
            assert running == [engine.running for engine in self.fleet.engines]
            assert sum(running) == len(self.streams)

    @invariant()
    def only_one_request_tries_a_replica_and_nobody_waits_that_does_not_run(self) -> None:
        for replica in self.fleet.routed.replicas if hasattr(self, "fleet") else ():
            assert not replica.first_pieces.waiting, "all that run have had their first piece"
            assert replica.breaker.probe is None or replica.running

    @invariant()
    def tries_are_few(self) -> None:
        if hasattr(self, "fleet") and self.short:
            elapsed = (self.fleet.clock.now - 1000.0) / 10.0
            assert sum(self.fleet.asked()) <= 1.2 * self.requests + 2.0 * (1.0 + elapsed) + 1e-6

    def teardown(self) -> None:
        """Once all are well, all are used again in the end."""
        if hasattr(self, "fleet"):
            self.runner.run(self.recover())
        self.runner.close()

    async def recover(self) -> None:
        fleet = self.fleet
        for stream in self.streams:
            await stream.aclose()
        for engine, replica in zip(fleet.engines, fleet.routed.replicas, strict=True):
            engine.error, engine.healthy, engine.seconds = None, True, 0.1
            await replica.check()
        for _ in range(4):
            fleet.clock.pass_time(1000.0)
            assert await fleet.ask(len(fleet.engines)) == ["stop"] * len(fleet.engines)
        assert fleet.states == ["closed"] * len(fleet.engines)
        before = fleet.asked()
        await fleet.ask(len(fleet.engines))
        assert fleet.asked() == [count + 1 for count in before]
        await fleet.routed.close()


TestAnyFleet = AnyFleet.TestCase
TestAnyFleet.settings = examples(10, stateful_step_count=40)
