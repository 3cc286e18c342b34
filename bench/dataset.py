"""Recorded outputs, taken apart by several processes (`unbraid parse --dataset`), beside a plain loop over the file.

    python bench/dataset.py                  2 GB of text, as many processes as there are cores
    python bench/dataset.py --size 0.2       less of it

The loop reads, parses and writes the same columns in one process. "Of linear" is how many times faster the processes
are, for each of them. Memory is that of all processes together, without what they share, a quarter into the job and
at its end. The file and the loop have processes of their own, so that nothing of theirs is counted.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from unbraid.datasets.job import JobProgress, cores, run
from unbraid.datasets.parquet import parse_table, with_columns
from unbraid.datasets.rows import Parsing

T = TypeVar("T")
PARSING = Parsing("qwen3", "output")
WORDS = [
    "the",
    "of",
    "and",
    "to",
    "in",
    "a",
    "is",
    "that",
    "for",
    "it",
    "as",
    "was",
    "with",
    "be",
    "by",
    "on",
    "not",
    "he",
    "his",
    "but",
    "at",
    "are",
    "this",
    "have",
    "from",
    "or",
    "had",
    "an",
]
ROWS = 2000


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--size", type=float, default=2.0, metavar="GB", help="how much text (default: 2)")
    command.add_argument("--processes", type=int, default=cores(), help="how many parse (default: one for each core)")
    command.add_argument("--folder", type=Path, help="where the files go for a while (default: the system's)")
    asked = command.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="unbraid-bench-", dir=asked.folder))
    try:
        source = folder / "in.parquet"
        size = alone(make, source, int(asked.size * 1e9))
        print(f"{size / 1e6:.0f} MB of text, {os.path.getsize(source) / 1e6:.0f} MB of Parquet", flush=True)
        plain = alone(loop, source, folder / "loop.parquet")
        print(f"plain loop: {plain:.1f} s, {size / plain / 1e6:.1f} MB/s", flush=True)
        memory = Memory()
        began = time.perf_counter()
        run(source, folder / "job.parquet", PARSING, processes=asked.processes, progress=memory.look)
        job = time.perf_counter() - began
        share = plain / job / min(asked.processes, cores())
        print(
            f"{asked.processes} processes: {job:.1f} s, {size / job / 1e6:.1f} MB/s: {plain / job:.2f} times as fast, "
            f"{share:.2f} of linear; memory {memory.quarter / 1e6:.0f} MB, at the end {memory.last / 1e6:.0f} MB, "
            f"at most {memory.most / 1e6:.0f} MB; load {os.getloadavg()[0]:.1f}"
        )
    finally:
        shutil.rmtree(folder)


def alone(work: Callable[..., T], *args: object) -> T:
    """What a function returns, from a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(work, *args).result()


def make(path: Path, size: int) -> int:
    """A file with about so many bytes of outputs."""
    chance = Random(0)
    schema = pa.schema([("id", pa.int64()), ("output", pa.string())])
    written = rows = 0
    with pq.ParquetWriter(path, schema) as writer:
        while written < size:
            outputs = [output(chance) for _ in range(ROWS)]
            written += sum(map(len, outputs))
            writer.write_table(pa.table([range(rows, rows + ROWS), outputs], schema=schema))
            rows += ROWS
    return written


def output(chance: Random) -> str:
    def words(most: int) -> str:
        return " ".join(chance.choices(WORDS, k=chance.randint(1, most)))

    found = f"<think>\n{words(400)}\n</think>\n\n{words(300)}"
    if chance.random() < 0.4:
        found += (
            f'\n<tool_call>\n{{"name": "search", "arguments": {{"query": "{words(30)}", "limit": 10}}}}\n</tool_call>'
        )
    return found


def loop(source: Path, target: Path) -> float:
    """What one would write without it. Returns how many seconds it took."""
    began = time.perf_counter()
    pa.set_cpu_count(1)
    file = pq.ParquetFile(source)
    with pq.ParquetWriter(target, with_columns(file.schema_arrow, PARSING), compression="zstd") as writer:
        for batch in file.iter_batches(batch_size=ROWS):
            writer.write_table(parse_table(pa.Table.from_batches([batch]), PARSING))
    return time.perf_counter() - began


class Memory:
    """What the processes of a job have for themselves."""

    def __init__(self) -> None:
        self.quarter = self.last = self.most = 0

    def look(self, progress: JobProgress) -> None:
        pids = [os.getpid(), *(child.pid for child in multiprocessing.active_children() if child.pid is not None)]
        self.last = sum(map(_private, pids))
        self.most = max(self.most, self.last)
        if progress.share <= 0.25:
            self.quarter = self.last


def _private(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return sum(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon:"))


if __name__ == "__main__":
    main()
