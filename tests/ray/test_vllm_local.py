"""vLLM in the processes of Ray's replicas: a real vLLM, a real model, and a replica that is killed in the middle."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from ..clients.client_suite import (
    ANSWER,
    CONTEXT,
    ONE_CALL,
    QUESTION,
    WEATHER_QUESTION,
    arguments_of,
    both,
    chunks_of,
    seen,
)
from ..engines.vllm_model import checkpoint
from ..engines.vllm_process import ENVIRONMENT, arguments, skip_without_vllm
from .cluster import LONG, cluster, settings_for
from .mortal import BREAK, ORDER, MortalReplica

pytestmark = pytest.mark.system

pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'unbraid[ray]'")


@pytest.fixture(scope="module")
def order(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a replica is told when to die."""
    return tmp_path_factory.mktemp("orders") / "death"


@pytest.fixture(scope="module")
def client(order: Path) -> Iterator[OpenAI]:
    skip_without_vllm()
    with pytest.MonkeyPatch.context() as patched:
        for name, value in {**ENVIRONMENT, ORDER: str(order)}.items():
            patched.setenv(name, value)
        patched.setattr("unbraid.ray.application.EngineReplica", MortalReplica)
        with cluster() as started:
            options = json.dumps(arguments(CONTEXT))
            started.deploy(**settings_for(checkpoint(), ray_replicas=2), vllm_local=True, vllm_options=options)
            with OpenAI(base_url=f"{started.url}/v1", api_key="any", max_retries=0, timeout=LONG) as found:
                yield found


def test_chat(client: OpenAI) -> None:
    assert both(client, QUESTION).choices[0].message.content == ANSWER


def test_a_strict_call(client: OpenAI) -> None:
    assert set(arguments_of(both(client, WEATHER_QUESTION, **ONE_CALL))) == {"city", "unit"}


@pytest.mark.parametrize(
    ("said", "options", "death"),
    [(QUESTION, {}, "3"), (WEATHER_QUESTION, ONE_CALL, "12"), (WEATHER_QUESTION, ONE_CALL, f"12 {BREAK}")],
    ids=["answer", "strict call", "vLLM breaks down"],
)
def test_a_stream_survives_its_replica(
    client: OpenAI, order: Path, said: str, options: dict[str, Any], death: str
) -> None:
    undisturbed = chunks_of(client, said, **options)
    order.write_text(death)
    moved = chunks_of(client, said, **options)
    assert not order.exists(), "no replica has died"
    assert seen(moved) == seen(undisturbed)
