"""`unbraid serve` as a process, as a user starts it, and the recordings that it plays."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx

from unbraid.engines import Generation
from unbraid.engines.recording import Recorder
from unbraid.engines.replay import ReplayEngine, Script

from . import patient_http
from .in_loop import collect_until_error, in_loop
from .system import system_only

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Hello!"}]


class Process:
    """A server that was started by its command."""

    def __init__(self, *flags: str, **environment: str) -> None:
        system_only("a server as a child process")
        command = [sys.executable, "-m", "unbraid", "serve", "--port", "0", *flags]
        self.popen = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
            start_new_session=True,  # a terminal's Ctrl-C goes to a group of processes: `ctrl_c`
        )
        self.log: list[str] = []
        assert self.popen.stdout is not None
        assert self.popen.stderr is not None
        self.log_ended = threading.Event()
        threading.Thread(target=self._read_log, args=(self.popen.stderr,), daemon=True).start()
        self.line = self.popen.stdout.readline()
        found = re.search(r"https?://\S+", self.line)
        assert found, f"it did not get ready: {''.join(self.log)}"
        self.url = found[0]

    def _read_log(self, stream: IO[str]) -> None:
        self.log.extend(stream)
        self.log_ended.set()

    def ctrl_c(self) -> None:
        """What a terminal does."""
        os.killpg(self.popen.pid, signal.SIGINT)

    def chat(self, **more: Any) -> httpx.Response:
        return patient_http.post(f"{self.url}/chat/completions", json={"messages": HELLO, **more})

    def refuses(self) -> bool:
        """Whether it takes no more connections."""
        try:
            socket.create_connection(("127.0.0.1", httpx.URL(self.url).port or 0)).close()
        except ConnectionError:
            return True
        return False


@contextmanager
def serve(*flags: str, **environment: str) -> Iterator[Process]:
    process = Process(*flags, **environment)
    try:
        yield process
    finally:
        process.popen.kill()
        process.popen.wait()


def record(path: Path, *scripts: Script, delay: float = 0.0) -> str:
    """A file with these outputs, in which each piece but the first comes after so many seconds."""

    @in_loop
    async def write() -> None:
        engine = Recorder(ReplayEngine(scripts, model="recorded"), path)
        for _ in scripts:
            await collect_until_error(engine.generate(Generation(prompt="")))
        await engine.close()

    write()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in [line for line in lines if "text" in line][1:]:
        line["after"] = delay
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)
