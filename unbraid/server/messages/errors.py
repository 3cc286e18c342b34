"""Errors in Anthropic's shape, as replies and as events of a stream.

Anthropic's error object has no place for the name of a field, so the message is what names it. Clients look for
`prompt is too long` to know that they should shorten the conversation.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

import msgspec
from starlette.responses import Response

from ..api.sse import Framing
from ..errors import ApiError, as_api_error
from ..http import json_response
from ..observing.exchange import current_id

REQUEST_ID = "request-id"
"""The header that names a request, as `x-request-id` does for others: with the same id."""
_TOO_LONG = "prompt is too long"
_DETAILS: dict[str | None, dict[str, Any]] = {
    "thread": {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
}
"""What clients read that go on in another way without a field."""
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class AnthropicErrorFields(TypedDict):
    type: str
    message: str
    details: NotRequired[dict[str, Any]]


class AnthropicError(TypedDict):
    """Anthropic's error object."""

    type: Literal["error"]
    error: AnthropicErrorFields
    request_id: str


def error_body(error: ApiError, request_id: str) -> AnthropicError:
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    message = error.message
    if error.code == "context_length_exceeded" and error.param != "max_tokens" and _TOO_LONG not in message:
        message = f"{_TOO_LONG}: {message}"
    fields: AnthropicErrorFields = {"type": kind, "message": message}
    if error.code == "unsupported" and error.param in _DETAILS:
        fields["details"] = _DETAILS[error.param]
    return {"type": "error", "error": fields, "request_id": request_id}


def anthropic_error(error: ApiError) -> Response:
    """The reply for an error."""
    request_id = current_id()
    return json_response(error_body(error, request_id), error.status, {**error.headers(), REQUEST_ID: request_id})


def framing(request_id: str) -> Framing:
    """How a stream ends. An error is its last event."""

    def event(error: Exception) -> bytes:
        body = msgspec.json.encode(error_body(as_api_error(error), request_id))
        return b"event: error\ndata: " + body + b"\n\n"

    return Framing(event, b"")
