"""Metrics for Prometheus: requests, tokens, latencies, diagnostics, load."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ..engines import Load

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """The metrics of one server."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, load: Callable[[], Load]) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "unbraid_requests",
            "Requests, by what they asked for and the status.",
            ("route", "status"),
            registry=registry,
        )
        self.aborted = Counter(
            "unbraid_requests_aborted", "Requests whose clients left before the end.", ("route",), registry=registry
        )
        self.prompt_tokens = Counter("unbraid_prompt_tokens", "Tokens of prompts.", registry=registry)
        self.cached_tokens = Counter(
            "unbraid_cached_prompt_tokens", "Tokens of prompts that the engine knew already.", registry=registry
        )
        self.completion_tokens = Counter("unbraid_completion_tokens", "Tokens of outputs.", registry=registry)
        self.first_token = Histogram(
            "unbraid_time_to_first_token_seconds",
            "From the arrival of a request to the first token.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.between_tokens = Histogram(
            "unbraid_inter_token_seconds", "From one token to the next.", buckets=_SECONDS, registry=registry
        )
        self.duration = Histogram(
            "unbraid_request_seconds",
            "From the arrival of a request to its end.",
            ("route",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.diagnostics = Counter(
            "unbraid_parse_diagnostics", "What was wrong with outputs.", ("format", "kind"), registry=registry
        )
        self.in_flight = Gauge("unbraid_requests_in_flight", "Requests that are being answered.", registry=registry)
        running = Gauge("unbraid_engine_running", "Outputs that the engine works on.", registry=registry)
        running.set_function(lambda: load().running)
        waiting = Gauge("unbraid_engine_waiting", "Outputs that wait for the engine.", registry=registry)
        waiting.set_function(lambda: load().waiting)

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self._registry)
