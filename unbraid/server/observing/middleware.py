"""The outermost layer of the application: begins an `Exchange` for each request, and reports it at the end.

Every reply gets the headers of all replies here (`http.reply_headers`), whoever wrote it: a handler, the router that
knows no such path, the rules on origins. At the end there is one access line, one count, and the end of the span.

Nothing here may cost anything for each chunk of a stream. So a handler's reply does not go through `Sending`, which
looks at each message for the one with the headers: `reply` adds the headers itself, and uses the server's `send`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..access.addresses import Network, sent_from
from ..errors import ApiError
from ..http import ErrorWriter, headers_of, reply_headers
from .exchange import REQUEST_ID, Exchange, begin, request_id
from .logs import log_access
from .metrics import Metrics
from .spans import end_span, start_attributes
from .tracing import PARENT, STATE, Tracer, trace_context

EXCHANGE = "unbraid.exchange"
"""The key of a request's scope under which stands its exchange."""
ARRIVED = "unbraid.arrived"
"""The key of a request's scope under which stands when it came, if it had to wait."""
_SWITCHED = 101
_BEGINNINGS = ("http.response.start", "websocket.http.response.start", "websocket.accept")
_UNKNOWN = "-"


class Observing:
    """Wraps the application."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        tracer: Tracer | None = None,
        proxies: Callable[[], Sequence[Network]] = tuple,
    ) -> None:
        """`proxies` returns the proxies that are believed when they say who the client is."""
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
        self._metrics.in_flight += 1
        try:
            await self._app(scope, receive, Sending(exchange, send))
        except OSError:  # the connection broke while something was sent
            exchange.left = True
            raise
        except asyncio.CancelledError:  # the server could not wait any longer
            exchange.error_status, exchange.error = 503, "shutdown"
            raise
        except Exception:  # the reply is cut off, or never came: 500, whatever was sent
            exchange.error_status, exchange.error = 500, "internal_error"
            raise
        finally:
            self._metrics.in_flight -= 1
            report(exchange, self._metrics)

    def _exchange(self, scope: Scope) -> Exchange:
        headers = headers_of(scope)
        method, path = scope["method"], _path(scope)
        exchange = Exchange(request_id(headers.get(REQUEST_ID)), method, path, sent_from(scope, self._proxies()))
        if ARRIVED in scope:
            exchange.arrived = scope[ARRIVED]
        if self._tracer is not None:
            exchange.span = self._tracer.request(method, headers, start_attributes(scope, exchange))
        elif PARENT in headers:
            exchange.trace = trace_context(headers.getlist(PARENT), headers.getlist(STATE))
        return exchange


def _path(scope: Scope) -> str:
    """The path as it was sent, with its escapes: so it is one word."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    return raw.partition(b"?")[0].decode("ascii", "backslashreplace")


def report(exchange: Exchange, metrics: Metrics) -> None:
    """A request is over: its counts, its access line and the end of its span."""
    metrics.count(exchange)
    log_access(exchange)
    end_span(exchange)


class Sending:
    """Sends a reply, with the headers of every reply."""

    def __init__(self, exchange: Exchange, send: Send) -> None:
        self._exchange = exchange
        self.send = send

    def __call__(self, message: Message) -> Awaitable[None]:
        if message["type"] in _BEGINNINGS:
            self._exchange.sent = message.get("status", _SWITCHED)
            MutableHeaders(raw=message.setdefault("headers", [])).update(reply_headers(self._exchange))
        return self.send(message)


async def reply(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Send a handler's reply, with the headers of every reply added first: no message has to be looked at."""
    exchange: Exchange = scope[EXCHANGE]
    headers = response.raw_headers
    exchange.sent = response.status_code
    for name, value in headers:
        if name == b"content-length":
            exchange.size = int(value)
    headers += [(name.encode(), value.encode()) for name, value in reply_headers(exchange).items()]
    await response(scope, receive, send.send if isinstance(send, Sending) else send)


def observed(write: ErrorWriter, metrics: Metrics, proxies: Sequence[Network] = ()) -> ErrorWriter:
    """`write` for errors that the application does not see: headers that are too large or too late, bytes that are no
    HTTP, a connection too many. These replies have an id, an access line and a count as well.

    proxies: those that are believed when they say who the client is.
    """

    def write_and_report(scope: Scope, error: ApiError) -> Response:
        id = request_id(Headers(scope=scope).get(REQUEST_ID))
        exchange = Exchange(id, scope.get("method") or _UNKNOWN, scope["path"] or _UNKNOWN, sent_from(scope, proxies))
        begin(exchange)
        response = write(scope, error)
        response.headers.update(reply_headers(exchange))
        exchange.sent, exchange.size = response.status_code, len(response.body)
        report(exchange, metrics)
        return response

    # In a context of its own: connections have none, and what comes next on one is not done for this request.
    return lambda scope, error: copy_context().run(write_and_report, scope, error)
