"""The port: a socket that is bound before anything is loaded, so that one that is taken is told at once."""

from __future__ import annotations

import errno
import os
import socket

from ...errors import UnbraidError


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
