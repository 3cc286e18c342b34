"""Requests and tokens a minute. The clock is the test's: nothing here waits."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid import UnbraidError
from unbraid.engines.replay import ReplayEngine, Script, script
from unbraid.server.access.addresses import client_of_scope, proxies_of
from unbraid.server.access.rates import LedgerDown, Rates, RedisLedger, Settled, Standing, duration

from ...support import patient_http
from ...support.in_loop import in_loop
from ...support.running_server import RunningServer, service_of, serving
from ...support.scripted_server import HELLO, Scripted
from ...support.serve_process import Process, record, serve
from ...support.waiting import wait_for
from .support import CHAT, head


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def at_once(answer: Coroutine[Any, Any, list[Standing]]) -> list[Standing]:
    """An answer for which nobody else is asked."""
    with pytest.raises(StopIteration) as over:
        answer.send(None)
    standings: list[Standing] = over.value.value
    return standings


# The buckets


def taken(rates: Rates, client: str = "a") -> bool:
    return not any(each.wait for each in at_once(rates.ask(client)))


def test_requests_come_back_evenly() -> None:
    clock = Clock()
    rates = Rates(requests=60, clock=clock)
    assert [taken(rates) for _ in range(61)] == [True] * 60 + [False]
    clock.now += 0.5
    assert not taken(rates)
    clock.now += 0.5
    assert [taken(rates), taken(rates)] == [True, False]
    assert taken(rates, "b"), "another client"
    clock.now += 1e9
    assert [taken(rates) for _ in range(61)] == [True] * 60 + [False], "no more than a minute's are kept"


def test_tokens_are_taken_afterwards_and_may_be_owed() -> None:
    clock = Clock()
    rates = Rates(tokens=600, clock=clock)
    assert taken(rates)
    rates.charge("a", 1200)
    (standing,) = at_once(rates.ask("a"))
    assert standing.remaining == 0
    assert standing.wait == pytest.approx(60.1)
    assert standing.reset == pytest.approx(120.0)
    clock.now += 60
    assert not taken(rates)
    clock.now += 0.2
    assert taken(rates)
    rates.charge("a", -100)
    assert at_once(rates.standing("a"))[0].remaining == 102


def test_a_request_that_is_refused_costs_nothing() -> None:
    rates = Rates(requests=10, tokens=10, clock=Clock())
    rates.charge("a", 100)
    assert not any(taken(rates) for _ in range(20))
    assert [each.remaining for each in at_once(rates.standing("a"))] == [10, 0]


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(1, 400)), min_size=1))
def test_nobody_gets_more_than_the_rate_in_the_long_run(steps: list[tuple[float, int]]) -> None:
    """What was let in is at most a minute's worth, what came back since, and what was under way at the end."""
    clock = Clock()
    rates = Rates(requests=20, tokens=1000, clock=clock)
    requests = tokens = last = 0
    for pause, cost in steps:
        clock.now += pause
        if taken(rates):
            rates.charge("a", cost)
            requests, tokens, last = requests + 1, tokens + cost, cost
    minutes = (clock.now - 1000.0) / 60
    assert requests <= 20 * (1 + minutes) + 1e-6
    assert tokens - last <= 1000 * (1 + minutes) + 1e-6


def test_memory_is_bounded() -> None:
    clock = Clock()
    rates = Rates(requests=60, clock=clock, most_clients=100)
    for number in range(10_000):
        taken(rates, f"client {number}")
        assert len(rates) <= 100
    clock.now += 60
    for number in range(60):
        taken(rates, "again" if number % 2 else f"new {number}")
    assert len(rates) < 70, "those that are full again are forgotten"


def test_a_client_that_is_over_its_limit_is_kept_while_others_are_forgotten() -> None:
    rates = Rates(requests=1, clock=Clock(), most_clients=10)
    taken(rates, "busy")
    for number in range(1000):
        taken(rates, f"client {number}")
        assert not taken(rates, "busy")


