"""uvicorn, with an end that tells clients about it.

The end has three phases. At SIGTERM `/ready` says no, and for `--drain-seconds` everything else goes on, so that a load
balancer can notice before the port closes. Then the server takes no more connections and waits for what runs, for
`--shutdown-seconds`. What still runs then is told so, has a moment to write it, and ends. A further signal ends the
phase at once; SIGINT, which somebody at a keyboard sends, skips the first.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from collections.abc import Callable
from types import FrameType

import uvicorn

from ..http import expire_all
from ..service import Service

_log = logging.getLogger(__name__)
_SAME_SIGNAL = 0.5
"""Seconds in which a second signal is the first one again: a wrapper may pass on what its whole group has got."""


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
