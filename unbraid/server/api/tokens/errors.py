"""Errors as vLLM's error object: `code` is the HTTP status, and `type` the name of its kind."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import Response

from ...errors import ApiError
from ...http import json_response

_TYPES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    429: "RateLimitError",
    500: "InternalServerError",
    501: "NotImplementedError",
}


def vllm_error(error: ApiError) -> Response:
    kind = _TYPES.get(error.status, HTTPStatus(error.status).phrase)
    said = {"message": error.message, "type": kind, "param": error.param, "code": error.status}
    return json_response({"error": said}, error.status, error.headers())
