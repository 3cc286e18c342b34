"""`unbraid serve --ray` as a user starts it: it says where it is, answers, and ends with a signal."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from unbraid.engines.replay import script

from ..support.places import ROOT
from ..support.serve_process import record
from ..support.waiting import wait_for
from .cluster import LONG, QUIET, free_port

pytestmark = pytest.mark.system

TEXT = "Good day to you, and to all who read this."
pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'unbraid[ray]'")


@contextmanager
def serve_on_ray(log: Path, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command, whose output is in `log`. It is ended in the end, and what it started with it."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "unbraid", "serve", "--ray", "--store", "none", *flags],
            env={**os.environ, **QUIET, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def ended(process: subprocess.Popen[bytes], log: Path) -> str:
    """What it has said. It has ended well, and nothing that it started is left."""
    assert process.wait(LONG) == 0, log.read_text()
    wait_for(lambda: not members(process.pid))
    return log.read_text()


def members(session: int) -> list[str]:
    """The processes of a session."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(stat[3]) == session and stat[0] != "Z":
            found.append(folder.name)
    return found


def test_it_serves_until_a_signal_and_until_its_streams_have_ended(tmp_path: Path) -> None:
    recording, log = record(tmp_path / "recording.jsonl", script(TEXT, chunks=8), delay=0.1), tmp_path / "log"
    port = free_port()
    flags = ("--replay", recording, "--served-model-name", "any", "--shutdown-seconds", str(LONG))
    with serve_on_ray(log, "--port", str(port), *flags) as process:
        wait_for(lambda: "ready on Ray" in log.read_text() or process.poll() is not None, LONG)
        assert f"ready on Ray at http://127.0.0.1:{port}/v1\n" in log.read_text()
        with OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="any", max_retries=0, timeout=LONG) as client:
            stream: Any = client.chat.completions.create(
                model="any", messages=[{"role": "user", "content": "Go."}], stream=True
            )
            said = [next(stream)]
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does with Ctrl-C
            said += stream
        assert "".join(chunk.choices[0].delta.content or "" for chunk in said) == TEXT
        assert "Traceback" not in ended(process, log)


@pytest.mark.slow
def test_a_signal_ends_it_while_it_loads(tmp_path: Path) -> None:
    """A model may take an hour to load. This one is a pipe, from which nothing comes."""
    pipe, log = tmp_path / "recording.jsonl", tmp_path / "log"
    os.mkfifo(pipe)
    with serve_on_ray(log, "--replay", str(pipe), "--port", str(free_port()), "--shutdown-seconds", "1") as process:
        wait_for(lambda: is_read(pipe) or process.poll() is not None, LONG)
        process.send_signal(signal.SIGTERM)
        assert "ready on Ray" not in ended(process, log)


@pytest.mark.slow
def test_why_it_does_not_start_is_told(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with serve_on_ray(log, "--model", "/no/model.gguf", "--port", str(free_port())) as process:
        assert process.wait(LONG) == 2, log.read_text()
    (told,) = (line for line in log.read_text().splitlines() if line.startswith("unbraid: Ray did not start it: "))
    assert "there is no model '/no/model.gguf'" in told


def test_a_port_that_is_taken_is_told_at_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with serve_on_ray(log, "--replay", "any", "--port", str(port)) as process:
            assert process.wait(LONG) == 2, log.read_text()
    assert f"port {port} of 127.0.0.1 cannot be opened: address already in use" in log.read_text()


def is_read(pipe: Path) -> bool:
    """Whether a replica has opened a pipe. It stays open for writing then: its end would be that of the file."""
    try:
        os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    return True
