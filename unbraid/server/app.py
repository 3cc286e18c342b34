"""The ASGI application: routes, API keys, and errors as replies.

To add a route, write its handler in the package of its dialect and name it in `_ROUTES`. A handler takes the service
and the request, and returns a response or raises; `Endpoint` checks the key and turns errors into the dialect's error
object (OpenAI's, unless `_error_writer` finds another dialect). Headers of every reply are in `http.reply_headers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from time import perf_counter

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from .. import fairness
from ..fairness import FairQueue, HeldPlace, QueueFull
from .access.addresses import client_of_scope
from .access.gate import ANY, Gate, Preflights
from .access.keys import client_by_key, key_name
from .access.rates import Quota, anthropic_headers, openai_headers
from .access.websocket import SOCKET_PATHS
from .api.chat import chat
from .api.completions import completions
from .api.health import health, metrics, ready, version
from .api.models import model, models
from .api.openapi import openapi
from .api.parse import parse
from .api.tokenize import tokenize
from .audio.speech import speech, voices
from .audio.transcriptions import transcriptions, translations
from .errors import ApiError, as_api_error, too_many
from .http import (
    ANTHROPIC_VERSION,
    CLIENT,
    ClientLeft,
    Connection,
    body_memory,
    error_response,
    headers_of,
    note_sender,
    reply_headers,
    sender,
)
from .messages.errors import anthropic_error
from .messages.routes import count_tokens, messages
from .observing.middleware import ARRIVED, EXCHANGE, Observing, reply
from .observing.tracing import Tracer
from .playground.routes import ROUTES as PLAYGROUND
from .realtime.routes import converse, upgrade_required
from .responses import routes as responses
from .service import Service
from .tokens.derender import derender_chat
from .tokens.derender_text import derender_text
from .tokens.render import render_chat, render_text
from .tokens.wire import vllm_error

Handler = Callable[[Service, Request], Awaitable[Response]]

# Path, method, handler, and whether it needs no API key.
_ROUTES: tuple[tuple[str, str, Handler, bool], ...] = (
    ("/v1/chat/completions", "POST", chat, False),
    ("/v1/chat/completions/render", "POST", render_chat, False),
    ("/v1/chat/completions/derender", "POST", derender_chat, False),
    ("/v1/completions", "POST", completions, False),
    ("/v1/completions/render", "POST", render_text, False),
    ("/v1/completions/derender", "POST", derender_text, False),
    ("/v1/responses", "POST", responses.create, False),
    ("/v1/responses/{id}", "GET", responses.retrieve, False),
    ("/v1/responses/{id}", "DELETE", responses.delete, False),
    ("/v1/responses/{id}/cancel", "POST", responses.cancel, False),
    ("/v1/responses/{id}/input_items", "GET", responses.input_items, False),
    ("/v1/messages", "POST", messages, False),
    ("/v1/messages/count_tokens", "POST", count_tokens, False),
    ("/v1/audio/transcriptions", "POST", transcriptions, False),
    ("/v1/audio/translations", "POST", translations, False),
    ("/v1/audio/speech", "POST", speech, False),
    ("/v1/audio/voices", "GET", voices, False),
    ("/v1/realtime", "GET", upgrade_required, False),
    ("/v1/parse", "POST", parse, False),
    ("/v1/tokenize", "POST", tokenize, False),
    ("/v1/models", "GET", models, False),
    ("/v1/models/{model:path}", "GET", model, False),
    ("/", "GET", version, True),
    ("/health", "GET", health, True),
    ("/ready", "GET", ready, True),
    ("/metrics", "GET", metrics, True),
    ("/version", "GET", version, True),
    ("/openapi.json", "GET", openapi, True),
)
_ERRORS: dict[str, Callable[[ApiError], Response]] = {
    "/v1/messages": anthropic_error,
    **dict.fromkeys(("/v1/chat/completions/", "/v1/completions/"), vllm_error),
}
"""Writers of errors by prefix of the path. All other paths have OpenAI's error object."""


_PLACE = "unbraid.place"
"""The key of a request's scope under which stands its place among all requests."""
_QUOTA = "unbraid.quota"
"""The key of a request's scope under which stands the quota of its client."""


