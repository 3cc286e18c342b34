"""A cluster of Ray on this machine for the tests, and the application in it.

It has no dashboard, tells nobody that it is used, keeps its files in a folder that goes with it, and leaves no process
behind. It says that it has more cores than there are: what runs in the tests does little.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unbraid.engines import Load
from unbraid.ray import app

from ..support.places import ROOT
from ..support.system import system_only
from ..support.waiting import wait_for

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_SERVE_LOG_TO_STDERR": "0",
    "RAY_raylet_start_wait_time_s": "120",  # a busy machine takes longer than Ray thinks
    "RAY_worker_niceness": "0",  # as all else that the tests wait for
}
_NAME = "unbraid"
PATIENT = json.dumps({"health_check_timeout_s": 600.0})
LONG = 600.0
"""Seconds for a replica to start again, on a machine that has much else to do."""


class Cluster:
    """A cluster. One application runs in it at a time."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def deploy(self, **settings: Any) -> None:
        from ray import serve

        patient = {"store": "none", "upstream_timeout": LONG, "ray_options": PATIENT, "ray_api_replicas": 1}
        serve.run(app({**patient, **settings}), name=_NAME, route_prefix="/")

    def replicas(self, deployment: str) -> int:
        """How many replicas of a deployment run."""
        from ray import serve

        found = serve.status().applications[_NAME].deployments[deployment].replica_states
        return sum(count for state, count in found.items() if state == "RUNNING")

    def states(self, deployment: str) -> dict[int, Load]:
        """What each replica of an engine has to do, by its process. Asks until all have answered: Ray asks the least
        busy, so that may be only when all are idle."""
        from ray import serve

        handle = serve.get_deployment_handle(deployment, _NAME)
        found: dict[int, Load] = {}

        def all_answered() -> bool:
            process, load = handle.state.remote().result(timeout_s=LONG)
            found[process] = load
            return len(found) >= self.replicas(deployment)

        wait_for(all_answered, LONG)
        return found


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A new cluster with Ray Serve."""
    from ray import serve

    with only_ray():
        port = free_port()
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        yield Cluster(port)
        serve.shutdown()


@contextmanager
def only_ray() -> Iterator[None]:
    """A new cluster."""
    system_only("a Ray cluster")
    import ray

    before = dict(os.environ)
    os.environ.update(QUIET)
    # The replicas find the classes of the tests, as the tests find them.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), before.get("PYTHONPATH"))))
    # Sockets are in there, whose names must be short.
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    try:
        ray.init(num_cpus=32, include_dashboard=False, log_to_driver=False, _temp_dir=str(folder))
        yield
    finally:
        ray.shutdown()
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def settings_for(model: Path, **more: Any) -> Mapping[str, Any]:
    """SmolLM2 as the suites of clients want it."""
    return {
        "model": str(model),
        "served_model_name": "smollm2",
        "format": "hermes",
        "chat_template": "chatml",
        "context": 1024,
        "threads": 1,
        **more,
    }
