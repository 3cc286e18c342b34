"""The processes of a soak: a replica that is killed and restarted, and the server that is looked at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from ..support.llama_cpp_process import free_port


class Child:
    """A process that says one line when it is ready."""

    def __init__(self, *command: str) -> None:
        self._command = command
        self._temporary = tempfile.TemporaryDirectory()
        """For its temporary files, and for those of no other process."""
        self.start()

    def start(self) -> None:
        command, pipe = [sys.executable, "-m", *self._command], subprocess.PIPE
        environment = {**os.environ, "TMPDIR": self._temporary.name}
        self._popen = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)

    def line(self) -> str:
        assert self._popen.stdout is not None
        return self._popen.stdout.readline()

    def tell(self, text: str) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(text + "\n")
        self._popen.stdin.flush()

    def stop(self) -> None:
        """Kill it at once."""
        self._popen.kill()
        self._popen.communicate()


class ReplicaProcess(Child):
    """An engine that writes the truth."""

    def __init__(self, pace: float) -> None:
        self.port = free_port()
        super().__init__("tests.soak.replica", str(self.port), str(pace))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class ServerProcess(Child):
    """The server in front of replicas."""

    def __init__(self, urls: list[str]) -> None:
        super().__init__("tests.soak.server", *urls)
        self.port = int(self.line())

    def held(self, *, collect: bool = False) -> dict[str, Any]:
        """What it holds now."""
        self.tell("collect" if collect else "")
        found: dict[str, Any] = json.loads(self.line())
        return found
