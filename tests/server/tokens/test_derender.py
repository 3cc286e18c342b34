"""Render and derender over HTTP. `tests/plugins/vllm/test_token_contract.py` compares them with vLLM's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from unbraid.server.storage.seal import Seal

from ...support import patient_http
from ...support.real_tokenizers import encode
from ...support.running_server import serving
from ...support.scripted_server import HELLO, WEATHER, Scripted

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bonn 😀"}}\n</tool_call>'
OUTPUT = f"<think>\nI look it up. 天\n</think>\n\nOne moment.\n{CALL}<|im_end|>"
REQUEST: dict[str, Any] = {"messages": HELLO, "tools": [WEATHER]}
DERENDER = "/v1/chat/completions/derender"


def chunk_body(ids: list[int], state: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    chunk = {"request_id": "r", "choices": [{"index": 0, "token_ids": ids, "finish_reason": finish}]}
    return {"stream": True, "generate_chunk": chunk, "stream_state": state, "chat_request": REQUEST, **more}


@pytest.fixture(scope="module")
def replicas(running: Scripted) -> Iterator[list[str]]:
    """Two servers that share a secret, as replicas do."""
    running.service.seal = Seal(b"s" * 32)
    other = Scripted()
    other.service.seal = Seal(b"s" * 32)
    with serving(other.service) as second:
        yield [running.server.url, second.url]


def test_a_stream_goes_from_replica_to_replica(running: Scripted, replicas: list[str]) -> None:
    prompt = running.post("/chat/completions/render", **REQUEST)["token_ids"]
    ids = encode(running.tokenizer, OUTPUT)
    state: Any = None
    said: dict[str, Any] = {"content": "", "reasoning": "", "arguments": "", "ids": [], "finish": None}
    for at, id in enumerate(ids):
        finish = "stop" if at == len(ids) - 1 else None
        body = chunk_body([id], state, finish, **({"prompt_token_ids": prompt} if at == 0 else {}))
        reply = patient_http.post(replicas[at % 2] + DERENDER, json=body)
        assert reply.status_code == 200, reply.text
        state = reply.json()["stream_state"]
        assert len(reply.content) < 1500
        (choice,) = reply.json()["chunk"]["choices"]
        assert choice["delta"]["role"] == ("assistant" if at == 0 else None)
        said["content"] += choice["delta"]["content"] or ""
        said["reasoning"] += choice["delta"]["reasoning"] or ""
        for call in choice["delta"].get("tool_calls", ()):
            said["ids"] += [call["id"]] if call["id"] else []
            said["arguments"] += call["function"]["arguments"] or ""
        said["finish"] = choice["finish_reason"] or said["finish"]
    whole = patient_http.post(
        replicas[1] + DERENDER,
        json={
            "generate_response": {"request_id": "r", "choices": [{"index": 0, "token_ids": ids}]},
            "prompt_token_ids": prompt,
            "chat_request": REQUEST,
        },
    ).json()["choices"][0]
    message = whole["message"]
    assert said["reasoning"] == message["reasoning"] == "I look it up. 天"
    assert said["content"].strip() == message["content"].strip() == "One moment."
    assert said["arguments"] == message["tool_calls"][0]["function"]["arguments"] == '{"city": "Bonn 😀"}'
    assert said["ids"] == [message["tool_calls"][0]["id"]]
    assert said["finish"] == whole["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("chunks", [1, 3, 100])
@pytest.mark.parametrize("begun", ["a call", "a name"])
def test_a_call_that_the_prompt_has_begun(running: Scripted, replicas: list[str], begun: str, chunks: int) -> None:
    turn: dict[str, Any] = {"role": "assistant", "content": "Well.", "tool_calls": []}
    for city in ("Rome", "Bo"):
        function = {"name": "weather", "arguments": '{"city": "' + city + ('"}' if city == "Rome" else "")}
        turn["tool_calls"].append({"id": f"call {city}", "type": "function", "function": function})
    rest = 'nn 😀"}}\n</tool_call>'
    if begun == "a name":
        turn = {"role": "assistant", "content": 'Well.\n<tool_call>\n{"name": "wea'}
        rest = 'ther", "arguments": {"city": "Bo' + rest
    going_on = {"continue_final_message": True, "add_generation_prompt": False}
    request = {**REQUEST, "messages": [*HELLO, turn], **going_on}
    prompt = running.post("/chat/completions/render", **request)["token_ids"]
    ids = encode(running.tokenizer, rest)
    state: Any = None
    calls: dict[int, list[Any]] = {}
    parts = [[], *([ids[at : at + chunks] for at in range(0, len(ids), chunks)])]
    for at, part in enumerate(parts):
        body = chunk_body(part, state, "stop" if at == len(parts) - 1 else None, chat_request=request)
        body |= {"prompt_token_ids": prompt} if at == 0 else {}
        reply = patient_http.post(replicas[at % 2] + DERENDER, json=body)
        assert reply.status_code == 200, reply.text
        state = reply.json()["stream_state"]
        delta = reply.json()["chunk"]["choices"][0]["delta"]
        assert not delta["content"]
        for call in delta.get("tool_calls", ()):
            one = calls.setdefault(call["index"], [None, None, ""])
            one[0], one[1] = one[0] or call["id"], one[1] or call["function"]["name"]
            one[2] += call["function"]["arguments"] or ""
    response = {"request_id": "r", "choices": [{"index": 0, "token_ids": ids}]}
    body = {"generate_response": response, "prompt_token_ids": prompt, "chat_request": request}
    message = patient_http.post(replicas[1] + DERENDER, json=body).json()["choices"][0]["message"]
    (whole,) = message["tool_calls"]
    assert list(calls.values()) == [[whole["id"], "weather", '{"city": "Bonn 😀"}']]
    assert whole["function"] == {"name": "weather", "arguments": '{"city": "Bonn 😀"}'}
    assert message["content"] is None
    if begun == "a call":
        assert whole["id"] == "call Bo"


def test_masks_of_a_call_that_the_prompt_has_begun(running: Scripted) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bo'}}
    turn = {"role": "assistant", "content": "Well.", "tool_calls": [call]}
    going_on = {"continue_final_message": True, "add_generation_prompt": False, "return_masks": True}
    reply = running.post("/chat/completions/render", messages=[*HELLO, turn], tools=[WEATHER], **going_on)
    masks, texts = reply["masks"], [running.tokenizer.decode([id]) for id in reply["token_ids"]]
    own = [at for at, message in enumerate(masks["messages"]) if message == len(HELLO)]
    assert "".join(texts[at] for at in own).endswith(
        'Well.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Bo'
    )
    assert not any(masks["sampled"])
    said = "".join(texts[at] for at in own if masks["content"][at])
    assert said == 'Wellweather {"city": "Bo'  # what ends with markup is markup


def test_a_chunk_that_is_sent_twice_says_the_same_twice(running: Scripted) -> None:
    """The network failed after the first try: the state is still good."""
    first = patient_http.post(
        running.server.url + DERENDER,
        json=chunk_body(encode(running.tokenizer, "<think>\nHm"), None, prompt_token_ids=[]),
    ).json()
    again = [
        patient_http.post(
            running.server.url + DERENDER, json=chunk_body(encode(running.tokenizer, ", well"), first["stream_state"])
        ).json()
        for _ in range(3)
    ]
    assert [each["chunk"]["choices"][0]["delta"]["reasoning"] for each in again] == [", well"] * 3
    assert len({each["stream_state"]["prev_tokens"][0] for each in again}) == 1


@pytest.mark.parametrize(
    "state",
    [
        {"prev_tokens": ["AAAA"]},
        {"prev_tokens": ["é"]},
        {"prev_tokens": [""]},
        {"prev_tokens": ["A" * 100_000]},
        {"prev_tokens": 3},
        {"prev_tokens": [3]},
        {"role_sent": True, "output_token_ids": [1, 2], "output_chunk_lens": [2]},
        5,
    ],
    ids=lambda state: repr(state)[:24],
)
def test_a_forged_state_is_refused(running: Scripted, state: Any) -> None:
    body = chunk_body([1], state, prompt_token_ids=[])
    reply = patient_http.post(running.server.url + DERENDER, json=body)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["type"] == "BadRequestError"
    assert error["code"] == 400
    assert error["param"].startswith("stream_state")


def test_a_stream_that_has_ended_takes_no_more(running: Scripted) -> None:
    ended = patient_http.post(
        running.server.url + DERENDER, json=chunk_body([1], None, "length", prompt_token_ids=[])
    ).json()
    reply = patient_http.post(running.server.url + DERENDER, json=chunk_body([1], ended["stream_state"]))
    assert reply.status_code == 400
    assert "finished" in reply.json()["error"]["message"]
    usage = {"request_id": "r", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}
    body = {"stream": True, "generate_chunk": usage, "stream_state": ended["stream_state"], "chat_request": REQUEST}
    counted = patient_http.post(running.server.url + DERENDER, json=body).json()["chunk"]
    assert counted["usage"]["total_tokens"] == 4


def test_a_stream_may_begin_with_an_empty_state(running: Scripted) -> None:
    """As vLLM's own types write it."""
    state = {"prev_tokens": [], "role_sent": False, "output_token_ids": []}
    ids = encode(running.tokenizer, "Hello")
    reply = patient_http.post(running.server.url + DERENDER, json=chunk_body(ids, state, prompt_token_ids=[])).json()
    assert reply["chunk"]["choices"][0]["delta"]["content"] == "Hello"


