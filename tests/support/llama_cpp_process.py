"""llama.cpp's server as a process of its own, which a test can kill and start again on the same port.

This file is that process, too: `python llama_cpp_process.py MODEL PORT`.
"""

from __future__ import annotations

import importlib
import socket
import subprocess
import sys
from pathlib import Path

CONTEXT = 2048


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


class LlamaCppProcess:
    """A server that takes requests once `wait` has returned."""

    def __init__(self, model: Path) -> None:
        from .system import system_only  # not where this file is the process

        system_only("a server as a child process")
        self._model = model
        self.port = free_port()
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-P", __file__, str(self._model), str(self.port)]
        pipe = subprocess.PIPE
        self._popen = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)

    def wait(self) -> None:
        assert self._popen.stdout is not None
        assert self._popen.stdout.readline() == "ready\n", "llama.cpp does not start"

    def kill(self) -> None:
        """Kill it at once, in the middle of whatever it does."""
        self._popen.kill()

    def restart(self) -> None:
        """Start it again after it was killed."""
        self.stop()
        self.start()

    def stop(self) -> None:
        self._popen.kill()
        self._popen.communicate()


def _serve(model: str, port: int) -> None:
    library = importlib.import_module("xllamacpp")
    params = library.CommonParams()
    params.model.path = model
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads = 2 * CONTEXT, 2, 1
    params.warmup, params.verbosity, params.port = False, 0, port
    server = library.Server(params)
    print("ready", flush=True)
    sys.stdin.read()
    del server


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
