"""What a body must say that it is, and that it comes along.

A page on the web may post to any address without asking, a server on this machine too, as long as the body is of one of
three types (form, multipart, plain text) or of none. A type that is not among them makes the browser ask first, and
`Access-Control-Allow-Origin` is what answers. So JSON is taken as JSON only. Multipart is one of the three; there
`Origin` decides (`gate`).

Bodies that trickle in, or break, are refused where they are read, so that the client is told in its dialect. `guarded`
goes around the `receive` of a request. Once the body is there it only passes on, and `receive` waits for the client to
leave.
"""

from __future__ import annotations

import asyncio
import math
import re
import time

from starlette.requests import Request
from starlette.types import Message, Receive, Scope

from ..errors import ApiError
from .patience import SLOWEST, Progress

_JSON = re.compile(r"application/(?:json|[\w.!#$&^-]+\+json)", re.ASCII)
_FORM = "multipart/form-data"
BROKEN = "unbraid.broken"
"""The key of a request's scope under which the connection says what is wrong with the rest of the body."""


def check_json(request: Request) -> None:
    """Raises `ApiError` where the body does not say that it is JSON."""
    if not _JSON.fullmatch(_type(request)):
        message = f"{_given(request)}, and must be application/json: with curl, add -H 'Content-Type: application/json'"
        raise ApiError(415, message, code="unsupported_media_type")
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        message = f"the body's Content-Encoding is {encoding[:64]!r}: send it as it is, without Content-Encoding"
        raise ApiError(415, message, code="unsupported_media_type")


def check_form(request: Request) -> None:
    """Raises `ApiError` where the body does not say that it is a form with files."""
    if _type(request) != _FORM:
        message = f"{_given(request)}, and must be {_FORM}, with the recording as `file`: with curl, -F file=@talk.wav"
        raise ApiError(415, message, code="unsupported_media_type")


def _type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _given(request: Request) -> str:
    given = _type(request)
    return f"the body's Content-Type is {given[:64]!r}" if given else "the body has no Content-Type"


def guarded(scope: Scope, receive: Receive, seconds: float) -> Receive:
    """The same `receive`, which raises `ApiError` where a body is broken or does not come along. 0 seconds: for that
    there is any time."""
    progress = Progress(seconds)
    whole = False

    async def timed() -> Message:
        nonlocal whole
        if whole:
            return await receive()
        begun, left = time.monotonic(), progress.left()
        try:
            async with asyncio.timeout(None if left == math.inf else left):
                message = await receive()
        except TimeoutError:
            raise _too_slow(seconds) from None
        if BROKEN in scope:
            raise scope[BROKEN]
        progress.came(len(message.get("body", b"")), time.monotonic() - begun)
        whole = not message.get("more_body", False)
        return message

    return timed


def _too_slow(seconds: float) -> ApiError:
    message = (
        f"the body did not arrive in time: it may pause for {seconds:g} seconds (--body-seconds), and must come with "
        f"{SLOWEST} bytes a second after that"
    )
    return ApiError(408, message, code="request_timeout", headers={"Connection": "close"})
