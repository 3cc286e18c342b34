"""What a body must say that it is.

A page on the web may post to any address without asking, a server on this machine too, as long as the body is of one of
three types (form, multipart, plain text) or of none. A type that is not among them makes the browser ask first, and
`Access-Control-Allow-Origin` is what answers. So JSON is taken as JSON only. Multipart is one of the three; there
`Origin` decides (`gate`).
"""

from __future__ import annotations

import re

from starlette.requests import Request

from ..errors import ApiError

_JSON = re.compile(r"application/(?:json|[\w.!#$&^-]+\+json)", re.ASCII)
_FORM = "multipart/form-data"


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
