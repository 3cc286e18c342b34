"""Who may open a WebSocket, how many there may be, and how one ends with the server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import httpx
import pytest
import websockets

from unbraid.engines.replay import script
from unbraid.server.access.connections import Connections
from unbraid.server.access.door import Access
from unbraid.server.app import write_error

from ...support.running_server import RunningServer, serving
from ...support.waiting import until
from .support import connected, listener, run, service


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    made = service([script("Hi.")], of=listener(), api_keys=("secret",))
    with serving(made, hosts=(), check_host=True) as running:
        yield running


KEY = {"Authorization": "Bearer secret"}


async def refused(server: RunningServer, query: str = "", **options: object) -> tuple[int, dict[str, str]]:
    with pytest.raises(websockets.InvalidStatus) as refusal:
        async with connected(server, query, **options):  # type: ignore[arg-type]
            pass
    response = refusal.value.response
    assert response.headers["x-request-id"]
    return response.status_code, json.loads(response.body)["error"]


def test_keys_in_a_header_and_in_a_subprotocol(server: RunningServer) -> None:
    async def tried() -> None:
        status, error = await refused(server)
        assert (status, error["code"]) == (401, "invalid_api_key")
        status, _ = await refused(server, headers={"Authorization": "Bearer wrong"})
        assert status == 401
        async with connected(server, headers=KEY):
            pass
        wanted = ["realtime", "openai-insecure-api-key.secret", "openai-beta.realtime-v1"]
        async with connected(server, subprotocols=wanted) as client:
            assert client.socket.subprotocol == "realtime", "the key is not sent back"

    run(tried)


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        ("?model=nobody", {}, 404),
        ("?intent=dance", {}, 400),
        ("", {"Origin": "https://evil.example"}, 403),
        ("", {"Origin": "null"}, 403),
        ("", {"Host": "rebound.example"}, 421),
    ],
)
def test_who_is_refused_gets_a_reply(server: RunningServer, query: str, headers: dict[str, str], status: int) -> None:
    async def tried() -> None:
        origin = headers.get("Origin")
        more = {name: value for name, value in headers.items() if name not in ("Origin", "Host")}
        if "Host" in headers:  # the library writes its own
            url = f"{server.url}/v1/realtime"
            upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
            asked = {**KEY, **headers, **upgrade, "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
            assert httpx.get(url, headers=asked).status_code == status
            return
        found, error = await refused(server, query, headers={**KEY, **more}, origin=origin)
        assert found == status
        assert error["message"]

    run(tried)


def test_other_requests_are_no_websockets(server: RunningServer) -> None:
    plain = httpx.get(f"{server.url}/v1/realtime", headers=KEY)
    assert plain.status_code == 426
    assert plain.headers["upgrade"] == "websocket"
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}
    assert httpx.get(f"{server.url}/v1/models", headers={**KEY, **upgrade}).status_code == 200
    bad = httpx.get(f"{server.url}/v1/realtime", headers={**KEY, **upgrade})
    assert bad.status_code == 400, "it lacks the key of the handshake"


def test_a_websocket_counts_as_a_connection_as_long_as_it_lasts() -> None:
    access = Access(write_error=write_error, connections=Connections(0, 2))

    async def tried() -> None:
        with serving(service([script("Hi.")]), access=access) as running:
            async with connected(running), connected(running):
                with pytest.raises(websockets.InvalidStatus) as refusal:
                    async with connected(running):
                        pass
                assert refusal.value.response.status_code == 429
            await until(lambda: access.connections.count == 0)
            async with connected(running):
                pass

    run(tried)


def test_a_session_with_nothing_to_do_ends_with_the_server() -> None:
    async def tried() -> None:
        running = RunningServer(service([script("Hi.")], of=listener()))
        running.start()
        async with connected(running) as client:
            stopping = asyncio.create_task(asyncio.to_thread(running.stop))
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await client.until("what never comes")
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1012
            await stopping

    run(tried)


def test_it_is_counted_and_logged(server: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    async def tried() -> None:
        async with connected(server, headers={**KEY, "x-request-id": "mine"}):
            pass
        await until(lambda: "/v1/realtime 101 complete" in caplog.text)

    with caplog.at_level("INFO"):
        run(tried)
    assert server.service.metrics.requests.labels("/v1/realtime", "101")._value.get() >= 1
