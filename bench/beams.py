"""What a step of Whisper's decoder costs with five beams, in milliseconds of processor time of one thread.

    python bench/beams.py [whisper-tiny whisper-base]

`copies` is a decoder whose beams have a copy each of the recording's keys and values, as published graphs need it;
`shared` is ours (`unbraid/speech/whisper/graphs.py`). `choosing` is the search among the tokens of all beams, and
`sorting` the same with the vocabulary sorted for each beam.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import pytest

from tests.speech.whisper.whisper_models import files, prompt, tokenizer, tokens
from unbraid.constraints.printers.token_sets import TokenSets
from unbraid.speech.decoding import beams
from unbraid.speech.decoding.sampling import Logits
from unbraid.speech.onnx.runtime import Floats
from unbraid.speech.whisper.features import log_mels
from unbraid.speech.whisper.model import WhisperModel
from unbraid.speech.whisper.rules import WhisperRules
from unbraid.speech.whisper.tokens import WhisperVocabulary

WIDTH = 5
STEPS, TIMES = 30, 3
_FIRST = 400  # any tokens will do


def took(work: Callable[[], object]) -> float:
    """Milliseconds of processor time for each step of `work`, which does `STEPS`; the median of several times."""
    found = []
    for _ in range(TIMES):
        start = time.process_time()
        work()
        found.append((time.process_time() - start) / STEPS * 1e3)
    return median(found)


def stepped(model: WhisperModel, encoded: Any, name: str, rows: int, *, shared: bool) -> float:
    model._decoder.shares_audio = shared
    state = model.select(model.begin(encoded, np.array([prompt(tokens(name))]), attentions=True), [0] * rows)

    def work() -> None:
        moved = model.select(state, range(rows))
        for at in range(STEPS):
            model.step(moved, np.arange(rows) + _FIRST + at)

    return took(work)


def chosen(model: WhisperModel, name: str) -> float:
    rules = WhisperRules.of(WhisperVocabulary(tokenizer(name)), model.files.config, model.files.generation_config)
    rng = np.random.default_rng(0)
    logits: list[Floats] = [
        (3 * rng.standard_normal((WIDTH, model.vocabulary_size))).astype(np.float32) for _ in range(STEPS)
    ]

    def work() -> None:
        decoding = beams.BeamDecoding(rules, TokenSets(()), True, 0.0, 400, rng, width=WIDTH)
        decoding.step(logits[0][:1])
        for each in logits:
            decoding.step(each)

    return took(work)


def sorted_for(logits: Logits, count: int) -> Any:
    return np.argpartition(-logits, count)[:count]


def measure(name: str) -> None:
    model = WhisperModel(files(name), threads=1)
    sound = (0.05 * np.random.default_rng(0).standard_normal(160_000)).astype(np.float32)
    encoded = model.encode(log_mels([sound], model.bins))
    rows = {
        "the decoder, 1 row": stepped(model, encoded, name, 1, shared=True),
        f"the decoder, {WIDTH} rows, copies": stepped(model, encoded, name, WIDTH, shared=False),
        f"the decoder, {WIDTH} rows, shared": stepped(model, encoded, name, WIDTH, shared=True),
        "choosing": chosen(model, name),
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(beams, "likeliest", sorted_for)
        rows["choosing, sorting"] = chosen(model, name)
    print(f"| {name} | ms |\n| --- | ---: |")
    for what, milliseconds in rows.items():
        print(f"| {what} | {milliseconds:.1f} |")
    print(flush=True)


def main() -> None:
    try:
        for name in sys.argv[1:] or ("whisper-tiny", "whisper-base"):
            measure(name)
    except pytest.skip.Exception as missing:
        raise SystemExit(f"nothing is measured: {missing}") from None


if __name__ == "__main__":
    main()