# Who a client is


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("1.2.3.4", "", "1.2.3.4"),
        ("1.2.3.4", "9.9.9.9", "1.2.3.4"),  # no proxy of ours
        ("10.0.0.1", "9.9.9.9", "9.9.9.9"),
        ("10.0.0.1", "6.6.6.6, 9.9.9.9", "9.9.9.9"),  # the client wrote the first
        ("10.0.0.1", "9.9.9.9, 10.0.0.7", "9.9.9.9"),
        ("10.0.0.1", "9.9.9.9:1234", "9.9.9.9"),
        ("10.0.0.1", "[2001:db8:0:1::5]:1234", "2001:db8:0:1::/64"),
        ("10.0.0.1", "garbage", "10.0.0.1"),
        ("10.0.0.1", "9.9.9.9, unknown", "10.0.0.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("::ffff:10.0.0.1", "9.9.9.9", "9.9.9.9"),
        ("::ffff:1.2.3.4", "", "1.2.3.4"),
        ("2001:db8::1:2:3:4", "", "2001:db8::/64"),
        ("fe80::1%eth0", "", "fe80::1%eth0"),
    ],
)
def test_the_client_of_a_request(peer: str, forwarded: str, client: str) -> None:
    headers = [(b"x-forwarded-for", part.encode()) for part in forwarded.split(";") if part]
    assert client_of_scope({"client": (peer, 1), "headers": headers}, proxies_of(["10.0.0.0/8"])) == client


# The server


class RateLimited:
    """A server whose engine knows its tokens, with limits and a clock of the test's."""

    def __init__(self, scripted: Scripted) -> None:
        self.scripted = scripted
        self.clock = Clock()

    def limit(self, requests: int = 0, tokens: int = 0) -> Rates:
        rates = Rates(requests=requests, tokens=tokens, clock=self.clock)
        self.scripted.service.rates = rates
        return rates

    def left(self) -> int:
        return at_once(self.scripted.service.rates.standing("127.0.0.1"))[0].remaining


@pytest.fixture
def api(running: Scripted) -> Iterator[RateLimited]:
    running.say("Hi there.")
    yield RateLimited(running)
    running.service.rates = Rates()
    running.service.api_keys = ()


def test_requests_are_limited_as_openai_does_it(api: RateLimited) -> None:
    api.limit(requests=2)
    client = openai.OpenAI(base_url=f"{api.scripted.server.url}/v1", api_key="any", max_retries=0)
    first = client.chat.completions.with_raw_response.create(model="qwen", messages=HELLO)
    assert first.headers["x-ratelimit-limit-requests"] == "2"
    assert first.headers["x-ratelimit-remaining-requests"] == "1"
    assert first.headers["x-ratelimit-reset-requests"] == "30s"
    client.models.list()
    with pytest.raises(openai.RateLimitError) as refused:
        client.chat.completions.create(model="qwen", messages=HELLO)
    assert (refused.value.code, refused.value.type) == ("rate_limit_exceeded", "requests")
    assert "try again in 30s" in refused.value.message
    assert refused.value.response.headers["retry-after"] == "30"
    assert refused.value.response.headers["x-ratelimit-remaining-requests"] == "0"
    api.clock.now += 30
    client.chat.completions.create(model="qwen", messages=HELLO)


def test_and_as_anthropic_does_it(api: RateLimited) -> None:
    api.limit(requests=1, tokens=1000)
    client = anthropic.Anthropic(base_url=api.scripted.server.url, api_key="any", max_retries=0)
    asks = {"model": "qwen", "max_tokens": 10, "messages": HELLO}
    first = client.messages.with_raw_response.create(**asks)
    assert first.headers["anthropic-ratelimit-requests-limit"] == "1"
    assert first.headers["anthropic-ratelimit-requests-remaining"] == "0"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", first.headers["anthropic-ratelimit-requests-reset"])
    assert int(first.headers["anthropic-ratelimit-tokens-remaining"]) < 1000
    with pytest.raises(anthropic.RateLimitError) as refused:
        client.messages.create(**asks)
    assert refused.value.response.json()["error"]["type"] == "rate_limit_error"
    assert refused.value.response.headers["retry-after"] == "60"
    assert "x-ratelimit-limit-requests" not in refused.value.response.headers


def test_public_routes_are_not_limited(api: RateLimited) -> None:
    api.limit(requests=1)
    for path in ("/health", "/ready", "/metrics", "/version", "/openapi.json") * 3:
        response = patient_http.get(api.scripted.server.url + path)
        assert response.status_code == 200
        assert not [name for name in response.headers if "ratelimit" in name]


