"""Runs the application with uvicorn: prints one line when it is ready, and lets streams finish when it is to end.

At SIGTERM the server takes no more connections and waits for what runs, for `--shutdown-seconds`. What still runs then
is told so, has a moment to write it, and ends.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from ..version import __version__
from .app import create_app
from .http import expire_all
from .loading.service import load
from .observing.logs import logging_as
from .observing.spans import Tracer
from .service import Service
from .settings import Settings

_GRACE = 2.0
"""Seconds that streams have to say that they were cut off."""


def run(settings: Settings) -> int:
    """Serve until a signal ends it."""
    with logging_as(settings.log_format, settings.log_level), asyncio.Runner(loop_factory=_fast_loop()) as runner:
        return runner.run(_serve(settings))


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed. uvicorn chooses it only where it starts the loop itself; ours is started before,
    because the engine is made in it."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _tracer() -> Tracer:
    """OpenTelemetry's, which is imported only where it is wanted."""
    from .observing.otel import tracer

    return tracer()


async def _serve(settings: Settings) -> int:
    tracer = _tracer() if settings.otel else None
    service = await load(settings)
    config = uvicorn.Config(
        create_app(service, settings.allow_origin, tracer),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=round(settings.shutdown_seconds + _GRACE),
        backlog=4096,
    )
    server = GracefulServer(config, service, settings.shutdown_seconds)
    await server.serve()
    return 0 if server.started else 1


class GracefulServer(uvicorn.Server):
    """uvicorn, with an end that tells clients about it."""

    def __init__(self, config: uvicorn.Config, service: Service, patience: float) -> None:
        super().__init__(config)
        self._service = service
        self._patience = patience

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            models = ", ".join(f"{served.names[0]} ({served.model.format.name})" for served in self._service.models)
            are = "is" if len(self._service.models) == 1 else "are"
            print(f"unbraid {__version__}: {models} {are} ready at http://{shown}:{port}/v1", flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Not uvicorn's, which raises the signal again when all is done. An orderly end is no failure."""
        self.force_exit = self._service.draining and sig == signal.SIGINT
        self._service.draining = self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        timer = asyncio.get_running_loop().call_later(self._patience, expire_all)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()
