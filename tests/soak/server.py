"""The server in front of the replicas, as a process: `python -m tests.soak.server URL…`.

Each line on stdin is answered with a line of what it holds now: its sockets and files, tasks, temporary files, memory.
The line `collect` has the garbage collected first.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import tempfile
import threading
from pathlib import Path

from unbraid.engines.routing import RetryRules, Routing
from unbraid.engines.vllm.server import VLLMEngine

from ..support.running_server import RunningServer, service_of
from .truth import FORMAT, Bytes

CONTEXT = 100_000
_MOST_MOVES = 12
"""Of one output: replicas are killed all the time here."""


def _serve(urls: list[str]) -> None:
    words = Bytes()
    routing = Routing(check_interval=1.0, retries=RetryRules(most=_MOST_MOVES))
    engine = VLLMEngine(urls, vocabulary=words, model="fake", context=CONTEXT, routing=routing)
    service = service_of(engine, FORMAT, tokenizer=words, names=("soak",), syntax="structural_tag")
    server = RunningServer(service)
    server.start()
    print(server.port, flush=True)
    loop = server._loop
    for asked in sys.stdin:
        counted: list[int] = []
        done = threading.Event()

        def count(counted: list[int] = counted, done: threading.Event = done) -> None:
            counted.append(len(asyncio.all_tasks(loop)))
            done.set()

        server.call(count)
        done.wait()
        if asked.strip() == "collect":  # under load it would hold up all streams
            gc.collect()
        moved = sum(replica.moved for replica in engine.replicas)
        print(json.dumps({**_held(), "tasks": counted[0], "moved": moved}), flush=True)
    os._exit(0)


def _held() -> dict[str, int]:
    """What the process holds, by the word of the system."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    kilobytes = next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]
    return {
        "sockets": len(os.listdir("/proc/self/fd")),
        "files": len(os.listdir(tempfile.gettempdir())),
        "memory": int(kilobytes) * 1024,
        "threads": threading.active_count(),
    }


if __name__ == "__main__":
    _serve(sys.argv[1:])
