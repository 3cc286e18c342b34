"""Two processes of the API, where the cluster has room: one dies, and the other answers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from unbraid.engines.replay import script
from unbraid.server.settings_sources import settings_of

from ..support.serve_process import HELLO, record
from ..support.waiting import PATIENCE, wait_for

pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'unbraid[ray]'")

from unbraid.ray import application

from .cluster import LONG, cluster


@pytest.mark.parametrize(
    ("cores", "machines", "settings", "replicas"),
    [
        (4, 1, {}, 2),
        (3, 1, {}, 1),
        (64, 8, {}, 1),  # a response is stored where it was made
        (64, 8, {"store": "none"}, 2),
        (64, 8, {"store": "none", "ray_api_replicas": 3}, 3),
        (2, 1, {"ray_api_replicas": 3}, 3),
        (64, 1, {"record": "out.jsonl"}, 1),
    ],
)
def test_how_many_there_are(
    cores: int, machines: int, settings: dict[str, Any], replicas: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    monkeypatch.setattr("ray.cluster_resources", lambda: {"CPU": float(cores)})
    nodes = [*([{"Alive": True}] * machines), {"Alive": False}]
    monkeypatch.setattr("ray.nodes", lambda: nodes)
    assert application.api_replicas(settings_of(settings, {})) == replicas


def processes() -> set[int]:
    """The processes of the API."""
    listed = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return {
        int(pid) for pid in re.findall(rf"^\s*(\d+) ray::ServeReplica:\w+:{application.API}\b", listed, re.MULTILINE)
    }


@pytest.mark.system
def test_one_dies_and_the_other_answers(tmp_path: Path) -> None:
    recording = record(tmp_path / "recording.jsonl", script("Hi!"))
    with cluster() as started, httpx.Client(base_url=started.url, timeout=LONG) as client:

        def answers() -> bool:
            reply = client.post("/v1/chat/completions", json={"messages": HELLO})
            return reply.status_code == 200 and reply.json()["choices"][0]["message"]["content"] == "Hi!"

        started.deploy(replay=recording, format="hermes", ray_replicas=1, ray_api_replicas=None)
        assert started.replicas(application.API) == 2
        assert answers()
        first, second = processes()
        os.kill(first, signal.SIGKILL)
        wait_for(answers, PATIENCE)
        assert second in processes()
        wait_for(lambda: started.replicas(application.API) == 2 and first not in processes(), LONG)
        assert answers()
