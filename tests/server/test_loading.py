"""From settings to a service, and one request through it: each engine behind its flag."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from unbraid import UnbraidError, find
from unbraid.engines.replay import ReplayEngine, script
from unbraid.server.app import create_app
from unbraid.server.loading.service import default_format, load
from unbraid.server.service import Service
from unbraid.server.settings import Settings
from unbraid.templates import ChatTemplate, built_in
from unbraid.templates.sources import load_tokenizer
from unbraid.tokens import vocabulary

from ..support.fake_servers import Asked, FakeServer, FakeSGLang, FakeVLLM
from ..support.in_loop import in_loop
from ..support.real_tokenizers import encode, mistral, qwen3_config, qwen3_with
from ..support.running_server import service_of, serving
from ..templates.prompt_models import template_source

SAID = "<think>\nHm.\n</think>\n\nHé!<|im_end|>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Qwen3's tokenizer as a model's folder has it."""
    path = tmp_path_factory.mktemp("qwen3")
    qwen3_with().save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps(qwen3_config()))
    (path / "generation_config.json").write_text(
        json.dumps({"temperature": 0.6, "top_k": 20, "eos_token_id": [qwen3_with().token_to_id("<|im_end|>")]})
    )
    return str(path)


class _Told(FakeServer):
    """Servers that say which model they have loaded."""

    place = ""

    def other(self, asked: Asked) -> tuple[int, Any]:
        if asked.path == "/get_model_info" and isinstance(self, FakeSGLang):
            return 200, {"model_path": "/elsewhere", "tokenizer_path": self.place, "is_generation": True}
        if asked.path == "/v1/models":
            return 200, {"data": [{"id": "fake", "root": self.place, "max_model_len": 1000}]}
        return super().other(asked)


class ToldSGLang(_Told, FakeSGLang):
    pass


class ToldVLLM(_Told, FakeVLLM):
    pass


async def ask(service: Service, **more: Any) -> dict[str, Any]:
    """A chat, without a socket in between."""
    transport = httpx.ASGITransport(app=create_app(service))
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        body = {"messages": [{"role": "user", "content": "Hello!"}], **more}
        response = await client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    return dict(choice["message"])


