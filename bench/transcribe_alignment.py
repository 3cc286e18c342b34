"""When each word of a recording begins, by a forced alignment that has nothing to do with Whisper: PocketSphinx, with
the acoustic model of American English in its package.

    python bench/transcribe_alignment.py JOB.json     # in an environment with pocketsphinx: [[wav, text], …]

It is told the words, and finds where they are. A recording with a word that its dictionary lacks has no times.
"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import tempfile
import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_FRAME = 0.01  # seconds
_NO_WORD = re.compile(r"<.*>|\[.*\]")

Starts = list[tuple[str, float | None]]


def aligned(recordings: Sequence[tuple[Path, str]]) -> list[Starts]:
    """The words of each recording with their starts; None where they are not known."""
    import peers

    peer = peers.Peer(
        "pocketsphinx", "UNBRAID_BENCH_POCKETSPHINX_PYTHON", Path(__file__).name, (("install", "pocketsphinx==5.1.1"),)
    )
    try:
        python = peers.interpreter(peer)
    except peers.PeerMissing as missing:
        print(f"going on without times of words: {missing}", file=sys.stderr)
        return [[(word, None) for word in _words(text)] for _, text in recordings]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as job:
        json.dump([(str(path), text) for path, text in recordings], job)
        job.flush()
        done = subprocess.run([str(python), __file__, job.name], capture_output=True, text=True, check=True)
    return [[(word, start) for word, start in found] for found in json.loads(done.stdout)]


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def _align(decoder: Any, path: str, words: list[str]) -> Starts:
    if any(decoder.lookup_word(word) is None for word in words):
        return [(word, None) for word in words]
    with wave.open(path) as file:
        samples = file.readframes(file.getnframes())
    decoder.set_align_text(" ".join(words))
    decoder.start_utt()
    decoder.process_raw(samples, full_utt=True)
    decoder.end_utt()
    segments = [segment for segment in decoder.seg() or () if not _NO_WORD.fullmatch(segment.word)]
    if len(segments) != len(words):
        return [(word, None) for word in words]
    return [(word, segment.start_frame * _FRAME) for word, segment in zip(words, segments, strict=True)]


def main() -> None:
    decoder = importlib.import_module("pocketsphinx").Decoder(loglevel="FATAL")
    recordings = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    print(json.dumps([_align(decoder, path, _words(text)) for path, text in recordings]))


if __name__ == "__main__":
    main()
