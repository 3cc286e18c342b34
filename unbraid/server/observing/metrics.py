"""Metrics for Prometheus: requests, tokens, latencies, diagnostics; the load of engines and of their replicas.

`docs/operating.md` lists them all, with the same words; a test holds the two together.

What is counted for each token is a `Durations`: prometheus_client's own histograms take a lock twice for each value,
which was a third of what the server added to a token. Engines and replicas are looked at when somebody asks, so that a
request costs nothing.

Without an API key, metrics have no addresses of replicas, and do not tell keys apart (`without_secrets`).

`Totals` adds up the metrics of several processes. Counters, histograms and most gauges are sums. Of gauges that say
whether something is up, the least counts; of those that say how long it took, the greatest. A process that ends takes
its gauges with it and leaves its counters: a counter that falls would look like a restart of all. When a series began
is the earliest of its beginnings.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from operator import sub
from typing import Any, Protocol, runtime_checkable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from ...engines import Load
from .exchange import Exchange

Series = tuple[str, tuple[tuple[str, str], ...]]
"""A sample's name and labels."""
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The bounds of the buckets."""


@runtime_checkable
class Loaded(Protocol):
    """An engine, a listener or a speaker: it has work, running and waiting."""

    @property
    def load(self) -> Load: ...


@runtime_checkable
class SeenReplica(Protocol):
    """What a replica has to show for its metrics. An engine whose parts show less has none of these metrics."""

    name: str
    """Its URL, without credentials."""
    state: str
    """`open` and `down` if it is left out."""
    running: int
    requests: int
    failures: int
    """Requests that failed by the fault of the replica."""
    moved: int
    """Outputs that the replica had begun and that another went on with."""
    latency: float | None
    """Seconds to the first piece of the last request that had one."""


_REPLICA = ("model", "replica")
_SHOWN: tuple[tuple[Any, str, str, Callable[[SeenReplica], float | None]], ...] = (
    (
        GaugeMetricFamily,
        "up",
        "1 if the replica gets requests, 0 if it is left out.",
        lambda one: one.state not in ("open", "down"),
    ),
    (GaugeMetricFamily, "running", "Outputs that the replica works on.", lambda one: one.running),
    (
        CounterMetricFamily,
        "requests",
        "Requests to the replica, those moved to it included.",
        lambda one: one.requests,
    ),
    (CounterMetricFamily, "failures", "Requests that failed by the fault of the replica.", lambda one: one.failures),
    (
        CounterMetricFamily,
        "moved_outputs",
        "Outputs that the replica had begun and that another went on with.",
        lambda one: one.moved,
    ),
    (
        GaugeMetricFamily,
        "first_piece_seconds",
        "From the last request to the replica that was answered to the first piece of its answer.",
        lambda one: one.latency,
    ),
)
"""The metrics of a replica: kind, name, description, value."""


Labels = tuple[str, ...]
_BY = ("model", "key")
"""The labels of what is billed: who asked for which model."""


class Timings:
    """The durations of one series."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        """How many values lie in each bucket. The last bucket is for those above all bounds."""
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.sum += seconds

    def observe_all(self, times: Sequence[float]) -> None:
        """The seconds from each of these times to the next."""
        counts = self.counts
        for seconds in map(sub, times[1:], times):
            counts[bisect_left(SECONDS, seconds)] += 1
        self.sum += times[-1] - times[0]


class Durations(Collector):
    """A histogram of seconds without a lock: only the event loop observes, and only it collects."""

    def __init__(self, name: str, says: str, labels: Labels, registry: CollectorRegistry) -> None:
        self._name, self._says, self._labels = name, says, labels
        self._series: dict[Labels, Timings] = {}
        registry.register(self)

    def labels(self, *values: str) -> Timings:
        timings = self._series.get(values)
        return self._series.setdefault(values, Timings()) if timings is None else timings

    def collect(self) -> Iterable[Metric]:
        bounds = [*map(floatToGoString, SECONDS), "+Inf"]
        family = HistogramMetricFamily(self._name, self._says, labels=self._labels)
        for values, timings in self._series.items():
            family.add_metric(values, list(zip(bounds, accumulate(timings.counts), strict=True)), timings.sum)
        yield family


class Metrics:
    """The metrics of one server."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, engines: Callable[[], Mapping[str, Loaded]]) -> None:
        """`engines` returns the engine of each model, those that transcribe and speak included."""
        self._registry = registry = CollectorRegistry()
        counter = partial(Counter, registry=registry)
        self.requests = counter(
            "unbraid_requests", "Requests, by route and by the status that they ended with.", ("route", "status")
        )
        self.aborted = counter("unbraid_requests_aborted", "Requests whose clients left before the end.", ("route",))
        self.refused_connections = counter(
            "unbraid_connections_refused",
            "Connections that were turned away (client, server), closed to make room (idle), or failed in TLS (tls).",
            ("reason",),
        )
        self.prompt_tokens = counter("unbraid_prompt_tokens", "Tokens of prompts, once for all choices.", _BY)
        self.cached_tokens = counter(
            "unbraid_cached_prompt_tokens", "Tokens of prompts that the engine knew already.", _BY
        )
        self.completion_tokens = counter(
            "unbraid_completion_tokens", "Tokens of outputs, those that nobody read to the end included.", _BY
        )
        self.diagnostics = counter("unbraid_parse_diagnostics", "What was wrong with outputs.", ("format", "kind"))
        self.in_flight = 0
        """Requests that are being answered."""
        in_flight = Gauge("unbraid_requests_in_flight", "Requests that are being answered.", registry=registry)
        in_flight.set_function(lambda: self.in_flight)
        self.first_token = Durations(
            "unbraid_time_to_first_token_seconds",
            "From the arrival of a request to the first token of an output. With `n=2` a request has two.",
            _BY,
            registry,
        )
        self.between_tokens = Durations("unbraid_inter_token_seconds", "From one token to the next.", _BY, registry)
        text = "From the arrival of a request to its end."
        self.duration = Durations("unbraid_request_seconds", text, ("route", *_BY), registry)
        self._counters: dict[tuple[Counter, Labels], Counter] = {}
        registry.register(_EngineLoads(engines))
        registry.register(_ReplicaMetrics(engines))

    def series(self, counter: Counter, *labels: str) -> Counter:
        """The counter with these labels. prometheus_client takes a lock to find it."""
        series = self._counters.get((counter, labels))
        if series is None:
            series = self._counters[counter, labels] = counter.labels(*labels)
        return series

    def count(self, exchange: Exchange) -> None:
        """A request is over."""
        route = exchange.route or "other"
        self.series(self.requests, route, str(exchange.status)).inc()
        self.duration.labels(route, exchange.model or "", exchange.key).observe(exchange.seconds)
        if exchange.left:
            self.aborted.labels(route).inc()

    def count_refused(self, reason: str) -> None:
        """A connection was turned away."""
        self.refused_connections.labels(reason).inc()

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self._registry)


