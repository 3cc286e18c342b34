"""What a piece of an output costs on its way through Ray Serve, from an engine's replica to the process of the API.

    python bench/ray_hop.py

The replica plays a recording without delays, one piece a token, in a new cluster on this machine. CPU is that of this
process, which stands where the API does; the replica's own comes on top, in a process of its own.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray  # noqa: E402
from ray import serve  # noqa: E402

from unbraid.engines import Generation, Piece, Sampling  # noqa: E402
from unbraid.engines.http.timeouts import Timeouts  # noqa: E402
from unbraid.engines.recording import Recorder  # noqa: E402
from unbraid.engines.replay import ReplayEngine, script  # noqa: E402
from unbraid.ray.engine import RayEngine  # noqa: E402
from unbraid.ray.replicas import Described, EngineReplica  # noqa: E402
from unbraid.server.settings_sources import settings_of  # noqa: E402

PIECES = 500
REQUEST = Generation(prompt="Go.", sampling=Sampling(temperature=0))


async def record(path: str) -> None:
    engine = Recorder(ReplayEngine([script("word " * PIECES, chunks=5)]), path)
    async for _ in engine.generate(REQUEST):
        pass
    await engine.close()


async def stream(engine: RayEngine) -> int:
    return sum([isinstance(output, Piece) async for output in engine.generate(REQUEST)])


async def measure(engine: RayEngine, streams: int) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    pieces = sum(await asyncio.gather(*(stream(engine) for _ in range(streams))))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{streams:3} streams: {pieces / wall:,.0f} pieces/s, {1e6 * cpu / pieces:.0f} µs of CPU a piece here")


def main() -> None:
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "recording.jsonl")
        asyncio.run(record(path))
        serve.start(proxy_location="Disabled")
        deployment = serve.deployment(EngineReplica, max_ongoing_requests=256)
        handle = serve.run(deployment.bind(settings_of({"replay": path})), name="hop", route_prefix=None)
        engine = RayEngine(handle, Described("replay"), vocabulary=None, timeouts=Timeouts(), retries=0)

        async def run() -> None:
            await stream(engine)
            for streams in (1, 10, 50):
                await measure(engine, streams)

        asyncio.run(run())
        print(f"load {os.getloadavg()[0]:.1f}")
        serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
