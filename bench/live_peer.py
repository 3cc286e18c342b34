"""What `live_end.py` runs in a peer's interpreter: recordings spoken to WhisperLiveKit, or to whisper.cpp's stream.

Nothing of unbraid is imported. Time is virtual: sound comes at its own pace, and work takes its CPU time. The answer is
JSON on the last line: for each recording its text, when the last words of it were there, and the CPU time.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import wave
from collections.abc import Callable
from typing import Any

RATE = 16_000
_CHUNK = RATE // 10  # WhisperLiveKit's least new sound
_STEP, _LENGTH, _KEEP = 3 * RATE, 10 * RATE, RATE // 5  # whisper.cpp's stream
_MOST_TOKENS = 32
Heard = tuple[str, float, float]


def samples_of(path: str) -> Any:
    numpy: Any = importlib.import_module("numpy")
    with wave.open(path) as file:
        rate, data = file.getframerate(), file.readframes(file.getnframes())
    sound = numpy.frombuffer(data, "<i2").astype(numpy.float32) / 32768
    if rate == RATE:
        return sound
    places = numpy.arange(len(sound) * RATE // rate) * (rate / RATE)
    return numpy.interp(places, numpy.arange(len(sound)), sound).astype(numpy.float32)


def live_kit(weights: str) -> Callable[[Any], Heard]:
    backends: Any = importlib.import_module("whisperlivekit.local_agreement.backends")
    online: Any = importlib.import_module("whisperlivekit.local_agreement.online_asr")
    asr = backends.FasterWhisperASR(lan="auto", model_dir=weights)
    for name, value in {
        "tokenizer": None,
        "confidence_validation": False,
        "buffer_trimming": "segment",
        "buffer_trimming_sec": 15.0,
    }.items():  # as its server sets them
        setattr(asr, name, value)

    def hear(sound: Any) -> Heard:
        processor = online.OnlineASRProcessor(asr)
        now = last = cpu = 0.0
        taken, words = 0, []
        while taken < len(sound):
            now = max(now, min(len(sound), taken + _CHUNK) / RATE)
            end = min(len(sound), int(now * RATE) + 1)
            processor.insert_audio_chunk(sound[taken:end])
            taken, start = end, time.process_time()
            tokens, _ = processor.process_iter()
            cpu += time.process_time() - start
            now += time.process_time() - start
            words += tokens
            last = now if tokens else last
        rest, _ = processor.finish()
        return "".join(token.text for token in [*words, *rest]), now if rest else last, cpu

    return hear


def stream(weights: str) -> Callable[[Any], Heard]:
    numpy: Any = importlib.import_module("numpy")
    library: Any = importlib.import_module("pywhispercpp.model")
    model = library.Model(
        weights,
        redirect_whispercpp_logs_to=None,
        n_threads=1,
        print_progress=False,
        single_segment=True,
        no_context=True,
        max_tokens=_MOST_TOKENS,
    )

    def hear(sound: Any) -> Heard:
        whole = numpy.concatenate([sound, numpy.zeros(2 * _STEP, numpy.float32)])
        old = numpy.zeros(0, numpy.float32)
        now = last = cpu = 0.0
        taken = passes = 0
        lines = [""]
        while taken < len(sound):
            now = max(now, (taken + _STEP) / RATE)
            new = whole[taken : int(now * RATE)]
            taken += len(new)
            if len(new) > 2 * _STEP:  # it says that it cannot keep up, and drops the sound
                continue
            kept = min(len(old), max(0, _KEEP + _LENGTH - len(new)))
            old = numpy.concatenate([old[len(old) - kept :], new])
            start = time.process_time()
            said = " ".join(segment.text for segment in model.transcribe(old, language="auto"))
            cpu += time.process_time() - start
            now += time.process_time() - start
            last = last if said == lines[-1] else now
            lines[-1] = said
            passes += 1
            if passes % (_LENGTH // _STEP - 1) == 0:
                lines.append("")
                old = old[-_KEEP:]
        return " ".join(lines), last, cpu

    return hear


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the libraries print is no answer
    job = json.loads(sys.argv[1])
    hear = (live_kit if job["kind"] == "WhisperLiveKit" else stream)(job["weights"])
    hear(samples_of(job["paths"][0])[: 4 * RATE])  # all that is made once is made
    print(json.dumps([hear(samples_of(path)) for path in job["paths"]]), file=answers)


if __name__ == "__main__":
    main()
