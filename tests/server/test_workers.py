"""Several worker processes on one port: they share it, their metrics are added up, and one that dies is replaced."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from unbraid.engines.replay import script
from unbraid.server.observing.metrics import Totals

from ..support import patient_http
from ..support.processes import is_running
from ..support.serve_process import HELLO, Process, record, serve
from ..support.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.system

REQUESTS = 'unbraid_requests_total{route="/v1/chat/completions",status="200"}'
WORKERS = 2


def told(requests: int, running: int, waits: list[float]) -> str:
    """What a worker tells."""
    registry = CollectorRegistry()
    Counter("requests", "Requests.", ("route",), registry=registry).labels("/").inc(requests)
    Gauge("running", "Running.", registry=registry).set(running)
    waited = Histogram("waited", "Waited.", buckets=(1.0, 2.0), registry=registry)
    for wait in waits:
        waited.observe(wait)
    return generate_latest(registry).decode()


def values(text: str) -> dict[str, float]:
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#") and "_created" not in line]
    return {name: float(value) for name, value in lines}


def test_metrics_are_added_up() -> None:
    totals = Totals()
    totals.tell(1, told(3, 1, [0.5, 1.5]))
    totals.tell(2, told(4, 2, [1.5]))
    expected = values(told(7, 3, [0.5, 1.5, 1.5]))
    assert values(totals.text()) == expected
    for line in told(7, 3, []).splitlines():
        assert not line.startswith("#") or line in totals.text().splitlines()


def test_counters_of_a_worker_that_ended_stay() -> None:
    totals = Totals()
    for worker in range(1, 5):
        totals.tell(worker, told(worker, worker, [0.5]))
        totals.end(worker)
    totals.end(99)  # one that never told anything
    totals.tell(5, told(5, 5, [0.5]))
    assert values(totals.text()) == values(told(15, 5, [0.5] * 5))


def metrics(one: Process) -> dict[str, float]:
    return values(patient_http.get(one.url.removesuffix("/v1") + "/metrics").text)


def workers_of(one: Process) -> list[int]:
    command = ["ps", "-A", "-ww", "-o", "pid=", "-o", "ppid=", "-o", "args="]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^\s*(\d+)\s+(\d+)\s+(.*)$", listed, re.MULTILINE)
    return [int(pid) for pid, parent, args in found if int(parent) == one.popen.pid and "spawn_main" in args]


def test_workers(tmp_path: Path) -> None:
    path = record(tmp_path / "recording.jsonl", script("Hi!"))
    with serve("--replay", path, "--format", "hermes", "--workers", str(WORKERS)) as one:
        assert len(workers_of(one)) == WORKERS
        for count in range(1, 21):
            assert one.chat().json()["choices"][0]["message"]["content"] == "Hi!"
            wait_for(lambda at=count: metrics(one)[REQUESTS] == at)  # type: ignore[misc]
        killed = workers_of(one)[0]
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: killed not in workers_of(one) and len(workers_of(one)) == WORKERS)
        assert one.chat().status_code == 200
        wait_for(lambda: metrics(one)[REQUESTS] == 21)
        left = workers_of(one)
        one.popen.send_signal(signal.SIGTERM)
        assert one.popen.wait(PATIENCE) == 0
        assert not any(map(is_running, left))


def test_workers_end_when_their_parent_is_gone(tmp_path: Path) -> None:
    path = record(tmp_path / "recording.jsonl", script("Hi!"))
    with serve("--replay", path, "--format", "hermes", "--workers", str(WORKERS)) as one:
        one.popen.kill()
        wait_for(one.refuses)


def test_the_port_is_closed_while_streams_end(tmp_path: Path) -> None:
    path = record(tmp_path / "recording.jsonl", script("Hi there!"), delay=3600.0)
    flags = ("--shutdown-seconds", str(10 * PATIENCE), "--workers", str(WORKERS))
    with serve("--replay", path, "--format", "hermes", *flags) as one:
        body = {"messages": HELLO, "stream": True}
        with httpx.stream("POST", f"{one.url}/chat/completions", json=body, timeout=PATIENCE) as response:
            next(response.iter_lines())
            one.popen.send_signal(signal.SIGTERM)
            wait_for(one.refuses)
            assert one.popen.poll() is None, "the stream goes on"


def test_settings_that_no_worker_can_take(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "unbraid", "serve", "--port", "0", "--workers", "2", "--replay", "nowhere.jsonl"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1
    assert done.stderr.count("nowhere.jsonl") == 1, "one worker says it, and the others are not tried"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--workers", "0"), "--workers must be a whole number of at least 1"),
        (("--workers", "2", "--record", "x"), "leave --workers out"),
    ],
)
def test_what_is_refused(flags: tuple[str, ...], said: str) -> None:
    done = subprocess.run([sys.executable, "-m", "unbraid", "serve", *flags], capture_output=True, text=True)
    assert done.returncode == 2
    assert said in done.stderr
