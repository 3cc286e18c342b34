"""What a client is told when a request cannot be done: OpenAI's error object, with the status that fits."""

from __future__ import annotations

import logging
import re
from typing import Any

from ..constraints import InvalidSchema
from ..core.errors import InvalidTools, UnbraidError
from ..engines import EngineDown, EngineError, PromptTooLong, Unsupported
from ..prompts import TemplateBroken

_log = logging.getLogger(__name__)
_PLACE = re.compile(r"(messages|tools|tool_choice|response_format|tts_output|continue_final_message)\b[\w.\[\]]*")


class ApiError(Exception):
    """An answer that is an error. `param` names the field that is to be changed."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def headers(self) -> dict[str, str]:
        if self.retry_after is None:
            return {}
        return {"Retry-After": str(max(1, round(self.retry_after)))}


def as_api_error(error: Exception) -> ApiError:
    """What a client is told of any error. What is nobody's fault but ours is logged, and not told."""
    if isinstance(error, ApiError):
        return error
    message = str(error)
    place = _PLACE.match(message)
    param = place[0] if place else None
    if isinstance(error, EngineDown):
        return ApiError(503, message, code="engine_down", retry_after=error.retry_after)
    if isinstance(error, PromptTooLong):
        return ApiError(400, message, param="messages", code="context_length_exceeded")
    if isinstance(error, Unsupported):
        return ApiError(400, message, code="unsupported")
    if isinstance(error, EngineError):
        _log.error("the engine failed: %s", message)
        return ApiError(502, message, code="engine_failed")
    if isinstance(error, TemplateBroken):
        _log.error("the chat template is broken: %s", message)
        return ApiError(500, message, code="template_broken")
    if isinstance(error, InvalidSchema):
        return ApiError(400, message, param=param or "tools", code="invalid_schema")
    if isinstance(error, InvalidTools):
        return ApiError(400, message, param=param or "tools")
    if isinstance(error, UnbraidError):
        return ApiError(400, message, param=param)
    _log.error("an error that should not have happened", exc_info=error)
    return ApiError(500, "the server made a mistake; its log has more", code="internal_error")
