"""`unbraid serve`: opens the port, loads the service, and serves until a signal ends it.

The port is bound before anything is loaded, so that the user learns at once that it is taken.

The end has three phases. At SIGTERM `/ready` says no, and for `--drain-seconds` everything else goes on, so that a load
balancer can notice before the port closes. Then the server takes no more connections and waits for what runs, for
`--shutdown-seconds`. What still runs then is told so, has a moment to write it, and ends. A further signal ends the
phase at once; SIGINT, which somebody at a keyboard sends, skips the first.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from types import FrameType

import uvicorn

from ...errors import UnbraidError
from ...version import __version__
from ..access.door import access_of
from ..access.gate import is_loopback, read_origins
from ..app import create_app, write_error
from ..http import expire_all
from ..loading.reload import Reloader
from ..loading.service import load
from ..observing.logs import logging_as
from ..observing.middleware import observed
from ..observing.tracing import Tracer
from ..service import Service
from ..settings import Settings
from .supervisor import Link, Supervisor

_log = logging.getLogger(__name__)
_BAD_INPUT = 2
"""The exit code for settings that nothing can be done with."""
_COLLECTOR = (50_000, 20, 20)  # a hundred requests have 30,000 objects; Python: 700, 10, 10
_GRACE = 2.0
"""Seconds that streams have to say that they were cut off."""
_LONG = 10**9
"""Seconds for what has no limit."""
_SAME_SIGNAL = 0.5
"""Seconds in which a second signal is the first one again: a wrapper may pass on what its whole group has got."""


Again = Callable[[], Settings]
"""Reads the settings again."""


def run(settings: Settings, again: Again | None = None) -> int:
    """Serve until a signal ends it. At SIGHUP, `again` says what the settings are now; a terminal that closes ends the
    server."""
    if settings.otel:
        make_tracer().close()  # says at once what is missing
    with logging_as(settings.log_format, settings.log_level):
        try:
            return _run(settings, None if sys.stdin is not None and sys.stdin.isatty() else again)
        except UnbraidError as error:
            if settings.log_format == "text":  # the command line says it
                raise
            _log.error("%s", error)
            return _BAD_INPUT


def _run(settings: Settings, again: Again | None) -> int:
    with open_port(settings.host, settings.port) as sock:
        access_of(settings, write_error)  # a certificate that is wrong is told before a model is loaded
        scheme = "https" if settings.tls_cert else "http"
        if settings.workers > 1:
            return Supervisor(_work, (settings, again), sock, settings.workers, reloads=again is not None).run(
                partial(_announce, sock, scheme, settings.playground)
            )
        with asyncio.Runner(loop_factory=fast_loop()) as runner:
            return runner.run(_serve(settings, again, sock))


def open_port(host: str, port: int) -> socket.socket:
    """A socket that listens as soon as somebody serves on it."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        sock = socket.socket(family)
    except OSError as error:
        raise UnbraidError(f"--host {host} is no address of this machine: {error.strerror}") from error
    try:
        if os.name == "posix":  # elsewhere it would let two servers share a port
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        why = "address already in use" if error.errno == errno.EADDRINUSE else error.strerror
        raise UnbraidError(f"port {port} of {host} cannot be opened: {why}; choose another with --port") from error
    return sock


def _announce(sock: socket.socket, scheme: str, playground: bool, models: str) -> None:
    host, port = sock.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    print(f"unbraid {__version__}: {models} ready at {scheme}://{shown}:{port}/v1", flush=True)
    if playground:
        here = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(shown, shown)  # no browser goes to "any address"
        print(f"Open {scheme}://{here}:{port}/ for the playground.", flush=True)


def _work(settings: Settings, again: Again | None, sock: socket.socket, pipe: Connection, secret: bytes) -> None:
    """What a worker process does."""
    with (
        logging_as(settings.log_format, settings.log_level),
        sock,
        asyncio.Runner(loop_factory=fast_loop()) as runner,
    ):
        try:
            code = runner.run(_serve(_now(settings, again), again, sock, pipe, secret))
        except UnbraidError as error:
            _log.error("%s", error)
            code = _BAD_INPUT
        sys.exit(code)


