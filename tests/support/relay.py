"""A socket before a server: what it sends goes through here, until its process is killed in the middle.

Whoever kills a server from outside cannot know what of its output is on the way already. Here it is exact: what came
after the last event that is let through is lost, as it is with a process that dies then.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress


class Relay:
    """Listens at `url`, and passes all on to the port `target` of this machine, which may change."""

    def __init__(self) -> None:
        self.target = 0
        self.left: int | None = None
        """How many events of a stream are let through."""
        self.kill: Callable[[], None] = lambda: None
        """What is done then. Whoever reads from the server finds it dead."""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", self.target)) as server:
            threading.Thread(target=self._pass_requests, args=(client, server), daemon=True).start()
            while data := server.recv(1 << 16):
                allowed = self._allowed(data)
                client.sendall(allowed)
                if len(allowed) < len(data):
                    self.kill()
                    break
            client.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _pass_requests(client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _allowed(self, data: bytes) -> bytes:
        """As much of it as is let through: events begin with `data:`."""
        if self.left is None:
            return data
        parts = data.split(b"data:")
        if len(parts) - 1 <= self.left:
            self.left -= len(parts) - 1
            return data
        kept, self.left = b"data:".join(parts[: self.left + 1]), None
        return kept
