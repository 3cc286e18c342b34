"""Engines behind HTTP: what they ask, and what they make of the answers (`fake_servers.py`)."""

from __future__ import annotations

import json
import math
import threading
from functools import partial
from typing import Any

import pytest

import unbraid
from unbraid.engines import Audio, EngineDown, Finish, Generation, Sampling, Unsupported
from unbraid.engines.openai import UNKNOWN, CompletionServer

from ..support.byte_vocabulary import END, MARKER, VOCABULARY, Opaque
from ..support.fake_servers import FakeSGLang, FakeVLLM
from ..support.in_loop import collect, in_loop
from .http_kinds import HELLO, KINDS, PROMPT, each_kind, engine, ids_of, text_of, whole

TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]


# What comes out


@pytest.mark.parametrize(
    ("kind", "make", "stopped_by"),
    [
        ("sglang", partial(FakeSGLang, incremental=True), END),
        ("sglang", partial(FakeSGLang, incremental=False), END),
        ("vllm", FakeVLLM, None),
    ],
)
@in_loop
async def test_ids_however_they_are_streamed(kind: str, make: Any, stopped_by: int | None) -> None:
    async with make(HELLO) as server:
        one = engine(kind, server)
        outputs = await collect(one.generate(Generation(prompt=PROMPT)))
        assert ids_of(outputs) == HELLO
        assert outputs[-1] == Finish("stop", 3, len(HELLO), 2, stopped_by)
        assert (one.model, one.context) == ("fake", 1000)
        await one.close()


@in_loop
async def test_ids_and_text_are_never_mixed() -> None:
    async with FakeVLLM([*b"ab", END]) as server:
        choices = [{"text": "", "token_ids": [97]}, {"text": "a", "token_ids": []}, {"text": "b", "token_ids": [98]}]
        ending = {"text": "", "token_ids": [END], "finish_reason": "stop"}
        server.events = lambda body: iter([{"choices": [one]} for one in (*choices, ending)])  # type: ignore[method-assign]
        one = engine("vllm", server)
        outputs = await collect(one.generate(Generation(prompt=PROMPT)))
        assert (ids_of(outputs), text_of(outputs)) == ([*b"ab", END], "")
        choices[0] = {"text": "a"}
        outputs = await collect(one.generate(Generation(prompt=PROMPT)))
        assert (ids_of(outputs), text_of(outputs)) == ([], "aab")
        await one.close()


@in_loop
async def test_openai_gives_text() -> None:
    async with FakeVLLM(HELLO) as server:
        one = engine("openai", server, api_key="secret", headers={"X-More": "1"})
        outputs = await collect(one.generate(Generation(prompt="ab")))
        assert not ids_of(outputs)
        assert text_of(outputs) == "Hé 🦜<marker>"
        assert outputs[-1] == Finish("stop", 2, len(HELLO), 2, None)
        assert {(asked.headers["authorization"], asked.headers["x-more"]) for asked in server.asked} == {
            ("Bearer secret", "1")
        }
        await one.close()


@each_kind
@in_loop
async def test_how_it_ends(kind: str) -> None:
    async with KINDS[kind].server([*b"abc", MARKER, *b"def", END]) as server:
        one = engine(kind, server)
        short = await collect(one.generate(Generation(prompt=PROMPT, max_tokens=2)))
        assert whole(short) == b"ab"
        assert short[-1] == Finish("length", 3, 2, 2, None)
        marked = await collect(one.generate(Generation(prompt=PROMPT, stop_tokens=(MARKER,))))
        assert marked[-1] == Finish("stop", 3, 4, 2, MARKER)
        assert whole(marked) == (b"abc<marker>" if KINDS[kind].gives_ids else b"abc")
        stopped = await collect(one.generate(Generation(prompt=PROMPT, stop=("xx", "er>d"))))
        assert whole(stopped) == b"abc<mark"
        assert (ids_of(stopped) == list(b"abc<mark")) == KINDS[kind].gives_ids
        assert stopped[-1].stopped_by == "er>d"
        await one.close()


