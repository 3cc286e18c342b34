"""Which pages of the web may send requests: `Host` and `Origin` are looked at before anything else.

A browser sends what any page asks it to, to servers on this machine too. Two headers tell, and no page can change them.

- *Host*. A page can have its own name resolved to 127.0.0.1, and is then of the same origin as a server there (DNS
  rebinding). Its name is in `Host`. So a server that listens on a loopback address takes `localhost`, loopback
  addresses and the names that `--allow-host` adds. Elsewhere, where names are many and keys protect, `Host` is looked
  at only if `--allow-host` is given. The address that the connection was made to is always right: only names can be
  rebound.
- *Origin*. Browsers send it with everything but plain reads. It has to be that of the server itself (the same as
  `Host`) or be allowed (`--allow-origin`); `null`, which sandboxed pages and files send, is an origin like any other.
  Clients that are no browsers send none. A browser that sends none for a request that changes something says by
  `Sec-Fetch-Site` whether another site has asked for it. A WebSocket has an `Origin` too, and no other protection: a
  page may open one to any server, and read what it says.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterable
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from ...errors import UnbraidError
from ..errors import ApiError
from ..http import ErrorWriter, headers_of
from .addresses import address_of

ANY = "*"
_READS = ("GET", "HEAD", "OPTIONS")
_PORTS = {"http": 80, "https": 443}
_OWN = ("same-origin", "none")
"""What `Sec-Fetch-Site` says where no other site is involved: `none` is the user, who typed the address."""


class Gate:
    """Middleware that lets through what no foreign page can have sent."""

    def __init__(
        self,
        app: ASGIApp,
        write_error: ErrorWriter,
        *,
        check_host: bool = False,
        hosts: Collection[str] = (),
        origins: Collection[str] = (),
    ) -> None:
        self._app = app
        self._write_error = write_error
        self._check_host = (check_host or bool(hosts)) and ANY not in hosts
        self._hosts = {host.lower().rstrip(".") for host in hosts}
        self._origins = origins

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] in ("http", "websocket"):
            try:
                self._check(scope, headers_of(scope))
            except ApiError as error:
                return self._write_error(scope, error)(scope, receive, send)
        return self._app(scope, receive, send)

    def _check(self, scope: Scope, headers: Headers) -> None:
        hosts = headers.getlist("host")
        if len(hosts) > 1:
            raise ApiError(400, "the request has several Host headers: send one")
        host = hosts[0] if hosts else ""
        if self._check_host:
            self._check_name(scope, headers, host)
        origin = headers.get("origin")
        if origin is not None:
            self._check_origin(origin, host)
        elif scope["method"] not in _READS and headers.get("sec-fetch-site", "none") not in _OWN:
            raise _foreign("a page of another site")

    def _check_name(self, scope: Scope, headers: Headers, host: str) -> None:
        if not host and scope["http_version"] == "1.0":  # no browser
            return
        if "host" not in headers:
            raise ApiError(400, "the request has no Host header: send one")
        name = _name(host)
        address = address_of(name)
        own = address_of((scope.get("server") or ("",))[0])
        if name == "localhost" or name in self._hosts or (address and (address.is_loopback or address == own)):
            return
        instead = "use localhost or its address, or start it with --allow-host"
        message = f"this server is not {host[:128]!r}: {instead} {name[:128]}"
        raise ApiError(421, message, code="unknown_host")

    def _check_origin(self, origin: str, host: str) -> None:
        if ANY in self._origins or origin.lower() in self._origins:
            return
        place = _place(origin)
        if place is not None and place == _place(f"{origin.partition('://')[0]}://{host}"):
            return
        raise _foreign(f"pages of {origin[:128]!r}")


class Preflights(CORSMiddleware):
    """Middleware that answers what a browser asks before it lets an allowed page send a request (CORS). Starlette does;
    here a refusal becomes an error as all others are."""

    def __init__(self, app: ASGIApp, /, write_error: ErrorWriter, **settings: Any) -> None:
        super().__init__(app, **settings)
        self._write_error = write_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "OPTIONS":
            headers = Headers(scope=scope)
            if "origin" in headers and "access-control-request-method" in headers:
                response = self.preflight_response(headers)
                if response.status_code >= 400:
                    headers_to_keep = {
                        name: value for name, value in response.headers.items() if not name.startswith("content-")
                    }
                    error = ApiError(response.status_code, f"{bytes(response.body).decode()}: pages may not ask for it")
                    response = self._write_error(scope, error)
                    response.headers.update(headers_to_keep)
                await response(scope, receive, send)
                return
        await super().__call__(scope, receive, send)


def _foreign(who: str) -> ApiError:
    message = f"{who} may not use this server: start it with --allow-origin and the page's origin to let them"
    return ApiError(403, message, code="origin_not_allowed")


def _name(host: str) -> str:
    """The name in `Host`, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().rstrip(".")


def _place(url: str) -> tuple[str, int | None] | None:
    """Host and port of an address. The scheme makes no difference: a proxy may have ended TLS."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if not parts.hostname:
        return None
    return parts.hostname.rstrip("."), port or _PORTS.get(parts.scheme)


def is_loopback(host: str) -> bool:
    """Whether a server that listens on `host` is reached from its own machine alone."""
    address = address_of(host)
    return host.lower().rstrip(".") == "localhost" or (address is not None and address.is_loopback)


def read_origins(texts: Iterable[str]) -> tuple[str, ...]:
    """The origins of `--allow-origin`, as browsers write them."""
    return tuple(map(_origin, texts))


def _origin(text: str) -> str:
    origin = text.strip().lower().removesuffix("/")
    scheme, _, rest = origin.partition("://")
    if origin in (ANY, "null") or (scheme and rest and "/" not in rest):
        return origin
    raise UnbraidError(f"--allow-origin takes an origin such as https://example.org, null or *, not {text!r}")
