"""Token counts by strand, running counts in a stream, and token ids in replies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.engines import Finish
from unbraid.engines.replay import ReplayEngine, script
from unbraid.server.generation.choice import in_proportion, with_rest

from ..support import patient_http
from ..support.examples import examples
from ..support.real_tokenizers import encode, qwen3_huggingface
from ..support.running_server import service_of, serving
from ..support.scripted_server import HELLO, WEATHER, Scripted, template_of_qwen3

STRANDS = {
    "reasoning_tokens": "<think>\nTwo cities: 東京 𓀀.\n</think>\n\n",
    "content_tokens": "Let me see",
    "tool_call_tokens": '\n<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich"}}\n</tool_call>',
}
WHOLE = "".join(STRANDS.values()) + "<|im_end|>"


@pytest.fixture(scope="module")
def api(running: Scripted) -> Scripted:
    return running


def counts_of(api: Scripted) -> dict[str, int]:
    """What the strands of `WHOLE` have; what ends the turn is content."""
    counts = {name: len(encode(api.tokenizer, text)) for name, text in STRANDS.items()}
    counts["content_tokens"] += 1
    return {**counts, "audio_tokens": 0, "speech_tokens": 0}


@pytest.mark.parametrize("chunks", [1, 2, 5, 1000])
def test_tokens_are_counted_by_strand(api: Scripted, chunks: int) -> None:
    api.say(WHOLE, chunks)
    reply = api.post("/chat/completions", messages=HELLO, tools=[WEATHER])
    assert reply["usage"]["completion_tokens_details"] == counts_of(api)
    assert reply["usage"]["completion_tokens"] == sum(counts_of(api).values())
    last = api.chunks(tools=[WEATHER], stream_options={"include_usage": True})[-1]
    assert last["usage"] == reply["usage"]


def test_choices_are_counted_together(api: Scripted) -> None:
    api.say(WHOLE)
    reply = api.post("/chat/completions", messages=HELLO, tools=[WEATHER], n=3)
    assert reply["usage"]["completion_tokens_details"] == {name: 3 * n for name, n in counts_of(api).items()}


def test_what_the_engine_does_not_show_is_content(api: Scripted) -> None:
    ids = encode(api.tokenizer, WHOLE)[:-1]
    api.choose = lambda _: script(ids, ending=Finish("stop", 10, len(ids) + 1))
    reply = api.post("/chat/completions", messages=HELLO, tools=[WEATHER])
    assert reply["usage"]["completion_tokens_details"] == counts_of(api)


counts = st.fixed_dictionaries({strand: st.integers(0, 50) for strand in ("reasoning", "content", "tool_calls")})


@examples(5)
@given(counts, st.integers(0, 200))
def test_counts_add_up_to_what_the_engine_says(counts: dict[str, int], total: int) -> None:
    for found in (with_rest(counts, total), in_proportion(counts, total)):
        assert sum(found.values()) == total
        assert min(found.values()) >= 0
    assert with_rest(counts, sum(counts.values())) == in_proportion(counts, sum(counts.values())) == counts


def test_text_is_counted_with_the_tokenizer(api: Scripted) -> None:
    """An engine that gives text, where the tokenizer is known."""
    expected = counts_of(api)
    total = sum(expected.values())
    api.choose = lambda _: script(WHOLE.removesuffix("<|im_end|>"), ending=Finish("stop", 10, total - 1))
    reply = api.post("/chat/completions", messages=HELLO, tools=[WEATHER])
    expected["content_tokens"] -= 1
    assert reply["usage"]["completion_tokens_details"] == expected


def test_without_a_tokenizer_only_the_engine_counts() -> None:
    with serving(service_of(ReplayEngine([script("<think>\nHm.\n</think>\n\nHi.")]), "qwen3")) as server:
        reply = patient_http.post(f"{server.url}/v1/chat/completions", json={"messages": HELLO}).json()
    assert "completion_tokens_details" not in reply["usage"]


def test_running_counts(api: Scripted) -> None:
    api.say(WHOLE, 3)
    options = {"include_usage": True, "continuous_usage_stats": True}
    *chunks, last = api.chunks(tools=[WEATHER], stream_options=options)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert counts[-1] == last["usage"]["completion_tokens"]
    assert {chunk["usage"]["prompt_tokens"] for chunk in chunks} == {last["usage"]["prompt_tokens"]}
    assert all(sum(chunk["usage"].values()) == 2 * chunk["usage"]["total_tokens"] for chunk in chunks)
    *chunks, last = api.chunks("/completions", prompt="Hi", stream_options=options)
    assert chunks[-1]["usage"]["completion_tokens"] == last["usage"]["completion_tokens"] > 0


# Token ids


@pytest.mark.parametrize("chunks", [1, 3, 1000])
@pytest.mark.parametrize("more", [{}, {"n": 2}, {"logprobs": True}])
def test_token_ids(api: Scripted, chunks: int, more: dict[str, Any]) -> None:
    """Of the prompt, and of all that was written: markup too."""
    api.say(WHOLE, chunks)
    ids = encode(api.tokenizer, WHOLE)
    reply = api.post("/chat/completions", messages=HELLO, tools=[WEATHER], return_token_ids=True, **more)
    assert reply["prompt_token_ids"] == list(api.engine.requests[-1].prompt)
    assert all(choice["token_ids"] == ids for choice in reply["choices"])
    first, *rest = api.chunks(tools=[WEATHER], return_token_ids=True, **more)
    assert first["prompt_token_ids"] == reply["prompt_token_ids"]
    assert not any("prompt_token_ids" in chunk for chunk in rest)
    for at in range(more.get("n", 1)):
        choices = [choice for chunk in (first, *rest) for choice in chunk["choices"] if choice["index"] == at]
        assert [id for choice in choices for id in choice["token_ids"]] == ids
    assert "token_ids" not in str(api.post("/chat/completions", messages=HELLO))


def test_ids_of_a_stream_come_with_their_text(api: Scripted) -> None:
    api.say("One, two.<|im_end|>")
    chunks = [chunk["choices"][0] for chunk in api.chunks(return_token_ids=True)]
    for choice in chunks:
        text = api.tokenizer.decode(choice["token_ids"], skip_special_tokens=True)
        assert text == choice["delta"].get("content", "")


def test_token_ids_of_completions(api: Scripted) -> None:
    api.say("One, two.<|im_end|>")
    ids = encode(api.tokenizer, "One, two.<|im_end|>")
    asked: dict[str, Any] = {"prompt": ["Hi", "Ho"], "return_token_ids": True}
    whole = api.post("/completions", **asked)["choices"]
    chunks = api.chunks("/completions", **asked)
    for at, choice in enumerate(whole):
        assert choice["token_ids"] == ids
        streamed = [each for chunk in chunks for each in chunk["choices"] if each["index"] == at]
        assert [id for each in streamed for id in each["token_ids"]] == ids
        assert [each["prompt_token_ids"] for each in streamed if "prompt_token_ids" in each] == [
            choice["prompt_token_ids"]
        ]


@pytest.mark.parametrize("knows_tokens", [True, False])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("route", ["/chat/completions", "/completions"])
def test_an_engine_that_gives_text_has_no_ids(knows_tokens: bool, stream: bool, route: str) -> None:
    tokenizer = qwen3_huggingface() if knows_tokens else None
    engine = ReplayEngine([script("Hi.")])
    body = {"messages": HELLO, "prompt": "Hi", "return_token_ids": True, "stream": stream}
    body.pop("prompt" if "chat" in route else "messages")
    with serving(service_of(engine, "qwen3", tokenizer=tokenizer, template=template_of_qwen3())) as server:
        response = patient_http.post(f"{server.url}/v1{route}", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "return_token_ids"