@each_kind
@in_loop
async def test_stop_texts_without_all_of_a_vocabulary(kind: str) -> None:
    async with KINDS[kind].server([*b"one two three!four", END]) as server:
        for incremental, vocabulary in ((True, None), (False, None), (True, Opaque()), (False, Opaque())):
            server.__dict__["incremental"] = incremental
            one = engine(kind, server, vocabulary=vocabulary)
            outputs = await collect(one.generate(Generation(prompt=PROMPT, stop=("e!", "zzz"))))
            assert not ids_of(outputs)
            assert text_of(outputs) == "one two thre"
            assert outputs[-1].stopped_by == "e!"
            await one.close()


@in_loop
async def test_an_aborted_request_repeats_no_token() -> None:
    for incremental in (True, False):
        async with FakeSGLang(HELLO, incremental=incremental) as server:
            server.abort_after = 3
            one = engine("sglang", server)
            outputs = await collect(one.generate(Generation(prompt=PROMPT)))
            assert ids_of(outputs) == HELLO[:3]
            assert outputs[-1].reason == "abort"
            await one.close()


@each_kind
@in_loop
async def test_logprobs(kind: str) -> None:
    async with KINDS[kind].server([*b"xy", END]) as server:
        for vocabulary in (VOCABULARY, None):
            one = engine(kind, server, vocabulary=vocabulary)
            for asked in (0, 2):
                outputs = await collect(one.generate(Generation(prompt=PROMPT, logprobs=asked)))
                found = [each for output in outputs[:2] for each in output.logprobs]
                known = vocabulary is not None or KINDS[kind].gives_ids
                assert [each.token for each in found] == (list(b"xy") if known else [UNKNOWN] * 2)
                assert [each.bytes for each in found] == [b"x", b"y"]
                assert [each.logprob for each in found] == [-1.2, -1.21]
                assert [[each.bytes for each in one.top] for one in found] == [[b"A", b"B"][:asked]] * 2
            plain = await collect(one.generate(Generation(prompt=PROMPT)))
            assert not any(output.logprobs for output in plain[:-1])
            await one.close()


# What goes in


ALL = Generation(
    prompt=PROMPT,
    sampling=Sampling(
        temperature=0.5,
        top_p=0.9,
        top_k=7,
        min_p=0.1,
        presence_penalty=0.2,
        frequency_penalty=0.3,
        repetition_penalty=1.1,
        seed=11,
        logit_bias={5: -math.inf, 6: 2.0},
    ),
    max_tokens=9,
    stop=("a",),
    stop_tokens=(MARKER,),
    logprobs=1,
)


async def body_of(kind: str, request: Generation, **options: Any) -> Any:
    async with KINDS[kind].server(HELLO) as server:
        one = engine(kind, server, **options)
        try:
            await collect(one.generate(request))
        finally:
            await one.close()
        return server.generated[0]


@in_loop
async def test_all_that_sglang_is_asked() -> None:
    body = await body_of("sglang", ALL)
    assert len(body.pop("rid")) == 32
    assert body == {
        "input_ids": [1, 2, 3],
        "stream": True,
        "return_logprob": True,
        "top_logprobs_num": 1,
        "return_text_in_logprobs": False,
        "sampling_params": {
            "temperature": 0.5,
            "top_p": 0.9,
            "top_k": 7,
            "min_p": 0.1,
            "presence_penalty": 0.2,
            "frequency_penalty": 0.3,
            "repetition_penalty": 1.1,
            "sampling_seed": 11,
            "logit_bias": {"5": -100.0, "6": 2.0},
            "max_new_tokens": 9,
            "stop": ["a"],
            "stop_token_ids": [MARKER],
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
        },
    }
    plain = (await body_of("sglang", Generation(prompt="text")))["sampling_params"]
    assert (plain["top_k"], plain["max_new_tokens"], "sampling_seed" in plain) == (-1, None, False)


