"""A server without an engine, and the secret that replicas share."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from unbraid.errors import UnbraidError
from unbraid.server.loading.service import load
from unbraid.server.service import Service
from unbraid.server.settings import Settings

from ...support import patient_http
from ...support.real_tokenizers import qwen3_config, qwen3_with
from ...support.running_server import serving

SECRET = "x" * 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model without its weights."""
    folder = tmp_path_factory.mktemp("qwen3")
    qwen3_with().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(qwen3_config()), encoding="utf-8")
    return folder


def loaded(folder: Path, **more: Any) -> Service:
    settings = {"model": str(folder), "tokens_only": True, "served_model_name": ("qwen3",), "store": "none", **more}
    return asyncio.run(load(Settings(**settings)))


def test_it_renders_and_does_not_answer(folder: Path) -> None:
    body = {"model": "qwen3", "messages": [{"role": "user", "content": "Hello!"}]}
    with serving(loaded(folder, context=4096)) as server:
        made = patient_http.post(f"{server.url}/v1/chat/completions/render", json=body).json()
        assert made["sampling_params"]["max_tokens"] == 4096 - len(made["token_ids"])
        # What ends a turn and the model's files do not name: the engine cannot know it.
        assert made["sampling_params"]["stop_token_ids"] == [qwen3_with().token_to_id("<|endoftext|>")]
        assert patient_http.get(f"{server.url}/ready").status_code == 200
        refused = patient_http.post(f"{server.url}/v1/chat/completions", json=body)
        assert refused.status_code == 400
        assert "--tokens-only" in refused.json()["error"]["message"]


def test_the_context_may_be_unknown(folder: Path) -> None:
    body = {"messages": [{"role": "user", "content": "Hello!"}]}
    with serving(loaded(folder)) as server:
        made = patient_http.post(f"{server.url}/v1/chat/completions/render", json=body).json()
        assert "max_tokens" not in made["sampling_params"]


def test_the_tokenizer_may_be_in_a_gguf() -> None:
    body = {"messages": [{"role": "user", "content": "Hello!"}]}
    service = asyncio.run(load(Settings(model="smollm2-135m-instruct", tokens_only=True, store="none")))
    assert service.names == ("smollm2-135m-instruct",)
    with serving(service) as server:
        rendered = patient_http.post(f"{server.url}/v1/chat/completions/render", json=body).json()
        assert len(rendered["token_ids"]) > 5
        assert rendered["sampling_params"]["max_tokens"] > 1000, "the model's own context"
        assert patient_http.post(f"{server.url}/v1/chat/completions", json=body).status_code == 400


def test_it_needs_a_model() -> None:
    with pytest.raises(UnbraidError, match="--model"):
        asyncio.run(load(Settings(tokens_only=True, store="none")))


def test_replicas_with_one_secret_take_each_others_streams(folder: Path) -> None:
    chunk = {"request_id": "r", "choices": [{"index": 0, "token_ids": [9707]}]}
    body: dict[str, Any] = {"stream": True, "generate_chunk": chunk, "chat_request": {}, "prompt_token_ids": []}
    services = [loaded(folder, secret=SECRET), loaded(folder, secret=SECRET), loaded(folder, secret="y" * 32)]
    with serving(services[0]) as first, serving(services[1]) as second, serving(services[2]) as stranger:
        path = "/v1/chat/completions/derender"
        state = patient_http.post(first.url + path, json=body).json()["stream_state"]
        taken = patient_http.post(second.url + path, json={**body, "stream_state": state})
        assert taken.json()["chunk"]["choices"][0]["delta"] == {"role": None, "content": "Hello", "reasoning": None}
        refused = patient_http.post(stranger.url + path, json={**body, "stream_state": state})
        assert refused.status_code == 400
        assert "--secret" in refused.json()["error"]["message"]
