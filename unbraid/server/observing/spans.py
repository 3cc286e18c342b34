"""What spans are told, by the semantic conventions of OpenTelemetry for `gen_ai` and for HTTP.

A request is one span, and each output of an engine is a child of it. Prompts and outputs are never part of a span, and
neither are the messages of errors, which may quote them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from urllib.parse import urlsplit

from starlette.types import Scope

from ...engines import Engine, Generation, Sampling
from ...engines.base import outgoing_headers
from .exchange import Exchange, ExchangeCounts, current
from .tracing import NO_SPAN, Attribute, Attributes, Span

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


# The span of a request


def start_attributes(scope: Scope, exchange: Exchange) -> Attributes:
    """What is known of a request from the start, by the conventions for HTTP."""
    host, port = scope.get("server") or ("", None)
    attributes: dict[str, Attribute] = {
        "http.request.method": exchange.method,
        "url.path": exchange.path,
        "url.scheme": scope["scheme"],
        "client.address": exchange.client,
        "server.address": host,
    }
    return attributes if port is None else {**attributes, "server.port": port}


def end_span(exchange: Exchange) -> None:
    """End the span of a request with all that is known of the request."""
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


def _http_attributes(exchange: Exchange) -> dict[str, Attribute]:
    attributes: dict[str, Attribute] = {"http.response.header.x-request-id": [exchange.id]}
    if exchange.route:
        attributes["http.route"] = exchange.route
    if exchange.sent is not None:
        attributes["http.response.status_code"] = exchange.sent
    return attributes


def _gen_ai_attributes(exchange: Exchange) -> dict[str, Attribute]:
    operation = _OPERATIONS.get(exchange.route)
    if operation is None:
        return {}
    attributes: dict[str, Attribute] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": _PROVIDER,
        "gen_ai.system": _PROVIDER,  # what the conventions called it before
    }
    if exchange.model is not None:
        attributes["gen_ai.request.model"] = attributes["gen_ai.response.model"] = exchange.model
    if exchange.response_id is not None:
        attributes["gen_ai.response.id"] = exchange.response_id
    if exchange.generation is not None:
        attributes |= _sampling_attributes(exchange.generation)
    if exchange.tokens is not None:
        attributes["gen_ai.usage.input_tokens"], attributes["gen_ai.usage.output_tokens"] = exchange.tokens
        attributes["gen_ai.response.finish_reasons"] = exchange.reasons
    return attributes


# The span of an engine's output


class EngineCall:
    """Around one output of an engine: it has a span, and requests to servers in it are part of that span. Made where
    the output begins, in the task of the request."""

    __slots__ = ("_span",)

    def __init__(self, engine: Engine, generation: Generation, counts: ExchangeCounts) -> None:
        self._span = NO_SPAN
        exchange = current()
        if exchange is None:
            return
        exchange.generation = exchange.generation or generation
        if not any(each is counts for each in exchange.counts):
            exchange.counts.append(counts)
        if exchange.span is not NO_SPAN:
            self._span = exchange.span.child(*_engine_attributes(engine, generation))
            outgoing_headers.set(partial(_outgoing_headers, exchange, self._span))

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._span is NO_SPAN:
            return
        if isinstance(error, Exception):
            self._span.fail(type(error).__name__)
        elif error is not None:  # given up
            self._span.set({"error.type": "cancelled"})
        self._span.end()


def _outgoing_headers(exchange: Exchange, span: Span, url: str) -> Mapping[str, str]:
    """The headers of a request to the engine at `url`."""
    if span is not exchange.span:
        span.set(_server_attributes(url))
    return exchange.headers(span)


def _engine_attributes(engine: Engine, generation: Generation) -> tuple[str, bool, Attributes]:
    """The name of the span, whether another server makes the output, and what is known at its start."""
    attributes: dict[str, Attribute] = {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": type(engine).__name__.removesuffix("Engine").lower(),
        **_sampling_attributes(generation),
    }
    if engine.model:
        attributes["gen_ai.request.model"] = engine.model
    return f"text_completion {engine.model}".strip(), bool(getattr(engine, "replicas", ())), attributes


def _server_attributes(url: str) -> Attributes:
    """Which server a request goes to."""
    parts = urlsplit(url)
    return {"server.address": parts.hostname or "", "server.port": parts.port or _PORTS.get(parts.scheme, 0)}


def _sampling_attributes(generation: Generation) -> dict[str, Attribute]:
    """The sampling, with the server's settings in it."""
    sampling = generation.sampling
    attributes: dict[str, Attribute] = {
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
    }
    if generation.max_tokens is not None:
        attributes["gen_ai.request.max_tokens"] = generation.max_tokens
    if sampling.seed is not None:
        attributes["gen_ai.request.seed"] = sampling.seed
    for name in ("top_k", "presence_penalty", "frequency_penalty"):
        if getattr(sampling, name) != getattr(_DEFAULT, name):
            attributes[f"gen_ai.request.{name}"] = getattr(sampling, name)
    return attributes
