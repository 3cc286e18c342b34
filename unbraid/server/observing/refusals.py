"""Refusals that the application does not see: headers that are too large or too late, what is no HTTP, a connection too
many. They are written to the connection itself, and have an id, an access line and a count as every reply has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from ..access.addresses import Network, sent_from
from ..errors import ApiError
from .exchange import Exchange, begin
from .metrics import Metrics
from .middleware import tell_all
from .request_ids import HEADER, request_id

Writer = Callable[[Scope, ApiError], Response]
_UNKNOWN = "-"


def observed(write: Writer, metrics: Metrics, proxies: Sequence[Network] = ()) -> Writer:
    """The same writer of errors, with all that is told of a request. `proxies`: those that are believed when they say
    who the client is."""

    def write_and_tell(scope: Scope, error: ApiError) -> Response:
        given = Headers(scope=scope).get(HEADER)
        client = sent_from(scope, proxies)
        exchange = Exchange(request_id(given), scope.get("method") or _UNKNOWN, scope["path"] or _UNKNOWN, client)
        begin(exchange)
        response = write(scope, error)
        response.headers[HEADER] = exchange.id
        exchange.sent, exchange.size = response.status_code, len(response.body)
        tell_all(exchange, metrics)
        return response

    # In a context of its own: connections have none, and what comes next on one is not done for this request.
    return lambda scope, error: copy_context().run(write_and_tell, scope, error)
