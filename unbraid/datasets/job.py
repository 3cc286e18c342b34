"""A job: files or folders of recorded outputs to files with more columns, by several processes.

Worker processes each take a part of a file, parse it, and write it to a file of its own. A folder beside the target
keeps these parts with their counts, and the description of the job. A job that was killed goes on with the missing
parts if the description is still the same. A file appears under its name when it is complete; then its parts are
removed. Memory does not grow with the dataset. A worker ends when the process that started it is gone, however that
ended.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import UnbraidError
from ..version import __version__
from . import jsonl
from .rows import Parsing, Part, RowCounts

PARTS = ".parts"
"""The ending of the folder with the parts."""
_UNFINISHED = ".unfinished-"
"""The beginning of a file's name while it is written. It is hidden: readers of the folder leave it out."""
_AHEAD = 2
"""Parts that are read ahead for each worker. This bounds the memory."""
_JOB = "job.json"
_COUNTS = ".counts"
"""The ending of a file with the counts of the one beside it."""
_PARQUET = (".parquet", ".pq")
SUFFIXES = (*_PARQUET, *jsonl.SUFFIXES)
"""The endings of files that are datasets."""
_PART_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress of a job."""

    share: float
    """The share that is done, by the size of the files."""
    counts: RowCounts
    """The rows that this run has parsed."""
    kept: RowCounts
    """The rows that an earlier run had parsed."""


def columns_of(source: Path) -> list[str]:
    """The columns of the first file that may hold outputs."""
    first = _files(source)[0]
    columns: list[str] = kind_of(first).columns(first)
    return columns


def texts_of(source: Path, column: str) -> Iterator[str]:
    """The texts in a column of a file, or of all files of a folder."""
    for path in _files(source):
        yield from kind_of(path).texts(path, column)


def run(
    source: Path,
    target: Path,
    parsing: Parsing,
    *,
    processes: int | None = None,
    progress: Callable[[JobProgress], None] = lambda _: None,
    part_bytes: int = _PART_BYTES,
) -> JobProgress:
    """Parse a file, or all files of a folder. Raises `UnbraidError`; finished parts are kept.

    processes: how many parse; by default one for each core.
    part_bytes: the size, about, of a part.
    """
    if target.resolve().is_relative_to(source.resolve()):
        raise UnbraidError(f"--out {target} is the dataset itself or lies in it: give another place")
    files = {path: _target(path, source, target) for path in _files(source)}
    for path, goal in files.items():
        if suffix_of(path) != suffix_of(goal):
            raise UnbraidError(f"{path} stays what it is: give an --out that ends with {suffix_of(path)}")
        kind_of(path).check(path, parsing)
    kept = target.with_name(target.name + PARTS)
    sizes = {path: path.stat().st_size for path in files}
    total = max(1, sum(sizes.values()))
    state = JobProgress(0.0, RowCounts(), RowCounts())
    before = 0
    with _writable(target):
        _claim(kept, source, files, target, f"{parsing.fingerprint()} {part_bytes}")
        with Workers(parsing, processes or cores()) as workers:
            for number, (path, goal) in enumerate(files.items()):
                folder = kept / f"{number:06}"
                if goal.exists():
                    state = JobProgress(state.share, state.counts, state.kept + _counts(folder))
                else:
                    for share, counts, already in _parse(path, goal, folder, parsing, workers, part_bytes):
                        state = JobProgress(
                            (before + share * sizes[path]) / total, state.counts + counts, state.kept + already
                        )
                        progress(state)
                before += sizes[path]
        shutil.rmtree(kept)
    return JobProgress(1.0, state.counts, state.kept)


@contextmanager
def _writable(target: Path) -> Iterator[None]:
    """Says what is wrong with `--out`: what cannot be read is an `UnbraidError` already."""
    try:
        yield
    except OSError as error:
        raise UnbraidError(
            f"--out {target} cannot be written: {error}. Mend that, or give another --out; what is done is kept"
        ) from error


def cores() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def _files(source: Path) -> list[Path]:
    if not source.is_dir():
        if not source.is_file():
            raise UnbraidError(f"there is no file and no folder {source}")
        kind_of(source)
        return [source]
    paths = sorted(path for path in source.rglob("*") if suffix_of(path) and path.is_file())
    # Like Arrow, leave out names that begin with a dot or an underscore.
    paths = [path for path in paths if not any(part[0] in "._" for part in path.relative_to(source).parts)]
    if not paths:
        raise UnbraidError(f"the folder {source} has no files that end with {', '.join(SUFFIXES)}")
    return paths


def _target(path: Path, source: Path, target: Path) -> Path:
    return target / path.relative_to(source) if source.is_dir() else target


def _claim(kept: Path, source: Path, files: dict[Path, Path], target: Path, how: str) -> None:
    """Claim the output folder for this job; an earlier run of the same job is resumed."""
    stats = {str(path): [path.stat().st_size, path.stat().st_mtime_ns] for path in files}
    job = {"unbraid": __version__, "source": str(source.resolve()), "files": stats, "how": how}
    if (kept / _JOB).exists():
        if json.loads((kept / _JOB).read_text(encoding="utf-8")) != job:
            raise UnbraidError(
                f"{kept} has parts of another job (other files, options or version): remove it, or give another --out"
            )
        return
    if target.exists():
        raise UnbraidError(f"{target} exists: remove it, or give another --out")
    kept.mkdir(parents=True, exist_ok=True)
    _write_json(kept / _JOB, job)


def _parse(
    path: Path, target: Path, kept: Path, parsing: Parsing, workers: Workers, part_bytes: int
) -> Iterator[tuple[float, RowCounts, RowCounts]]:
    """Parse one file. Yields the share that is done, the counts since the last yield, and those of kept parts."""
    kind, suffix = kind_of(path), suffix_of(path)
    kept.mkdir(exist_ok=True)
    part_files: list[Path] = []
    already = [RowCounts()]

    def missing() -> Iterator[tuple[Part, Path]]:
        with closing(kind.parts(path, part_bytes)) as parts:
            for part in parts:
                part_files.append(kept / (part.name + suffix))
                if part_files[-1].exists():
                    already[0] += _counts(part_files[-1])
                else:
                    yield part, part_files[-1]

    share = 0.0
    for part, counts in workers.parse(missing()):
        share = max(share, part.done)
        yield share, counts, already[0]
        already[0] = RowCounts()
    yield 1.0, RowCounts(), already[0]
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = _unfinished(target)
    kind.put_together(path, parsing, part_files, unfinished)
    _keep_counts(kept, sum(map(_counts, part_files), RowCounts()))
    os.replace(unfinished, target)
    shutil.rmtree(kept)


def _unfinished(path: Path) -> Path:
    return path.with_name(_UNFINISHED + path.name)


def _write_json(path: Path, value: object) -> None:
    """Write a file atomically: it appears complete or not at all."""
    _unfinished(path).write_text(json.dumps(value), encoding="utf-8")
    os.replace(_unfinished(path), path)


def _keep_counts(path: Path, counts: RowCounts) -> None:
    """Keep the counts of a part, or of a file, beside its parts."""
    _write_json(path.with_name(path.name + _COUNTS), asdict(counts))


def _counts(path: Path) -> RowCounts:
    """What `_keep_counts` kept."""
    return RowCounts(**json.loads(path.with_name(path.name + _COUNTS).read_text(encoding="utf-8")))


def suffix_of(path: Path) -> str:
    """Which of `SUFFIXES` a file's name ends with; empty for other files."""
    return next((suffix for suffix in SUFFIXES if path.name.endswith(suffix)), "")


