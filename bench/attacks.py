"""What others notice of requests that are dear to work out: the first token of a plain chat, and `/health`.

    python bench/attacks.py             # all attacks, four requests of each at once; some minutes
    python bench/attacks.py --only grammars mix
    python bench/attacks.py --only floods

The server runs in a process of its own, with Qwen3's tokenizer and template and llama.cpp's grammars, and
plays a script in place of a model. A request may take a second of CPU time. This process is all of its clients. The
quiet time is measured before and after each attack, and the ratio is that of the medians; for `/health`, the slowest of
a hundred counts. `left`: the clients leave after a second. Floods are large bodies that are sent again and again on
four connections, as fast as the server takes them, from a process of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import subprocess
import sys
import time
from collections import Counter
from itertools import cycle
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import uvicorn

from tests.support.attacks import ATTACKS, Attack, Waits, attacked, flooded, quiet
from tests.support.flood import FLOODS
from tests.support.real_tokenizers import encode, qwen3_huggingface
from tests.support.running_server import service_of
from tests.support.scripted_server import template_of_qwen3
from unbraid.engines.replay import ReplayEngine, script
from unbraid.server.access.door import Access
from unbraid.server.app import create_app, write_error
from unbraid.server.planning.planner import Planner
from unbraid.server.running.run import fast_loop
from unbraid.tokens import vocabulary

_LEAVING = ("schemas of 3 kB", "parsing 4.4 MB", "mix")
"""The attacks that are made once more, by clients that leave."""


def serve() -> None:
    """Serve on a free port, and print it."""
    tokenizer = qwen3_huggingface()
    said = script(encode(tokenizer, "Hello to you, too."))
    engine = ReplayEngine([said], vocabulary=vocabulary(tokenizer), model="qwen", context=1_000_000, repeat=True)
    service = service_of(
        engine,
        "qwen3",
        tokenizer=tokenizer,
        template=template_of_qwen3(),
        syntax="gbnf",
        loose_schemas=True,
        planner=Planner(2, 1.0, preload="unbraid.server.app"),
    )
    access = Access(write_error=write_error)
    server = uvicorn.Server(uvicorn.Config(create_app(service), port=0, log_config=None, **access.uvicorn))

    async def run() -> None:
        service.planner.add(service.models[0].model)
        service.planner.warm()
        serving = asyncio.ensure_future(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        print(server.servers[0].sockets[0].getsockname()[1], flush=True)
        await serving

    gc.collect()
    gc.freeze()
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        runner.run(run())


async def measure(url: str, only: list[str], requests: int) -> None:
    before = await quiet(url, 40)
    print(f"quiet: {shown(before)}")
    print(f"{'attack':26} {'chat, ms':>9} {'slowest':>9} {'ratio':>6} {'health, ms':>11}   all took, and were answered")
    mixed = cycle(ATTACKS.values())
    attacks: dict[str, Attack] = {**ATTACKS, "mix": lambda: next(mixed)()}

    def show(title: str, waits: Waits, still: float, told: str) -> None:
        print(
            f"{title:26} {1e3 * waits.chat:9.1f} {1e3 * max(waits.chats):9.1f} {waits.chat / still:6.1f} "
            f"{1e3 * worst(waits.health):11.1f}   {told}",
            flush=True,
        )

    for name, attack in attacks.items():
        for leave in (None, 1.0) if name in _LEAVING else (None,):
            if only and name not in only:
                continue
            waits, statuses, seconds = await attacked(url, attack, requests, leave_after=leave)
            after = await quiet(url, 20)
            still, before = median([*before.chats, *after.chats]), after
            told = ", ".join(f"{count} × {status or 'left'}" for status, count in Counter(statuses).items())
            show(name if leave is None else f"{name}, left", waits, still, f"{seconds:.1f} s: {told}")
    for name in FLOODS:
        if only and "floods" not in only and name not in only:
            continue
        waits, answered = await flooded(url, name)
        after = await quiet(url, 20)
        still, before = median([*before.chats, *after.chats]), after
        show(name, waits, still, ", ".join(f"{count} × {status}" for status, count in answered.items()))


def shown(waits: Waits) -> str:
    return f"first token {1e3 * waits.chat:.1f} ms, health at most {1e3 * worst(waits.health):.1f} ms"


def worst(seconds: list[float]) -> float:
    """The slowest, without the slowest hundredth: this machine does other things, too."""
    return sorted(seconds)[int(0.99 * len(seconds))]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", nargs="*", default=[], help="these attacks")
    options.add_argument("--requests", type=int, default=4)
    options.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.serve:
        serve()
        return
    process = subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        time.sleep(3)  # the workers start
        asyncio.run(measure(f"http://127.0.0.1:{port}", given.only, given.requests))
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
