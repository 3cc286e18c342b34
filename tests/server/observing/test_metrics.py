"""The metrics: those of each replica, and that the documentation lists them all."""

from __future__ import annotations

import re
from dataclasses import dataclass

from prometheus_client.core import Metric

from unbraid.engines import Engine
from unbraid.engines.replay import ReplayEngine, script
from unbraid.server.observing.metrics import Metrics, Totals

from ...support.places import ROOT


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
        super().__init__([script("Hi")])
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
    metrics.duration.labels("/").observe(1.0)
    metrics.diagnostics.labels("f", "k").inc()
    for metric in metrics._registry.collect():
        name, _ = described(metric)
        there = set().union(*(set(sample.labels) for sample in metric.samples)) - {"le"}
        assert set(re.findall(r"`(\w+)`", listed()[name][0])) == there, name
