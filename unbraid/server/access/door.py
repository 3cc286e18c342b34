"""Where a connection is accepted: it gets a place or is turned away, then TLS, then HTTP.

A connection counts from the moment it is accepted. uvicorn would do the TLS handshake before it tells anybody, so that
connections in a handshake would be uncounted and wait for a minute; so TLS is started here.

A connection that is turned away is told so, without TLS. With TLS it is closed: a handshake is just the work that
whoever opens too many connections wants to be done.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from uvicorn.config import Config
from uvicorn.protocols.utils import get_remote_addr
from uvicorn.server import ServerState

from ...errors import UnbraidError
from ..errors import ApiError
from ..http import ErrorWriter, raw_error
from ..settings import Settings
from .addresses import Network, client_at, is_trusted, proxies_of
from .connections import Connections, Seat, affordable
from .protocol import GuardedProtocol, say_goodbye
from .timing import Pace, Patience

_log = logging.getLogger(__name__)
T = TypeVar("T")
_MOST_TURNED_AWAY = 64
"""How many connections that are turned away may read why at the same time. Others are cut off."""


@dataclass(kw_only=True)
class Access:
    """What all connections of a server share. uvicorn calls `protocol` for each connection."""

    write_error: ErrorWriter
    patience: Patience = field(default_factory=Patience)
    connections: Connections = field(default_factory=Connections)
    pace: Pace = field(default_factory=Pace)
    proxies: Sequence[Network] = ()
    """Proxies speak for many clients: their connections are counted in all, and not for each client."""
    tls: ssl.SSLContext | None = None
    turned_away: set[Door] = field(default_factory=set)
    """Connections that were turned away and may still read why."""

    def protocol(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> Door:
        return Door(self, config, server_state, app_state, _loop or asyncio.get_running_loop())

    @property
    def uvicorn(self) -> dict[str, Any]:
        """Arguments of `uvicorn.Config`. Not uvicorn's WebSockets, which nobody would watch (`websocket` has ours), and
        not its reading of proxies' headers, which anybody can send (`addresses` reads them)."""
        return {"http": self.protocol, "ws": "none", "proxy_headers": False}


def access_of(settings: Settings, write_error: ErrorWriter) -> Access:
    """The access that the settings describe. Raises `UnbraidError` for a certificate that cannot be used."""
    return Access(
        write_error=write_error,
        patience=Patience(
            headers=settings.header_seconds,
            keep_alive=settings.keep_alive_seconds,
            sending=settings.send_seconds,
        ),
        connections=Connections(affordable(settings.connections), settings.client_connections),
        proxies=proxies_of(settings.trusted_proxy),
        tls=tls_context(settings.tls_cert, settings.tls_key, settings.tls_key_password, settings.tls_client_ca),
    )


