"""Spans: what OpenTelemetry is told of a request, by the semantic conventions for `gen_ai` and for HTTP.

A request is one span, and each output of an engine is a child of it. This module says what they are called and which
attributes they have, in plain values. `otel` hands them to OpenTelemetry; without it, a span is `NO_SPAN`. Prompts and
outputs are never part of a span, and neither are the messages of errors, which may quote them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from ...engines import Engine, Generation, Sampling

if TYPE_CHECKING:
    from .exchange import Exchange

Attributes = Mapping[str, str | int | float | Sequence[str]]
_PROVIDER = "unbraid"
_OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
    "/v1/completions": "text_completion",
    "/v1/audio/transcriptions": "transcription",
    "/v1/audio/translations": "translation",
}
_DEFAULT = Sampling()
_PORTS = {"http": 80, "https": 443}


class Span:
    """A span that nobody records."""

    def set(self, attributes: Attributes) -> None:
        """Add attributes."""

    def rename(self, name: str) -> None:
        """Give it another name."""

    def headers(self) -> Mapping[str, str]:
        """What makes the spans of another server children of this one."""
        return {}

    def child(self, name: str, remote: bool, attributes: Attributes) -> Span:
        """A span for a part of what is done. `remote`: another server does it."""
        return self

    def fail(self, kind: str) -> None:
        """What it is about has failed, and not by the fault of who asked for it."""

    def end(self) -> None:
        """What it is about is over."""


NO_SPAN = Span()


class Tracer(Protocol):
    """Makes the spans of requests."""

    def request(self, method: str, headers: Mapping[str, str], attributes: Attributes) -> Span:
        """The span of a request that came with `headers`."""
        ...

    def close(self) -> None:
        """Send what has not been sent."""
        ...


def tell(exchange: Exchange) -> None:
    """End the span of a request with all that is known of it."""
    span = exchange.span
    if span is NO_SPAN:
        return
    span.rename(_name(exchange))
    span.set(_http_attributes(exchange) | _gen_ai_attributes(exchange))
    if exchange.left:
        span.set({"error.type": "client_left"})
    elif exchange.status >= 500:
        span.fail(exchange.error or str(exchange.status))
    elif exchange.status >= 400:  # the client's fault is no failure of the server's
        span.set({"error.type": exchange.error or str(exchange.status)})
    span.end()


def _name(exchange: Exchange) -> str:
    operation = _OPERATIONS.get(exchange.route)
    if operation is not None:
        return f"{operation} {exchange.model}" if exchange.model else operation
    return f"{exchange.method} {exchange.route}" if exchange.route else exchange.method


def _http_attributes(exchange: Exchange) -> dict[str, str | int | float | Sequence[str]]:
    found: dict[str, str | int | float | Sequence[str]] = {"http.response.header.x-request-id": [exchange.id]}
    if exchange.route:
        found["http.route"] = exchange.route
    if exchange.sent is not None:
        found["http.response.status_code"] = exchange.sent
    return found


def _gen_ai_attributes(exchange: Exchange) -> dict[str, str | int | float | Sequence[str]]:
    operation = _OPERATIONS.get(exchange.route)
    if operation is None:
        return {}
    found: dict[str, str | int | float | Sequence[str]] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": _PROVIDER,
        "gen_ai.system": _PROVIDER,  # what the conventions called it before
    }
    if exchange.model is not None:
        found["gen_ai.request.model"] = found["gen_ai.response.model"] = exchange.model
    if exchange.response_id is not None:
        found["gen_ai.response.id"] = exchange.response_id
    if exchange.generation is not None:
        found |= _asked(exchange.generation)
    if exchange.tokens is not None:
        found["gen_ai.usage.input_tokens"], found["gen_ai.usage.output_tokens"] = exchange.tokens
        found["gen_ai.response.finish_reasons"] = exchange.reasons
    return found


def engine_attributes(engine: Engine, generation: Generation) -> tuple[str, bool, Attributes]:
    """The name of the span of an engine's output, whether another server makes it, and what is known at its start."""
    found = {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": type(engine).__name__.removesuffix("Engine").lower(),
        **_asked(generation),
    }
    if engine.model:
        found["gen_ai.request.model"] = engine.model
    return f"text_completion {engine.model}".strip(), bool(getattr(engine, "replicas", ())), found


def server_attributes(url: str) -> Attributes:
    """Which server a request goes to."""
    found = urlsplit(url)
    return {"server.address": found.hostname or "", "server.port": found.port or _PORTS.get(found.scheme, 0)}


def _asked(generation: Generation) -> dict[str, str | int | float | Sequence[str]]:
    """How the output was to be chosen, the server's settings included."""
    sampling = generation.sampling
    found: dict[str, str | int | float | Sequence[str]] = {
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
    }
    if generation.max_tokens is not None:
        found["gen_ai.request.max_tokens"] = generation.max_tokens
    if sampling.seed is not None:
        found["gen_ai.request.seed"] = sampling.seed
    for name in ("top_k", "presence_penalty", "frequency_penalty"):
        if getattr(sampling, name) != getattr(_DEFAULT, name):
            found[f"gen_ai.request.{name}"] = getattr(sampling, name)
    return found
