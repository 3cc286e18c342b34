"""The application run by uvicorn: one line when it is ready, and an end that lets streams finish."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from .. import __version__
from .app import create_app
from .http import expire_all
from .loading.service import load
from .service import Service
from .settings import Options

_log = logging.getLogger(__name__)
_GRACE = 2.0
"""How long streams have to say that they were cut off."""


def run(options: Options) -> int:
    """Serve until a signal ends it."""
    logging.basicConfig(level=options.log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
    if options.log_level == "info":  # what these say at that level is of use to nobody but who looks for a fault
        for name in ("httpx", "uvicorn.error"):
            logging.getLogger(name).setLevel(logging.WARNING)
    with asyncio.Runner(loop_factory=_fast_loop()) as runner:
        return runner.run(_serve(options))


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed. uvicorn chooses it only where it starts the loop itself, and ours begins before:
    the engine is made in it."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(options: Options) -> int:
    service = await load(options)
    config = uvicorn.Config(
        create_app(service, options.allow_origin),
        host=options.host,
        port=options.port,
        log_config=None,
        access_log=options.log_level == "debug",
        timeout_graceful_shutdown=round(options.shutdown_seconds + _GRACE),
        backlog=4096,
    )
    server = Server(config, service, options.shutdown_seconds)
    await server.serve()
    return 0 if server.started else 1


class Server(uvicorn.Server):
    """uvicorn, which stops listening at SIGTERM and waits for what runs. What still runs when the time is up is told so
    and ends."""

    def __init__(self, config: uvicorn.Config, service: Service, patience: float) -> None:
        super().__init__(config)
        self._service = service
        self._patience = patience

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            name, format = self._service.names[0], self._service.format.name
            print(f"unbraid {__version__}: {name} ({format}) is ready at http://{shown}:{port}/v1", flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Not uvicorn's, which raises the signal again when all is done: an end in good order is no failure."""
        self.force_exit = self._service.draining and sig == signal.SIGINT
        self._service.draining = self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        timer = asyncio.get_running_loop().call_later(self._patience, expire_all)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()