def test_each_key_has_a_limit_of_its_own(api: RateLimited) -> None:
    api.limit(requests=1)
    api.scripted.service.api_keys = ("one", "two")

    def ask(key: str) -> int:
        headers = {"Authorization": f"Bearer {key}"}
        return patient_http.get(f"{api.scripted.server.url}/v1/models", headers=headers).status_code

    assert [ask("one"), ask("one"), ask("two"), ask("wrong"), ask("wrong")] == [200, 429, 200, 401, 401]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choices", [1, 3])
@pytest.mark.parametrize("path", ["/chat/completions", "/completions"])
def test_tokens_are_those_of_the_usage(api: RateLimited, path: str, choices: int, stream: bool) -> None:
    """The prompt once, and all that was written."""
    api.limit(tokens=100_000)
    body = {"prompt": "Hello!"} if path == "/completions" else {"messages": HELLO}
    if stream:
        chunks = api.scripted.chunks(path, **body, n=choices, stream_options={"include_usage": True})
        usage = chunks[-1]["usage"]
    else:
        usage = api.scripted.post(path, **body, n=choices)["usage"]
    assert usage["total_tokens"] > 0
    assert 100_000 - api.left() == usage["total_tokens"]


def test_tokens_of_other_routes(api: RateLimited) -> None:
    api.limit(tokens=100_000)
    usage = api.scripted.post("/messages", messages=HELLO, max_tokens=10)["usage"]
    spent = usage["input_tokens"] + usage["output_tokens"]
    assert 100_000 - api.left() == spent
    usage = api.scripted.post("/responses", input="Hello!")["usage"]
    assert 100_000 - api.left() == spent + usage["total_tokens"]


def test_debt_is_paid_before_the_next_request(api: RateLimited) -> None:
    api.limit(tokens=5)
    api.scripted.chat()
    response = patient_http.post(f"{api.scripted.server.url}{CHAT}", json={"messages": HELLO})
    assert response.status_code == 429
    assert response.json()["error"]["type"] == "tokens"
    api.clock.now += int(response.headers["retry-after"])
    assert patient_http.post(f"{api.scripted.server.url}{CHAT}", json={"messages": HELLO}).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_pays_for_what_it_got(api: RateLimited, stream: bool) -> None:
    api.limit(tokens=100_000)
    whole = api.scripted.post("/chat/completions", messages=HELLO)["usage"]
    api.limit(tokens=100_000)
    normal = api.scripted.choose
    api.scripted.choose = lambda request: Script.hanging(normal(request), 1)
    engine = api.scripted.engine
    before, aborted = len(engine.requests), engine.aborted
    body = json.dumps({"messages": HELLO, "stream": stream}).encode()
    with socket.create_connection(("127.0.0.1", api.scripted.server.port)) as client:
        client.sendall(head(length=len(body)) + body)
        wait_for(lambda: len(engine.requests) == before + 1)
    wait_for(lambda: engine.aborted == aborted + 1)
    wait_for(lambda: 100_000 - api.left() >= whole["prompt_tokens"])
    assert 100_000 - api.left() <= whole["total_tokens"]


def test_text_is_charged_where_only_the_engine_knows_its_tokens() -> None:
    rates = Rates(tokens=100_000, clock=Clock())
    engine = ReplayEngine(lambda _: script("Hi there.").hanging(1))
    with serving(service_of(engine, "qwen3", rates=rates)) as server:
        _leave(server, engine)
        wait_for(lambda: at_once(rates.standing("127.0.0.1"))[0].remaining < 100_000 - 5)


def _leave(server: RunningServer, engine: ReplayEngine) -> None:
    body = {"messages": HELLO, "stream": True}
    with httpx.stream("POST", f"{server.url}{CHAT}", json=body, timeout=None) as response:
        next(response.iter_bytes())
    wait_for(lambda: engine.aborted == 1)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0ms"), (0.12, "120ms"), (1, "1s"), (8.64, "8.64s"), (59.999, "1m0s"), (360, "6m0s"), (3661.5, "1h1m1.5s")],
)
def test_times_as_openai_writes_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


# Several processes


class Shared:
    """A ledger that counts by itself, and may be down."""

    def __init__(self, rates: Rates) -> None:
        self.rates = rates
        self.down = False

    async def settle(self, client: str, limits: tuple[int, int], request: bool, tokens: int) -> Settled:
        if self.down:
            raise LedgerDown("gone")
        assert limits == (self.rates.requests, self.rates.tokens)
        return self.rates.settle(client, request, tokens)


