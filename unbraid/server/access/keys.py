"""API keys: how a request shows one, whether it is right, and what its client is called where no key must be seen."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from starlette.requests import HTTPConnection

from ..http import headers_of

_PROTOCOL = "openai-insecure-api-key."
"""Prefix of a protocol's name that holds the key. A page cannot send headers with a WebSocket."""
_NAME = 12
"""Characters of a digest that name a key in metrics."""


def client_by_key(keys: Sequence[str], request: HTTPConnection) -> str | None:
    """The client that shows one of the keys: its digest. None for all others."""
    # As bytes: headers are read as latin-1, whatever they are.
    key = _shown(request).encode("latin-1")
    # All of them, always: how long it takes tells nothing.
    if not sum(hmac.compare_digest(key, each.encode()) for each in keys):
        return None
    return hashlib.sha256(key).hexdigest()


def key_name(client: str) -> str:
    """What metrics call a client with a key: the beginning of `printf %s KEY | sha256sum`."""
    return client[:_NAME]


def _shown(request: HTTPConnection) -> str:
    """The API key of a request, the way OpenAI's clients send it, or Anthropic's."""
    headers = headers_of(request.scope)
    scheme, _, token = str(headers.get("authorization", "")).partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    offered = request.scope.get("subprotocols", ())
    named = next((one.removeprefix(_PROTOCOL) for one in offered if one.startswith(_PROTOCOL)), "")
    return str(headers.get("x-api-key", named))
