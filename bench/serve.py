"""What a chunk costs: our whole server against a bare ASGI application that sends the very same bytes.

    python bench/serve.py            # 1, 100 and 1,000 streams
    python bench/serve.py --quick    # fewer rounds
    python bench/serve.py --cases content --streams 1 100 --rounds 3

Both run on uvicorn, httptools and uvloop, each in a process of its own. Ours plays 256 tokens, one in each piece, as
fast as it can; the other has the bytes ready, and yields to the event loop before each part as the engine does. This
process is the client: it only gathers what comes, and counts it after the clock has stopped. Client and server have a
core each, and the servers' memory lies in the same place in each run: where it does not, one process in two takes half
as much time again for a single stream, on the processor that this was written on (Neoverse N1).

Rounds alternate between the two, and the best of each counts (what disturbs a machine only ever adds). Chunks a second
are by the clock, from the moment the requests go out. CPU time is all that the server's process used, requests,
connections and system calls included, divided by the chunks; it tells more than the clock where other work shares the
machine. The first chunk is the median over the streams of a round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, reduce
from pathlib import Path
from statistics import median
from typing import cast

sys.path.insert(0, str(Path(__file__).resolve().parent))

import pytest
import serve_apps
import uvloop
from serve_apps import Case

STREAMS = (1, 100, 1000)
CHUNKS, REQUESTS = 10_000, 100
"""What a round has at least, of the one or the other: few streams are run again and again."""
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
"""The client has the first, and a server the second."""
ADDED_US = 20.0
RATIO = 0.6
_BODY = json.dumps(serve_apps.BODY).encode()
_HEAD = (
    "{method} {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\nContent-Type: application/json\r\n"
    "Content-Length: {length}\r\n\r\n"
)
_DONE = b"data: [DONE]\n\n"


@dataclass
class Round:
    """What one round took, or the best of several."""

    chunks: int
    seconds: float
    cpu: float
    first: float

    def best(self, other: Round) -> Round:
        assert self.chunks == other.chunks, "both send the same"
        return Round(
            self.chunks, min(self.seconds, other.seconds), min(self.cpu, other.cpu), min(self.first, other.first)
        )

    @property
    def rate(self) -> float:
        return self.chunks / self.seconds

    @property
    def chunk_us(self) -> float:
        return self.cpu / self.chunks * 1e6


@dataclass
class Row:
    """One case with so many streams at a time."""

    case: str
    streams: int
    requests: int
    bare: Round
    unbraid: Round
    memory: tuple[int, int]
    """The most memory that our server's process has had, before and after."""

    @property
    def ratio(self) -> float:
        return self.unbraid.rate / self.bare.rate

    @property
    def added_us(self) -> float:
        return self.unbraid.chunk_us - self.bare.chunk_us

    @property
    def request_us(self) -> float:
        return (self.unbraid.cpu - self.bare.cpu) / self.requests * 1e6


class Exchange(asyncio.Protocol):
    """One request on a connection of its own. Gathers what comes until the server closes it."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.parts: list[bytes] = []
        self.first = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def ask(self, request: bytes) -> None:
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        if not self.parts:
            self.first = time.perf_counter()
        self.parts.append(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set_result(None)

    def chunks(self) -> int:
        """How many came, where the answer is whole."""
        answer = b"".join(self.parts)
        assert answer.startswith(b"HTTP/1.1 200"), answer
        body = b"\n" + _unchunked(answer.partition(b"\r\n\r\n")[2])
        assert body.endswith(_DONE), answer[-100:]
        return body.count(b"\ndata: ") - 1


def _unchunked(body: bytes) -> bytes:
    """What the chunks of HTTP hold. A gateway may cut them anywhere."""
    parts, at = [], 0
    while (end := body.find(b"\r\n", at)) >= 0 and (size := int(body[at:end], 16)):
        parts.append(body[end + 2 : end + 2 + size])
        at = end + 2 + size + 2
    return b"".join(parts)


class Client:
    """Asks one server, many times at once."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._request = _HEAD.format(method="POST", path=serve_apps.PATH, length=len(_BODY)).encode() + _BODY

    async def round(self, streams: int, times: int) -> Round:
        before = await self.usage()
        found = [await self._streams(streams) for _ in range(times)]
        after = await self.usage()
        chunks, seconds, first = (sum(each) for each in zip(*found, strict=True))
        return Round(round(chunks), seconds, after["cpu"] - before["cpu"], first / times)

    async def _streams(self, count: int) -> tuple[float, float, float]:
        """The chunks, the seconds, and the seconds to the first chunk."""
        exchanges = [await self._connect() for _ in range(count)]
        await asyncio.sleep(count * 1e-4)  # for the server to take the connections
        begun = time.perf_counter()
        for exchange in exchanges:
            exchange.ask(self._request)
        await asyncio.gather(*(exchange.ended for exchange in exchanges))
        seconds = time.perf_counter() - begun
        chunks = sum(exchange.chunks() for exchange in exchanges)
        return chunks, seconds, median(exchange.first - begun for exchange in exchanges)

    async def usage(self) -> dict[str, float]:
        exchange = await self._connect()
        exchange.ask(_HEAD.format(method="GET", path="/usage", length=0).encode())
        await exchange.ended
        told: dict[str, float] = json.loads(b"".join(exchange.parts).partition(b"\r\n\r\n")[2])
        return told

    async def _connect(self) -> Exchange:
        _, exchange = await asyncio.get_running_loop().create_connection(Exchange, "127.0.0.1", self._port)
        return exchange


