"""What goes wrong between engines and their servers, aborts, and many requests at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from unbraid.engines import (
    EngineBusy,
    EngineDown,
    EngineError,
    EngineFailed,
    EngineTimeout,
    Finish,
    Generation,
    Load,
    Piece,
    PromptTooLong,
    Sampling,
    Unsupported,
)
from unbraid.engines.http.address import _message
from unbraid.engines.http.refusals import refusal, too_long_field
from unbraid.engines.http.timeouts import Timeouts

from ..support.byte_vocabulary import END, MARKER
from ..support.fake_servers import FakeServer, FakeSGLang, Fault
from ..support.in_loop import collect, collect_until_error, in_loop
from ..support.waiting import PATIENCE, until
from .http_kinds import HELLO, KINDS, PROMPT, each_kind, engine, ids_of, text_of, whole

# What goes wrong


def logprobs_of(outputs: list[Any]) -> list[Any]:
    return [one for output in outputs if isinstance(output, Piece) for one in output.logprobs]


async def fails(kind: str, fault: Fault, **options: Any) -> tuple[list[Any], EngineError, FakeServer]:
    async with KINDS[kind].server([*b"abcdef", END], fault=fault) as server:
        one = engine(kind, server, **options)
        outputs, error = await collect_until_error(one.generate(Generation(prompt=PROMPT)))
        await one.close()
        assert error is not None
        return outputs, error, server


@each_kind
@in_loop
async def test_faults_in_the_middle(kind: str) -> None:
    for fault in ("cut", "garbage", "error"):
        outputs, error, _ = await fails(kind, Fault(fault, after=2))
        assert whole(outputs) == b"ab"
        assert isinstance(error, EngineFailed)


@each_kind
@in_loop
async def test_a_server_that_goes_silent(kind: str) -> None:
    timeouts = Timeouts(first=PATIENCE, piece=1.5)
    outputs, error, server = await fails(kind, Fault("silent", after=2), timeouts=timeouts)
    assert whole(outputs) == b"ab"
    assert isinstance(error, EngineTimeout)
    assert "gave no output for 1.5 seconds" in str(error)
    assert server.gone == 1


@each_kind
@pytest.mark.parametrize(
    ("status", "message", "kind_of_error"),
    [
        (400, "invalid grammar", Unsupported),
        (422, "top_k must be an integer", Unsupported),
        (400, "This model's maximum context length is 10 tokens", PromptTooLong),
        (413, "too much", PromptTooLong),
        (401, "no key", EngineError),
        (403, "not for you", EngineError),
        (404, "no such model", EngineError),
        (500, "CUDA error", EngineFailed),
        (429, "later", EngineBusy),
        (503, "The request queue is full.", EngineBusy),
        (503, "The engine is currently busy and cannot accept new requests.", EngineBusy),
        (503, "later", EngineDown),
    ],
)
@in_loop
async def test_what_a_status_means(kind: str, status: int, message: str, kind_of_error: type[EngineError]) -> None:
    _, error, _ = await fails(kind, Fault("status", status=status, message=message, headers={"Retry-After": "7"}))
    assert type(error) is kind_of_error
    assert error.status == status
    assert message in str(error)
    if isinstance(error, EngineDown):
        assert error.retry_after == 7.0


@each_kind
@in_loop
async def test_a_prompt_that_is_too_long(kind: str) -> None:
    async with KINDS[kind].server(HELLO) as server:
        one = engine(kind, server)
        with pytest.raises(PromptTooLong, match="1000 tokens"):
            await collect(one.generate(Generation(prompt=(1,) * 1000)))
        await one.close()


@pytest.mark.parametrize(
    ("body", "message"),
    [("plain", "plain"), ('{"detail": "d"}', "d"), ('{"error": "e"}', "e"), ('{"message": "m"}', "m"), ("[1]", "[1]")],
)
def test_messages_of_all_shapes(body: str, message: str) -> None:
    assert _message(body) == message
    assert str(refusal(400, message)) == message


@each_kind
@in_loop
async def test_nobody_listens(kind: str) -> None:
    async with KINDS[kind].server() as server:
        one = engine(kind, server)
    with pytest.raises(EngineDown, match="cannot be reached") as raised:
        await collect(one.generate(Generation(prompt=PROMPT)))
    assert raised.value.status is None
    with pytest.raises(EngineDown):
        await one.check()
    await one.close()


@each_kind
@in_loop
async def test_a_kept_connection_that_is_dropped(kind: str) -> None:
    async with KINDS[kind].server(HELLO) as server:
        server.drops_kept = True
        one = engine(kind, server)
        for _ in range(3):
            assert (await collect(one.generate(Generation(prompt=PROMPT))))[-1].reason == "stop"
        assert server.connections > 3
        await one.close()


@each_kind
@in_loop
async def test_another_server_takes_over_before_the_first_token(kind: str) -> None:
    for fault in (Fault("status"), Fault("status", status=503), Fault("cut"), Fault("garbage")):
        async with KINDS[kind].server(HELLO, fault=fault) as bad, KINDS[kind].server(HELLO) as good:
            one = engine(kind, bad, good)
            outputs = await collect(one.generate(Generation(prompt=PROMPT)))
            assert outputs[-1].reason == "stop"
            assert (len(bad.generated), len(good.generated)) == (1, 1)
            await one.close()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@each_kind
@in_loop
async def test_another_goes_on_after_any_token(kind: str, temperature: float) -> None:
    """From the ids; where there is only text, all of a greedy output comes again."""
    asked = Generation(prompt=PROMPT, sampling=Sampling(temperature=temperature))
    async with KINDS[kind].server(HELLO) as good:
        one = engine(kind, good)
        undisturbed = whole(await collect(one.generate(asked)))
        await one.close()
    for after in range(1, len(HELLO)):
        async with KINDS[kind].server(HELLO, fault=Fault("cut", after=after)) as bad, KINDS[kind].server(HELLO) as good:
            one = engine(kind, bad, good)
            outputs, error = await collect_until_error(one.generate(asked))
            if not KINDS[kind].gives_ids and temperature and text_of(outputs):
                assert "it cannot go on at another replica: it came as text" in str(error)
                assert not good.generated
            else:
                assert whole(outputs) == undisturbed
                finish = outputs[-1]
                assert (finish.reason, finish.prompt_tokens, finish.completion_tokens) == ("stop", 3, len(HELLO))
            await one.close()


@pytest.mark.parametrize("kind", ["sglang", "vllm"])
@in_loop
async def test_what_is_left_is_asked_for(kind: str) -> None:
    """The limit, the stop texts and the logprobs of an output that goes on are those of an undisturbed one."""
    stop = ("\U0001f99c",)
    cases: list[dict[str, Any]] = [{"max_tokens": 4}, {"stop": stop}, {"stop_tokens": (MARKER,)}, {"logprobs": 2}]
    for fields in cases:
        asked = Generation(prompt=PROMPT, sampling=Sampling(seed=7), **fields)
        async with KINDS[kind].server(HELLO) as good:
            one = engine(kind, good)
            outputs = await collect(one.generate(asked))
            await one.close()
        for after in range(1, 4):
            async with (
                KINDS[kind].server(HELLO, fault=Fault("cut", after=after)) as bad,
                KINDS[kind].server(HELLO) as good,
            ):
                one = engine(kind, bad, good)
                found = await collect(one.generate(asked))
                assert ids_of(found) == ids_of(outputs)
                assert found[-1] == outputs[-1]
                assert logprobs_of(found) == logprobs_of(outputs)
                sent = good.generated[0]
                limit = sent["sampling_params"]["max_new_tokens"] if kind == "sglang" else sent["max_tokens"]
                assert limit == {"max_tokens": 4 - after}.get(next(iter(fields)), limit)
                assert sent.get("seed", sent.get("sampling_params", {}).get("sampling_seed")) != 7
                await one.close()


@pytest.mark.parametrize(("kind", "name"), [("sglang", "repetition_penalty"), ("vllm", "presence_penalty")])
@in_loop
async def test_penalties_that_would_forget_what_came(kind: str, name: str) -> None:
    """All comes again if the output is greedy; if not, the failure says why nobody can go on."""
    for temperature in (0.0, 1.0):
        penalty: dict[str, Any] = {name: 0.5}
        asked = Generation(prompt=PROMPT, sampling=Sampling(temperature=temperature, **penalty))
        async with KINDS[kind].server(HELLO, fault=Fault("cut", after=2)) as bad, KINDS[kind].server(HELLO) as good:
            one = engine(kind, bad, good)
            outputs, error = await collect_until_error(one.generate(asked))
            assert name in str(error) if error else ids_of(outputs) == HELLO
            assert (error is None) == (temperature == 0.0)
            assert len(good.generated) == (error is None)
            await one.close()


@in_loop
async def test_sglang_says_in_a_stream_that_it_is_full() -> None:
    async with FakeSGLang(HELLO) as full, FakeSGLang(HELLO) as other:
        ended = {"type": "abort", "message": "The request queue is full.", "status_code": 503, "err_type": None}
        message = {"text": "", "output_ids": [], "meta_info": {"finish_reason": ended, "completion_tokens": 0}}
        full.events = lambda body: iter([message])  # type: ignore[method-assign]
        one = engine("sglang", full, other)
        assert ids_of(await collect(one.generate(Generation(prompt=PROMPT)))) == HELLO
        await one.close()
        alone = engine("sglang", full)
        with pytest.raises(EngineDown, match="queue is full"):
            await collect(alone.generate(Generation(prompt=PROMPT)))
        await alone.close()


@each_kind
@pytest.mark.parametrize(
    ("prompt", "max_tokens", "field"),
    [((5,) * 9, None, "prompt"), ((5,) * 9, 3, "max_tokens"), ((5,) * 10, 3, "prompt")],
)
@in_loop
async def test_what_makes_a_request_too_long(
    kind: str, prompt: tuple[int, ...], max_tokens: int | None, field: str
) -> None:
    fault = Fault("status", status=400, message="This model's maximum context length is 10 tokens")
    async with KINDS[kind].server(HELLO, fault=fault) as server:
        one = engine(kind, server, context=10)
        with pytest.raises(PromptTooLong) as raised:
            await collect(one.generate(Generation(prompt=prompt, max_tokens=max_tokens)))
        assert raised.value.field == field
        await one.close()


@pytest.mark.parametrize(
    ("max_tokens", "message", "field"),
    [
        (None, "maximum context length is 10 tokens", "prompt"),
        (3, "maximum context length is 10 tokens", "prompt"),
        (30, "maximum context length is 10 tokens", "max_tokens"),
        (
            8,
            "maximum context length is 10 tokens. You requested 12 (4 in the messages, 8 …",
            "max_tokens",
        ),
        (8, "context length is only 10 tokens. You passed 11 input tokens and requested 8 output tokens", "prompt"),
        (8, "context length of 10 tokens: 4 tokens from the input messages and 8 for the completion", "max_tokens"),
        (8, "request (12 tokens) exceeds the available context size (10 tokens)", "prompt"),
        (8, "it is too much", "prompt"),
    ],
)
def test_what_makes_a_text_too_long(max_tokens: int | None, message: str, field: str) -> None:
    """Only the server knows how many tokens a text has, and says so in its own words."""
    assert too_long_field(Generation(prompt="Hello", max_tokens=max_tokens), None, message) == field


# Abort


@each_kind
@pytest.mark.parametrize("how", ["aclose", "cancel", "before the first token"])
@in_loop
async def test_the_server_sees_an_abort(kind: str, how: str) -> None:
    fault = Fault("silent", after=0 if how == "before the first token" else 2)
    async with KINDS[kind].server(HELLO, fault=fault) as server:
        one = engine(kind, server)
        outputs = one.generate(Generation(prompt=PROMPT))
        if how == "aclose":
            await anext(outputs)
            assert one.load == one.replicas[0].engine.load == Load(running=1)
            await outputs.aclose()
        else:
            came: list[Piece | Finish] = []

            async def take() -> None:
                async for output in outputs:
                    came.append(output)  # noqa: PERF401 they count as they come

            task = asyncio.create_task(take())
            await until(lambda: bool(came if fault.after else server.generated))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await until(lambda: server.gone == 1)
        assert one.load == one.replicas[0].engine.load == Load()
        await one.close()
        if isinstance(server, FakeSGLang):
            assert server.aborted == [server.generated[0]["rid"]]


@each_kind
@in_loop
async def test_nothing_is_aborted_that_has_ended(kind: str) -> None:
    async with KINDS[kind].server(HELLO) as server:
        one = engine(kind, server)
        for _ in range(3):
            await collect(one.generate(Generation(prompt=PROMPT)))
        outputs = one.generate(Generation(prompt=PROMPT))
        async for output in outputs:
            if isinstance(output, Finish):
                break
        await outputs.aclose()
        await one.close()
        assert server.connections == 1  # it was kept
        assert not getattr(server, "aborted", [])


# Many at once


@each_kind
@in_loop
async def test_many_at_once_on_the_least_loaded(kind: str) -> None:
    make = KINDS[kind].server
    async with make(HELLO, together=20) as one, make(HELLO, together=20) as two, make(HELLO, together=20) as three:
        routed = engine(kind, one, two, three)
        await routed.check()
        answers = await asyncio.gather(*(collect(routed.generate(Generation(prompt=PROMPT))) for _ in range(60)))
        assert {whole(answer).removesuffix(b"<end>") for answer in answers} == {"Hé 🦜<marker>".encode()}
        assert [len(server.generated) for server in (one, two, three)] == [20, 20, 20]
        await routed.close()
