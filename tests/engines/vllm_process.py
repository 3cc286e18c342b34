"""A real `vllm serve`, for tests, and how the server of an engine is started. `scripts/install-vllm` installs it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest

from .vllm_model import checkpoint

START = 600.0  # the longest that vLLM may take to load, on a machine with other things to do
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",  # two that spin wait for each other where others work too
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}
NAME = "smollm2"


def skip_without_vllm() -> None:
    if find_spec("vllm") is None:
        pytest.skip("vLLM is not installed here: make test-engines")


def arguments(context: int) -> dict[str, Any]:
    """For `vllm serve`, as flags, and for `AsyncLLM`."""
    return {
        "dtype": "float32",
        "max_model_len": context,
        "max_num_seqs": 4,
        "enforce_eager": True,
        "generation_config": "vllm",
    }


@dataclass
class EngineProcess:
    url: str
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@contextmanager
def vllm_serve(
    context: int,
    logs: Path,
    flags: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    *,
    model: Path | None = None,
    name: str = NAME,
    command: Sequence[str] = ("serve",),
) -> Iterator[EngineProcess]:
    """A server that answers, with more flags and variables than all have. `model` is another folder than SmolLM2's;
    `command` another one of vLLM's than `serve`."""
    port = free_port()
    given = {name.replace("_", "-"): value for name, value in arguments(context).items()}
    options = [f"--{name}" if value is True else f"--{name}={value}" for name, value in given.items()]
    options += ["--host=127.0.0.1", f"--port={port}", f"--served-model-name={name}", "--enable-prompt-tokens-details"]
    options += flags
    folder = checkpoint() if model is None else model
    line = [sys.executable, "-m", "vllm.entrypoints.cli.main", *command, str(folder), *options]
    with started(line, port, logs / "server.log", {**ENVIRONMENT, **(environment or {})}) as found:
        yield found


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def started(line: Sequence[str], port: int, log: Path, environment: Mapping[str, str]) -> Iterator[EngineProcess]:
    """The server of an engine, once `/health` says that it is up."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            line, env={**os.environ, **environment}, stdout=file, stderr=file, start_new_session=True
        )
    found = EngineProcess(f"http://127.0.0.1:{port}", process)
    try:
        end = time.monotonic() + START
        while not _is_up(found.url):
            assert process.poll() is None, log.read_text(errors="replace")[-3000:]
            assert time.monotonic() < end, f"it does not get ready: {log.read_text(errors='replace')[-3000:]}"
            time.sleep(0.5)
        yield found
    finally:
        found.kill()


def _is_up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").is_success
    except httpx.TransportError:
        return False
