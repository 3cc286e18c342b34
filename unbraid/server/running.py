"""Runs the application with uvicorn: prints one line when it is ready, and lets streams finish when it is to end.

The port is opened before anything is loaded, so that one that is taken is told at once. With `--workers`, the processes
of `server.workers` serve on it.

The end has three phases. At SIGTERM `/ready` says no, and for `--drain-seconds` everything else goes on, so that a load
balancer can notice before the port closes. Then the server takes no more connections and waits for what runs, for
`--shutdown-seconds`. What still runs then is told so, has a moment to write it, and ends. A further signal ends the
phase at once; SIGINT, which somebody at a keyboard sends, skips the first.
"""

from __future__ import annotations

import asyncio
import errno
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

from ..errors import UnbraidError
from ..version import __version__
from .app import create_app
from .http import expire_all
from .loading.service import load
from .service import Service
from .settings import Settings
from .workers.supervisor import Supervisor
from .workers.worker import Link

_log = logging.getLogger(__name__)
_GRACE = 2.0
"""Seconds that streams have to say that they were cut off."""
_SAME_SIGNAL = 0.5
"""Seconds in which a second signal is the first one again: a wrapper may pass on what its whole group has got."""


def run(settings: Settings) -> int:
    """Serve until a signal ends it."""
    _start_logging(settings)
    with open_port(settings.host, settings.port) as sock:
        if settings.workers > 1:
            return Supervisor(_work, (settings,), sock, settings.workers).run(partial(_announce, sock))
        with asyncio.Runner(loop_factory=_fast_loop()) as runner:
            return runner.run(_serve(settings, sock))


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
    sock.set_inheritable(True)
    return sock


def _announce(sock: socket.socket, models: str) -> None:
    host, port = sock.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    print(f"unbraid {__version__}: {models} ready at http://{shown}:{port}/v1", flush=True)


def _work(settings: Settings, sock: socket.socket, pipe: Connection, secret: bytes) -> None:
    """What a worker does."""
    _start_logging(settings)
    with sock, asyncio.Runner(loop_factory=_fast_loop()) as runner:
        sys.exit(runner.run(_serve(settings, sock, pipe, secret)))


def _start_logging(settings: Settings) -> None:
    logging.basicConfig(level=settings.log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
    if settings.log_level == "info":  # these two log every request
        for name in ("httpx", "uvicorn.error"):
            logging.getLogger(name).setLevel(logging.WARNING)


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed. uvicorn chooses it only where it starts the loop itself; ours is started before,
    because the engine is made in it."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(
    settings: Settings, sock: socket.socket, pipe: Connection | None = None, secret: bytes | None = None
) -> int:
    service = await load(settings, secret)
    link = None if pipe is None else Link(pipe, service.metrics.text)
    if link is not None:
        service.metrics_of_all = link.metrics_of_all
    config = uvicorn.Config(
        create_app(service, settings.allow_origin),
        log_config=None,
        access_log=settings.log_level == "debug",
        timeout_graceful_shutdown=round(settings.shutdown_seconds + _GRACE),
        backlog=4096,
    )
    announce = partial(_announce, sock) if link is None else link.ready
    server = GracefulServer(config, service, announce, drain=settings.drain_seconds, patience=settings.shutdown_seconds)
    await server.serve([sock])
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
            models = ", ".join(f"{served.names[0]} ({served.model.format.name})" for served in self._service.models)
            self._announce(f"{models} {'is' if len(self._service.models) == 1 else 'are'}")

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