@pytest.mark.parametrize("kind", ["sglang", "vllm"])
@in_loop
async def test_one_flag_puts_a_server_behind_it(kind: str, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokenizer, the template, the format and the sampling are those of the model that the server has loaded."""
    tokenizer = qwen3_with()
    ids = encode(tokenizer, SAID)
    monkeypatch.setattr("tests.support.fake_servers.VOCABULARY", vocabulary(tokenizer))
    monkeypatch.setattr("tests.support.fake_servers.END", ids[-1])
    async with (ToldSGLang if kind == "sglang" else ToldVLLM)(ids) as server:
        server.place = folder
        flags: dict[str, Any] = {kind: (server.url,)}
        service = await load(Settings(**flags))
        assert service.names == ("fake",)
        (served,) = service.models
        assert served.model.format.name == "qwen3"
        assert served.model.sampling == {"temperature": 0.6, "top_k": 20}
        assert not served.model.constrain_auto
        message = await ask(service)
        assert (message["reasoning_content"], message["content"]) == ("Hm.", "Hé!")
        (body,) = server.generated
        prompt = body["input_ids" if kind == "sglang" else "prompt"]
        assert tokenizer.decode(prompt, skip_special_tokens=False).endswith("<|im_start|>assistant\n")
        await service.models[0].engine.close()


@in_loop
async def test_any_server_with_completions(folder: str) -> None:
    """Another server of ours stands behind this one: with a tokenizer, ids go in; without one, all is text."""
    scripts = [script("Hé! <b>", chunks=2)]
    with serving(service_of(ReplayEngine(scripts, model="behind", repeat=True), "hermes")) as behind:
        flags: dict[str, Any] = {"openai": (behind.url,), "chat_template": "chatml", "format": "hermes"}
        service = await load(Settings(**flags))
        assert service.models[0].model.encoder is None
        assert service.names == ("behind",)
        assert (await ask(service))["content"] == "Hé! <b>"
        await service.models[0].engine.close()
        engine = behind.service.models[0].engine
        assert isinstance(engine, ReplayEngine)
        assert engine.requests[-1].prompt == "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n"
        service = await load(Settings(**flags, tokenizer=folder))
        assert (await ask(service))["content"] == "Hé! <b>"
        await service.models[0].engine.close()
        prompt = engine.requests[-1].prompt
        assert isinstance(prompt, tuple)
        assert qwen3_with().decode(list(prompt), skip_special_tokens=False).endswith("assistant\n")


@in_loop
async def test_a_server_that_cannot_be_seen_into() -> None:
    async with ToldVLLM() as server:
        server.place = "/on/another/machine"
        with pytest.raises(UnbraidError, match="Give --tokenizer"):
            await load(Settings(vllm=(server.url,)))


# Tokenizers


def test_a_folder(folder: str) -> None:
    files = load_tokenizer(folder)
    assert files.ends == ("<|im_end|>", "<|im_end|>")
    assert files.bos is None
    assert set(files.templates) == {"default"}
    assert load_tokenizer(folder + "/tokenizer.json").ends == files.ends


def test_mistrals_tokenizer(tmp_path: Path) -> None:
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    source = Path(MistralTokenizer._data_path()) / "tekken_240911.json"
    (tmp_path / "tekken.json").write_bytes(source.read_bytes())
    files = load_tokenizer(str(tmp_path))
    known = vocabulary(files.tokenizer)
    assert known.version == vocabulary(mistral(3, tekken=True)).version
    assert files.bos == known.token_id("<s>")
    assert files.templates == {}


@pytest.mark.parametrize("place", ["/nowhere", "."])
def test_no_tokenizer(place: str, tmp_path: Path) -> None:
    with pytest.raises(UnbraidError, match="tokenizer"):
        load_tokenizer(place if place != "." else str(tmp_path))


class Ollama(FakeVLLM):
    """Ollama, as far as it says what a model is."""

    template = "{{ .Prompt }}"
    source = ""

    def other(self, asked: Asked) -> tuple[int, Any]:
        if asked.path == "/api/version":
            return 200, {"version": "0.13.0"}
        if asked.path == "/api/show":
            assert asked.body == {"model": "qwen3:8b"}
            return 200, {"template": self.template, "model_info": {"tokenizer.chat_template": self.source}}
        return super().other(asked)


@in_loop
async def test_a_model_of_ollama_that_templates_prompts_is_refused() -> None:
    async with Ollama() as ollama:
        ollama.template = "{{ if .System }}<|im_start|>system{{ end }}{{ .Prompt }}"
        with pytest.raises(UnbraidError, match=r"templated twice.*--model ollama:qwen3:8b; or .*TEMPLATE"):
            await load(Settings(openai=(ollama.url,), model="qwen3:8b"))


@in_loop
async def test_a_model_of_ollama_that_takes_prompts_as_they_are() -> None:
    async with Ollama() as ollama:
        (served,) = (await load(Settings(openai=(ollama.url,), model="qwen3:8b"))).models
        assert (served.model.format.name, served.model.builder) == ("qwen3", None)  # by its name
        ollama.source = template_source("Qwen-Qwen3-0.6B")
        (served,) = (await load(Settings(openai=(ollama.url,), model="qwen3:8b"))).models
        assert (served.model.format.name, served.model.builder is None) == ("qwen3", False)


# Formats


def formats_of(caplog: pytest.LogCaptureFixture, *templates: ChatTemplate, stated: object = None) -> tuple[str, str]:
    """The format where none is named, and what the log says of it: one line."""
    caplog.clear()
    with caplog.at_level("INFO", logger="unbraid.server"):
        format = default_format({f"template {number}": each for number, each in enumerate(templates)}, stated)
    (record,) = caplog.records
    assert "\n" not in record.getMessage()
    return format.name, f"{record.levelname} {record.getMessage()}"


@pytest.mark.parametrize(
    ("template", "format"),
    [
        ("Qwen-Qwen3-0.6B", "qwen3"),
        ("Qwen-Qwen2.5-7B-Instruct", "hermes"),
        ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes"),
        ("mistralai-Mistral-Nemo-Instruct-2407", "mistral"),
        ("Qwen3-Coder", "qwen3-coder"),
    ],
)
def test_the_template_shows_the_format(template: str, format: str, caplog: pytest.LogCaptureFixture) -> None:
    name, said = formats_of(caplog, ChatTemplate(template_source(template)))
    assert name == format
    assert said.startswith(f"INFO format {format}: it reads back what the template writes")


def test_what_is_not_verified_is_said(caplog: pytest.LogCaptureFixture) -> None:
    name, said = formats_of(caplog, ChatTemplate(template_source("LFM2-8B-A1B")))
    assert name == "lfm2"
    assert said.startswith("WARNING format lfm2, which could not be verified")
    assert "--format" in said


def test_templates_of_our_own(caplog: pytest.LogCaptureFixture) -> None:
    name, said = formats_of(caplog, built_in("chatml"))
    assert (name, "Hermes" in said) == ("hermes", True)
    assert formats_of(caplog, built_in("step-audio-2"))[0] == "step-audio-2"
    assert formats_of(caplog)[0] == "hermes"


def test_reasoning_without_tools(caplog: pytest.LogCaptureFixture) -> None:
    """The prompt explains tools in Hermes' way, and the reasoning stays the template's."""
    source = (
        "{% for m in messages %}[{{ m.role }}]"
        "{% if m.reasoning_content %}<muse>{{ m.reasoning_content }}</muse>{% endif %}{{ m.content }}[end]{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    format = default_format({"default": ChatTemplate(source)})
    assert format.reasoning is not None
    assert format.reasoning.open == "<muse>"
    assert format.tools == find("hermes").tools


def test_calls_that_are_not_known(caplog: pytest.LogCaptureFixture) -> None:
    """The server starts, and says what it does not know."""
    source = "{% if tools %}[[{{ tools }}]]{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}"
    name, said = formats_of(caplog, ChatTemplate(source))
    assert name == "plain"
    assert said.startswith("WARNING no format was found")
    assert "--format" in said
    name, said = formats_of(caplog, ChatTemplate("{{ raise_exception('not today') }}"))
    assert name == "plain"
    assert "not today" in said


def test_the_tokenizer_says_it_itself(caplog: pytest.LogCaptureFixture) -> None:
    stated = {"start_anchor": "[a]", "fields": {"thinking": {"open": "<muse>", "close": "</muse>"}}}
    name, said = formats_of(caplog, stated=stated)
    assert name == "response_template+hermes"
    assert said.startswith("WARNING format response_template+hermes, which could not be verified")