def test_a_large_request(running: Scripted) -> None:
    """It comes with each chunk, and is as good as a small one."""
    request = {**REQUEST, "messages": [{"role": "user", "content": "word " * 100_000}]}
    state: Any = None
    for text in ("<think>\nHm", ", well"):
        ids = encode(running.tokenizer, text)
        body = chunk_body(ids, state, prompt_token_ids=[]) | {"chat_request": request}
        reply = patient_http.post(running.server.url + DERENDER, json=body).json()
        state = reply["stream_state"]
    assert reply["chunk"]["choices"][0]["delta"]["reasoning"] == ", well"


def test_a_large_chunk(running: Scripted) -> None:
    ids = encode(running.tokenizer, "Word by word. " * 2000)
    reply = patient_http.post(running.server.url + DERENDER, json=chunk_body(ids, None, prompt_token_ids=[])).json()
    assert reply["chunk"]["choices"][0]["delta"]["content"].startswith("Word by word. " * 1999)


def test_a_cut_off_call_is_not_complete(running: Scripted) -> None:
    """Whole replies tell it as text, and streams end with the engine's reason."""
    ids = encode(running.tokenizer, OUTPUT)[:-6]
    body = {
        "generate_response": {"choices": [{"index": 0, "token_ids": ids, "finish_reason": "length"}]},
        "chat_request": REQUEST,
    }
    (choice,) = patient_http.post(running.server.url + DERENDER, json=body).json()["choices"]
    assert choice["finish_reason"] == "length"
    assert "tool_calls" not in choice["message"]
    streamed = patient_http.post(
        running.server.url + DERENDER, json=chunk_body(ids, None, "length", prompt_token_ids=[])
    ).json()
    assert streamed["chunk"]["choices"][0]["finish_reason"] == "length"
