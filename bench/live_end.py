"""How long after the end of speech its last words are there: unbraid, WhisperLiveKit and whisper.cpp's stream.

    python bench/live_end.py                        # tiny and base
    python bench/live_end.py --model whisper-tiny
    python bench/live_end.py --ours                 # without the others

People's recordings are spoken at their own pace, and work takes its CPU time, with one thread (`live_clock`,
`live_peer.py`), so that other work on the machine makes no difference. unbraid is told that the speech has ended, as a
client of `/v1/realtime` or its voice detector does; WhisperLiveKit (LocalAgreement on faster-whisper, its server's
loop) is told so by the end of the stream. whisper.cpp's `stream` is never told: its loop with its defaults (a pass
each 3 s over 10 s at most) goes on with silence. *Wrong* are words of what each had written in the end. Of tiny the
others have the weights that OpenAI published, of base ours, rounded to 8 bits.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import peers
from live import NAMES, Told, ours
from live_clock import TimedListener, VirtualLoop, run
from peers import Peer, PeerMissing
from transcribe_systems import _WHISPER_CPP, _ctranslate2, _ggml

from tests.speech.audio.detectors import detector
from tests.speech.whisper.whisper_models import files
from tests.speech.word_errors import word_errors, words
from tests.support.real_speech import Recording, recording
from unbraid.speech.transcriber import Transcriber
from unbraid.speech.whisper.listener import WhisperEngine

_WORKER = Path(__file__).with_name("live_peer.py")
_LIVE_KIT = Peer(
    "WhisperLiveKit",
    "UNBRAID_BENCH_WHISPERLIVEKIT_PYTHON",
    _WORKER.name,
    (("install", "whisperlivekit==0.2.26"),),
)
_PEERS = (("WhisperLiveKit", _LIVE_KIT, _ctranslate2), ("whisper.cpp, stream", _WHISPER_CPP, _ggml))
Heard = tuple[str, float, float]
"""The text, when its last words were there, and the CPU time that all of it took."""


async def unbraid(model: str, spoken: list[Recording]) -> list[Heard]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    listener = TimedListener(WhisperEngine(files(model), threads=1))
    transcriber = Transcriber(listener, detector=detector())
    heard: list[Heard] = []
    for one in spoken:
        told: list[Told] = []
        begun, spent = loop.time(), listener.spent
        text, _ = await ours(transcriber, one, told)
        heard.append((text, told[-1].at - begun, listener.spent - spent))
    await listener.close()
    return heard


def peer(kind: str, one: Peer, weights: Path, spoken: list[Recording]) -> list[Heard]:
    python = str(peers.interpreter(one))
    job = json.dumps({"kind": kind, "weights": str(weights), "paths": [str(each.path) for each in spoken]})
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run([python, str(_WORKER), job], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise PeerMissing(" | ".join(done.stderr.strip().splitlines()[-2:]))
    return [tuple(each) for each in json.loads(done.stdout.splitlines()[-1])]


def line(name: str, model: str, spoken: list[Recording], heard: list[Heard]) -> str:
    late = [at - one.seconds for one, (_, at, _) in zip(spoken, heard, strict=True)]
    wrong = sum(word_errors(one.transcript or "", text) for one, (text, _, _) in zip(spoken, heard, strict=True))
    said = sum(len(words(one.transcript or "")) for one in spoken)
    cost = sum(cpu for _, _, cpu in heard) / sum(one.seconds for one in spoken)
    return f"| {name} | {model} | {median(late):.1f} s | {max(late):.1f} s | {wrong} of {said} | {cost:.2f} |"


def main(models: list[str], with_peers: bool) -> None:
    spoken = [recording("en", name) for name in NAMES]
    print("| | model | last words after the end: median | latest | words wrong | CPU s a second |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for model in models:
        print(line("unbraid", model, spoken, run(unbraid(model, spoken))), flush=True)
        for name, one, weights in _PEERS if with_peers else ():
            try:
                print(line(name, model, spoken, peer(name, one, weights(model), spoken)), flush=True)
            except PeerMissing as missing:
                print(f"| {name} | {model} | not measured: {missing} | | | |", flush=True)
    if with_peers:
        print("| speaches | | not measured: no package registry has it | | | |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("whisper-tiny", "whisper-base"), help="this one only")
    parser.add_argument("--ours", action="store_true", help="unbraid only")
    options = parser.parse_args()
    main([options.model] if options.model else ["whisper-tiny", "whisper-base"], not options.ours)
