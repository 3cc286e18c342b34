"""One request and its reply, while it is answered: what is known of it, for logs, metrics and traces.

`middleware` makes an `Exchange` for each request. Code further down finds it with `current()`, in whatever task works
for the request, and notes what it learns: the model, the tokens, the error that the client was told. Where there is no
server (tests, a `Choice` by itself) there is none, and nothing is noted.

How it ended is told as one status. It is the status that was sent, unless the reply was a stream that failed later:
then it is that of the error in the stream. 499 means that the client left first, as in nginx's logs.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from ...engines import Engine, Generation
from ...engines.base import outgoing_headers
from .request_ids import HEADER, request_id
from .spans import NO_SPAN, Span, engine_attributes, server_attributes
from .trace_context import trace_id

CLIENT_LEFT = 499
_current: ContextVar[Exchange | None] = ContextVar("unbraid.exchange", default=None)


class Counts(Protocol):
    """The tokens of one prompt and of its outputs. They are counted when an output ends."""

    prompt: int
    completion: int


@dataclass(slots=True, eq=False)
class Exchange:
    """A request and its reply."""

    id: str
    method: str
    path: str
    client: str = ""
    """The address that it came from."""
    trace: Mapping[str, str] = field(default_factory=dict)
    """The headers that pass its trace on, where there are no spans of our own."""
    span: Span = NO_SPAN
    arrived: float = field(default_factory=time.perf_counter)
    route: str = ""
    """The path with names for what varies in it (`/v1/responses/{id}`). Empty where there is no such route."""
    sent: int | None = None
    """The status that was sent."""
    size: int | None = None
    """The bytes of the body, where that was known from the start."""
    told: int | None = None
    """The status of the error that the client was told, in a reply or in a stream."""
    error: str | None = None
    """The code of that error."""
    left: bool = False
    """The client left before the end."""
    model: str | None = None
    response_id: str | None = None
    generation: Generation | None = None
    """What the engine was asked for first."""
    counts: list[Counts] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    """Why the outputs ended."""

    @property
    def status(self) -> int:
        """How it ended."""
        return CLIENT_LEFT if self.left else self.told or self.sent or 500

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

    def headers(self, span: Span, url: str) -> Mapping[str, str]:
        """What a request to the engine at `url` carries on behalf of this one, within `span`."""
        if span is not self.span:
            span.set(server_attributes(url))
        return {HEADER: self.id, **(span.headers() or self.trace)}


def current() -> Exchange | None:
    """The exchange that this is done for."""
    return _current.get()


def begin(exchange: Exchange) -> None:
    """From here on, all that this task does is done for `exchange`."""
    _current.set(exchange)
    outgoing_headers.set(partial(exchange.headers, exchange.span))


def current_id() -> str:
    """The id of the request that this is done for."""
    exchange = _current.get()
    return request_id(None) if exchange is None else exchange.id


def note_model(name: str) -> None:
    """The model that was asked for, which is served."""
    exchange = _current.get()
    if exchange is not None:
        exchange.model = name


def note_reply(id: str) -> None:
    """The id that the reply has in its body."""
    exchange = _current.get()
    if exchange is not None:
        exchange.response_id = id


def note_error(status: int, code: str | None) -> None:
    """The error that the client is told."""
    exchange = _current.get()
    if exchange is not None:
        exchange.told, exchange.error = status, code


def note_end(reason: str) -> None:
    """An output has ended, and its tokens are counted."""
    exchange = _current.get()
    if exchange is not None:
        exchange.reasons.append(reason)


@asynccontextmanager
async def engine_call(engine: Engine, generation: Generation, counts: Counts) -> AsyncGenerator[None, None]:
    """What is done inside is one output of `engine`. It has a span, which requests to servers are part of."""
    exchange = _current.get()
    if exchange is None:
        yield
        return
    exchange.generation = exchange.generation or generation
    if not any(each is counts for each in exchange.counts):
        exchange.counts.append(counts)
    span = exchange.span.child(*engine_attributes(engine, generation))
    outgoing_headers.set(partial(exchange.headers, span))
    try:
        yield
    except Exception as error:
        span.fail(type(error).__name__)
        raise
    except BaseException:  # given up
        span.set({"error.type": "cancelled"})
        raise
    finally:
        span.end()
