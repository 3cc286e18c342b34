"""Chats that go on from ids: a rollout through the API, with the real `openai` client."""

from __future__ import annotations

from typing import Any, cast

import openai
import pytest

import unbraid
from unbraid.engines.replay import script

from ...support import patient_http
from ...support.real_tokenizers import encode
from ...support.scripted_server import HELLO, WEATHER, Scripted, template_of_qwen3

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bonn"}}\n</tool_call>'
FIRST = f"<think>\nI look it up.\n</think>\n\n{CALL}<|im_end|>"
SECOND = "<think>\nWarm.\n</think>\n\nIt is 18 degrees.<|im_end|>"
RESULT = {"role": "tool", "tool_call_id": "x", "content": "18 degrees"}
QUESTION = {"role": "user", "content": "And tomorrow?"}


@pytest.fixture
def client(running: Scripted) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{running.server.url}/v1", api_key="none", max_retries=0)


def odd_ids(running: Scripted, text: str) -> list[int]:
    """Ids that the tokenizer would not choose: one for each character, but for control tokens."""
    ids = []
    for id in encode(running.tokenizer, text):
        piece = running.tokenizer.decode([id], skip_special_tokens=False)
        ids += [id] if piece.startswith("<") else [each for char in piece for each in encode(running.tokenizer, char)]
    return ids


def refused(running: Scripted, path: str = "/chat/completions", **body: Any) -> dict[str, Any]:
    response = patient_http.post(f"{running.server.url}/v1{path}", json={"messages": [RESULT], **body})
    assert response.status_code == 400, response.text
    error: dict[str, Any] = response.json()["error"]
    return error


@pytest.mark.parametrize("apart", [True, False])
def test_a_rollout_of_two_turns(running: Scripted, client: openai.OpenAI, apart: bool) -> None:
    outputs = [odd_ids(running, FIRST), odd_ids(running, SECOND)]
    running.choose = lambda _: script(outputs[0])
    asked: dict[str, Any] = {"model": "qwen", "tools": [WEATHER], "extra_body": {"return_token_ids": True}}
    first: Any = client.chat.completions.create(messages=cast(Any, HELLO), **asked)
    (choice,) = first.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.token_ids == outputs[0]
    if apart:
        so_far = {"prompt_token_ids": first.prompt_token_ids, "token_ids": choice.token_ids}
    else:
        so_far = {"prompt_token_ids": [*first.prompt_token_ids, *choice.token_ids]}
    running.choose = lambda _: script(outputs[1])
    result = {**RESULT, "tool_call_id": choice.message.tool_calls[0].id}
    asked["extra_body"] = {"return_token_ids": True, **so_far}
    second: Any = client.chat.completions.create(messages=cast(Any, [result]), **asked)
    before = [*first.prompt_token_ids, *outputs[0]]
    assert second.prompt_token_ids[: len(before)] == before
    assert second.choices[0].message.content == "It is 18 degrees."
    assert second.choices[0].message.reasoning_content == "Warm."
    # What comes after it is what the library makes of it, and what the engine was given.
    renderer = unbraid.renderer(template_of_qwen3().source, running.tokenizer, "qwen3")
    expected = renderer.extend(first.prompt_token_ids, outputs[0], [result], tools=[WEATHER])
    assert expected is not None
    assert second.prompt_token_ids == list(expected.ids)
    assert running.engine.requests[-1].prompt == expected.ids


def test_streams_go_on_too(running: Scripted) -> None:
    running.choose = lambda _: script(encode(running.tokenizer, SECOND))
    prompt = running.post("/chat/completions/render", messages=HELLO, tools=[WEATHER])["token_ids"]
    ids = [*prompt, *encode(running.tokenizer, FIRST)]
    chunks = running.chunks(messages=[RESULT], prompt_token_ids=ids, tools=[WEATHER], return_token_ids=True)
    assert chunks[0]["prompt_token_ids"][: len(ids)] == ids


def test_where_the_template_would_rewrite_the_past(running: Scripted) -> None:
    """Qwen3's template drops the reasoning of turns before the last question."""
    prompt = running.post("/chat/completions/render", messages=HELLO)["token_ids"]
    so_far = {"prompt_token_ids": prompt, "token_ids": encode(running.tokenizer, SECOND)}
    error = refused(running, messages=[QUESTION], **so_far)
    assert error["param"] == "prompt_token_ids"
    assert "line" in error["message"]
    assert '"past": "sampled"' in error["message"]
    running.choose = lambda _: script(encode(running.tokenizer, SECOND))
    made = running.post("/chat/completions/render", messages=[QUESTION], past="sampled", **so_far)
    ids = [*prompt, *so_far["token_ids"]]
    assert made["token_ids"][: len(ids)] == ids


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"token_ids": [1]}, "token_ids"),
        ({"past": "sampled"}, "past"),
        ({"prompt_token_ids": [1, 2]}, "prompt_token_ids"),
        ({"prompt_token_ids": [99_999_999], "token_ids": []}, "prompt_token_ids"),
        ({"prompt_token_ids": [1], "token_ids": [99_999_999]}, "token_ids"),
        ({"prompt_token_ids": [1], "token_ids": [-1]}, "token_ids"),
        ({"prompt_token_ids": [1], "token_ids": [2], "messages": []}, "messages"),
        ({"prompt_token_ids": [1], "token_ids": [2], "continue_final_message": True}, "continue_final_message"),
        ({"prompt_token_ids": [1], "token_ids": [2], "past": "anew"}, "past"),
    ],
)
def test_what_cannot_go_on_is_refused(running: Scripted, body: dict[str, Any], param: str) -> None:
    error = refused(running, **body)
    assert error["param"].startswith(param), error


def test_masks(running: Scripted) -> None:
    messages = [*HELLO, {"role": "assistant", "content": "Hi."}, QUESTION]
    made = running.post("/chat/completions/render", messages=messages, return_masks=True)
    renderer = unbraid.renderer(template_of_qwen3().source, running.tokenizer, "qwen3")
    expected = renderer.render(messages)
    assert made["token_ids"] == list(expected.ids)
    assert made["masks"] == {
        "messages": list(expected.messages),
        "sampled": list(expected.sampled),
        "content": list(expected.content),
    }
    assert any(made["masks"]["sampled"])
    assert "masks" not in running.post("/chat/completions/render", messages=messages)


def test_masks_of_a_chat_that_goes_on(running: Scripted) -> None:
    prompt = running.post("/chat/completions/render", messages=HELLO, tools=[WEATHER])["token_ids"]
    sampled = encode(running.tokenizer, FIRST)
    made = running.post(
        "/chat/completions/render",
        messages=[RESULT],
        tools=[WEATHER],
        prompt_token_ids=prompt,
        token_ids=sampled,
        return_masks=True,
    )
    own = slice(len(prompt), len(prompt) + len(sampled))
    assert made["masks"]["sampled"][own] == [True] * len(sampled)
    assert sum(made["masks"]["sampled"]) == len(sampled)