@cache
def in_one_place() -> tuple[str, ...]:
    """What starts a program whose memory lies where it always does, if the machine has that."""
    command = ("setarch", "-R")
    known = shutil.which(command[0]) and not subprocess.run([*command, "true"], capture_output=True).returncode
    return command if known else ()


@contextmanager
def running(which: str, case: Case) -> Iterator[Client]:
    """A server in a process of its own."""
    command = [*in_one_place(), sys.executable, serve_apps.__file__, which, case.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if len(CORES) > 1:
            os.sched_setaffinity(process.pid, CORES[1:2])
        try:
            yield Client(int(process.stdout.readline()))
        finally:
            process.terminate()


async def measure(case: Case, counts: list[int], rounds: int) -> list[Row]:
    rows = []
    pieces = len(case.pieces())
    with running("bare", case) as bare, running("unbraid", case) as unbraid:
        for server in (bare, unbraid):
            await server.round(10, 2)  # all that is made once is made
        for count in counts:
            times = max(1, min(CHUNKS // pieces, REQUESTS) // count)
            before = (await unbraid.usage())["memory"]
            found = [(await bare.round(count, times), await unbraid.round(count, times)) for _ in range(rounds)]
            theirs, ours = (reduce(Round.best, each) for each in zip(*found, strict=True))
            after = (await unbraid.usage())["memory"]
            rows.append(Row(case.name, count, count * times, theirs, ours, (round(before), round(after))))
            print(line(case, rows[-1]), flush=True)
    return rows


HEADER = """\
| reply | streams | chunks/s, bare | unbraid | ratio | CPU µs a chunk, bare | unbraid | added | \
first chunk (ms), bare | unbraid |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""


def line(case: Case, row: Row) -> str:
    bare, ours = row.bare, row.unbraid
    cells = [
        *(case.says, f"{row.streams:,}"),
        *(f"{bare.rate:,.0f}", f"{ours.rate:,.0f}", f"{row.ratio:.2f}"),
        *(f"{bare.chunk_us:.1f}", f"{ours.chunk_us:.1f}", f"{row.added_us:.1f}"),
        *(f"{bare.first * 1e3:.1f}", f"{ours.first * 1e3:.1f}"),
    ]
    return f"| {' | '.join(cells)} |"


def notes(rows: list[Row]) -> Iterator[str]:
    """What the table does not say, and the targets."""
    for row in rows:
        if row.case == "word":
            share = row.request_us / serve_apps.PIECES
            added = f"{row.request_us:,.0f} µs of CPU time added, {share:.1f} µs for each chunk of a long reply"
            yield f"a request, {row.streams:,} at a time: {added}"
    for row in rows:
        if row.streams == max(STREAMS) and row.case != "word":
            before, after = (size / 1e6 for size in row.memory)
            each = (after - before) * 1e3 / row.streams
            yield f"memory at {row.streams:,} streams, {row.case}: {after:.0f} MB at most, {each:.0f} kB a stream"
    yield "\ntargets\n"
    for row in rows:
        if row.case != "word":
            met = "met    " if row.added_us < ADDED_US else "not met"
            yield f"  {met}  {row.added_us:5.1f} µs < {ADDED_US:.0f} µs added to a chunk: {_which(row)}"
            met = "met    " if row.ratio >= RATIO else "not met"
            yield f"  {met}  {row.ratio:5.2f} ≥ {RATIO} of the bare one's chunks a second: {_which(row)}"


def _which(row: Row) -> str:
    return f"{row.case}, {row.streams:,} streams"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="three rounds instead of fifteen")
    arguments.add_argument("--rounds", type=int, help="how many rounds, of which the best counts")
    arguments.add_argument("--streams", type=int, nargs="+", default=STREAMS, help="how many streams at a time")
    names = [case.name for case in serve_apps.CASES]
    arguments.add_argument("--cases", nargs="+", choices=names, default=names, help="what the model writes")
    arguments.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = arguments.parse_args()

    if len(CORES) > 1:
        os.sched_setaffinity(0, CORES[:1])
    rows: list[Row] = []
    print(HEADER, flush=True)
    for case in serve_apps.CASES:
        if case.name in options.cases:
            rounds = options.rounds or (3 if options.quick else 15)
            try:
                rows += uvloop.run(measure(case, list(options.streams), rounds))
            except pytest.skip.Exception as missing:
                print(f"{case.says}: not measured, {missing}")
    print("", *notes(rows), sep="\n")
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
