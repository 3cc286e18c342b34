"""How often a greedy output that moves to another replica is the one of an undisturbed run.

python bench/moves.py [--model MODEL] [--sglang URL | --vllm URL | --llama-cpp URL] [--tokens 96]

A moved output goes on from the same ids, in a prompt that ends with them. An engine reads these ids in one go where it
had written them one by one, and may round differently. So what follows can differ where two tokens are about as likely.
Each prompt is answered once, and again from each cut on. The engine is llama.cpp in this process, or a server.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import aclosing
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from unbraid.engines import Engine, EngineError, Generation, Piece, Sampling
from unbraid.engines.routing.partial_output import PartialOutput
from unbraid.engines.table import ENGINES

CUTS = (1, 8, 24, 48)
QUESTIONS = (
    "Name three colours.",
    "Tell me a short story about a fox.",
    "Why is the sky blue?",
    "Write a haiku about the sea.",
    "List the planets of the solar system.",
    "Explain what a queue is to a child.",
    "Give a recipe for pancakes.",
    "What is the difference between a list and a set?",
)
PROMPT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


async def ids_of(outputs: Any) -> tuple[int, ...]:
    async with aclosing(outputs):
        return tuple([token async for output in outputs if isinstance(output, Piece) for token in output.ids])


async def moved(engine: Engine, request: Generation, ids: tuple[int, ...]) -> tuple[int, ...]:
    """What comes after the first ids, from an engine that is given them."""
    output = PartialOutput(request)
    output.note(Piece(ids))
    return await ids_of(output.rest(engine))


async def measure(engine: Engine, encode: Any, tokens: int) -> None:
    greedy = Sampling(temperature=0.0)
    prompts = [tuple(encode(PROMPT.format(question))) for question in QUESTIONS]
    requests = [Generation(prompt=prompt, sampling=greedy, max_tokens=tokens) for prompt in prompts]
    wholes = [await ids_of(engine.generate(request)) for request in requests]
    same = count = 0
    places: list[int] = []
    for cut in CUTS:  # question after question: what an engine keeps of one is gone when it comes again
        before = same, count
        for request, whole in zip(requests, wholes, strict=True):
            if cut < len(whole):
                rest = await moved(engine, request, whole[:cut])
                count += 1
                same += rest == whole[cut:]
                if rest != whole[cut:]:
                    pairs = enumerate(zip(whole[cut:], rest, strict=False))
                    places.append(next((at for at, (one, other) in pairs if one != other), len(rest)))
        print(f"moved after {cut:2} tokens: {same - before[0]} of {count - before[1]} are the same to the end")
    others = f"; the others differ {median(places):g} tokens after the move (median)" if places else ""
    print(f"all: {same} of {count}{others}")


async def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model")
    options.add_argument("--tokens", type=int, default=96)
    options.add_argument("--tokenizer", help="a folder, a file or ORG/REPO, for a server")
    for name in ("vllm", "sglang", "llama_cpp"):
        options.add_argument("--" + name.replace("_", "-"), metavar="URL")
    arguments = options.parse_args()
    server = next((name for name in ("vllm", "sglang", "llama_cpp") if getattr(arguments, name)), None)
    engine: Any
    encode: Any
    if server is None:
        from unbraid.engines.llama_cpp.embedded import EmbeddedEngine

        engine = EmbeddedEngine(*([arguments.model] if arguments.model else []), context=1024, parallel=1)
        encode = partial(engine.vocabulary.encode, special=True)
    else:
        from unbraid.templates import encoder, load_tokenizer

        files = load_tokenizer(arguments.tokenizer)
        texts = encoder(files.tokenizer)
        make = ENGINES[server].servers
        assert make is not None
        engine = make()([getattr(arguments, server)], model=arguments.model, vocabulary=texts.vocabulary)
        encode = lambda text: texts.encode(texts.controls.mark_all(text))  # noqa: E731
    try:
        await measure(engine, encode, arguments.tokens)
    except EngineError as error:
        sys.exit(str(error))
    finally:
        await engine.close()


if __name__ == "__main__":
    asyncio.run(main())