def tls_context(
    certificate: str | None,
    key: str | None = None,
    password: str | None = None,
    client_authority: str | None = None,
) -> ssl.SSLContext | None:
    """The certificate that the server shows; None without one. `key` may be in the file of the certificate. With
    `client_authority`, clients must show a certificate that it signed. Errors name the file."""
    if certificate is None:
        if key or password or client_authority:
            raise UnbraidError("--tls-key, --tls-key-password and --tls-client-ca need --tls-cert, the certificate")
        return None
    for flag, path in (("--tls-cert", certificate), ("--tls-key", key), ("--tls-client-ca", client_authority)):
        if path is not None:
            _check_readable(flag, path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_chain(context, certificate, key, password)
    if client_authority is not None:
        try:
            context.load_verify_locations(client_authority)
        except (ssl.SSLError, OSError) as error:
            raise UnbraidError(f"--tls-client-ca {client_authority} has no certificate in PEM: {error}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _check_readable(flag: str, path: str) -> None:
    try:
        with Path(path).open("rb") as file:
            file.read(1)
    except OSError as error:
        raise UnbraidError(f"{flag} {path} cannot be read: {error.strerror}") from error


def _load_chain(context: ssl.SSLContext, certificate: str, key: str | None, password: str | None) -> None:
    asked_for_password = False

    def answer() -> str:
        """OpenSSL would ask on the terminal."""
        nonlocal asked_for_password
        asked_for_password = True
        return password or ""

    holder = key or certificate
    try:
        context.load_cert_chain(certificate, key, answer)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None)
        if reason == "KEY_VALUES_MISMATCH":
            message = f"--tls-key {holder} is not the key of the certificate {certificate}: they must belong together"
        elif asked_for_password:
            what = "is not the one of" if password else "is missing for"
            message = f"the password {what} {holder}, which is encrypted: give --tls-key-password"
        elif key is None:
            message = f"--tls-cert {certificate} has no certificate with its key in PEM: give the key as --tls-key"
        else:
            message = f"--tls-cert {certificate} and --tls-key {key} are no certificate and key in PEM: {error}"
        raise UnbraidError(message) from error


class StartedCoroutine(Generic[T]):
    """A coroutine that has run up to where it first waits. Await the rest."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._waits_for = work.send(None)

    def __await__(self) -> Generator[Any, Any, T]:
        waits_for = self._waits_for
        try:
            while True:
                try:
                    sent = yield waits_for
                except BaseException as error:
                    waits_for = self._work.throw(error)
                else:
                    waits_for = self._work.send(sent)
        except StopIteration as end:
            return cast(T, end.value)


class Door(asyncio.Protocol):
    """A connection before it speaks HTTP."""

    def __init__(
        self,
        access: Access,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._access = access
        self._config = config
        self._server_state = server_state
        self._app_state = app_state
        self._loop = loop
        self._seat: Seat | None = None
        self._handshake: asyncio.Task[None] | None = None
        self._early: list[bytes] | None = None
        """Bytes that come between the handshake and HTTP. None if there is no handshake."""
        self._lost = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        access = self._access
        address = (get_remote_addr(transport) or ("",))[0]
        client = None if is_trusted(address, access.proxies) else client_at(address)
        try:
            self._seat = access.connections.take(client, transport.abort)
        except ApiError as error:
            self._turn_away(transport, error)
            return
        if access.tls is None:
            self._let_in(transport, self._seat)
        else:
            limit = access.patience.headers or None
            self._early = []
            # At once, and not when a task is run: uvloop reads as soon as this returns, and what it reads is for TLS.
            started = StartedCoroutine(
                self._loop.start_tls(transport, self, access.tls, server_side=True, ssl_handshake_timeout=limit)
            )
            self._handshake = self._loop.create_task(self._end_handshake(started, transport, self._seat, self._early))

    def _let_in(self, transport: asyncio.Transport, seat: Seat) -> GuardedProtocol:
        access = self._access
        protocol = GuardedProtocol(
            self._config,
            self._server_state,
            self._app_state,
            self._loop,
            seat=seat,
            patience=access.patience,
            pace=access.pace,
            write_error=access.write_error,
        )
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        return protocol

    async def _end_handshake(
        self,
        started: StartedCoroutine[asyncio.Transport | None],
        transport: asyncio.Transport,
        seat: Seat,
        early: list[bytes],
    ) -> None:
        try:
            secured = await started
        except BaseException as error:
            access = self._access
            seat.leave()
            transport.abort()
            if not isinstance(error, OSError):  # TLS's own errors and timeouts are
                raise
            access.connections.count_refused("tls")
            _log.debug("a TLS handshake failed: %s", error)
            return
        if self._lost or secured is None:
            seat.leave()
            return
        protocol = self._let_in(secured, seat)
        for data in early:
            protocol.data_received(data)

    def data_received(self, data: bytes) -> None:
        if self._early is not None:
            self._early.append(data)

    def _turn_away(self, transport: asyncio.Transport, error: ApiError) -> None:
        others = self._access.turned_away
        if self._access.tls is not None or len(others) >= _MOST_TURNED_AWAY:
            transport.abort()
            return
        others.add(self)
        transport.write(raw_error(self._access.write_error, error, client=get_remote_addr(transport)))
        self._loop.call_later(self._access.patience.farewell, transport.abort)
        say_goodbye(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._access.turned_away.discard(self)
        if self._seat is not None:
            self._seat.leave()
