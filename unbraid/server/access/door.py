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
from typing import Any, Generic, TypeVar, cast

from uvicorn.config import Config
from uvicorn.protocols.utils import get_remote_addr
from uvicorn.server import ServerState

from ..errors import ApiError
from ..http import ErrorWriter, raw_error
from ..settings import Settings
from .addresses import Network, client_at, is_trusted, proxies_of
from .connections import Connections, Seat, affordable
from .pacing import Pace
from .patience import Patience
from .protocol import GuardedProtocol, say_goodbye
from .tls import tls_context

_log = logging.getLogger(__name__)
T = TypeVar("T")
_MOST_TOLD = 64
"""How many that are turned away may read why at the same time. Others are cut off."""


@dataclass(kw_only=True)
class Access:
    """What all connections of a server have in common. `protocol` is what uvicorn makes for each."""

    write_error: ErrorWriter
    patience: Patience = field(default_factory=Patience)
    connections: Connections = field(default_factory=Connections)
    pace: Pace = field(default_factory=Pace)
    proxies: Sequence[Network] = ()
    """Proxies speak for many clients: their connections are counted in all, and not for each client."""
    tls: ssl.SSLContext | None = None
    told: set[Door] = field(default_factory=set)
    """Those that were turned away and may still read why."""

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
        """What `uvicorn.Config` has to know. None of uvicorn's WebSockets, which nobody would watch (`websocket` has
        ours); and who the client is, is not for headers to say that anybody can send (`addresses`)."""
        return {"http": self.protocol, "ws": "none", "proxy_headers": False}


def access_of(settings: Settings, write_error: ErrorWriter) -> Access:
    """What the settings say about connections."""
    return Access(
        write_error=write_error,
        patience=Patience(
            headers=settings.header_seconds,
            body=settings.body_seconds,
            keep_alive=settings.keep_alive_seconds,
            sending=settings.send_seconds,
        ),
        connections=Connections(affordable(settings.connections), settings.client_connections),
        proxies=proxies_of(settings.trusted_proxy),
        tls=tls_context(settings.tls_cert, settings.tls_key, settings.tls_key_password, settings.tls_client_ca),
    )


class Begun(Generic[T]):
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
        """What comes in the moment between the handshake and HTTP. None where it is not wanted."""
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
            begun = Begun(
                self._loop.start_tls(transport, self, access.tls, server_side=True, ssl_handshake_timeout=limit)
            )
            self._handshake = self._loop.create_task(self._end_handshake(begun, transport, self._seat, self._early))

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
        self, begun: Begun[asyncio.Transport | None], transport: asyncio.Transport, seat: Seat, early: list[bytes]
    ) -> None:
        try:
            found = await begun
        except BaseException as error:
            access = self._access
            seat.leave()
            transport.abort()
            if not isinstance(error, OSError):  # TLS's own errors and timeouts are
                raise
            access.connections.count_refused("tls")
            _log.debug("a TLS handshake failed: %s", error)
            return
        if self._lost or found is None:
            seat.leave()
            return
        protocol = self._let_in(found, seat)
        for data in early:
            protocol.data_received(data)

    def data_received(self, data: bytes) -> None:
        if self._early is not None:
            self._early.append(data)

    def _turn_away(self, transport: asyncio.Transport, error: ApiError) -> None:
        told = self._access.told
        if self._access.tls is not None or len(told) >= _MOST_TOLD:
            transport.abort()
            return
        told.add(self)
        transport.write(raw_error(self._access.write_error, error, client=get_remote_addr(transport)))
        self._loop.call_later(self._access.patience.farewell, transport.abort)
        say_goodbye(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._access.told.discard(self)
        if self._seat is not None:
            self._seat.leave()
