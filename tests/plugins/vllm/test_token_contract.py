"""Render and derender beside the real ones: the same requests to our server and to `vllm launch render`.

Both have Qwen3's tokenizer and template, and no weights. Replies must have the same fields and say the same, but for
what is listed in `DIFFERENT`. Where there is no vLLM (`scripts/install-vllm` installs it), all is skipped.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from unbraid.server.loading.service import load
from unbraid.server.settings import Settings

from ...engines.vllm_process import skip_without_vllm, vllm_serve
from ...support.real_tokenizers import encode, qwen3_config, qwen3_huggingface
from ...support.running_server import serving

DIFFERENT = """
- `request_id`, `created` and the ids of calls are each server's own.
- The whitespace that the template writes around markers is markup here, and text in vLLM.
- The token that ends a turn is never content here; vLLM streams it.
- What is no reasoning by its markers is content here; to vLLM's parser for Qwen3, all is reasoning until it is closed.
- A whole reply with calls has the finish reason `tool_calls` here, as a streamed one has in both.
- Streamed logprobs are told here; vLLM leaves them out.
- `structured_outputs` is a grammar of the whole output here. So it holds from the first token: `reasoning_ended`.
- `chat_template_kwargs` in vLLM has a default for one model family.
"""
CONTEXT = 8192
NAME = "qwen3"
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "attention_bias": False,
    "tie_word_embeddings": True,
    "vocab_size": 151936,
    "eos_token_id": 151645,
    "torch_dtype": "bfloat16",
}
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
MESSAGES = [{"role": "user", "content": "How is the weather in Bonn? 天气 😀"}]
HISTORY = [
    *MESSAGES,
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Bonn"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": "18 degrees"},
]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Bonn am Rhein 天 😀"}}\n</tool_call>'
END = "<|im_end|>"


@dataclass
class Both:
    ours: httpx.Client
    theirs: httpx.Client

    def post(self, path: str, body: Any) -> tuple[Any, Any]:
        """The replies of both, with the status."""
        replies = [each.post(path, json=body) for each in (self.ours, self.theirs)]
        return tuple((reply.status_code, reply.json()) for reply in replies)  # type: ignore[return-value]

    def rendered(self, body: Any) -> list[int]:
        ids: list[int] = self.ours.post("/v1/chat/completions/render", json=body).json()["token_ids"]
        return ids


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    skip_without_vllm()
    folder = tmp_path_factory.mktemp("qwen3")
    qwen3_huggingface().save(str(folder / "tokenizer.json"))
    for name, value in (
        ("tokenizer_config", qwen3_config()),
        ("config", CONFIG),
        ("generation_config", {"eos_token_id": [151645, 151643]}),
    ):
        (folder / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    settings = Settings(
        model=str(folder), tokens_only=True, context=CONTEXT, served_model_name=(NAME,), store="none", format="qwen3"
    )
    flags = ["--reasoning-parser=qwen3", "--tool-call-parser=hermes", "--enable-auto-tool-choice"]
    logs: Path = tmp_path_factory.mktemp("logs")
    with (
        vllm_serve(CONTEXT, logs, flags, model=folder, name=NAME, command=("launch", "render")) as vllm,
        serving(asyncio.run(load(settings))) as server,
        httpx.Client(base_url=server.url, timeout=120) as ours,
        httpx.Client(base_url=vllm.url, timeout=120) as theirs,
    ):
        yield Both(ours, theirs)


# Render

RENDERED: dict[str, dict[str, Any]] = {
    "plain": {"messages": MESSAGES},
    "no model": {"model": None, "messages": MESSAGES},
    "tools": {"messages": MESSAGES, "tools": [WEATHER]},
    "history": {"messages": HISTORY, "tools": [WEATHER]},
    "sampling": {
        "messages": MESSAGES,
        "temperature": 0.3,
        "top_p": 0.9,
        "top_k": 7,
        "min_p": 0.1,
        "seed": 7,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.25,
        "repetition_penalty": 1.5,
        "logit_bias": {"5": 1.5},
        "stop": ["X", "Y"],
        "stop_token_ids": [17],
        "max_tokens": 50,
        "n": 3,
    },
    "engine's own": {"messages": MESSAGES, "min_tokens": 3, "ignore_eos": True, "include_stop_str_in_output": True},
    "logprobs": {"messages": MESSAGES, "logprobs": True, "top_logprobs": 2},
    "stream": {"messages": MESSAGES, "stream": True, "stream_options": {"include_usage": True}},
    "no thinking": {"messages": MESSAGES, "chat_template_kwargs": {"enable_thinking": False}},
    "ids": {"messages": MESSAGES, "request_id": "abc", "cache_salt": "salt", "priority": 3},
    "continued": {
        "messages": [*MESSAGES, {"role": "assistant", "content": "It is"}],
        "continue_final_message": True,
        "add_generation_prompt": False,
    },
}


@pytest.mark.parametrize("case", RENDERED)
def test_chats_render_alike(both: Both, case: str) -> None:
    (status, ours), (other, theirs) = both.post("/v1/chat/completions/render", {"model": NAME, **RENDERED[case]})
    assert (status, other) == (200, 200), (ours, theirs)
    assert ours.pop("request_id")[:9] == theirs.pop("request_id")[:9] == "chatcmpl-"
    theirs["reasoning_parser_kwargs"]["chat_template_kwargs"].pop("cohere_format", None)
    assert ours == theirs


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_calls_that_are_asked_for_are_constrained(both: Both, choice: Any) -> None:
    body = {"model": NAME, "messages": MESSAGES, "tools": [WEATHER], "tool_choice": choice}
    (_, ours), (_, theirs) = both.post("/v1/chat/completions/render", body)
    assert ours["token_ids"] == theirs["token_ids"]
    mine, other = (each["sampling_params"]["structured_outputs"] for each in (ours, theirs))
    assert mine.keys() == other.keys()
    assert json.loads(mine["structural_tag"])["type"] == json.loads(other["structural_tag"])["type"]
    assert ours["reasoning_ended"] is True


@pytest.mark.parametrize("prompt", ["ab c 天", ["ab c", "d"], [1, 2, 3], [[1, 2], [3]]])
def test_completions_render_alike(both: Both, prompt: Any) -> None:
    body = {"model": NAME, "prompt": prompt, "max_tokens": 4, "temperature": 0.5}
    (_, ours), (_, theirs) = both.post("/v1/completions/render", body)
    assert [each.pop("request_id")[:5] for each in ours] == [each.pop("request_id")[:5] for each in theirs]
    assert ours == theirs


@pytest.mark.parametrize(
    "body",
    [
        {"model": "nope", "messages": MESSAGES},
        {"model": NAME, "messages": []},
        {"model": NAME},
        {"model": NAME, "messages": MESSAGES, "temperature": 5},
        {"model": NAME, "messages": MESSAGES, "max_tokens": CONTEXT + 1},
        {"model": NAME, "messages": MESSAGES, "use_beam_search": True},
        {"model": NAME, "messages": [{"role": "user", "content": "word " * CONTEXT}]},
    ],
    ids=["no such model", "no messages", "none at all", "too hot", "too long an output", "beams", "too long"],
)
def test_what_cannot_be_rendered_is_refused_alike(both: Both, body: Any) -> None:
    (status, ours), (other, theirs) = both.post("/v1/chat/completions/render", body)
    assert status == other
    assert_alike(ours, theirs)


def assert_alike(ours: Any, theirs: Any) -> None:
    """Errors of the same shape and code."""
    assert ours.keys() == theirs.keys() == {"error"}
    mine, other = ours["error"], theirs["error"]
    assert mine.keys() == other.keys()
    assert mine["code"] == other["code"]
    if other["type"] != "Bad Request":  # what pydantic refuses
        assert mine["type"] == other["type"]


# Derender

OUTPUTS = {
    "answer": "<think>\n\n</think>\n\nHello! 天气 😀",
    "reasoning": "<think>\nI look it up. 😀\n</think>\n\nIt is warm.",
    "call": f"<think>\nHm.\n</think>\n\n{CALL}",
    "answer and call": f"<think>\nHm.\n</think>\n\nOne moment.\n{CALL}",
    "two calls": f"<think>\nHm.\n</think>\n\n{CALL}\n{CALL.replace('Bonn', 'Paris')}",
    "only reasoning": "<think>\nAnd so on",
}
REQUEST: dict[str, Any] = {"model": NAME, "messages": MESSAGES, "tools": [WEATHER]}


def ids_of(text: str) -> list[int]:
    return encode(qwen3_huggingface(), text + END)


def comparable(message: dict[str, Any]) -> dict[str, Any]:
    """A message without what differs."""
    calls = [{**call, "id": bool(call["id"])} for call in message.get("tool_calls") or ()]
    texts = {name: (message[name] or "").strip() or None for name in ("content", "reasoning")}
    return {**message, **texts, "tool_calls": calls}


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("more", [{}, {"return_token_ids": True}, {"include_reasoning": False}], ids=str)
def test_whole_replies_are_alike(both: Both, name: str, more: dict[str, Any]) -> None:
    request = {**REQUEST, **more}
    prompt, ids = both.rendered(request), ids_of(OUTPUTS[name])
    logprobs = [{"token_id": id, "logprob": -0.5, "top_logprobs": [{"token_id": 5, "logprob": -1.5}]} for id in ids[:2]]
    choice = {"index": 0, "token_ids": ids, "finish_reason": "stop"}
    if not more:
        choice["logprobs"] = {"content": logprobs}
    body = {
        "model": NAME,
        "generate_response": {"request_id": "r", "choices": [choice], "kv_transfer_params": {"a": 1}},
        "prompt_tokens": len(prompt),
        "prompt_token_ids": prompt,
        "chat_request": request,
    }
    (status, ours), (other, theirs) = both.post("/v1/chat/completions/derender", body)
    assert (status, other) == (200, 200), (ours, theirs)
    for reply in (ours, theirs):
        reply.pop("created")
        (told,) = reply["choices"]
        told["message"] = comparable(told["message"])
    called = bool(ours["choices"][0]["message"]["tool_calls"])
    assert ours["choices"][0].pop("finish_reason") == ("tool_calls" if called else "stop")
    assert theirs["choices"][0].pop("finish_reason") == "stop"
    assert ours == theirs


def chunks(ids: Sequence[int], size: int) -> Iterator[dict[str, Any]]:
    """An output as an engine streams it, with the counts at the end."""
    for at in range(0, len(ids), size):
        last = at + size >= len(ids)
        choice = {"index": 0, "token_ids": ids[at : at + size], "finish_reason": "stop" if last else None}
        yield {"request_id": "r", "choices": [choice]}
    yield {"request_id": "r", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": len(ids)}}


def streamed(client: httpx.Client, prompt: list[int], ids: list[int], size: int) -> list[Any]:
    """The chunks of a stream that is derendered."""
    state, found = None, []
    for chunk in chunks(ids, size):
        body = {
            "stream": True,
            "generate_chunk": chunk,
            "stream_state": state,
            "prompt_token_ids": prompt,
            "prompt_tokens": len(prompt),
            "chat_request": REQUEST,
        }
        reply = client.post("/v1/chat/completions/derender", json=body)
        assert reply.status_code == 200, reply.text
        made = reply.json()
        assert made.keys() == {"chunk", "stream_state"}
        state = made["stream_state"]
        found.append((made["chunk"], state))
    return found


def folded(found: list[Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": None, "content": "", "reasoning": "", "tool_calls": [], "finish": None}
    for chunk, _ in found:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            message["role"] = message["role"] or delta["role"]
            message["content"] += delta["content"] or ""
            message["reasoning"] += delta["reasoning"] or ""
            message["finish"] = choice["finish_reason"] or message["finish"]
            for call in delta.get("tool_calls", ()):
                if call["id"] is not None:
                    message["tool_calls"].append([call["index"], call["type"], call["function"]["name"], ""])
                message["tool_calls"][-1][3] += call["function"]["arguments"] or ""
    return message | {name: message[name].removesuffix(END).strip() for name in ("content", "reasoning")}


@pytest.mark.parametrize("size", [1, 3, 16])
@pytest.mark.parametrize("name", OUTPUTS)
def test_streams_are_alike(both: Both, name: str, size: int) -> None:
    prompt, ids = both.rendered(REQUEST), ids_of(OUTPUTS[name])
    ours, theirs = (streamed(client, prompt, ids, size) for client in (both.ours, both.theirs))
    assert folded(ours) == folded(theirs)
    for (chunk, state), (other, their_state) in zip(ours, theirs, strict=True):
        assert state.keys() == their_state.keys()
        assert {key: type(value) for key, value in state.items()} == {
            key: type(value) for key, value in their_state.items()
        }
        assert chunk.keys() == other.keys()
        assert chunk["usage"] == other["usage"]
        for mine, choice in zip(chunk["choices"], other["choices"], strict=True):
            assert mine.keys() == choice.keys()
            assert mine["delta"].keys() - {"tool_calls"} == choice["delta"].keys() - {"tool_calls"}
            for call in mine["delta"].get("tool_calls", ()):
                assert call.keys() == {"id", "type", "index", "function"}


def test_completions_are_alike(both: Both) -> None:
    ids = ids_of("Hello! 天气 😀")
    logprobs = {"content": [{"token_id": id, "logprob": -0.5} for id in ids[:2]]}
    whole = {"request_id": "r", "choices": [{"index": 0, "token_ids": ids, "logprobs": logprobs}]}
    other = {"request_id": "s", "choices": [{"index": 0, "token_ids": ids[:2], "finish_reason": "length"}]}
    body = {"generate_responses": [whole, other], "prompt_tokens": [3, 4]}
    (_, ours), (_, theirs) = both.post("/v1/completions/derender", body)
    assert ours.pop("created")
    assert theirs.pop("created")
    assert ours == theirs
    texts = []
    for client in (both.ours, both.theirs):
        state, said = None, []
        for chunk in chunks(ids, 1):
            reply = client.post(
                "/v1/completions/derender", json={"stream": True, "generate_chunk": chunk, "stream_state": state}
            ).json()
            state = reply["stream_state"]
            reply["chunk"].pop("created")
            said.append(reply["chunk"])
        texts.append(said)
    assert "".join(c["choices"][0]["text"] for c in texts[0] if c["choices"]) == "Hello! 天气 😀"
    assert [chunk.keys() for chunk in texts[0]] == [chunk.keys() for chunk in texts[1]]


CHUNK = {"request_id": "r", "choices": [{"index": 0, "token_ids": [1]}]}
REFUSED: dict[str, Any] = {
    "nothing": {},
    "no request": {"stream": True, "generate_chunk": CHUNK, "prompt_token_ids": [1]},
    "no prompt": {"stream": True, "generate_chunk": CHUNK, "chat_request": REQUEST},
    "no chunk": {"stream": True, "chat_request": REQUEST},
    "two choices": {
        "stream": True,
        "generate_chunk": {"choices": CHUNK["choices"] * 2},  # type: ignore[operator]
        "chat_request": REQUEST,
        "prompt_token_ids": [1],
    },
    "no ids": {"generate_response": {"choices": [{"index": 0, "token_ids": []}]}, "chat_request": REQUEST},
    "no such id": {"generate_response": {"choices": [{"index": 0, "token_ids": [-1]}]}, "chat_request": REQUEST},
    "text": {
        "generate_response": {"output_mode": "text", "choices": [{"index": 0, "text": "a"}]},
        "chat_request": REQUEST,
    },
    "no such model": {"model": "nope", "generate_response": {"choices": []}, "chat_request": REQUEST},
    "a state of no kind": {
        "stream": True,
        "generate_chunk": CHUNK,
        "chat_request": REQUEST,
        "prompt_token_ids": [1],
        "stream_state": {"prev_tokens": 5},
    },
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_derendered_is_refused_alike(both: Both, case: str) -> None:
    (status, ours), (other, theirs) = both.post("/v1/chat/completions/derender", REFUSED[case])
    assert status == other, (ours, theirs)
    assert_alike(ours, theirs)
