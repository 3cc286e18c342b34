"""How fast llama.cpp inside the process reads prompts, and what of a prompt it need not read again.

    python bench/prompts.py                          # the default model
    python bench/prompts.py a.gguf b.gguf            # other files, such as other quantisations of one model
    python bench/prompts.py --batch 64 --batch 512

Tokens are counted for each second of CPU time of one thread, so that other work on the machine matters little. The last
column is the share of a prompt that comes from the cache, for a second conversation with the same tools and another
question.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time

from unbraid.engines import Finish, Generation, Sampling
from unbraid.engines.llama_cpp.embedded import EmbeddedEngine
from unbraid.models import DEFAULT

WORDS = " ".join(f"word {number} and more of the same text" for number in range(12))
PARAMETERS = {"properties": {"query": {"type": "string"}, "limit": {"type": "integer"}}}
TOOLS = json.dumps([{"name": f"tool_{number}", "parameters": PARAMETERS} for number in range(4)])
GENERATED = 16


def main() -> None:
    command = argparse.ArgumentParser(description="How fast prompts are read.")
    command.add_argument("models", nargs="*", default=[DEFAULT])
    command.add_argument("--batch", type=int, action="append")
    arguments = command.parse_args()
    print(f"{'model':40} {'batch':>5} {'prompt/s':>9} {'output/s':>9} {'cached':>7}")
    for model in arguments.models:
        for batch in arguments.batch or [64]:
            asyncio.run(measure(model, batch))


async def measure(model: str, batch: int) -> None:
    engine = EmbeddedEngine(model, context=2048, parallel=2, batch=batch, threads=1)
    try:
        encode = engine.vocabulary.encode
        await spent(engine, encode("Hello"), 1)  # what is made once is made
        prompt = encode(WORDS)
        read, _ = await spent(engine, prompt, 1)
        wrote, _ = await spent(engine, encode("Hi"), GENERATED)
        await spent(engine, encode(f"{TOOLS}\nWhat is the weather in Paris?"), 1)
        again = encode(f"{TOOLS}\nWho wrote Faust?")
        _, cached = await spent(engine, again, 1)
        speeds = f"{len(prompt) / read:9.1f} {GENERATED / wrote:9.1f} {cached / len(again):7.0%}"
        print(f"{engine.files.gguf.name[:40]:40} {batch:5} {speeds}", flush=True)
    finally:
        await engine.close()


async def spent(engine: EmbeddedEngine, prompt: list[int], most: int) -> tuple[float, int]:
    """The CPU seconds for a prompt and `most` tokens of output, and how many of the prompt's were cached."""
    cached = 0
    begun = time.process_time()
    asked = Generation(prompt=tuple(prompt), sampling=Sampling(temperature=0), max_tokens=most)
    async for piece in engine.generate(asked):
        if isinstance(piece, Finish):
            cached = piece.cached_tokens
    return time.process_time() - begun, cached


if __name__ == "__main__":
    main()