class _EngineLoads(Collector):
    """The load of each engine now."""

    def __init__(self, engines: Callable[[], Mapping[str, Loaded]]) -> None:
        self._engines = engines

    def collect(self) -> Iterable[Metric]:
        running = GaugeMetricFamily("unbraid_engine_running", "Outputs that the engine works on.", labels=("model",))
        waiting = GaugeMetricFamily("unbraid_engine_waiting", "Outputs that wait for the engine.", labels=("model",))
        for model, engine in self._engines().items():
            load = engine.load
            running.add_metric([model], load.running)
            waiting.add_metric([model], load.waiting)
        return running, waiting


class _ReplicaMetrics(Collector):
    """Each replica of an engine: requests, failures, whether it gets any, and how soon it begins to answer."""

    def __init__(self, engines: Callable[[], Mapping[str, object]]) -> None:
        self._engines = engines

    def collect(self) -> Iterable[Metric]:
        families = [
            (kind(f"unbraid_replica_{name}", text, labels=_REPLICA), value) for kind, name, text, value in _SHOWN
        ]
        for labels, replica in self._replicas():
            for family, value in families:
                if (number := value(replica)) is not None:
                    family.add_metric(labels, number)
        return [family for family, _ in families]

    def _replicas(self) -> Iterator[tuple[tuple[str, str], SeenReplica]]:
        """Each replica with its labels. One that is named twice is two replicas."""
        for model, engine in self._engines().items():
            names: list[str] = []
            for replica in getattr(engine, "replicas", ()):
                if isinstance(replica, SeenReplica):
                    again = names.count(replica.name)
                    names.append(replica.name)
                    yield (model, f"{replica.name} ({again + 1})" if again else replica.name), replica


class Totals:
    """The last metrics of each worker process, and the counters of those that have ended."""

    def __init__(self) -> None:
        self._latest: dict[int, str] = {}
        self._ended: list[str] = []

    def tell(self, worker: int, text: str) -> None:
        """The metrics of a worker, in Prometheus' text format."""
        self._latest[worker] = text

    def end(self, worker: int) -> None:
        """The worker has ended."""
        last = self._latest.pop(worker, None)
        if last is not None:
            kept = [family for family in text_string_to_metric_families(last) if family.type != "gauge"]
            self._ended = [_text(_added([*self._families(self._ended), kept]))]

    def text(self) -> str:
        """The metrics of all workers, added up."""
        return _text(_added(self._families([*self._ended, *self._latest.values()])))

    def _families(self, texts: Iterable[str]) -> list[Iterable[Metric]]:
        return [text_string_to_metric_families(text) for text in texts]


def _both(family: Metric, name: str, one: float, other: float) -> float:
    """The value of a series that two workers have."""
    if name.endswith("_created") or (family.type == "gauge" and name.endswith("_up")):
        return min(one, other)
    return max(one, other) if family.type == "gauge" and name.endswith("_seconds") else one + other


def _added(several: Iterable[Iterable[Metric]]) -> Mapping[str, Metric]:
    totals: dict[str, Metric] = {}
    values: dict[Series, float] = {}
    for families in several:
        for family in families:
            total = totals.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                series = _series(sample)
                if series not in values:
                    total.samples.append(sample)
                    values[series] = sample.value
                else:
                    values[series] = _both(family, sample.name, values[series], sample.value)
    for family in totals.values():
        family.samples = [sample._replace(value=values[_series(sample)]) for sample in family.samples]
    return totals


def without_secrets(text: str) -> str:
    """Metrics for those who show no key: replicas without their addresses, and all keys together."""
    families = list(text_string_to_metric_families(text))
    for family in families:
        family.samples = [sample._replace(labels=_shown(sample.labels)) for sample in family.samples]
    return _text(_added([families]))


def _shown(labels: Mapping[str, str]) -> dict[str, str]:
    shown = {name: value for name, value in labels.items() if name != "key"}
    if "replica" in shown:
        shown["replica"] = replica_name(shown["replica"])
    return shown


def replica_name(url: str) -> str:
    """What a replica is called where its address must not be seen."""
    return hashlib.sha256(url.encode()).hexdigest()[:8]


def _series(sample: Sample) -> Series:
    return sample.name, tuple(sorted(sample.labels.items()))


def _text(families: Mapping[str, Metric]) -> str:
    registry = CollectorRegistry()
    registry.register(_Fixed(families))
    return generate_latest(registry).decode()


class _Fixed(Collector):
    """Metrics that are collected as they are."""

    def __init__(self, families: Mapping[str, Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families.values()
