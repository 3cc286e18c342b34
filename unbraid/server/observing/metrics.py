"""Metrics for Prometheus: requests, tokens, latencies, diagnostics, load.

`docs/operating.md` lists them all, with the same words; a test holds the two together.

What is counted for each token is a `Durations`: prometheus_client's own histograms take a lock twice for each value,
which was a third of what the server added to a token.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from operator import sub
from typing import Protocol, runtime_checkable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from ...engines import Load
from .replica_metrics import ReplicaMetrics

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The bounds of the buckets."""


@runtime_checkable
class Loaded(Protocol):
    """What has something to do: an engine, or a listener."""

    @property
    def load(self) -> Load: ...


class Durations(Collector):
    """A histogram of seconds without a lock: only the event loop observes, and only it collects."""

    def __init__(self, name: str, says: str, registry: CollectorRegistry) -> None:
        self._name = name
        self._says = says
        self._counts = [0] * (len(SECONDS) + 1)
        """How many lie in each bucket, the last for those above all bounds."""
        self._sum = 0.0
        registry.register(self)

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(SECONDS, seconds)] += 1
        self._sum += seconds

    def observe_all(self, times: Sequence[float]) -> None:
        """What passed from each of these times to the next."""
        counts = self._counts
        for seconds in map(sub, times[1:], times):
            counts[bisect_left(SECONDS, seconds)] += 1
        self._sum += times[-1] - times[0]

    def collect(self) -> Iterable[Metric]:
        bounds = [*map(floatToGoString, SECONDS), "+Inf"]
        buckets = list(zip(bounds, accumulate(self._counts), strict=True))
        yield HistogramMetricFamily(self._name, self._says, buckets, self._sum)


class Metrics:
    """The metrics of one server."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, engines: Callable[[], Mapping[str, Loaded]]) -> None:
        """`engines` gives the engine of each model; also of one that transcribes."""
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "unbraid_requests",
            "Requests, by route and by the status that they ended with.",
            ("route", "status"),
            registry=registry,
        )
        self.aborted = Counter(
            "unbraid_requests_aborted", "Requests whose clients left before the end.", ("route",), registry=registry
        )
        self.refused_connections = Counter(
            "unbraid_connections_refused",
            "Connections that were turned away (client, server), closed to make room (idle), or failed in TLS (tls).",
            ("reason",),
            registry=registry,
        )
        self.prompt_tokens = Counter("unbraid_prompt_tokens", "Tokens of prompts.", registry=registry)
        self.cached_tokens = Counter(
            "unbraid_cached_prompt_tokens", "Tokens of prompts that the engine knew already.", registry=registry
        )
        self.completion_tokens = Counter("unbraid_completion_tokens", "Tokens of outputs.", registry=registry)
        self.first_token = Durations(
            "unbraid_time_to_first_token_seconds", "From the arrival of a request to the first token.", registry
        )
        self.between_tokens = Durations("unbraid_inter_token_seconds", "From one token to the next.", registry)
        self.duration = Histogram(
            "unbraid_request_seconds",
            "From the arrival of a request to its end.",
            ("route",),
            buckets=SECONDS,
            registry=registry,
        )
        self.diagnostics = Counter(
            "unbraid_parse_diagnostics", "What was wrong with outputs.", ("format", "kind"), registry=registry
        )
        self.in_flight = Gauge("unbraid_requests_in_flight", "Requests that are being answered.", registry=registry)
        registry.register(_EngineLoads(engines))
        registry.register(ReplicaMetrics(engines))

    def count_refused(self, reason: str) -> None:
        """A connection was turned away."""
        self.refused_connections.labels(reason).inc()

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self._registry)


class _EngineLoads(Collector):
    """What the engines have to do now."""

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
