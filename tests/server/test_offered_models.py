"""A server that would serve the small default model says which larger ones are on this machine."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from unbraid.engines.base import EngineFailed
from unbraid.server.loading.engine import load_engine
from unbraid.server.settings import Settings


@pytest.mark.parametrize("model", [None, "smollm2-135m-instruct"])
def test_larger_models_are_offered(
    model: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise EngineFailed("no model is loaded here")

    pytest.importorskip("xllamacpp")
    monkeypatch.setattr("unbraid.engines.llama_cpp.embedded.EmbeddedEngine", refuse)
    monkeypatch.setattr(
        "unbraid.engines.llama_cpp.embedded.offer",
        lambda than: "larger models are on this machine: --model ollama:qwen3:8b",
    )
    with caplog.at_level(logging.INFO), pytest.raises(EngineFailed):
        asyncio.run(load_engine(Settings(model=model)))
    assert ("--model ollama:qwen3:8b" in caplog.text) is (model is None)