def create_app(
    service: Service,
    origins: tuple[str, ...] = (),
    tracer: Tracer | None = None,
    *,
    hosts: tuple[str, ...] = (),
    check_host: bool = False,
    playground: bool = True,
) -> Starlette:
    """The application. It closes the engine when it ends. `tracer` makes spans of its requests. `origins`, `hosts` and
    `check_host`: see `access.gate`. `playground`: whether it has a page to try things out on."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
        service.planner.preload = __name__
        yield
        await service.end_background()
        await service.planner.close()
        await asyncio.gather(*(served.engine.close() for served in service.models))
        if service.transcriber is not None:
            await service.transcriber.listener.close()
        if service.speaker is not None:
            await service.speaker.close()
        if service.store is not None:
            service.store.close()
        if tracer is not None:
            await asyncio.to_thread(tracer.close)

    gate = Middleware(Gate, write_error, check_host=check_host, hosts=hosts, origins=origins)
    cors = Middleware(
        Preflights,
        write_error,
        allow_origins=origins,
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=[ANY],  # `Retry-After`, rates, ids: clients in a browser read them as others do
        allow_private_network=True,  # the page is named, and the server may well be on the user's machine
    )
    pages = PLAYGROUND if playground else ()
    shown = {path for path, *_ in pages}  # instead of a route with the same path
    return _Application(
        routes=[
            Route(path, Endpoint(service, path, handler, public), methods=[method])
            for path, method, handler, public in (*(one for one in _ROUTES if one[0] not in shown), *pages)
        ]
        + [WebSocketRoute(path, SocketEndpoint(service, path)) for path in SOCKET_PATHS],
        middleware=[
            Middleware(Observing, service.metrics, tracer, lambda: service.proxies),
            gate,
            *([cors] if origins else []),
        ],
        lifespan=lifespan,
    )


class _Application(Starlette):
    """Starlette, without what it wraps around `send`: two functions that look at every part of a stream, in case that a
    handler raises. Handlers' errors are turned into answers by `Endpoint`, and an exchange knows what was sent."""

    def build_middleware_stack(self) -> ASGIApp:
        self._plain = {
            (route.path, method): route.app
            for route in self.routes
            if isinstance(route, Route) and isinstance(route.app, Endpoint) and not route.param_convertors
            for method in route.methods or ()
        }
        """The routes whose paths have no parameters: they need not be sought."""
        app: ASGIApp = self._route
        for cls, args, kwargs in reversed(self.user_middleware):
            app = cls(app, *args, **kwargs)
        return app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an error outside of the handlers, if nothing was sent, and have it logged."""
        scope["app"] = self
        if self.middleware_stack is None:
            self.middleware_stack = self.build_middleware_stack()
        endpoint = self._endpoint(scope)
        turn = None if endpoint is None else endpoint.turn(scope)
        if turn is not None:
            scope[ARRIVED] = perf_counter()
            await turn
        try:
            await self.middleware_stack(scope, receive, send)
        except Exception as error:
            if EXCHANGE in scope and scope[EXCHANGE].sent is None:
                response = _error_writer(HTTPConnection(scope))(as_api_error(error))
                response.headers.update(reply_headers(scope[EXCHANGE]))
                await response(scope, receive, send)
            raise

    def _route(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer a request, also one for which there is no route, or not with this method."""
        return (self._endpoint(scope) or self._seek)(scope, receive, send)

    def _endpoint(self, scope: Scope) -> Endpoint | None:
        """The endpoint of a request, where it need not be sought."""
        if scope["type"] != "http":
            return None
        return self._plain.get((scope["path"].removeprefix(scope.get("root_path", "")), scope["method"]))

    async def _seek(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self.router(scope, receive, send)
        except HTTPException as error:
            routes = ", ".join(f"{method} {path.replace(':path', '')}" for path, method, _, _ in _ROUTES)
            connection = HTTPConnection(scope)
            message = f"there is no {scope.get('method', 'GET')} {connection.url.path} here; there are {routes}"
            refusal = ApiError(error.status_code, message, headers=dict(error.headers or {}))
            await _error_writer(connection)(refusal)(scope, receive, send)


class Endpoint:
    """One route. Checks the key, and turns errors into answers."""

    def __init__(self, service: Service, path: str, handler: Handler, public: bool) -> None:
        self._service = service
        self._path = path
        self._handler = handler
        self._public = public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = scope[EXCHANGE]
        exchange.route = self._path
        note_sender(client_of_scope(scope, self._service.proxies))
        connection = Connection(receive, scope, self._service.body_seconds)
        try:
            request = Request(scope, connection, send)
            response = await self._respond(request)
            if _QUOTA in scope:
                response.headers.update(await _rate_headers(request, scope[_QUOTA]))
            await reply(response, scope, connection, send)
        except ClientLeft:
            exchange.left = True
        finally:
            connection.close()
            if _PLACE in scope:
                scope[_PLACE].leave()
            body_memory.release(sender.get())

    def turn(self, scope: Scope) -> asyncio.Future[None] | None:
        """What a request has to wait for before anything is done for it. None where it can be worked on now."""
        return None if self._public else self._service.turns.begin(partial(_who, self._service, scope))

    async def _respond(self, request: Request) -> Response:
        try:
            if not self._public:
                await admit(self._service, request)
                request.scope[_PLACE] = _taken(self._service.requests, "requests at once")
            return await self._handler(self._service, request)
        except ClientLeft:
            raise
        except Exception as error:
            return _error_writer(request)(as_api_error(error))


def _who(service: Service, scope: Scope) -> str:
    """Who sends a request that nobody has looked at yet."""
    key = client_by_key(service.api_keys, HTTPConnection(scope)) if service.api_keys else None
    return key or client_of_scope(scope, service.proxies)


class SocketEndpoint:
    """A route that is a WebSocket. Who is not let in gets an ordinary reply."""

    def __init__(self, service: Service, path: str) -> None:
        self._service = service
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = scope[EXCHANGE]
        exchange.route = self._path
        note_sender(client_of_scope(scope, self._service.proxies))
        request = HTTPConnection(scope)
        try:
            await admit(self._service, request)
            place = _taken(self._service.sockets, "WebSockets")
            try:
                await converse(self._service, scope, receive, send)
            finally:
                place.leave()
        except OSError:  # the connection broke while something was sent
            exchange.left = True
        except Exception as error:
            if exchange.sent is not None:
                raise
            await _error_writer(request)(as_api_error(error))(scope, receive, send)


async def admit(service: Service, request: HTTPConnection) -> None:
    """Let a request in, or raise `ApiError`: by its key, and by how many its client may send."""
    if service.draining:
        raise ApiError(503, "the server is about to end: ask another one", retry_after=1.0)
    if service.api_keys:
        client = client_by_key(service.api_keys, request)
        if client is None:
            message = "the API key is missing or wrong: send it as `Authorization: Bearer …` or as `x-api-key`"
            raise ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
        request.scope[CLIENT] = client
        request.scope[EXCHANGE].key = key_name(client)
        note_sender(client, others=len(service.api_keys) > 1)
    if service.rates:
        request.scope[_QUOTA] = quota = Quota(service.rates, sender.get().client)
        await quota.ask()


def _taken(queue: FairQueue, what: str) -> HeldPlace:
    """A place in what clients share."""
    try:
        return queue.take(fairness.client.get())
    except QueueFull as full:
        raise too_many(what, full) from None


async def _rate_headers(request: Request, quota: Quota) -> dict[str, str]:
    write = anthropic_headers if _error_writer(request) is anthropic_error else openai_headers
    return write(await quota.rates.standing(quota.client))


def write_error(scope: Scope, error: ApiError) -> Response:
    """An error in the dialect of a request, of which `path` and `headers` are known."""
    return _error_writer(HTTPConnection(scope))(as_api_error(error))


def _error_writer(request: HTTPConnection) -> Callable[[ApiError], Response]:
    """The writer of errors in the dialect of a request."""
    if ANTHROPIC_VERSION in headers_of(request.scope):
        return anthropic_error
    path = request.scope["path"]
    return next((write for prefix, write in _ERRORS.items() if path.startswith(prefix)), error_response)
