"""One request and its reply, while it is answered: what is known of it, for logs, metrics and traces.

`middleware` makes an `Exchange` for each request. Code further down finds it with `current()`, in whatever task works
for the request, and notes what it learns: the model, the tokens, the error that the client was told. Without a server
(in tests, or for a `Choice` by itself) there is no exchange, and nothing is noted.

One status says how a request ended. It is the status that was sent, unless the reply was a stream that failed later:
then it is the status of the error in the stream. 499 means that the client left first, as in nginx's logs.

The id of a request goes back in the reply, on to the engine, and into every log line of the request. So it must be
harmless wherever it is written: one word of printable ASCII, not too long. An id of a client that is anything else is
not mended but replaced, since half of an id finds nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Protocol

from msgspec import Struct, field

from ...core.call_ids import random_bytes
from ...engines import Generation
from ...engines.base import outgoing_headers
from .tracing import NO_SPAN, Span, trace_id

REQUEST_ID = "x-request-id"
CLIENT_LEFT = 499
_ID = re.compile(r"[!-~]{1,128}")
_current: ContextVar[Exchange | None] = ContextVar("unbraid.exchange", default=None)


def random_id() -> str:
    """24 hexadecimal digits for the id of a request or a reply."""
    return random_bytes(12).hex()


def request_id(header: str | None) -> str:
    """The id that a client has sent, or a new one."""
    return header if header is not None and _ID.fullmatch(header) else f"req_{random_id()}"


class ExchangeCounts(Protocol):
    """The tokens of one prompt and of its outputs. They are counted when an output ends."""

    prompt: int
    completion: int


class Exchange(Struct, eq=False):
    """A request and its reply."""

    id: str
    method: str
    path: str
    client: str = ""
    """The address that the request came from."""
    trace: Mapping[str, str] = field(default_factory=dict)
    """The headers that pass the trace on, if there are no spans of our own."""
    span: Span = NO_SPAN
    arrived: float = field(default_factory=time.perf_counter)
    route: str = ""
    """The path with names for what varies in it (`/v1/responses/{id}`). Empty if there is no such route."""
    sent: int | None = None
    """The status that was sent."""
    size: int | None = None
    """The bytes of the reply's body, if known from the start."""
    error_status: int | None = None
    """The status of the error that the client was told, in a reply or in a stream."""
    error: str | None = None
    """The code of that error."""
    left: bool = False
    """The client left before the end."""
    model: str | None = None
    key: str = ""
    """What metrics call the API key that let the request in. Empty without one."""
    response_id: str | None = None
    generation: Generation | None = None
    """The first request to the engine."""
    counts: list[ExchangeCounts] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    """Why the outputs ended."""

    @property
    def status(self) -> int:
        """How the request ended."""
        return CLIENT_LEFT if self.left else self.error_status or self.sent or 500

    @property
    def outcome(self) -> str:
        if self.left:
            return "client left"
        return "complete" if self.status < 400 else "failed"

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.arrived

    @property
    def tokens(self) -> tuple[int, int] | None:
        """How many tokens prompts and outputs had. None before an output has ended."""
        if not self.reasons:
            return None
        return sum(each.prompt for each in self.counts), sum(each.completion for each in self.counts)

    @property
    def trace_id(self) -> str | None:
        return trace_id(self.span.headers() or self.trace)

    def headers(self, span: Span) -> Mapping[str, str]:
        """The headers of a request to an engine on behalf of this one, within `span`."""
        return {REQUEST_ID: self.id, **(span.headers() or self.trace)}


def current() -> Exchange | None:
    """The exchange that the current task works for."""
    return _current.get()


def arrival() -> float:
    """When the request came that the current task works for."""
    exchange = _current.get()
    return time.perf_counter() if exchange is None else exchange.arrived


def begin(exchange: Exchange) -> None:
    """From here on, the current task works for `exchange`."""
    _current.set(exchange)
    outgoing_headers.set(lambda url: exchange.headers(exchange.span))


def current_id() -> str:
    """The id of the request that the current task works for."""
    exchange = _current.get()
    return request_id(None) if exchange is None else exchange.id


def note_model(name: str) -> None:
    """The model that was asked for, which is served."""
    exchange = _current.get()
    if exchange is not None:
        exchange.model = name


def note_reply(id: str) -> None:
    """The id in the body of the reply."""
    exchange = _current.get()
    if exchange is not None:
        exchange.response_id = id


def note_error(status: int, code: str | None) -> None:
    """The error that the client is told."""
    exchange = _current.get()
    if exchange is not None:
        exchange.error_status, exchange.error = status, code


def note_end(reason: str) -> None:
    """An output has ended, and its tokens are counted."""
    exchange = _current.get()
    if exchange is not None:
        exchange.reasons.append(reason)
