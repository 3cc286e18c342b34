"""The engines for vLLM, against a real one with SmolLM2: `vllm serve` over HTTP, and `AsyncLLM` inside the process.

Both have to keep the same promises. Where there is no vLLM (`scripts/install-vllm` installs it), all is skipped. One
engine runs at a time; the last tests for each kill it, so that the order matters.
"""

from __future__ import annotations

import asyncio
import gc
import io
import json
import os
import re
import signal
import wave
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

import unbraid
from unbraid import tokens
from unbraid.constraints.constraint import forced_prefix
from unbraid.constraints.printers import VLLMSyntax
from unbraid.core.vocabulary import Vocabulary
from unbraid.engines import (
    Audio,
    Engine,
    EngineDown,
    EngineError,
    EngineFailed,
    Finish,
    Generation,
    Piece,
    PromptTooLong,
    Sampling,
    TokenLogprob,
    Unsupported,
)
from unbraid.engines.llama_cpp.embedded import EmbeddedEngine
from unbraid.engines.routing import Routing
from unbraid.engines.vllm.local import VLLMLocalEngine
from unbraid.engines.vllm.server import VLLMEngine

from ..support.embedded_model import GREEDY, smollm2
from ..support.waiting import wait_for
from .vllm_model import checkpoint
from .vllm_process import ENVIRONMENT, NAME, arguments, skip_without_vllm, vllm_serve

CONTEXT = 512
PATIENCE = 120.0  # the longest test
WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["C", "F"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "get_weather", "strict": True, "parameters": WEATHER}}
]
CAPITAL: dict[str, Any] = {
    "type": "object",
    "properties": {"capital": {"type": "string", "maxLength": 10}, "rivers": {"type": "integer", "maximum": 9}},
    "required": ["capital", "rivers"],
    "additionalProperties": False,
}
PARIS = "The capital of France is Paris."


@dataclass
class Output:
    """What came of a request."""

    pieces: list[Piece]
    finish: Finish
    text: str

    @property
    def ids(self) -> list[int]:
        return [token for piece in self.pieces for token in piece.ids]

    @property
    def logprobs(self) -> list[TokenLogprob]:
        return [logprob for piece in self.pieces for logprob in piece.logprobs]


