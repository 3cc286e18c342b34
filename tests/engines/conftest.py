"""The embedded engine that its tests share, and how large it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from ..support.embedded_model import smollm2

if TYPE_CHECKING:
    from unbraid.engines.llama_cpp.embedded import EmbeddedEngine

CONTEXT = 272
PARALLEL = 4
QUEUE = 3


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    from unbraid.engines.llama_cpp.embedded import EmbeddedEngine  # not where llama.cpp is not installed

    made = EmbeddedEngine(smollm2(), context=CONTEXT, parallel=PARALLEL, queue=QUEUE, threads=1, name="smollm2")
    yield made
    made.shut()


def chat(engine: EmbeddedEngine, text: str) -> tuple[int, ...]:
    encode = engine.vocabulary.encode
    before, after = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
    return (*encode(before, special=True), *encode(text), *encode(after, special=True))
