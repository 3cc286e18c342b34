"""Other servers beside ours: Granian instead of uvicorn, and SMG's gateway before the same server of a model.

    python bench/serve_peers.py                       # what is installed
    python bench/serve_peers.py --smg path/to/smg     # with SMG's gateway (PyPI `smg`)
    python bench/serve_peers.py --cases content --streams 1 100 --rounds 3

*The base.* The bare application and our whole server (`serve_apps.py`), each on uvicorn and on Granian (PyPI
`granian`, one worker). On Granian ours lacks what it adds to uvicorn's protocol: limits on slow clients, and writing
the parts of a stream without a message for each.

*The gateway.* A server of a model that sends the bytes it has ready shares a core with the client; the gateway has the
other core. Ours asks it for completions: it writes the prompt, reads the words with a parser, and writes the chunks.
SMG passes the chunks of a chat through. (To write prompts and parse, it needs a server of a model that speaks gRPC.)

As in `serve.py` rounds alternate, and the best of each counts. CPU time is that of all threads of a server and of its
child processes. Memory is what 1,000 streams at a time add to the most that the server has had, for each.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import reduce
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import serve
import serve_apps
import uvloop
from serve import Client, Round
from serve_apps import Case

_PATIENCE = 60.0


class Peer(Client):
    """Asks a server of which only the process is known."""

    def __init__(self, name: str, port: int, pid: int) -> None:
        super().__init__(port)
        self.name = name
        self._pid = pid
        body = json.dumps({"model": serve_apps.MODEL, **serve_apps.BODY}).encode()
        head = serve._HEAD.format(method="POST", path=serve_apps.PATH, length=len(body))
        self._request = head.encode() + body

    async def usage(self) -> dict[str, float]:
        pids = list(_family(self._pid))
        return {"cpu": sum(map(_seconds, pids)), "memory": sum(map(_most_memory, pids))}


def _family(pid: int) -> Iterator[int]:
    """A process and all that it started."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from _family(int(child))


def _seconds(pid: int) -> float:
    """The CPU time of all threads."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def _most_memory(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024


@contextmanager
def running(name: str, command: list[str], port: int | None = None, *, core: int = 1) -> Iterator[Peer]:
    """A server in a process of its own. It prints its port, or has the one that is named."""
    with subprocess.Popen([*serve.in_one_place(), *command], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if len(serve.CORES) > 1:
            os.sched_setaffinity(process.pid, [serve.CORES[core]])
        try:
            if port is None:
                port = int(process.stdout.readline())
            else:
                _wait(port)
            yield Peer(name, port, process.pid)
        finally:
            process.terminate()


def _wait(port: int) -> None:
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            assert time.monotonic() < end, "it does not start"
            time.sleep(0.1)


def ours(which: str, case: Case, *more: str) -> list[str]:
    return [sys.executable, serve_apps.__file__, which, case.name, *more]


def smg(program: str, upstream: int) -> tuple[list[str], int]:
    port, metrics = _free(), _free()
    command = [program, "launch", "--host", "127.0.0.1", "--port", str(port), "--backend", "openai"]
    command += ["--worker-urls", f"http://127.0.0.1:{upstream}", "--policy", "round_robin", "--log-level", "error"]
    return [*command, "--prometheus-port", str(metrics), "--disable-health-check"], port


def _free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


HEADER = """\
| server | reply | streams | chunks/s | CPU µs a chunk | a request | first chunk (ms) | memory a stream (kB) |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"""


async def measure(case: Case, peers: list[Peer], counts: list[int], rounds: int) -> None:
    """Print a line for each server and number of streams."""
    pieces = len(case.pieces())
    for peer in peers:
        await peer.round(10, 2)
    for count in counts:
        times = max(1, min(serve.CHUNKS // pieces, serve.REQUESTS) // count)
        before = [(await peer.usage())["memory"] for peer in peers]
        results: list[list[Round]] = [[] for _ in peers]
        for _ in range(rounds):
            for peer, seen in zip(peers, results, strict=True):
                seen.append(await peer.round(count, times))
        for peer, seen, memory in zip(peers, results, before, strict=True):
            best = reduce(Round.best, seen)
            added = ((await peer.usage())["memory"] - memory) / count / 1e3
            cells = [
                *(peer.name, case.says, f"{count:,}", f"{best.rate:,.0f}", f"{best.chunk_us:.1f}"),
                *(f"{best.cpu / count / times * 1e6:,.0f}", f"{best.first * 1e3:.1f}"),
                f"{added:.0f}" if count == max(serve.STREAMS) else "",
            ]
            print(f"| {' | '.join(cells)} |", flush=True)


def base(case: Case, counts: list[int], rounds: int) -> None:
    with ExitStack() as servers:
        peers = [
            servers.enter_context(running("bare, uvicorn", ours("bare", case))),
            servers.enter_context(running("unbraid, uvicorn", ours("unbraid", case))),
        ]
        if find_spec("granian") is not None:
            peers += [
                servers.enter_context(running("bare, Granian", ours("bare", case, "--granian"))),
                servers.enter_context(running("unbraid, Granian", ours("unbraid", case, "--granian"))),
            ]
        uvloop.run(measure(case, peers, counts, rounds))


def gateways(case: Case, counts: list[int], rounds: int, program: str | None) -> None:
    with ExitStack() as servers:
        upstream = servers.enter_context(running("none", ours("upstream", case), core=0))
        url = f"http://127.0.0.1:{upstream._port}"
        peers = [
            upstream,
            servers.enter_context(running("unbraid", ours("gateway", case, "--upstream", url))),
        ]
        if program is not None:
            command, port = smg(program, upstream._port)
            peers.append(servers.enter_context(running("smg", command, port)))
        uvloop.run(measure(case, peers, counts, rounds))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=5, help="how many rounds, of which the best counts")
    arguments.add_argument("--streams", type=int, nargs="+", default=list(serve.STREAMS), help="how many at a time")
    names = [case.name for case in serve_apps.CASES if not case.ids]
    arguments.add_argument("--cases", nargs="+", choices=names, default=["content", "word"], help="what is written")
    arguments.add_argument("--smg", help="SMG's program")
    options = arguments.parse_args()
    if len(serve.CORES) > 1:
        os.sched_setaffinity(0, serve.CORES[:1])
    cases = [case for case in serve_apps.CASES if case.name in options.cases]
    print("The base\n", HEADER, sep="\n", flush=True)
    for case in cases:
        base(case, options.streams, options.rounds)
    print("\nThe gateway\n", HEADER, sep="\n", flush=True)
    for case in cases:
        gateways(case, options.streams, options.rounds, options.smg)


if __name__ == "__main__":
    main()