@dataclass
class Peer:
    """A running vLLM. All is done in one event loop, as `AsyncLLM` wants it."""

    engine: Engine
    runner: asyncio.Runner
    tokenizer: Any
    vocabulary: Vocabulary
    speaking: Callable[[VLLMSyntax], Engine]
    """The same vLLM, asked in another syntax."""
    running: Callable[[], float]
    """How many requests vLLM says that it works on."""
    kill: Callable[[], None]

    def run(self, work: Awaitable[Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(PATIENCE):
                return await work

        return self.runner.run(bounded())

    def ids(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def chat(self, text: str) -> tuple[int, ...]:
        return self.ids(f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n")

    @property
    def capital(self) -> tuple[int, ...]:
        """What is answered with `PARIS`."""
        return self.chat("What is the capital of France?")

    async def asked(self, prompt: tuple[int, ...] | str, engine: Engine | None = None, **options: Any) -> Output:
        request = Generation(prompt=prompt, **{"sampling": GREEDY, **options})
        outputs = [output async for output in (engine or self.engine).generate(request)]
        finish = outputs.pop()
        assert isinstance(finish, Finish)
        pieces = [output for output in outputs if isinstance(output, Piece)]
        data = b"".join(self.vocabulary.token_bytes(token) or b"" for piece in pieces for token in piece.ids)
        assert len(pieces) == len(outputs)
        assert all(piece.ids and piece.text is None for piece in pieces)
        return Output(pieces, finish, data.decode("utf-8", "replace"))

    def ask(self, prompt: tuple[int, ...] | str, **options: Any) -> Output:
        return self.run(self.asked(prompt, **options))  # type: ignore[no-any-return]


@pytest.fixture(scope="module", params=["server", "local"])
def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    skip_without_vllm()
    folder = checkpoint()
    tokenizer = pytest.importorskip("tokenizers").Tokenizer.from_file(str(folder / "tokenizer.json"))
    started = _server if request.param == "server" else _local
    with asyncio.Runner() as runner, started(folder, tokenizer, runner, tmp_path_factory.mktemp("vllm")) as found:
        yield found


@contextmanager
def _server(folder: Path, tokenizer: Any, runner: asyncio.Runner, logs: Path) -> Iterator[Peer]:
    vocabulary = tokens.vocabulary(tokenizer)

    def speaking(syntax: VLLMSyntax) -> VLLMEngine:
        return VLLMEngine(server.url, vocabulary=vocabulary, syntax=syntax, routing=Routing(check_interval=60.0))

    def running() -> float:
        found = re.search(r"(?m)^vllm:num_requests_running\{.*\} (\S+)$", httpx.get(f"{server.url}/metrics").text)
        assert found is not None
        return float(found[1])

    with vllm_serve(CONTEXT, logs) as server:
        engine = speaking("structural_tag")
        yield Peer(engine, runner, tokenizer, vocabulary, speaking, running, server.kill)
        runner.run(engine.close())


@contextmanager
def _local(folder: Path, tokenizer: Any, runner: asyncio.Runner, logs: Path) -> Iterator[Peer]:
    import prometheus_client

    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        engine = VLLMLocalEngine(folder, name=NAME, **arguments(CONTEXT))
        vocabulary = engine.vocabulary
        assert vocabulary is not None

        def speaking(syntax: VLLMSyntax) -> VLLMLocalEngine:
            other = object.__new__(VLLMLocalEngine)
            other.__dict__ = {**engine.__dict__, "_syntax": syntax}
            return other

        def running() -> float:
            found = [
                sample.value
                for metric in prometheus_client.REGISTRY.collect()
                for sample in metric.samples
                if sample.name == "vllm:num_requests_running"
            ]
            assert len(found) == 1
            return found[0]

        def kill() -> None:
            for process in engine._llm.engine_core.resources.engine_manager.processes:
                os.kill(process.pid, signal.SIGKILL)

        try:
            yield Peer(engine, runner, tokenizer, vocabulary, speaking, running, kill)
        finally:
            runner.run(engine.close())
            gc.collect()  # what is left of vLLM is not to wait for the end of Python


# Tokens in, tokens out


def test_the_weights_are_the_same(peer: Peer) -> None:
    """llama.cpp, with the file that the checkpoint was made from, says the same where the choice is clear."""
    embedded = EmbeddedEngine(smollm2(), context=CONTEXT, parallel=1, threads=1)
    try:
        for text in ("What is the capital of France?", "Count from one to ten in words."):
            assert tuple(embedded.vocabulary.encode(text)) == peer.ids(text)
            here = peer.ask(peer.chat(text), max_tokens=24)
            there = peer.run(peer.asked(peer.chat(text), embedded, max_tokens=24))
            assert here.ids == there.ids
    finally:
        embedded.shut()


def test_it_says_what_it_is(peer: Peer) -> None:
    peer.run(peer.engine.check())
    assert (peer.engine.model, peer.engine.context) == ("smollm2", CONTEXT)
    assert peer.engine.vocabulary is not None


def test_ids_come_and_go(peer: Peer) -> None:
    found = peer.ask(peer.capital)
    assert found.text == f"{PARIS}<|im_end|>"
    assert len(found.pieces) > 1
    assert not found.logprobs
    finish = found.finish
    assert (finish.reason, finish.prompt_tokens, finish.completion_tokens) == (
        "stop",
        len(peer.capital),
        len(found.ids),
    )


def test_a_prompt_may_be_text(peer: Peer) -> None:
    text = peer.tokenizer.decode(list(peer.capital), skip_special_tokens=False)
    found = peer.ask(text, max_tokens=12)
    assert found.text == f"{PARIS}<|im_end|>"
    assert found.finish.prompt_tokens == len(peer.capital)


def test_what_was_computed_before_is_known(peer: Peer) -> None:
    prompt = peer.ids("one two three four five " * 60)[:300]
    first, second = peer.ask(prompt, max_tokens=2), peer.ask(prompt, max_tokens=2)
    assert first.ids == second.ids
    assert (first.finish.cached_tokens, second.finish.cached_tokens > 100) == (0, True)


def test_several_at_once(peer: Peer) -> None:
    async def all_of_them() -> list[Output]:
        return await asyncio.gather(*(peer.asked(peer.capital, max_tokens=4 + at) for at in range(4)))

    found = peer.run(all_of_them())
    assert [len(one.ids) for one in found] == [4, 5, 6, 7]
    assert all(PARIS.startswith(one.text) for one in found)


# How tokens are chosen


def test_seeds(peer: Peer) -> None:
    def tell(seed: int) -> list[int]:
        sampling = Sampling(temperature=1.0, top_p=0.95, seed=seed)
        return peer.ask(peer.chat("Tell me a story."), max_tokens=12, sampling=sampling).ids

    assert tell(7) == tell(7)
    assert tell(7) != tell(8)


def test_logit_bias(peer: Peer) -> None:
    (parrot,) = peer.ids(" parrot")
    only = Sampling(temperature=0.0, logit_bias={parrot: float("inf")})
    assert peer.ask(peer.capital, max_tokens=3, sampling=only).ids == [parrot] * 3
    (first,) = peer.ids("The")
    without = Sampling(temperature=0.0, logit_bias={first: -100.0})
    assert peer.ask(peer.capital, max_tokens=1, sampling=without).ids != [first]


def test_logprobs(peer: Peer) -> None:
    found = peer.ask(peer.capital, max_tokens=4, logprobs=3)
    assert [one.token for one in found.logprobs] == found.ids
    for one in found.logprobs:
        assert one.bytes == peer.vocabulary.token_bytes(one.token)
        assert one.logprob <= 0.0
        assert len(one.top) == 3
        assert (one.top[0].token, one.top[0].logprob) == (one.token, one.logprob)
        assert [top.logprob for top in one.top] == sorted((top.logprob for top in one.top), reverse=True)
        assert all(top.bytes == peer.vocabulary.token_bytes(top.token) for top in one.top)
    alone = peer.ask(peer.capital, max_tokens=2, logprobs=0)
    assert [(one.token, one.top) for one in alone.logprobs] == [(token, ()) for token in alone.ids]


# How it ends


def test_length(peer: Peer) -> None:
    found = peer.ask(peer.capital, max_tokens=3)
    assert (found.finish.reason, found.finish.completion_tokens, len(found.ids)) == ("length", 3, 3)
    full = peer.ask(peer.ids("one two three " * 200)[: CONTEXT - 5], max_tokens=50)  # more than there is room for
    assert (full.finish.reason, len(full.ids)) == ("length", 5)


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        (("ranc",), "The capital of F"),  # inside of a token
        (("tal of Fr", "zebra"), "The capi"),  # from the middle of one to the middle of another
        (("is Paris", "Paris"), "The capital of France "),
        (("The capitol", "Paris!"), f"{PARIS}<|im_end|>"),  # these only begin
    ],
)
def test_stop_texts(peer: Peer, stop: tuple[str, ...], text: str) -> None:
    found = peer.ask(peer.capital, max_tokens=12, stop=stop)
    assert found.text == text
    by = found.finish.stopped_by if text.endswith("<|im_end|>") else stop[0]
    assert (found.finish.reason, found.finish.stopped_by) == ("stop", by)


def test_stop_tokens(peer: Peer) -> None:
    (france,) = peer.ids(" France")
    found = peer.ask(peer.capital, max_tokens=12, stop_tokens=(france,))
    assert found.text == "The capital of France"
    assert (found.finish.reason, found.finish.stopped_by) == ("stop", france)


# Constraints


def bad_habits(peer: Peer) -> tuple[int, ...]:
    """A prompt that is gone on with by a call with other arguments than the schema has."""

    def exchange(city: str) -> str:
        made = json.dumps({"name": "get_weather", "arguments": {"town": city, "sky": "blue"}})
        return f"User: How is the weather in {city}?\nModel: <tool_call>\n{made}\n</tool_call>\n"

    return peer.ids("".join(map(exchange, ("Rome", "Oslo", "Lima"))) + "User: How is the weather in Bonn?\nModel:")


def call(peer: Peer, found: Output) -> dict[str, Any]:
    """The arguments of the one call that was made."""
    assert found.finish.reason == "stop"
    message = unbraid.parse("hermes", found.ids, tools=TOOLS, tokenizer=peer.tokenizer)
    (made,) = message.tool_calls
    assert (made.name, made.complete) == ("get_weather", True)
    assert not message.diagnostics
    arguments = json.loads(made.arguments)
    jsonschema.validate(arguments, WEATHER)
    return dict(arguments)


@pytest.mark.parametrize("syntax", ["structural_tag", "ebnf", "lark", "regex"])
def test_a_required_call(peer: Peer, syntax: VLLMSyntax) -> None:
    constraint = unbraid.constraint(
        "hermes", tools=TOOLS, tool_choice="required", parallel_tool_calls=False, tokenizer=peer.tokenizer
    )

    async def ask() -> Output:
        engine = peer.speaking(syntax)
        try:
            return await peer.asked(bad_habits(peer), engine, max_tokens=100, constraint=constraint)
        finally:
            if isinstance(engine, VLLMEngine):
                await engine.close()

    call(peer, peer.run(ask()))


def test_a_constraint_of_tokens(peer: Peer) -> None:
    """Special tokens are asked for by their ids, not spelled."""
    constraint = forced_prefix([["<repo_name>", "<filename>"], ["<file_sep>"]], peer.vocabulary)
    found = peer.ask(peer.capital, max_tokens=4, constraint=constraint).ids
    names = [peer.vocabulary.token_id(text) for text in ("<repo_name>", "<filename>", "<file_sep>")]
    assert found[0] in names[:2]
    assert found[1] == names[2]


def test_a_json_answer(peer: Peer) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": CAPITAL}}
    constraint = unbraid.constraint("hermes", tools=[], response_format=schema, tokenizer=peer.tokenizer)
    found = peer.ask(peer.capital, max_tokens=80, constraint=constraint)
    assert found.finish.reason == "stop"
    jsonschema.validate(json.loads(unbraid.parse("hermes", found.text.removesuffix("<|im_end|>")).content), CAPITAL)


def test_a_call_that_need_not_be(peer: Peer) -> None:
    """With `auto` the model may answer as it likes; once it begins a call, the call is held to its schema."""
    constraint = unbraid.constraint(
        "hermes", tools=TOOLS, tool_choice="auto", parallel_tool_calls=False, tokenizer=peer.tokenizer
    )
    assert peer.ask(peer.capital, max_tokens=12, constraint=constraint).text.startswith(PARIS)
    prompt = bad_habits(peer)
    free = peer.ask(prompt, max_tokens=60, stop=("</tool_call>",))
    assert '"town"' in free.text
    held = peer.ask(prompt, max_tokens=60, stop=("</tool_call>",), constraint=constraint)
    (made,) = unbraid.parse("hermes", held.text + "</tool_call>", tools=TOOLS).tool_calls
    jsonschema.validate(json.loads(made.arguments), WEATHER)


# What goes wrong


def silence() -> bytes:
    """A tenth of a second of it, as a file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as wav:
        wav.setparams((1, 2, 16000, 0, "NONE", ""))
        wav.writeframes(bytes(3200))
    return file.getvalue()


@pytest.mark.parametrize("size", [CONTEXT, CONTEXT + 1, CONTEXT * 2])
@pytest.mark.parametrize("most", [None, 8])
def test_too_long_a_prompt(peer: Peer, size: int, most: int | None) -> None:
    with pytest.raises(PromptTooLong, match=str(CONTEXT)):
        peer.ask((1,) * size, max_tokens=most)
    assert peer.engine.load.running == 0


@pytest.mark.parametrize(
    "asked",
    [
        {"prompt": ()},
        {"prompt": (10**6,)},
        {"sampling": Sampling(temperature=9.0)},
        {"sampling": Sampling(logit_bias={10**6: 1.0})},
        {"stop_tokens": (10**6,)},
        {"logprobs": 10**4},
        {"audio": (Audio(b"RIFF", "wav"),)},
        {"audio": (Audio(silence(), "wav"),)},  # which this model does not take
    ],
)
def test_what_cannot_be_done(peer: Peer, asked: dict[str, Any]) -> None:
    with pytest.raises(Unsupported):
        peer.ask(**{"prompt": (1,), "max_tokens": 1, **asked})


def test_closing_aborts(peer: Peer) -> None:
    async def leave() -> None:
        outputs = peer.engine.generate(Generation(prompt=peer.chat("Tell me a long story."), max_tokens=450))
        assert isinstance(await anext(outputs), Piece)
        assert await asyncio.to_thread(peer.running) == 1
        assert peer.engine.load.running == 1
        await outputs.aclose()
        assert peer.engine.load.running == 0
        await asyncio.to_thread(wait_for, lambda: not peer.running())

    peer.run(leave())


def test_cancelling_aborts(peer: Peer) -> None:
    async def leave() -> None:
        task = asyncio.create_task(peer.asked(peer.chat("Tell me a long story."), max_tokens=450))
        await asyncio.to_thread(wait_for, lambda: bool(peer.running()))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(wait_for, lambda: not peer.running())

    peer.run(leave())


def test_an_engine_that_dies(peer: Peer) -> None:
    """The last one: it kills vLLM in the middle of an output."""

    async def outlive() -> None:
        outputs = peer.engine.generate(Generation(prompt=peer.chat("Tell me a long story."), max_tokens=450))
        assert isinstance(await anext(outputs), Piece)
        peer.kill()
        with pytest.raises(EngineFailed):
            async for _ in outputs:
                pass
        with pytest.raises(EngineDown):
            await peer.engine.check()
        with pytest.raises(EngineDown):
            await peer.asked(peer.capital)

    peer.run(outlive())


def test_a_closed_engine_says_so() -> None:
    engine = object.__new__(VLLMLocalEngine)
    engine._closed = True
    with pytest.raises(EngineDown, match="closed"):
        asyncio.run(engine.check())


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed here")
def test_without_vllm_it_says_what_to_install() -> None:
    with pytest.raises(EngineError, match="pip install vllm"):
        VLLMLocalEngine("a/model")
