"""The span of a request: what it is called, and what is told of the request when it is over."""

from __future__ import annotations

from .exchange import Exchange
from .spans import NO_SPAN, Attribute, sampling_attributes

_PROVIDER = "unbraid"
_OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
    "/v1/completions": "text_completion",
    "/v1/audio/transcriptions": "transcription",
    "/v1/audio/translations": "translation",
}


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


def _http_attributes(exchange: Exchange) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {"http.response.header.x-request-id": [exchange.id]}
    if exchange.route:
        found["http.route"] = exchange.route
    if exchange.sent is not None:
        found["http.response.status_code"] = exchange.sent
    return found


def _gen_ai_attributes(exchange: Exchange) -> dict[str, Attribute]:
    operation = _OPERATIONS.get(exchange.route)
    if operation is None:
        return {}
    found: dict[str, Attribute] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": _PROVIDER,
        "gen_ai.system": _PROVIDER,  # what the conventions called it before
    }
    if exchange.model is not None:
        found["gen_ai.request.model"] = found["gen_ai.response.model"] = exchange.model
    if exchange.response_id is not None:
        found["gen_ai.response.id"] = exchange.response_id
    if exchange.generation is not None:
        found |= sampling_attributes(exchange.generation)
    if exchange.tokens is not None:
        found["gen_ai.usage.input_tokens"], found["gen_ai.usage.output_tokens"] = exchange.tokens
        found["gen_ai.response.finish_reasons"] = exchange.reasons
    return found