@in_loop
async def test_all_that_vllm_is_asked() -> None:
    assert await body_of("vllm", ALL, extra={"priority": 3}) == {
        "model": "fake",
        "prompt": [1, 2, 3],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "min_p": 0.1,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.3,
        "repetition_penalty": 1.1,
        "seed": 11,
        "logit_bias": {"5": -100.0, "6": 2.0},
        "max_tokens": 9,
        "stop": ["a"],
        "stop_token_ids": [MARKER],
        "logprobs": 1,
        "return_tokens_as_token_ids": True,
        "return_token_ids": True,
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "add_special_tokens": False,
        "priority": 3,
    }
    assert (await body_of("vllm", Generation(prompt=PROMPT)))["max_tokens"] == 1000  # not the server's 16


@in_loop
async def test_openai_is_asked_no_more_than_it_knows() -> None:
    assert await body_of("openai", Generation(prompt=PROMPT)) == {
        "model": "fake",
        "prompt": [1, 2, 3],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 1.0,
        "top_p": 1.0,
        "max_tokens": 997,
    }


@in_loop
async def test_constraints_are_where_the_server_looks() -> None:
    constraint = unbraid.constraint("qwen3", tools=TOOLS, tool_choice="required")
    request = Generation(prompt=PROMPT, constraint=constraint)
    tag = constraint.to_structural_tag()
    body = await body_of("sglang", request)
    assert json.loads(body["sampling_params"]["structural_tag"]) == tag
    body = await body_of("sglang", request, syntax="ebnf")
    assert body["sampling_params"]["ebnf"] == constraint.to_ebnf()
    body = await body_of("vllm", request)
    assert list(body["structured_outputs"]) == ["structural_tag"]
    assert json.loads(body["structured_outputs"]["structural_tag"]) == tag
    for syntax, text in (("ebnf", constraint.to_ebnf()), ("lark", constraint.to_lark())):
        assert (await body_of("vllm", request, syntax=syntax))["structured_outputs"] == {"grammar": text}
    body = await body_of("openai", request, constrain=lambda one: {"guided_grammar": one.to_ebnf()})
    assert body["guided_grammar"] == constraint.to_ebnf()
    with pytest.raises(Unsupported, match="leave the constraint out"):
        await body_of("openai", request)


@in_loop
async def test_audio() -> None:
    audio = (Audio(b"\x00\xff", "wav"), Audio(b"a", "mp3"))
    request = Generation(prompt=PROMPT, audio=audio)
    body = await body_of("sglang", request)
    assert body["audio_data"] == ["data:audio/wav;base64,AP8=", "data:audio/mp3;base64,YQ=="]
    assert "audio_data" not in await body_of("sglang", Generation(prompt=PROMPT))
    for kind in ("vllm", "openai"):
        with pytest.raises(Unsupported, match="takes no audio: send text alone"):
            await body_of(kind, request)


@in_loop
@pytest.mark.parametrize(
    ("request_", "in_thread"),
    [
        (Generation(prompt=PROMPT), False),
        (Generation(prompt=(1,) * 100_000), True),
        (Generation(prompt=PROMPT, constraint=unbraid.constraint("qwen3", tools=TOOLS, tool_choice="required")), True),
    ],
    ids=["plain", "long", "constrained"],
)
async def test_what_takes_long_to_write_is_not_written_in_the_event_loop(request_: Generation, in_thread: bool) -> None:
    """Constraints are looked through when they are written, and long prompts become long JSON."""
    threads = []

    class Noticing(CompletionServer):
        def body(self, request: Generation) -> dict[str, Any]:
            threads.append(threading.get_ident())
            return super().body(request)

    server = Noticing("http://127.0.0.1:1", lambda _: {}, model="m", context=1_000_000)
    with pytest.raises(EngineDown):
        await collect(server.generate(request_))
    await server.close()
    assert [thread != threading.get_ident() for thread in threads] == [in_thread]
