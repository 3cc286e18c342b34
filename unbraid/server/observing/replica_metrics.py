"""Metrics of each replica of an engine: requests, failures, whether it gets any, and how soon it begins to answer.

They are read off the replicas when somebody asks, so that a request costs nothing. `SeenReplica` is what a replica has
to show for that; an engine whose parts show less has no such metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol, runtime_checkable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_LEFT_OUT = ("open", "down")
_LABELS = ("model", "replica")


@runtime_checkable
class SeenReplica(Protocol):
    """What can be seen of a replica."""

    @property
    def name(self) -> str:
        """Its URL, without credentials."""
        ...

    @property
    def running(self) -> int: ...

    @property
    def requests(self) -> int:
        """So far."""
        ...

    @property
    def failures(self) -> int:
        """So far, of the requests, by its fault."""
        ...

    @property
    def moved(self) -> int:
        """Outputs so far that it had begun and that another went on with."""
        ...

    @property
    def state(self) -> str:
        """`open` and `down` if it is left out."""
        ...

    @property
    def latency(self) -> float | None:
        """Seconds to the first piece of the last request that had one."""
        ...


class ReplicaMetrics(Collector):
    """The metrics of all replicas of all engines, which are given by the names of their models."""

    def __init__(self, engines: Callable[[], Mapping[str, object]]) -> None:
        self._engines = engines

    def collect(self) -> Iterable[Metric]:
        up = GaugeMetricFamily(
            "unbraid_replica_up", "1 if the replica gets requests, 0 if it is left out.", labels=_LABELS
        )
        running = GaugeMetricFamily("unbraid_replica_running", "Outputs that the replica works on.", labels=_LABELS)
        requests = CounterMetricFamily(
            "unbraid_replica_requests", "Requests to the replica, those moved to it included.", labels=_LABELS
        )
        failures = CounterMetricFamily(
            "unbraid_replica_failures", "Requests that failed by the fault of the replica.", labels=_LABELS
        )
        moved = CounterMetricFamily(
            "unbraid_replica_moved_outputs",
            "Outputs that the replica had begun and that another went on with.",
            labels=_LABELS,
        )
        first = GaugeMetricFamily(
            "unbraid_replica_first_piece_seconds",
            "From the last request to the replica that was answered to the first piece of its answer.",
            labels=_LABELS,
        )
        for labels, replica in self._replicas():
            up.add_metric(labels, replica.state not in _LEFT_OUT)
            running.add_metric(labels, replica.running)
            requests.add_metric(labels, replica.requests)
            failures.add_metric(labels, replica.failures)
            moved.add_metric(labels, replica.moved)
            if replica.latency is not None:
                first.add_metric(labels, replica.latency)
        return up, running, requests, failures, moved, first

    def _replicas(self) -> Iterator[tuple[tuple[str, str], SeenReplica]]:
        """Each replica with its labels. One that is named twice is two replicas."""
        for model, engine in self._engines().items():
            names: list[str] = []
            for replica in getattr(engine, "replicas", ()):
                if isinstance(replica, SeenReplica):
                    again = names.count(replica.name)
                    names.append(replica.name)
                    yield (model, f"{replica.name} ({again + 1})" if again else replica.name), replica