def spare_what_is_loaded() -> None:
    """Have Python's collector of garbage leave alone what is loaded now, and look less often at the rest: nearly all of
    a reply is freed without it. To look through all objects takes it a twentieth of a second and more, in which nobody
    is answered. Call it before the first request."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTOR)


def fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, if it is installed. uvicorn chooses it only if it starts the loop itself; ours is started before,
    because the engine is made in it."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def make_tracer() -> Tracer:
    """OpenTelemetry's tracer, which is imported only if it is wanted."""
    from ..observing.otel import tracer

    return tracer()


def _now(settings: Settings, again: Again | None) -> Settings:
    """The settings of a worker that may start long after the first."""
    try:
        return settings if again is None else again()
    except UnbraidError as error:
        _log.error("the settings stay as they are: %s", error)
        return settings


async def _serve(
    settings: Settings,
    again: Again | None,
    sock: socket.socket,
    pipe: Connection | None = None,
    secret: bytes | None = None,
) -> int:
    hung_up = asyncio.Event()
    if again is not None and os.name == "posix":
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hung_up.set)
    tracer = make_tracer() if settings.otel else None
    service = await load(settings, secret)
    spare_what_is_loaded()
    link = None if pipe is None else Link(pipe, service.metrics.text)
    if link is not None:
        service.metrics_of_all = link.metrics_of_all
        service.rates.ledger = service.rates.ledger or link
    access = access_of(settings, observed(write_error, service.metrics, service.proxies))
    access.connections.count_refused = service.metrics.count_refused
    origins = read_origins(settings.allow_origin)
    app = create_app(
        service,
        origins,
        tracer,
        hosts=settings.allow_host,
        check_host=is_loopback(settings.host),
        playground=settings.playground,
    )
    config = uvicorn.Config(
        app,
        log_config=None,
        timeout_graceful_shutdown=round(settings.shutdown_seconds + _GRACE),
        timeout_keep_alive=round(settings.keep_alive_seconds) or _LONG,
        backlog=4096,
        **access.uvicorn,
    )
    scheme = "http" if access.tls is None else "https"
    announce = partial(_announce, sock, scheme, settings.playground) if link is None else link.ready
    server = GracefulServer(config, service, announce, drain=settings.drain_seconds, patience=settings.shutdown_seconds)
    reloader = asyncio.create_task(Reloader(service, settings, again or (lambda: settings)).run(hung_up))
    await server.serve([sock])
    reloader.cancel()
    return 0 if server.started else 1


class GracefulServer(uvicorn.Server):
    """uvicorn, with an end that tells clients about it."""

    def __init__(
        self,
        config: uvicorn.Config,
        service: Service,
        announce: Callable[[str], None],
        *,
        drain: float,
        patience: float,
    ) -> None:
        super().__init__(config)
        self._service = service
        self._drain = drain
        self._patience = patience
        self._announce = announce
        self._close_at = float("inf")
        """When the port is to be closed."""
        self._signalled = float("-inf")

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._service.planner.warm()
            models = [f"{served.names[0]} ({served.model.format.name})" for served in self._service.models]
            models = models or [*self._service.listener_names[:1], *self._service.speaker_names[:1]]
            self._announce(f"{', '.join(models)} {'is' if len(models) == 1 else 'are'}")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Go on to the next phase of the end. Not uvicorn's, which raises the signal again when all is done: an orderly
        end is no failure."""
        now = time.monotonic()
        if now - self._signalled < _SAME_SIGNAL:
            return
        self._signalled = now
        if self.should_exit:
            self.force_exit = sig == signal.SIGINT
            asyncio.get_running_loop().call_soon_threadsafe(expire_all)
        elif self._drain and sig == signal.SIGTERM and not self._service.leaving:
            self._close_at = now + self._drain
            _log.info("SIGTERM: /ready says no; requests are taken for %g more seconds", self._drain)
        else:
            self._close()
        self._service.leaving = True

    async def on_tick(self, counter: int) -> bool:
        """uvicorn asks ten times a second whether to end."""
        if time.monotonic() >= self._close_at:
            self._close()
        return await super().on_tick(counter)

    def _close(self) -> None:
        self._service.draining = self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        timer = asyncio.get_running_loop().call_later(self._patience, expire_all)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()