@in_loop
async def test_processes_with_one_ledger_count_together(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    ledger = Shared(Rates(requests=10, tokens=100, clock=clock))
    workers = [Rates(requests=10, tokens=100, clock=clock, ledger=ledger) for _ in range(3)]
    asked = [await workers[at % 3].ask("a") for at in range(12)]
    assert [any(each.wait for each in one) for one in asked] == [False] * 10 + [True] * 2
    workers[0].charge("a", 80)
    await asyncio.gather(*workers[0]._charges)
    assert [[each.remaining for each in await one.standing("a")] for one in workers] == [[0, 20]] * 3
    ledger.down = True
    assert not any(each.wait for each in await workers[1].ask("a")), "it counts for itself"
    assert "by each process for itself: gone" in caplog.text
    ledger.down = False
    clock.now += 4
    assert [each.remaining for each in await workers[1].standing("a")] == [9, 100]
    clock.now += 1
    assert [each.remaining for each in await workers[1].standing("a")] == [0, 28]


@pytest.mark.system
def test_workers_count_together(tmp_path: Path) -> None:
    path = record(tmp_path / "recording.jsonl", script("Hi!"))
    flags = ("--workers", "2", "--requests-per-minute", "20", "--tokens-per-minute", "100000")
    with serve("--replay", path, "--format", "hermes", *flags) as one:
        assert_bound([one], 20)


def assert_bound(servers: Sequence[Process], limit: int) -> None:
    """Several servers let as many requests in as one. Each request has a connection, so that workers share them."""
    began = time.monotonic()
    statuses = [servers[at % len(servers)].chat().status_code for at in range(limit + 20)]
    most = limit * (1 + (time.monotonic() - began) / 60)
    assert set(statuses) == {200, 429}
    assert statuses.count(200) <= most
    assert statuses[:limit] == [200] * limit


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[str]:
    """The URL of a Redis."""
    pytest.importorskip("redis", reason="redis is not installed: pip install 'unbraid[redis]'")
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        pytest.skip("redis-server is not installed")
    place = tmp_path / "redis.sock"
    command = [program, "--port", "0", "--unixsocket", str(place), "--save", "", "--dir", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wait_for(place.exists)
        yield f"unix://{place}"
    finally:
        process.kill()
        process.wait()


@pytest.mark.system
def test_servers_with_one_redis_count_together(redis: str, tmp_path: Path) -> None:
    path = record(tmp_path / "recording.jsonl", script("Hi!"))
    flags = ("--replay", path, "--format", "hermes", "--redis", redis, "--requests-per-minute", "20")
    with serve(*flags) as one, serve(*flags, "--workers", "2") as two:
        assert_bound([one, two], 20)


@pytest.mark.system
@in_loop
async def test_redis_counts_as_we_do(redis: str) -> None:
    ledger = RedisLedger(redis)
    here = Rates(requests=600, tokens=6000, clock=Clock())
    for request, tokens in [(True, 0), (True, 7000), (True, 0), (False, -2000), (True, 5), (False, 0)]:
        ours, theirs = here.settle("a", request, tokens), await ledger.settle("a", (600, 6000), request, tokens)
        assert theirs[0] == ours[0]
        assert theirs[1:] == pytest.approx(ours[1:], abs=600)  # its clock goes on
    assert await ledger.settle("b", (0, 50), True, 20) == (True, 0.0, 30.0)


@pytest.mark.parametrize("url", ["localhost:6379", "redis://localhost/zero", "redis://localhost:port", "redis://[x"])
def test_what_is_no_url_of_redis_is_told(url: str) -> None:
    pytest.importorskip("redis", reason="redis is not installed: pip install 'unbraid[redis]'")
    with pytest.raises(UnbraidError, match="--redis takes a URL such as"):
        RedisLedger(url)


@in_loop
async def test_without_redis_a_server_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("redis", reason="redis is not installed: pip install 'unbraid[redis]'")
    rates = Rates(requests=1, ledger=RedisLedger(f"unix://{tmp_path}/none"))
    assert [any(each.wait for each in await rates.ask("a")) for _ in range(2)] == [False, True]
