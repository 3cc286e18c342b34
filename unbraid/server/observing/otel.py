"""OpenTelemetry: the spans of `spans`, recorded and sent by its SDK.

The SDK reads its own environment variables, as everywhere: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`,
`OTEL_SERVICE_NAME`, `OTEL_PROPAGATORS` and so on. Only `OTEL_TRACES_EXPORTER` and the protocol of OTLP are read here,
since the SDK leaves them to its agents. Whether a trace is recorded is for the sampler to say; its headers are passed
on either way.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from ...errors import UnbraidError
from ...version import __version__
from .tracing import Attributes, Span, Tracer

try:
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
except ImportError as missing:
    raise UnbraidError(f"--otel needs OpenTelemetry ({missing}): pip install 'unbraid[otel]'") from missing

_log = logging.getLogger(__name__)
_EXPORTERS = "opentelemetry_traces_exporter"


def tracer(environment: Mapping[str, str] = os.environ) -> Tracer:
    """A tracer that sends spans where the environment says."""
    ours = Resource.create({"service.name": "unbraid", "service.version": __version__})
    provider = TracerProvider(resource=ours.merge(OTELResourceDetector().detect()))
    for exporter in _exporters(environment):
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return OpenTelemetry(provider)


def _exporters(environment: Mapping[str, str]) -> Iterator[SpanExporter]:
    for name in (environment.get("OTEL_TRACES_EXPORTER") or "otlp").split(","):
        if name.strip() != "none":
            yield _entry(name.strip(), environment).load()()


def _entry(name: str, environment: Mapping[str, str]) -> EntryPoint:
    """The exporter of this name, among those that are installed."""
    if name == "otlp":
        general = environment.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "http/protobuf"
        protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or general
        name = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}.get(protocol, protocol)
    matches = list(entry_points(group=_EXPORTERS, name=name))
    if not matches:
        installed = ", ".join(sorted(entry.name for entry in entry_points(group=_EXPORTERS)))
        hint = f"pip install opentelemetry-exporter-{name.replace('_', '-')}" if "otlp" in name else "install it"
        raise UnbraidError(f"there is no OpenTelemetry exporter {name!r}, but {installed}: {hint}, or name another")
    return matches[0]


class OpenTelemetry:
    """Makes spans with a provider of OpenTelemetry's SDK."""

    def __init__(self, provider: TracerProvider, farewell: float = 3.0) -> None:
        """`farewell`: how many seconds the last spans have to be sent."""
        self._provider = provider
        self._farewell = farewell
        self._tracer = provider.get_tracer("unbraid", __version__)

    def request(self, method: str, headers: Mapping[str, str], attributes: Attributes) -> Span:
        before = propagate.extract(headers)
        kind = trace.SpanKind.SERVER
        return _Span(self._tracer, self._tracer.start_span(method, before, kind, attributes=attributes), before)

    def close(self) -> None:
        """Send what there is. The SDK would try for half a minute where nobody takes it, and the server would not
        end."""
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(self._farewell)
        if sending.is_alive():
            _log.warning("the last spans could not be sent within %g seconds", self._farewell)


class _Span(Span):
    """A span of OpenTelemetry's."""

    def __init__(self, tracer: trace.Tracer, span: trace.Span, before: Context) -> None:
        self._tracer = tracer
        self._span = span
        self._context = trace.set_span_in_context(span, before)

    def set(self, attributes: Attributes) -> None:
        self._span.set_attributes(attributes)

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def headers(self) -> Mapping[str, str]:
        carrier: dict[str, Any] = {}
        propagate.inject(carrier, self._context)
        return carrier

    def child(self, name: str, remote: bool, attributes: Attributes) -> Span:
        kind = trace.SpanKind.CLIENT if remote else trace.SpanKind.INTERNAL
        started = self._tracer.start_span(name, self._context, kind, attributes=attributes)
        return _Span(self._tracer, started, self._context)

    def fail(self, kind: str) -> None:
        self._span.set_attribute("error.type", kind)
        self._span.set_status(trace.StatusCode.ERROR)

    def end(self) -> None:
        self._span.end()
