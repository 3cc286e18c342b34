"""The outermost layer of the application: begins an `Exchange` for each request, and tells of it at the end.

Every reply gets the id of its request here, whoever wrote it: a handler, the router that knows no such path, the rules
on origins. At the end there is one access line, one count, and the end of the span.

Nothing here may cost anything for each chunk of a stream. So a handler's reply does not go through `Sending`, which
looks at each message for the one that has the headers: `reply` adds the header itself, and uses the server's `send`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..access.addresses import Network, sent_from
from .exchange import Exchange, begin
from .logs import FIELDS
from .metrics import Metrics
from .request_ids import HEADER, request_id
from .request_spans import tell
from .spans import Attributes, Tracer
from .trace_context import PARENT, STATE, trace_context

EXCHANGE = "unbraid.exchange"
"""The key of a request's scope under which stands its exchange."""
_access = logging.getLogger("unbraid.access")
_LONGEST = 256
"""How many characters are told of what a client can make long."""
_SWITCHED = 101
_BEGINNINGS = ("http.response.start", "websocket.http.response.start", "websocket.accept")
_WORD = re.compile(r"[^\s\"=]+")


class Observing:
    """Wraps the application."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        tracer: Tracer | None = None,
        proxies: Callable[[], Sequence[Network]] = tuple,
    ) -> None:
        """`proxies` gives those that are believed when they say who the client is."""
        self._app = app
        self._metrics = metrics
        self._proxies = proxies
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        exchange = scope[EXCHANGE] = self._exchange(scope)
        begin(exchange)
        self._metrics.in_flight.inc()
        try:
            await self._app(scope, receive, Sending(exchange, send))
        except OSError:  # the connection broke while something was sent
            exchange.left = True
            raise
        except asyncio.CancelledError:  # the server could not wait any longer
            exchange.told, exchange.error = 503, "shutdown"
            raise
        except Exception:  # the reply is cut off, or never came: 500, whatever was sent
            exchange.told, exchange.error = 500, "internal_error"
            raise
        finally:
            self._metrics.in_flight.dec()
            tell_all(exchange, self._metrics)

    def _exchange(self, scope: Scope) -> Exchange:
        headers = Headers(scope=scope)
        method, path = scope["method"], _path(scope)
        exchange = Exchange(request_id(headers.get(HEADER)), method, path, sent_from(scope, self._proxies()))
        if self._tracer is not None:
            exchange.span = self._tracer.request(method, headers, _known(scope, exchange))
        else:
            exchange.trace = trace_context(headers.getlist(PARENT), headers.getlist(STATE))
        return exchange


def tell_all(exchange: Exchange, metrics: Metrics) -> None:
    """A request is over: the access line, the counts and the end of the span."""
    seconds, route = exchange.seconds, exchange.route or "other"
    metrics.requests.labels(route, str(exchange.status)).inc()
    metrics.duration.labels(route).observe(seconds)
    if exchange.left:
        metrics.aborted.labels(route).inc()
    if _access.isEnabledFor(logging.INFO):
        fields = _fields(exchange, seconds)
        told = " ".join(f"{name}={_word(value)}" for name, value in fields.items() if name not in _IN_WORDS)
        words = f"{exchange.method} {fields['path']} {exchange.status} {exchange.outcome} {fields['ms']:g}ms"
        _access.info("%s", f"{words} {told}".rstrip(), extra={FIELDS: fields})
    tell(exchange)


class Sending:
    """Sends a reply, with the id of its request among the headers."""

    def __init__(self, exchange: Exchange, send: Send) -> None:
        self._exchange = exchange
        self.send = send

    def __call__(self, message: Message) -> Awaitable[None]:
        if message["type"] in _BEGINNINGS:
            self._exchange.sent = message.get("status", _SWITCHED)
            headers = MutableHeaders(raw=message.setdefault("headers", []))
            headers[HEADER] = self._exchange.id
        return self.send(message)


async def reply(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Send a handler's reply, with its headers added here: so none of its messages has to be looked at."""
    exchange: Exchange = scope[EXCHANGE]
    response.headers[HEADER] = exchange.id
    exchange.sent = response.status_code
    length = response.headers.get("content-length")
    exchange.size = None if length is None else int(length)
    await response(scope, receive, send.send if isinstance(send, Sending) else send)


def _path(scope: Scope) -> str:
    """The path as it was sent, with its escapes: so it is one word."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    return raw.partition(b"?")[0].decode("ascii", "backslashreplace")


def _known(scope: Scope, exchange: Exchange) -> Attributes:
    """What is known of a request from the start, by the conventions for HTTP."""
    host, port = scope.get("server") or ("", None)
    found: dict[str, str | int] = {
        "http.request.method": exchange.method,
        "url.path": exchange.path,
        "url.scheme": scope["scheme"],
        "client.address": exchange.client,
        "server.address": host,
    }
    return found if port is None else {**found, "server.port": port}


def _word(value: object) -> str:
    """A value as one word: in quotes, where it is not one. Names and addresses may hold anything."""
    text = str(value)
    return text if _WORD.fullmatch(text) else json.dumps(text)


_IN_WORDS = ("method", "path", "status", "outcome", "ms")


def _fields(exchange: Exchange, seconds: float) -> Mapping[str, str | int | float]:
    """What an access line says, and what is known of it alone."""
    found: dict[str, str | int | float | None] = {
        "method": exchange.method,
        "path": exchange.path[:_LONGEST],
        "status": exchange.status,
        "outcome": exchange.outcome,
        "ms": round(seconds * 1000, 1),
        "sent": exchange.sent if exchange.sent != exchange.status else None,
        "error": exchange.error,
        "client": exchange.client[:_LONGEST] or None,
        "model": exchange.model,
        "bytes": exchange.size,
    }
    if exchange.tokens is not None:
        found["prompt_tokens"], found["completion_tokens"] = exchange.tokens
    return {name: value for name, value in found.items() if value is not None}
