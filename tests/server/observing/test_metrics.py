"""The metrics: those of each replica, and that the documentation lists them all."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

import httpx
from prometheus_client.core import Metric

from unbraid.engines import Engine
from unbraid.engines.replay import ReplayEngine, script
from unbraid.server.observing.metrics import Metrics, Totals

from ...support import patient_http
from ...support.places import ROOT
from ...support.running_server import RunningServer, service_of, serving
from ...support.scripted_server import Scripted
from ...support.waiting import wait_for


@dataclass
class FakeReplica:
    """What a replica shows."""

    name: str
    state: str = "closed"
    running: int = 0
    requests: int = 0
    failures: int = 0
    moved: int = 0
    latency: float | None = None


class Replicated(ReplayEngine):
    """An engine that has replicas."""

    def __init__(self, *replicas: object) -> None:
        super().__init__([script("Hi")], repeat=True)
        self.replicas = replicas


def text(**engines: Engine) -> str:
    return Metrics(lambda: engines).text().decode()


def test_each_replica_has_its_own() -> None:
    first = FakeReplica("http://a", running=2, requests=9, failures=1, moved=3, latency=0.25)
    found = text(m=Replicated(first, FakeReplica("http://b", "open"), FakeReplica("http://c", "half-open")))
    for line in (
        'unbraid_replica_up{model="m",replica="http://a"} 1.0',
        'unbraid_replica_up{model="m",replica="http://b"} 0.0',
        'unbraid_replica_up{model="m",replica="http://c"} 1.0',
        'unbraid_replica_running{model="m",replica="http://a"} 2.0',
        'unbraid_replica_requests_total{model="m",replica="http://a"} 9.0',
        'unbraid_replica_failures_total{model="m",replica="http://a"} 1.0',
        'unbraid_replica_moved_outputs_total{model="m",replica="http://a"} 3.0',
        'unbraid_replica_first_piece_seconds{model="m",replica="http://a"} 0.25',
    ):
        assert line in found.splitlines()
    assert 'unbraid_replica_first_piece_seconds{model="m",replica="http://b"}' not in found


def test_one_that_is_named_twice_is_two() -> None:
    found = text(m=Replicated(FakeReplica("http://a", requests=1), FakeReplica("http://a", requests=2)))
    assert 'unbraid_replica_requests_total{model="m",replica="http://a"} 1.0' in found
    assert 'unbraid_replica_requests_total{model="m",replica="http://a (2)"} 2.0' in found


def test_an_engine_without_replicas_has_none() -> None:
    for engine in (ReplayEngine([script("Hi")]), Replicated(object())):
        assert "unbraid_replica_up{" not in text(m=engine)


def test_replicas_of_several_workers() -> None:
    """It is up where it is up for all, and as slow as for the slowest."""
    totals = Totals()
    for number, state, latency in ((1, "closed", 0.25), (2, "open", 0.5), (3, "closed", 0.125)):
        one = FakeReplica("http://a", state, running=1, requests=2, latency=latency)
        totals.tell(number, text(m=Replicated(one)))
    lines = totals.text().splitlines()
    for name, value in (("up", 0.0), ("running", 3.0), ("requests_total", 6.0), ("first_piece_seconds", 0.5)):
        assert f'unbraid_replica_{name}{{model="m",replica="http://a"}} {value}' in lines


def listed() -> dict[str, tuple[str, str]]:
    """The table of the documentation: labels and meaning of each metric."""
    document = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(unbraid_\w+)` \| (.*?) \| (.*?) \|$", document, re.MULTILINE)
    return {name: (labels, what) for name, labels, what in rows}


def described(metric: Metric) -> tuple[str, str]:
    """The name that Prometheus shows, and the description."""
    return metric.name + ("_total" if metric.type == "counter" else ""), metric.documentation


def test_the_documentation_lists_them_all() -> None:
    metrics = Metrics(dict)
    there = dict(described(metric) for metric in metrics._registry.collect())
    assert {name: what for name, (_, what) in listed().items()} == there


def test_the_documentation_has_their_labels() -> None:
    replica = FakeReplica("http://a", latency=1.0)
    metrics = Metrics(lambda: {"m": Replicated(replica)})
    metrics.requests.labels("/", "200").inc()
    metrics.aborted.labels("/").inc()
    metrics.count_refused("tls")
    metrics.duration.labels("/", "m", "k").observe(1.0)
    for timed in (metrics.first_token, metrics.between_tokens):
        timed.labels("m", "k").observe(1.0)
    for counted in (metrics.prompt_tokens, metrics.cached_tokens, metrics.completion_tokens):
        counted.labels("m", "k").inc()
    metrics.diagnostics.labels("f", "k").inc()
    for metric in metrics._registry.collect():
        name, _ = described(metric)
        there = set().union(*(set(sample.labels) for sample in metric.samples)) - {"le"}
        assert set(re.findall(r"`(\w+)`", listed()[name][0])) == there, name


def lines(server: RunningServer, **headers: str) -> list[str]:
    reply = patient_http.get(f"{server.url}/metrics", headers=headers)
    assert reply.status_code == 200
    return [line for line in reply.text.splitlines() if not line.startswith("#")]


def value(server: RunningServer, name: str, **headers: str) -> float:
    """The sum of all series of a metric."""
    return sum(float(line.split()[-1]) for line in lines(server, **headers) if line.startswith(name))


KEYS = ("first-key", "second-key")
BODY = {"messages": [{"role": "user", "content": "Hello there!"}]}


def shown(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def chat(server: RunningServer, key: str, **more: Any) -> Any:
    reply = patient_http.post(f"{server.url}/v1/chat/completions", json={**BODY, **more}, headers=shown(key))
    assert reply.status_code == 200, reply.text
    return reply.json()


def named(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:12]


def test_tokens_are_counted_for_each_key_and_a_prompt_once() -> None:
    scripted = Scripted()
    scripted.say("Hi there")
    scripted.service.api_keys = KEYS
    with serving(scripted.service) as server:
        one = chat(server, KEYS[0])["usage"]
        two = chat(server, KEYS[1], n=3)["usage"]
        found = lines(server, **shown(KEYS[0]))
    assert one["prompt_tokens"] == two["prompt_tokens"] > 0
    for key, usage in ((KEYS[0], one), (KEYS[1], two)):
        labels = f'{{key="{named(key)}",model="qwen"}}'
        assert f"unbraid_prompt_tokens_total{labels} {float(usage['prompt_tokens'])}" in found
        assert f"unbraid_completion_tokens_total{labels} {float(usage['completion_tokens'])}" in found
        assert any(line.startswith(f"unbraid_time_to_first_token_seconds_count{labels}") for line in found)
        assert any(f'key="{named(key)}",model="qwen",route="/v1/chat/completions"' in line for line in found)


def test_the_tokens_of_a_client_that_left_are_counted() -> None:
    engine = ReplayEngine([script("a" * 40, chunks=10).hanging(after=5)], model="m")
    with serving(service_of(engine, "hermes", api_keys=KEYS)) as server:
        url = f"{server.url}/v1/chat/completions"
        with httpx.stream("POST", url, json={**BODY, "stream": True}, headers=shown(KEYS[0]), timeout=120) as reply:
            assert next(reply.iter_lines())
        wait_for(lambda: value(server, "unbraid_requests_aborted_total") == 1)
        wait_for(lambda: value(server, "unbraid_completion_tokens_total") > 0)
        assert value(server, "unbraid_prompt_tokens_total") > 0


def test_without_a_key_there_are_no_addresses_and_no_keys() -> None:
    engine = Replicated(FakeReplica("http://gpu-1:8000", requests=3), FakeReplica("http://gpu-2:8000", requests=4))
    with serving(service_of(engine, "hermes", api_keys=KEYS)) as server:
        for key in KEYS:
            chat(server, key)
        text, full = "\n".join(lines(server)), "\n".join(lines(server, **shown(KEYS[1])))
        wrong = "\n".join(lines(server, **shown("another")))
        counts = [value(server, "unbraid_completion_tokens_total", **headers) for headers in ({}, shown(KEYS[0]))]
    for secret in ("gpu-1", "gpu-2", *map(named, KEYS)):
        assert secret in full
        assert secret not in text
        assert secret not in wrong
    assert len(re.findall(r"^unbraid_replica_requests_total", text, re.MULTILINE)) == 2
    assert counts[0] == counts[1] > 0


def test_a_server_without_keys_shows_no_addresses() -> None:
    with serving(service_of(Replicated(FakeReplica("http://gpu-1:8000")), "hermes")) as server:
        assert "gpu-1" not in "\n".join(lines(server))
