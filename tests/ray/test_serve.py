"""The server on Ray: real processes, a real model, real clients, and replicas that are killed in the middle."""

from __future__ import annotations

import io
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from openai import OpenAI

from ..clients.client_suite import (
    ANSWER,
    ENDLESS,
    MODEL,
    ONE_CALL,
    QUESTION,
    WEATHER_QUESTION,
    ClientSuite,
    arguments_of,
    both,
    chunks_of,
    seen,
)
from ..clients.client_suite_dialects import ResponsesSuite
from ..speech.whisper.whisper_models import WORDS, files, jfk
from ..support.embedded_model import smollm2
from ..support.waiting import wait_for
from .cluster import LONG, Cluster, cluster, settings_for
from .mortal import BREAK, GIVEN_UP, ORDER, MortalReplica

pytestmark = pytest.mark.system

pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'unbraid[ray]'")
pytest.importorskip("xllamacpp")

ENGINE = "engine-smollm2"


@pytest.fixture(scope="module")
def order(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a replica is told when to die."""
    return tmp_path_factory.mktemp("orders") / "death"


@pytest.fixture(scope="module")
def server(order: Path) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(ORDER, str(order))
        patched.setattr("unbraid.ray.application.EngineReplica", MortalReplica)
        with cluster() as started:
            speech = files("whisper-tiny").folder
            started.deploy(
                **settings_for(smollm2().gguf, ray_replicas=2), transcription_model=str(speech), transcription_vad=False
            )
            yield started


@pytest.fixture(scope="module")
def client(server: Cluster) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0, timeout=LONG) as found:
        yield found


# Clients


def test_chat(client: OpenAI) -> None:
    choice = both(client, QUESTION).choices[0]
    assert (choice.message.content, choice.finish_reason) == (ANSWER, "stop")


def test_a_strict_call(client: OpenAI) -> None:
    """The constraint travels, too."""
    arguments = arguments_of(both(client, WEATHER_QUESTION, **ONE_CALL))
    assert set(arguments) == {"city", "unit"}


def test_responses(client: OpenAI) -> None:
    reply = client.responses.create(model=MODEL, input=QUESTION, temperature=0, max_output_tokens=16, store=False)
    assert reply.output_text == ANSWER


def test_transcription(client: OpenAI) -> None:
    sound = io.BytesIO()
    with wave.open(sound, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes((jfk() * 32767).astype(np.int16).tobytes())
    said = client.audio.transcriptions.create(model="whisper-1", file=("jfk.wav", sound.getvalue()), language="en")
    assert "".join(char for char in said.text.lower() if char.isalpha() or char == " ").split() == WORDS.split()


def test_errors_are_those_of_the_engine(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=MODEL, prompt=[1] * 1000, max_tokens=100)
    assert caught.value.code == "context_length_exceeded"
    assert "1024" in caught.value.message
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=MODEL, prompt=[10**6], max_tokens=4)
    assert caught.value.param == "prompt"


def test_a_client_that_leaves_frees_its_replica(server: Cluster, client: OpenAI, order: Path) -> None:
    given_up = order.with_name(order.name + GIVEN_UP)
    given_up.unlink(missing_ok=True)
    with client.completions.create(**ENDLESS, stream=True) as stream:
        next(iter(stream))
    wait_for(given_up.exists)
    wait_for(lambda: not any(load.running or load.waiting for load in server.states(ENGINE).values()))


# Replicas that die


@pytest.mark.parametrize(
    ("said", "options", "tokens"),
    [
        (QUESTION, {"logprobs": True, "top_logprobs": 2}, 3),
        (WEATHER_QUESTION, ONE_CALL, 12),
        pytest.param(WEATHER_QUESTION, {**ONE_CALL, "n": 2}, 9, marks=pytest.mark.slow),
    ],
    ids=["answer", "strict call", "two choices"],
)
def test_a_stream_survives_its_replica(
    client: OpenAI, order: Path, said: str, options: dict[str, Any], tokens: int
) -> None:
    """At temperature 0 the client gets the bytes of an undisturbed run, and the same counts."""
    chunks_of(client, said, **options)
    undisturbed = chunks_of(client, said, **options)
    order.write_text(str(tokens))
    moved = chunks_of(client, said, **options)
    assert not order.exists(), "no replica has died"
    assert seen(moved) == seen(undisturbed)


def test_a_replica_whose_engine_breaks_down_takes_no_more_requests(client: OpenAI, order: Path) -> None:
    """It would refuse them at once, so that Ray would send it most of them."""
    order.write_text(f"3 {BREAK}")
    assert [both(client, QUESTION).choices[0].message.content for _ in range(4)] == [ANSWER] * 4
    assert not order.exists(), "no engine broke down"


def test_a_request_that_was_not_begun_survives_its_replica(client: OpenAI, order: Path) -> None:
    order.write_text("0")
    assert both(client, QUESTION).choices[0].message.content == ANSWER
    assert not order.exists(), "no replica has died"


@pytest.mark.slow
def test_a_call_survives_at_every_token(client: OpenAI, order: Path) -> None:
    chunks_of(client, WEATHER_QUESTION, **ONE_CALL)
    undisturbed = chunks_of(client, WEATHER_QUESTION, **ONE_CALL)
    for tokens in range(1, undisturbed[-1]["usage"]["completion_tokens"]):
        order.write_text(str(tokens))
        moved = chunks_of(client, WEATHER_QUESTION, **ONE_CALL)
        assert not order.exists(), "no replica has died"
        assert seen(moved) == seen(undisturbed), f"after {tokens} tokens"


# The suites, without what looks into the server's process


@pytest.mark.slow
class TestOpenAI(ClientSuite):
    def test_models(self, client: OpenAI) -> None:
        assert {model.id for model in client.models.list()} == {MODEL, "whisper-tiny", "whisper-1"}

    test_a_wrong_key = None  # type: ignore[assignment]
    test_a_prompt_that_is_too_long = None
    test_leaving_a_stream = None  # type: ignore[assignment]
    test_leaving_before_the_reply = None  # type: ignore[assignment]


@pytest.mark.slow
class TestResponses(ResponsesSuite):
    pass
