"""One of the systems that `transcribe.py` measures, in a process of its own and with the libraries of its own.

    python bench/transcribe_worker.py '{"kind": "unbraid", "weights": FOLDER, "threads": 2, "asked": {}}'

Says when it is ready; then each line that it reads, {"path", "language", "words"}, gives one that it writes. `asked` is
passed on to the library as it is, so that nothing means the library's own defaults.
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

Words = list[tuple[str, float, float]]
Answer = tuple[str, Words, str | None]
"""The text, its words with their times if they were wanted, and the language; None where nothing was heard."""
System = Callable[[str, str | None, bool], Answer]
"""From a file, the language if it is given, and whether times of words are wanted, to what is heard."""


def unbraid(options: dict[str, Any]) -> System:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from unbraid.speech.audio.decode import read
    from unbraid.speech.audio.vad import SpeechDetector
    from unbraid.speech.options import TranscriptionOptions
    from unbraid.speech.transcriber import Transcriber
    from unbraid.speech.whisper.files import resolve_whisper
    from unbraid.speech.whisper.listener import WhisperEngine

    engine = WhisperEngine(resolve_whisper(Path(options["weights"])), threads=options["threads"])
    transcriber = Transcriber(engine, detector=SpeechDetector(Path(options["vad"])) if options["vad"] else None)
    runner = asyncio.Runner()

    def hear(path: str, language: str | None, words: bool) -> Answer:
        wanted = TranscriptionOptions(language=language, timestamps=words, words=words, **options["asked"])
        found = runner.run(transcriber.transcribe(read(path), wanted))
        timed = [(word.text, word.start, word.end) for segment in found.segments for word in segment.words]
        return found.text, timed, found.language

    return hear


def whisper_cpp(options: dict[str, Any]) -> System:
    library: Any = importlib.import_module("pywhispercpp.model")
    core: Any = importlib.import_module("_pywhispercpp")
    asked = dict(options["asked"])
    strategy = asked.pop("params_sampling_strategy", 0)
    model = library.Model(
        options["weights"],
        params_sampling_strategy=strategy,
        redirect_whispercpp_logs_to=None,
        n_threads=options["threads"],
        print_progress=False,
        **asked,
    )

    def hear(path: str, language: str | None, words: bool) -> Answer:
        # The way that its documentation has for words: segments of one.
        times = {"token_timestamps": words, "max_len": int(words), "split_on_word": words}
        said = model.transcribe(path, language=language or "auto", **times)
        language = core.whisper_lang_str(core.whisper_full_lang_id(model._ctx))
        timed = [(segment.text, segment.t0 / 100, segment.t1 / 100) for segment in said] if words else []
        return " ".join(segment.text for segment in said), timed, language

    return hear


def faster_whisper(options: dict[str, Any]) -> System:
    library: Any = importlib.import_module("faster_whisper")
    model = library.WhisperModel(
        options["weights"], device="cpu", compute_type=options["compute"], cpu_threads=options["threads"]
    )

    def hear(path: str, language: str | None, words: bool) -> Answer:
        wanted = options["asked"] | ({"language": language} if language else {})
        segments, told = model.transcribe(path, word_timestamps=words, **wanted)
        said = list(segments)
        timed = [(word.word, float(word.start), float(word.end)) for segment in said for word in segment.words or ()]
        return " ".join(segment.text for segment in said), timed, told.language

    return hear


KINDS: dict[str, tuple[Callable[[dict[str, Any]], System], tuple[str, ...]]] = {
    "unbraid": (unbraid, ("onnxruntime",)),
    "whisper.cpp": (whisper_cpp, ("pywhispercpp",)),
    "faster-whisper": (faster_whisper, ("faster-whisper", "ctranslate2")),
}
"""What loads each, and the packages whose versions matter."""


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
        text, words, language = hear(job["path"], job["language"], job["words"])
        seconds, cpu = time.perf_counter() - start, time.process_time() - used
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # of the process, up to now
        answer(seconds=seconds, cpu=cpu, memory=memory, text=text, words=words, language=language)


if __name__ == "__main__":
    main()
