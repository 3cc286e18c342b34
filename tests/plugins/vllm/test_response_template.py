"""A checkpoint that says itself how it writes: `--tool-call-parser unbraid-hf`, `--reasoning-parser unbraid-hf`."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import unbraid
from unbraid.plugins.vllm.registration import REPLACE
from unbraid.templates.detection.response_template import format_from_response_template

from ...templates.detection.test_response_template import RESPONSES
from .cases import encode, qwen3
from .server import CombinedParser, ParserManager, Said, Server, ToolParserManager, chat, vllm

ours = "unbraid-hf"
loaded = vllm("vllm.tokenizers").get_tokenizer
TOOL = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
TURN = unbraid.Message((unbraid.Text("reasoning", "Where?"), unbraid.ToolCall("get_weather", '{"city": "Paris"}')))


def checkpoint(folder: Path, template: Any) -> Any:
    """The tokenizer of a model's folder that has this response_template, as vLLM loads it."""
    tokenizer = qwen3()
    tokenizer.response_template = template
    try:
        tokenizer.save_pretrained(folder)
    finally:
        tokenizer.response_template = None
    return loaded(str(folder))


@pytest.mark.parametrize("name", RESPONSES)
def test_it_is_read_as_it_says(name: str, tmp_path: Path) -> None:
    """What vLLM's own parser reads whole, ours reads whole and token by token; and it streams the arguments."""
    template, _ = RESPONSES[name]
    tokenizer = checkpoint(tmp_path, template)
    format = format_from_response_template(template, tokenizer.eos_token)
    reasons = format.reasoning is not None
    ids = encode(tokenizer, unbraid.render(format, TURN if reasons else unbraid.Message(TURN.parts[1:])))
    prompt = "<|im_start|>assistant\n"
    request = chat(tools=[{"type": "function", "function": TOOL}])
    own = Server("hf", "hf" if reasons else None, tokenizer).whole(ids, request, prompt)
    assert own.calls == [("get_weather", '{"city": "Paris"}')]
    server = Server(ours, ours if reasons else None, tokenizer)
    assert issubclass(server.parser, CombinedParser)
    read = server.whole(ids, request, prompt)
    assert (read.reasoning, read.calls) == (own.reasoning.strip(), own.calls)
    assert server.streamed([[token] for token in ids], request, prompt) == read
    parser, start = server.parser(tokenizer, request.tools), encode(tokenizer, prompt)
    deltas = [parser.parse_delta("", [token], request, start, finished=False) for token in ids]
    assert sum(bool(delta and delta.tool_calls) for delta in deltas) > 2


def test_calls_can_be_required(tmp_path: Path) -> None:
    """vLLM's own parser refuses it: it has no grammar for what a template says."""
    template, _ = RESPONSES["Qwen-Qwen3-0.6B"]
    request = Server(ours, ours, checkpoint(tmp_path, template)).adjusted(chat(tool_choice="required"))
    assert "<tool_call>" in request.structured_outputs.structural_tag


def test_a_checkpoint_that_does_not_say_it_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"no `response_template`\. Name a format, or write the template"):
        Server(ours, None, qwen3()).parser  # noqa: B018
    template, _ = RESPONSES["Qwen3-Coder"]
    with pytest.raises(TypeError, match="the tokenizer's `response_template` has no field for reasoning"):
        Server(ours, ours, checkpoint(tmp_path, template)).parser  # noqa: B018


def test_in_the_place_of_vllms_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = importlib.import_module("unbraid.plugins.vllm")
    tokenizer = checkpoint(tmp_path, RESPONSES["Qwen-Qwen3-0.6B"][0])
    with monkeypatch.context() as patch:
        patch.setenv(REPLACE, "1")
        plugin.register()
        assert issubclass(ParserManager.get_parser("hf", "hf", True, tokenizer=tokenizer), CombinedParser)
    plugin.register()
    assert ToolParserManager.get_tool_parser("hf").__module__.startswith("vllm.")


def test_beside_the_reasoning_of_a_format(tmp_path: Path) -> None:
    tokenizer = checkpoint(tmp_path, RESPONSES["Qwen3-Coder"][0])
    ids = encode(tokenizer, "<think>\nWhere?\n</think>\n\nHere.<|im_end|>")
    assert Server(ours, "unbraid-qwen3", tokenizer).whole(ids) == Said("Where?", "Here.")
