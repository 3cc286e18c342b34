"""Replicas behind real sockets: each way in which a server can fail, and what the next requests do."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from unbraid.engines import EngineBusy, EngineDown, EngineFailed, EngineTimeout, Generation, Piece
from unbraid.engines import server as server_module
from unbraid.engines.http.address import without_credentials
from unbraid.engines.http.timeouts import PieceClock, Timeouts
from unbraid.engines.routing import Routing

from ...support.fake_servers import FakeServer, FakeVLLM, Fault
from ...support.in_loop import collect, collect_until_error, in_loop
from ...support.waiting import PATIENCE, until
from ..http_kinds import HELLO, KINDS, PROMPT, each_kind, engine, ids_of
from .scripted import Clock

REQUEST = Generation(prompt=PROMPT)
PATIENT = Timeouts(first=PATIENCE, piece=PATIENCE)


def replicas(kind: str, *servers: FakeServer, first: Timeouts | None = None) -> tuple[Any, Clock]:
    """An engine and its clock. `first`: how long the first server may take; the others have all the time they need."""
    clock = Clock()
    routing = Routing(check_interval=1e9, clock=clock, chance=lambda: 0.0)
    known = {"model": "fake", "context": 1000}  # nothing is asked before a request, so its connection is new
    one = engine(kind, *servers, routing=routing, timeouts=PATIENT, **known)
    give(one, first or PATIENT)
    return one, clock


def give(one: Any, timeouts: Timeouts) -> None:
    one.replicas[0].engine.address.timeouts = timeouts


def states(one: Any) -> list[str]:
    return [replica.state for replica in one.replicas]


@each_kind
@pytest.mark.parametrize(
    "fault",
    [Fault("drop"), Fault("cut"), Fault("garbage"), Fault("silent"), Fault("trickle")],
    ids=lambda fault: fault.kind,
)
@in_loop
async def test_broken_before_the_first_piece(kind: str, fault: Fault) -> None:
    """The request moves, once; the replica is left out although its health check passes; then one request tries it."""
    async with KINDS[kind].server(HELLO, fault=fault) as bad, KINDS[kind].server(HELLO) as good:
        short = Timeouts(first=0.2, piece=PATIENCE)
        one, clock = replicas(kind, bad, good, first=short if fault.kind in ("silent", "trickle") else None)
        for _ in range(3):
            assert ids_of(await collect(one.generate(REQUEST))) or not KINDS[kind].gives_ids
        await one.check()
        assert (len(bad.generated), len(good.generated)) == (1, 3)
        assert states(one) == ["open", "closed"]
        bad.fault = None
        give(one, PATIENT)
        clock.pass_time(5.0)
        await collect(one.generate(REQUEST))
        assert states(one) == ["closed", "closed"]
        assert (len(bad.generated), len(good.generated)) == (2, 3)
        await one.close()


@each_kind
@pytest.mark.parametrize("fault", [Fault("cut", after=2), Fault("silent", after=2), Fault("trickle", after=2)])
@in_loop
async def test_broken_midway(kind: str, fault: Fault) -> None:
    async with KINDS[kind].server(HELLO, fault=fault) as bad, KINDS[kind].server(HELLO) as good:
        one, _ = replicas(kind, bad, good, first=None if fault.kind == "cut" else Timeouts(first=PATIENCE, piece=0.2))
        outputs, error = await collect_until_error(one.generate(REQUEST))
        moves = KINDS[kind].gives_ids
        assert outputs
        assert type(error) is (type(None) if moves else EngineFailed if fault.kind == "cut" else EngineTimeout)
        assert [replica.moved for replica in one.replicas] == [moves, 0]
        await one.check()
        assert states(one) == ["open", "closed"]
        for _ in range(3):
            await collect(one.generate(REQUEST))
        assert (len(bad.generated), len(good.generated)) == (1, 3 + moves)
        if fault.kind != "cut":
            await until(lambda: bad.gone == 1)
        await one.close()


@each_kind
@in_loop
async def test_nobody_listens_at_one(kind: str) -> None:
    async with KINDS[kind].server(HELLO) as good:
        async with KINDS[kind].server(HELLO) as gone:
            one, _ = replicas(kind, gone, good)
        for _ in range(3):
            await collect(one.generate(REQUEST))
        assert states(one) == ["open", "closed"]
        assert (one.replicas[0].requests, len(good.generated)) == (1, 3)
        await one.close()


@each_kind
@in_loop
async def test_healthy_and_unable_to_generate(kind: str) -> None:
    async with KINDS[kind].server(HELLO, fault=Fault("status", status=500)) as bad, KINDS[kind].server(HELLO) as good:
        one, _ = replicas(kind, bad, good)
        for _ in range(12):
            await one.check()
            await collect(one.generate(REQUEST))
        assert (len(bad.generated), len(good.generated)) == (3, 12)
        assert states(one) == ["open", "closed"]
        await one.close()


@each_kind
@pytest.mark.parametrize("status", [429, 503])
@in_loop
async def test_full(kind: str, status: int) -> None:
    fault = Fault("status", status=status, headers={"Retry-After": "7"})
    async with KINDS[kind].server(HELLO, fault=fault) as full, KINDS[kind].server(HELLO) as good:
        one, clock = replicas(kind, full, good)
        for _ in range(3):
            await collect(one.generate(REQUEST))
        assert (len(full.generated), len(good.generated)) == (1, 3)
        assert states(one) == ["closed", "closed"]
        full.fault = None
        clock.pass_time(7.0)
        await collect(one.generate(REQUEST))
        assert len(full.generated) == 2
        good.fault = full.fault = Fault("status", status=status, headers={"Retry-After": "7"})
        _, error = await collect_until_error(one.generate(REQUEST))
        assert isinstance(error, EngineBusy if status == 429 else EngineDown)
        assert (error.status, error.retry_after) == (status, 7.0)
        await one.close()


# Timeouts


@each_kind
@pytest.mark.parametrize("fault", ["silent", "trickle"])
@in_loop
async def test_the_first_piece_and_the_others_have_their_own_time(kind: str, fault: Any) -> None:
    for timeouts, after in ((Timeouts(first=0.3, piece=PATIENCE), 0), (Timeouts(first=PATIENCE, piece=0.3), 1)):
        async with KINDS[kind].server(HELLO, fault=Fault(fault, after=after)) as server:
            one, _ = replicas(kind, server, first=timeouts)
            with pytest.raises(EngineTimeout, match=r"gave no output for 0\.3 seconds"):
                await collect(one.generate(REQUEST))
            await until(lambda: server.gone == 1)
            await one.close()


@each_kind
@in_loop
async def test_time_that_the_reader_takes_does_not_count(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that reads slowly is no fault of the server's: the clock starts when the reader comes back."""
    course: list[str] = []

    class Spying(PieceClock):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if name == "came" and value:
                course.append("clock")

    monkeypatch.setattr(server_module, "PieceClock", Spying)
    async with KINDS[kind].server(HELLO) as server:
        one, _ = replicas(kind, server)
        async for output in one.generate(REQUEST):
            if isinstance(output, Piece):
                course.append("reader")  # noqa: PERF401 the order counts
        await one.close()
    assert course == ["reader", "clock"] * (len(course) // 2)
    assert course


@in_loop
async def test_a_check_that_trickles_is_given_up() -> None:
    async with FakeVLLM(HELLO) as server:
        one, _ = replicas("vllm", server)
        server.generates = "/health"
        server.fault = Fault("trickle")
        server.events = lambda body: iter([{}])  # type: ignore[method-assign]
        with pytest.raises(EngineTimeout):
            await one.replicas[0].engine.address.get("/health", 0.3)
        await one.close()


@each_kind
@in_loop
async def test_what_broke_a_new_connection_is_not_sent_again(kind: str) -> None:
    """It may be what breaks the server."""
    async with KINDS[kind].server(HELLO, fault=Fault("drop")) as server:
        one, _ = replicas(kind, server)
        with pytest.raises(EngineFailed, match=r"the connection to .* broke"):
            await collect(one.generate(REQUEST))
        assert len(server.generated) == 1
        await one.close()


# What is told


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://a:1", "http://a:1"),
        ("https://me:p@ss@a/v1/b", "https://a/v1/b"),
        ("http://a/b?key=secret", "http://a/b"),
        ("http://a?key=se/cr@et", "http://a"),
        ("a:1", "a:1"),
    ],
)
def test_a_url_without_credentials(url: str, shown: str) -> None:
    assert without_credentials(url) == shown


@in_loop
async def test_logs_and_errors_show_no_credentials(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with FakeVLLM(HELLO) as good, FakeVLLM(HELLO, fault=Fault("cut")) as bad:
        secret = [server.url.replace("://", "://me:secret@") for server in (bad, good)]
        one = KINDS["vllm"].engine(secret, routing=Routing(check_interval=1e9))
        await collect(one.generate(REQUEST))
        assert [replica.name for replica in one.replicas] == [bad.url, good.url]
        assert bad.asked[0].headers["authorization"].startswith("Basic ")
        told = [record.getMessage() for record in caplog.records if record.name == "unbraid.engines.routing"]
        assert len(told) == 2
        assert all(bad.url in line for line in told)
        assert not any("secret" in line for line in told)
        await one.close()
