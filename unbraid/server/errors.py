"""Errors for clients: every exception as OpenAI's error object, with the HTTP status that fits.

`param` is the field that the client should change. It comes with the error (`UnbraidError.field`). What is nobody's
fault but ours is logged, and not told; what may quote a prompt is logged at debug alone. Messages of engines may hold
addresses, their own or those of other servers; they are blotted out.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping
from typing import TypedDict

from ..constraints import InvalidSchema
from ..engines import EngineBusy, EngineDown, EngineError, EngineTimeout, PromptTooLong, Unsupported
from ..errors import OverBudget, Place, UnbraidError
from ..fairness import QueueFull
from ..templates import PromptTooLarge, TemplateBroken
from .observing.exchange import note_error

_log = logging.getLogger(__name__)
_TYPES = {429: "rate_limit_error"}
"""What the error object calls statuses that are neither the request's fault nor the server's."""
_RETRY_AFTER = 5.0
_ADDRESS = re.compile(r"https?://[^\s,;)]*[^\s,;:.)]")


class ErrorFields(TypedDict):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(TypedDict):
    """OpenAI's error object."""

    error: ErrorFields


class ApiError(Exception):
    """An error with its HTTP status. `param` names the field that is to be changed; `kind` is what OpenAI's error
    object calls its type, where the status does not say enough."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        kind: str | None = None,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param.plain or None if isinstance(param, Place) else param
        self.code = code
        self.kind = kind
        self.retry_after = retry_after
        self._headers = headers or {}

    def body(self) -> ErrorBody:
        usual = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        kind = self.kind or usual
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def headers(self) -> dict[str, str]:
        waits = {} if self.retry_after is None else {"Retry-After": str(max(1, math.ceil(self.retry_after)))}
        return {**self._headers, **waits}


def too_many(what: str, full: QueueFull) -> ApiError:
    """The refusal of one more of what clients share."""
    if full.own:
        message = f"you have too many {what}: wait until some of them have ended"
        return ApiError(429, message, code="rate_limit_exceeded", retry_after=_RETRY_AFTER)
    return ApiError(503, f"there are too many {what}: ask again later", code="overloaded", retry_after=_RETRY_AFTER)


def as_api_error(error: Exception) -> ApiError:
    """Any exception as what the client is told. That it was told is noted, for logs and metrics."""
    api_error = api_error_of(error)
    note_error(api_error.status, api_error.code)
    return api_error


def api_error_of(error: Exception) -> ApiError:
    """Any exception as what the client is told."""
    if isinstance(error, ApiError):
        return error
    message = str(error)
    param = error.field if isinstance(error, UnbraidError) else None
    if isinstance(error, EngineError):
        message = _ADDRESS.sub("the engine", message)
    if isinstance(error, EngineBusy):
        _log.warning("the engine has no room for a request: %.300s", error)
        # As vLLM and SGLang answer where their own queue is full. A limit that an engine has set stays one.
        status, code = (429, "rate_limit_exceeded") if error.status == 429 else (503, "engine_busy")
        return ApiError(status, message, code=code, retry_after=error.retry_after)
    if isinstance(error, EngineDown):
        _log.warning("the engine is down: %.300s", error)
        return ApiError(503, message, code="engine_down", retry_after=error.retry_after)
    if isinstance(error, PromptTooLong | PromptTooLarge):
        return ApiError(400, message, param=param, code="context_length_exceeded")
    if isinstance(error, Unsupported):
        return ApiError(400, message, param=param, code="unsupported")
    if isinstance(error, EngineTimeout):
        _log.error("the engine took too long: %s", error)
        return ApiError(504, message, code="engine_timeout")
    if isinstance(error, EngineError):
        _log.error("the engine failed: %.300s", error)
        return ApiError(502, message, code="engine_failed")
    if isinstance(error, TemplateBroken):  # it was tried when the server started: the messages must be at fault
        _log.warning("the chat template fails with the messages of a request")
        _log.debug("the chat template says: %s", message)
        return ApiError(400, message, param=param, code="template_failed")
    if isinstance(error, RecursionError):
        return ApiError(400, "the request nests too deeply to be read: simplify it")
    if isinstance(error, OverBudget):
        return ApiError(400, message, param=param, code="too_expensive")
    if isinstance(error, InvalidSchema):
        return ApiError(400, message, param=param, code="invalid_schema")
    if isinstance(error, UnbraidError):
        return ApiError(400, message, param=param)
    _log.error("an error that should not have happened", exc_info=error)
    return ApiError(500, "the server made a mistake; its log has more", code="internal_error")
