"""One of the systems that `transcribe.py` measures, in a process of its own and with the libraries of its own.

    python bench/transcribe_worker.py '{"kind": "unbraid", "weights": FOLDER, "threads": 2}'

Says when it is ready; then each line that it reads, {"path", "language", "times"}, gives one that it writes. All read
the same wav files, decode greedily, at temperature 0 and once, and take nothing over from one chunk to the next.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

BATCH = 4
"""Chunks at once, where a system can do several: as many as we take by default."""

ListenEnd = tuple[str, str | None]
"""The text, and the language; None where nothing was heard."""
System = Callable[[str, str | None, bool], ListenEnd]
"""From a file, the language if it is given, and whether times are wanted, to what is heard."""


def unbraid(options: dict[str, Any]) -> System:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from unbraid.speech.audio.decode import read
    from unbraid.speech.options import TranscriptionOptions
    from unbraid.speech.transcriber import Transcriber
    from unbraid.speech.whisper.files import resolve_whisper
    from unbraid.speech.whisper.listener import WhisperEngine

    files = resolve_whisper(Path(options["weights"]))
    transcriber = Transcriber(WhisperEngine(files, threads=options["threads"], parallel=BATCH))
    runner = asyncio.Runner()

    def hear(path: str, language: str | None, times: bool) -> ListenEnd:
        options = TranscriptionOptions(language=language, timestamps=times, temperature=0.0)
        found = runner.run(transcriber.transcribe(read(path), options))
        return found.text, found.language

    return hear


def whisper_cpp(options: dict[str, Any]) -> System:
    library: Any = importlib.import_module("pywhispercpp.model")
    core: Any = importlib.import_module("_pywhispercpp")
    split: int | None = options.get("split")  # into how many parts a recording is cut; they share the threads
    threads = max(1, options["threads"] // (split or 1))
    model = library.Model(
        options["weights"],
        redirect_whispercpp_logs_to=None,
        n_threads=threads,
        no_context=True,
        suppress_nst=True,  # as the others do
        greedy={"best_of": 1},
        temperature=0.0,
        temperature_inc=0.0,
        print_progress=False,
        print_realtime=False,
    )

    def hear(path: str, language: str | None, times: bool) -> ListenEnd:
        said = model.transcribe(path, n_processors=split, language=language or "auto", no_timestamps=not times)
        language = core.whisper_lang_str(core.whisper_full_lang_id(model._ctx))
        return " ".join(segment.text for segment in said), language

    return hear


def faster_whisper(options: dict[str, Any]) -> System:
    library: Any = importlib.import_module("faster_whisper")
    model = library.WhisperModel(
        options["weights"], device="cpu", compute_type=options["compute"], cpu_threads=options["threads"], num_workers=1
    )
    batched = {"batch_size": BATCH} if options.get("batched") else {}  # it cuts at pauses, which another model finds
    system = library.BatchedInferencePipeline(model) if batched else model

    def hear(path: str, language: str | None, times: bool) -> ListenEnd:
        segments, told = system.transcribe(
            path,
            language=language,
            beam_size=1,
            best_of=1,
            temperature=0.0,
            without_timestamps=not times,
            condition_on_previous_text=False,
            **batched,
        )
        return " ".join(segment.text for segment in segments), told.language

    return hear


KINDS: dict[str, tuple[Callable[[dict[str, Any]], System], tuple[str, ...]]] = {
    "unbraid": (unbraid, ("onnxruntime",)),
    "whisper.cpp": (whisper_cpp, ("pywhispercpp",)),
    "faster-whisper": (faster_whisper, ("faster-whisper", "ctranslate2")),
}
"""What loads each, and the packages whose versions matter."""


def most_memory() -> int:
    """The most that this process has had, in bytes."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    # `ru_maxrss` on Linux begins with what the parent had when it started us.
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the libraries print is no answer

    def answer(**said: Any) -> None:
        answers.write(json.dumps(said) + "\n")
        answers.flush()

    options = json.loads(sys.argv[1])
    load, packages = KINDS[options["kind"]]
    hear = load(options)
    answer(versions={name: version(name) for name in packages})
    for line in sys.stdin:
        job = json.loads(line)
        start, used = time.perf_counter(), time.process_time()
        text, language = hear(job["path"], job["language"], job["times"])
        seconds, cpu = time.perf_counter() - start, time.process_time() - used
        answer(seconds=seconds, cpu=cpu, text=text, language=language, memory=most_memory())


if __name__ == "__main__":
    main()