def kind_of(path: Path) -> ModuleType:
    """The module that reads files with this ending. Raises `UnbraidError` for others."""
    suffix = suffix_of(path)
    if suffix in jsonl.SUFFIXES:
        return jsonl
    if suffix in _PARQUET:
        try:
            from . import parquet
        except ImportError as error:
            raise UnbraidError(f"Parquet needs pyarrow ({error}): pip install 'unbraid[datasets]'") from error
        return parquet
    raise UnbraidError(f"{path} is no dataset that is known: give files that end with {', '.join(SUFFIXES)}")


class Workers:
    """Worker processes that parse with the same options."""

    def __init__(self, parsing: Parsing, count: int) -> None:
        self._count = count
        self._pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _begin, (parsing,))

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def parse(self, parts: Iterator[tuple[Part, Path]]) -> Iterator[tuple[Part, RowCounts]]:
        """Parse parts, each to its file. Yields each when it is done."""
        running: dict[Future[RowCounts], Part] = {}
        more = True
        while more or running:
            while more and len(running) < self._count * _AHEAD:
                following = next(parts, None)
                more = following is not None
                if following is not None:
                    part, path = following
                    running[self._pool.submit(_parse_in_worker, part, path)] = _without_data(part)
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                part = running.pop(future)
                try:
                    yield part, future.result()
                except BrokenProcessPool as error:
                    message = "a process that parses was ended from outside, perhaps for want of memory: start again"
                    raise UnbraidError(f"{message}; what is done is kept") from error


def _without_data(part: Part) -> Part:
    return replace(part, data=b"")


_parsing: list[Parsing] = []


def _begin(parsing: Parsing) -> None:
    """Set up a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its parent ends it
    _parsing.append(parsing)
    parent: Any = multiprocessing.parent_process()
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait_for([sentinel])
    os._exit(1)


def _parse_in_worker(part: Part, path: Path) -> RowCounts:
    unfinished = _unfinished(path)
    counts: RowCounts = kind_of(path).parse_part(part, _parsing[0], unfinished)
    _keep_counts(path, counts)
    os.replace(unfinished, path)
    return counts
