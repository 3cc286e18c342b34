"""From the first sentence that a model has written to the first sound of it, in a conversation by voice.

    python bench/first_sound.py [--threads 1] [--rounds 3]

A server with Kokoro, a client of `/v1/realtime`, and a model that writes a first sentence of some length and then a
second one. The clock starts when the model has written the end of the first sentence, and stops when the client has the
first sound. `CPU` is the processor time of the whole process meanwhile, which on a quiet machine with one thread is
how long it takes; other work on the machine makes no difference to it. `sound` is how long the first sentence is heard:
while it is, the second one is made.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import sys
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pytest

from tests.server.realtime.support import Client, connected, user
from tests.speech.synthesis.kokoro_models import kokoro_files
from tests.support.running_server import service_of, serving
from unbraid.engines import Finish, Generation, Piece
from unbraid.engines.replay import ReplayEngine, script
from unbraid.speech.synthesis.kokoro import RATE, KokoroSpeaker

FIRST = (
    "Yes.",
    "The capital of France is Paris.",
    "The weather is fine in Paris today, so that we could go for a walk along the river.",
)
SECOND = " It is a very old city, and it lies on the river."
_BYTES = 2  # a sample


@dataclass(frozen=True)
class Clock:
    """A moment, by the processor time of this process and by the wall."""

    cpu: float
    wall: float

    @classmethod
    def now(cls) -> Clock:
        return cls(time.process_time(), time.perf_counter())


class Writer(ReplayEngine):
    """Writes a first sentence and a second one, and notes when it has begun the second: only then is the first over."""

    def __init__(self) -> None:
        super().__init__([script(first + SECOND, chunks=4) for first in FIRST], repeat=True)
        self.first = ""
        self.written: Clock | None = None

    async def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        text = ""
        self.written = None
        async for output in super().generate(request):
            text += (output.text or "") if isinstance(output, Piece) else ""
            if self.written is None and len(text) > len(self.first):
                self.written = Clock.now()
            yield output


async def heard(client: Client, writer: Writer, first: str) -> tuple[float, float, float]:
    """Seconds of CPU time and of the wall until the first sound, and the length of the first sentence's sound."""
    writer.first = first
    await client.send("conversation.item.create", item=user("Hi"))
    await client.send("response.create", response={})
    now: Clock | None = None
    sentences = count = 0
    while (event := json.loads(await client.socket.recv()))["type"] != "response.done":  # however long it takes
        sentences += event["type"] == "response.output_audio_transcript.delta"
        if event["type"] == "response.output_audio.delta":
            now = now or Clock.now()
            count += len(base64.b64decode(event["delta"])) if sentences < 2 else 0
    begun = writer.written
    if now is None or begun is None:
        raise SystemExit(f"nothing was heard: {event}")
    return now.cpu - begun.cpu, now.wall - begun.wall, count / _BYTES / RATE


async def measure(threads: int, rounds: int) -> None:
    writer = Writer()
    speaker = KokoroSpeaker(kokoro_files(), threads=threads)
    made = service_of(writer, "hermes", names=("writer",), speaker=speaker, speaker_names=("kokoro",))
    with serving(made) as running:
        async with connected(running, "?model=writer", ping_timeout=None) as client:
            for first in FIRST:  # all that is made once is made
                await heard(client, writer, first)
            found = [[await heard(client, writer, first) for first in FIRST] for _ in range(rounds)]
    print(f"threads: {threads}; rounds: {rounds}\n\n| first sentence | CPU (s) | wall (s) | sound (s) |")
    print("| --- | ---: | ---: | ---: |")
    for first, *each in zip(FIRST, *found, strict=True):
        cells = (f"{median(column):.2f}" for column in zip(*each, strict=True))
        print(f"| {first} | {' | '.join(cells)} |")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--threads", type=int, default=1, help="how many threads Kokoro computes with")
    arguments.add_argument("--rounds", type=int, default=3)
    options = arguments.parse_args()
    try:
        asyncio.run(measure(options.threads, options.rounds))
    except pytest.skip.Exception as missing:
        raise SystemExit(f"nothing is measured: {missing}") from None


if __name__ == "__main__":
    main()
