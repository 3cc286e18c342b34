"""How many connections there may be, and who makes room."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.engines.replay import script
from unbraid.server.access.addresses import proxies_of
from unbraid.server.access.connections import Connections, Seat
from unbraid.server.errors import ApiError

from ...support.waiting import wait_for
from .support import ASK, HEALTH, Limited, error, limited, read_all, read_reply, send, status


def metrics(server: Limited) -> str:
    return server.server.service.metrics.text().decode()


def test_a_client_with_too_many_is_told_so() -> None:
    with limited(connections=Connections(0, 3)) as server, ExitStack() as open:
        clients = [open.enter_context(server.connect()) for _ in range(3)]
        wait_for(lambda: server.connections.count == 3)
        with server.connect() as more:
            send(more, HEALTH)
            reply = read_all(more)
        assert status(reply) == 429
        assert 'unbraid_connections_refused_total{reason="client"} 1.0' in metrics(server)
        assert b"retry-after: 1" in reply.lower()
        assert "--client-connections" in error(reply)["message"]
        clients[0].close()
        wait_for(lambda: server.connections.count == 2)
        assert server.healthy()


def test_connections_of_a_proxy_are_counted_in_all_only() -> None:
    with limited(connections=Connections(0, 1)) as server, ExitStack() as open:
        server.server.access.proxies = proxies_of(["127.0.0.0/8"])
        for _ in range(3):
            open.enter_context(server.connect())
        wait_for(lambda: server.connections.count == 3)


def test_connections_that_are_left_alone_make_room() -> None:
    """Fifty times as many as there may be, none of which asks anything."""
    with limited(connections=Connections(10)) as server, ExitStack() as open:
        for number in range(500):
            client = open.enter_context(server.connect())
            if number % 2:
                client.sendall(b"GET / HTTP/1.1\r\nX: ")
        assert server.healthy()
        assert server.connections.count <= 10
        assert 'unbraid_connections_refused_total{reason="idle"} 491.0' in metrics(server)


def test_connections_that_are_answered_do_not() -> None:
    with limited(connections=Connections(2), said=script("Hi.").hanging(0)) as server, ExitStack() as open:
        for count in (1, 2):
            open.enter_context(server.connect()).sendall(ASK)
            wait_for(lambda count=count: len(server.engine.requests) == count)  # type: ignore[misc]
        with server.connect() as more:
            send(more, HEALTH)
            reply = read_all(more)
        assert status(reply) == 503
        assert 'unbraid_connections_refused_total{reason="server"} 1.0' in metrics(server)
        assert "--connections" in error(reply)["message"]
        assert server.engine.aborted == 0


def test_the_connection_that_waited_longest_goes_first() -> None:
    with limited(connections=Connections(2)) as server, server.connect() as first, server.connect() as second:
        for client in (first, second, first):
            client.sendall(HEALTH)
            assert status(read_reply(client)) == 200
        assert server.healthy()
        assert read_all(second) == b""
        first.sendall(HEALTH)
        assert status(read_reply(first)) == 200


def test_a_flood_of_connections_is_not_told_one_by_one() -> None:
    """Those that are turned away do not take more room than those that are let in."""
    with limited(connections=Connections(0, 1)) as server, ExitStack() as open:
        open.enter_context(server.connect())
        wait_for(lambda: server.connections.count == 1)
        for _ in range(300):
            open.enter_context(server.connect())
        wait_for(lambda: len(server.server.access.turned_away) == 64)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["take", "wait", "answer", "leave"]))))
def test_counts_are_right_whatever_happens(steps: list[tuple[str, str]]) -> None:
    """Against a plain list of what is open."""
    connections = Connections(5, 3)
    open: list[Seat] = []
    closed: list[Seat] = []
    for client, step in steps:
        if step == "take":
            mine = [seat for seat in open if seat.client == client]
            waiting = [seat for seat in open if seat in connections.waiting]
            full = len(open) == 5
            try:
                seat = connections.take(client, lambda: None)
            except ApiError as error:
                refused = error.status
            else:
                refused = 0
                open.append(seat)
            assert refused == (429 if len(mine) >= 3 else 503 if full and not waiting else 0)
            closed += [each for each in open if not each.taken]
            open = [each for each in open if each.taken]
        elif open:
            {"wait": open[0].wait, "answer": open[0].answer, "leave": open[0].leave}[step]()
            if step == "leave":
                open.pop(0).leave()
        assert connections.count == len(open) <= 5
    for seat in [*open, *closed]:
        seat.leave()
    assert (connections.count, connections.waiting, dict(connections._clients)) == (0, {}, {})


@pytest.mark.parametrize("count", [0, 10_000])
def test_no_limit(count: int) -> None:
    connections = Connections()
    for _ in range(count):
        connections.take("a", lambda: None)
    assert connections.count == count
