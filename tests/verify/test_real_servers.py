"""`unbraid verify` against servers with a model: ours in all three APIs, llama.cpp's own, and vLLM with two parsers.

The model has 135 million weights and calls badly. So the verdicts here are about the servers: what only a server can
get wrong must be right in ours, and llama.cpp's is asked to the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from unbraid.verify.running import ProbeResult, verify
from unbraid.verify.server import VerifiedServer

from ..engines.vllm_process import skip_without_vllm, vllm_serve
from ..support.embedded_model import smollm2
from ..support.llama_cpp_process import LlamaCppProcess
from ..support.running_server import RunningServer, service_of, serving

pytestmark = pytest.mark.system

PROBES = ("required", "none", "cut call", "length", "round", "errors")
GREEDY = {"temperature": 0}


def verified(url: str, api: str) -> dict[str, ProbeResult]:
    server = VerifiedServer(url, dialect=api, extra=GREEDY, timeout=1200, max_tokens=64)
    results = {result.name: result for result in verify(server, probes=PROBES)}
    server.close()
    return results


@pytest.fixture(scope="module")
def ours() -> Iterator[RunningServer]:
    from unbraid.engines.llama_cpp.embedded import EmbeddedEngine

    engine = EmbeddedEngine(smollm2(), context=2048, name="smollm2")
    with serving(service_of(engine, "hermes", tokenizer=engine.vocabulary)) as running:
        yield running


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_ours_has_no_fault(ours: RunningServer, api: str) -> None:
    results = verified(ours.url, api)
    assert set(results) == set(PROBES)
    faults = {name: [each.fault for each in result.faults] for name, result in results.items() if result.faults}
    assert not faults
    assert {result.verdict for result in results.values()} == {"ok"}


def test_llama_cpp_is_asked_to_the_end() -> None:
    process = LlamaCppProcess(smollm2().gguf)
    try:
        process.wait()
        results = verified(process.url, "chat")
    finally:
        process.stop()
    assert set(results) == set(PROBES)
    assert results["length"].verdict == "ok", [each.fault for each in results["length"].faults]
    assert all(result.trials for result in results.values())


@pytest.mark.parametrize("parser", ["hermes", "unbraid-hermes"])
def test_vllm_is_asked_to_the_end(parser: str, tmp_path: Path) -> None:
    skip_without_vllm()
    flags = ["--enable-auto-tool-choice", f"--tool-call-parser={parser}"]
    with vllm_serve(2048, tmp_path, flags) as running:
        results = verified(running.url, "chat")
    assert set(results) == set(PROBES)
    assert results["length"].verdict == "ok", [each.fault for each in results["length"].faults]
    assert all(result.trials for result in results.values())
