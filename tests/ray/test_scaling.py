"""Engines that scale from one replica to four and back, while streams run: none of them is lost."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from unbraid.engines.replay import script

from ..support.serve_process import record
from ..support.waiting import wait_for
from .cluster import LONG, Cluster, cluster

pytestmark = pytest.mark.system

pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'unbraid[ray]'")

TEXT = "".join(f"word {number} " for number in range(40))
FAST = {
    "target_ongoing_requests": 1,
    "upscale_delay_s": 0.5,
    "downscale_delay_s": 5.0,
    "look_back_period_s": 3.0,
    "metrics_interval_s": 0.5,
}
MOST = 4
STREAMS = 24


class Load:
    """Streams, one after the other, by as many clients as are wanted at the moment."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.wanted = 0
        self.outcomes: Counter[str] = Counter()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(STREAMS)]
        self._ended = threading.Event()
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        with OpenAI(base_url=f"{self._url}/v1", api_key="any", max_retries=0, timeout=LONG) as client:
            while not self._ended.wait(0.05):
                if number < self.wanted:
                    self.outcomes[self._ask(client)] += 1

    @staticmethod
    def _ask(client: OpenAI) -> str:
        try:
            stream: Any = client.chat.completions.create(
                model="any", messages=[{"role": "user", "content": "Go."}], stream=True
            )
            said = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        except Exception as error:
            return repr(error)
        return "exact" if said == TEXT else said

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.slow
def test_one_to_four_and_back_without_a_lost_request(tmp_path: Path) -> None:
    recording = record(tmp_path / "recording.jsonl", script(TEXT, chunks=8), delay=0.05)
    options = {"autoscaling_config": FAST, "graceful_shutdown_wait_loop_s": 0.5, "health_check_timeout_s": LONG}
    with cluster() as started:
        started.deploy(
            replay=recording, served_model_name="any", ray_replicas=f"1,{MOST}", ray_options=json.dumps(options)
        )
        load = Load(started.url)
        try:
            load.wanted = STREAMS
            wait_for(lambda: replicas(started) == MOST, LONG)
            before = load.outcomes["exact"]
            wait_for(lambda: load.outcomes["exact"] >= before + 2 * STREAMS, LONG)
            load.wanted = 1
            wait_for(lambda: replicas(started) == 1, LONG)
            before = load.outcomes["exact"]
            wait_for(lambda: load.outcomes["exact"] >= before + 4, LONG)
        finally:
            load.end()
    assert set(load.outcomes) == {"exact"}


def replicas(started: Cluster) -> int:
    return started.replicas("engine-any")
