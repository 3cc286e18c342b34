"""Several models on one server: how they are named, and that each answers with its own engine, format and template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from unbraid import UnbraidError
from unbraid.engines.replay import script

from ..support import patient_http
from ..support.serve_process import HELLO, Process, record, serve
from ..support.settings import settings_of

THOUGHT = "<think>\nHm.\n</think>\n\nHi."
CALL = "[TOOL_CALLS]weather[ARGS]{}"
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("recordings")
    return record(folder / "thinks.jsonl", script(THOUGHT)), record(folder / "calls.jsonl", script(CALL))


def check_both(one: Process) -> None:
    """Both models answer, each in its own format, and whoever names none gets the first."""
    assert "thinker (qwen3), caller (mistral) are ready" in one.line
    root = one.url.removesuffix("/v1")
    cards = patient_http.get(f"{one.url}/models").json()["data"]
    assert [(card["id"], card["format"]) for card in cards] == [("thinker", "qwen3"), ("caller", "mistral")]
    for name in (None, "thinker"):
        reply = one.chat(**({} if name is None else {"model": name})).json()
        assert reply["model"] == "thinker"
        message = reply["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == ("Hm.", "Hi.")
    reply = one.chat(model="caller", tools=[WEATHER]).json()
    assert reply["model"] == "caller"
    assert reply["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "weather"
    body: dict[str, Any] = {"model": "caller", "messages": HELLO, "max_tokens": 99, "tools": []}
    body["tools"] = [{"name": "weather", "input_schema": {"type": "object", "properties": {}}}]
    assert patient_http.post(f"{one.url}/messages", json=body).json()["content"][0]["type"] == "tool_use"
    body = {"model": "caller", "input": "Hello!", "tools": [{"type": "function", "name": "weather", "parameters": {}}]}
    assert patient_http.post(f"{one.url}/responses", json=body).json()["output"][0]["type"] == "function_call"
    body = {"model": "caller", "text": CALL, "tools": [WEATHER]}
    assert patient_http.post(f"{one.url}/parse", json=body).json()["format"] == "mistral"
    missing = one.chat(model="other")
    assert missing.status_code == 404
    assert "there are 'thinker', 'caller'" in missing.json()["error"]["message"]
    metrics = patient_http.get(f"{root}/metrics").text
    assert 'unbraid_engine_running{model="thinker"} 0.0' in metrics
    assert 'unbraid_engine_running{model="caller"} 0.0' in metrics
    assert patient_http.get(f"{root}/ready").status_code == 200


@pytest.mark.system
def test_the_others_are_ready_where_one_is_down(recordings: tuple[str, str]) -> None:
    flags = ("--model", f"thinker=replay={recordings[0]},format=qwen3")
    with serve(*flags, "--model", "far=openai=http://127.0.0.1:9,format=hermes,chat_template=chatml") as one:
        ready = patient_http.get(one.url.removesuffix("/v1") + "/ready")
        assert (ready.status_code, ready.json()["models"]) == (200, {"thinker": "ready", "far": "down"})
        assert one.chat(model="far").status_code == 503
        assert one.chat(model="thinker").status_code == 200


@pytest.mark.system
def test_by_flags(recordings: tuple[str, str]) -> None:
    thinks, calls = recordings
    flags = ("--model", f"thinker=replay={thinks},format=qwen3", "--model", f"caller=replay={calls},format=mistral")
    with serve(*flags) as one:
        check_both(one)


@pytest.mark.system
def test_by_a_file(recordings: tuple[str, str], tmp_path: Path) -> None:
    thinks, calls = recordings
    file = tmp_path / "unbraid.toml"
    file.write_text(
        f"""
        [[models]]
        name = "thinker"
        replay = "{thinks}"
        format = "qwen3"

        [[models]]
        name = "caller"
        replay = "{calls}"
        format = "mistral"
        """
    )
    with serve("--config", str(file)) as one:
        check_both(one)


def test_what_a_model_leaves_open_is_as_for_all() -> None:
    settings = settings_of(
        *("--context", "4096", "--vllm", "http://all:8000"),
        *("--model", "a=Qwen/Qwen3-8B"),
        *("--model", "b=/models/b.gguf,context=512,format=hermes"),
        *("--model", 'c=sglang=http://one:1,sglang=http://two:2,sampling={"temperature": 0.2, "top_k": 5}'),
    )
    a, b, c = settings.each_model()
    assert [each.served_model_name for each in (a, b, c)] == [("a",), ("b",), ("c",)]
    assert (a.model, a.vllm, a.context, a.format) == ("Qwen/Qwen3-8B", ("http://all:8000",), 4096, None)
    assert (b.model, b.context, b.format) == ("/models/b.gguf", 512, "hermes")
    assert (c.model, c.vllm, c.sglang) == (None, (), ("http://one:1", "http://two:2"))
    assert c.sampling == '{"temperature": 0.2, "top_k": 5}'


def test_one_model_may_have_a_name() -> None:
    (only,) = settings_of("--model", "mine=Qwen/Qwen3-8B").each_model()
    assert (only.model, only.served_model_name) == ("Qwen/Qwen3-8B", ("mine",))


def test_a_file_with_an_equals_sign_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("size=7b.gguf").touch()
    (only,) = settings_of("--model", "size=7b.gguf").each_model()
    assert (only.model, only.served_model_name) == ("size=7b.gguf", ())


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--model", "a=x", "--model", "y"), "need a name each"),
        (("--model", "x", "--model", "y"), "need a name each"),
        (("--model", "a=x", "--model", "a=y"), "two models have the name 'a'"),
        (("--model", "a=x,port=9000", "--model", "b=y"), "the model 'a' has a setting 'port', and there are"),
        (("--model", "a=x,context=many"), "context of the model 'a' must be a whole number of at least 0, not 'many'"),
        (("--model", "a=x,format=", "--served-model-name", "b"), "leave --served-model-name out"),
    ],
)
def test_what_is_wrong_is_said(flags: tuple[str, ...], said: str) -> None:
    with pytest.raises(UnbraidError, match=said):
        settings_of(*flags)


def test_a_table_without_a_name(tmp_path: Path) -> None:
    file = tmp_path / "unbraid.toml"
    file.write_text('[[models]]\nmodel = "x"\n')
    with pytest.raises(UnbraidError, match="needs a name"):
        settings_of("--config", str(file))
