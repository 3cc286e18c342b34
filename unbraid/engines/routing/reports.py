"""What a server says of its own load, in the metrics that it shows for Prometheus.

Others may use it, too, and only the server knows of their requests. A server that shows no such metrics is judged by
the requests of ours alone.
"""

from __future__ import annotations

import re
from typing import Protocol, runtime_checkable

from ..base import Load

_RUNNING = (
    *("vllm:num_requests_running", "sglang:num_running_reqs"),
    *("llamacpp:requests_processing", "unbraid_engine_running"),
)
_WAITING = (
    *("vllm:num_requests_waiting", "sglang:num_queue_reqs"),
    *("llamacpp:requests_deferred", "unbraid_engine_waiting"),
)
_LINE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{.*\})? +([0-9.eE+-]+)(?: +[0-9]+)?$", re.MULTILINE)


@runtime_checkable
class Reporting(Protocol):
    """An engine that says how much it has to do."""

    @property
    def reported(self) -> Load | None:
        """What it said last; None if nothing."""
        ...


def read_load(metrics: str) -> Load | None:
    """The requests that run and wait, by a server's metrics; None if they do not say."""
    running = waiting = 0.0
    known = False
    for name, value in _LINE.findall(metrics):
        try:
            if name in _RUNNING:
                running, known = running + float(value), True
            elif name in _WAITING:
                waiting += float(value)
        except ValueError:  # it looks like a number, and is none
            return None
    return Load(int(running), int(waiting)) if known else None
