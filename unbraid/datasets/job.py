"""A job: files or folders of recorded outputs to files with more columns, by several processes.

Beside the target is a folder with the parts that are done. A job that was killed goes on with what is missing, if
nothing has changed; the folder says what it is of. A file of the target appears when it is whole, and then its parts
go. Memory does not grow with the dataset.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ..errors import UnbraidError
from ..version import __version__
from . import jsonl
from .part import Part
from .rows import Counts, Parsing
from .workers import UNFINISHED, Workers, kind_of

PARTS = ".parts"
"""What the name of the folder with the parts ends with."""
_JOB = "job.json"
_SUFFIXES = (".parquet", ".pq", *jsonl.SUFFIXES)
_PART_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is."""

    share: float
    """Of all files together, by their size."""
    counts: Counts
    """What this run has parsed."""
    kept: int
    """Rows that an earlier run had parsed."""


def columns_of(source: Path) -> list[str]:
    """The columns that may hold outputs, of the first file."""
    first = _files(source)[0]
    found: list[str] = kind_of(first).columns(first)
    return found


def run(
    source: Path,
    target: Path,
    parsing: Parsing,
    *,
    processes: int | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
    part_bytes: int = _PART_BYTES,
) -> Progress:
    """Parse a file, or all files of a folder. Raises `UnbraidError`; what is done by then is kept.

    processes: how many parse; by default one for each core.
    part_bytes: about how much one of them takes at a time.
    """
    if target.resolve().is_relative_to(source.resolve()):
        raise UnbraidError(f"--out {target} is the dataset itself or lies in it: give another place")
    files = {path: _target(path, source, target) for path in _files(source)}
    for path, written in files.items():
        if path.suffix != written.suffix:
            raise UnbraidError(f"{path} stays what it is: give an --out that ends with {path.suffix}")
        kind_of(path).check(path, parsing)
    kept = target.with_name(target.name + PARTS)
    _claim(kept, source, files, target, f"{parsing.fingerprint()} {part_bytes}")
    sizes = {path: path.stat().st_size for path in files}
    total = max(1, sum(sizes.values()))
    told = Progress(0.0, Counts(), 0)
    before = 0
    with Workers(parsing, processes or cores()) as workers:
        for number, (path, written) in enumerate(files.items()):
            if not written.exists():
                for share, counts, already in _parse(
                    path, written, kept / f"{number:06}", parsing, workers, part_bytes
                ):
                    told = Progress((before + share * sizes[path]) / total, told.counts + counts, told.kept + already)
                    progress(told)
            before += sizes[path]
    shutil.rmtree(kept)
    return Progress(1.0, told.counts, told.kept)


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
    found = sorted(path for path in source.rglob("*") if path.suffix in _SUFFIXES and path.is_file())
    # As Arrow reads folders: what is hidden or set apart is no data.
    found = [path for path in found if not any(part[0] in "._" for part in path.relative_to(source).parts)]
    if not found:
        raise UnbraidError(f"the folder {source} has no files that end with {', '.join(_SUFFIXES)}")
    return found


def _target(path: Path, source: Path, target: Path) -> Path:
    return target / path.relative_to(source) if source.is_dir() else target


def _claim(kept: Path, source: Path, files: dict[Path, Path], target: Path, how: str) -> None:
    """Begin a job, or go on with one that is the same."""
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
    unfinished = kept / (_JOB + UNFINISHED)
    unfinished.write_text(json.dumps(job), encoding="utf-8")
    os.replace(unfinished, kept / _JOB)


def _parse(
    path: Path, target: Path, kept: Path, parsing: Parsing, workers: Workers, part_bytes: int
) -> Iterator[tuple[float, Counts, int]]:
    """One file. Says how much of it is done, what was found since, and how many rows were there already."""
    kind = kind_of(path)
    kept.mkdir(exist_ok=True)
    names: list[str] = []
    already = [0]

    def missing() -> Iterator[tuple[Part, Path]]:
        with closing(kind.parts(path, part_bytes)) as parts:
            for part in parts:
                names.append(part.name + path.suffix)
                if (kept / names[-1]).exists():
                    already[0] += part.rows
                else:
                    yield part, kept / names[-1]

    share = 0.0
    for part, counts in workers.parse(path.suffix, missing()):
        share = max(share, part.done)
        yield share, counts, already[0]
        already[0] = 0
    yield 1.0, Counts(), already[0]
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}{UNFINISHED}")  # hidden: readers of the folder leave it out
    kind.put_together(path, parsing, [kept / name for name in names], unfinished)
    os.replace(unfinished, target)
    shutil.rmtree(kept)
