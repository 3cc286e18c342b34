"""The engine for llama.cpp's server, against a real one: xllamacpp listens on HTTP, with SmolLM2."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import unbraid
from unbraid.constraints.constraint import LlamaCppGrammar
from unbraid.constraints.language import OutputLanguage
from unbraid.constraints.printers import Printed
from unbraid.engines import Audio, Finish, Generation, Load, Piece, PromptTooLong, Sampling, Unsupported
from unbraid.engines.llama_cpp.server import LlamaCppServerEngine
from unbraid.engines.routing import Routing
from unbraid.models.gguf import Gguf, GgufVocabulary
from unbraid.schema.regular import Verbatim

from ..support.embedded_model import smollm2
from ..support.in_loop import collect, in_loop

GREEDY = Sampling(temperature=0.0)
ENDLESS = "[a-z ] root"
"""A grammar of texts that cannot end: where a model may end its output, it may do so at once."""


@dataclass
class Peer:
    """A running server, and what it needs to be asked."""

    server: Any
    vocabulary: GgufVocabulary
    parrot: tuple[int, ...] = ()

    def engine(self, **options: Any) -> LlamaCppServerEngine:
        options = {"vocabulary": self.vocabulary, "routing": Routing(check_interval=60.0), **options}
        return LlamaCppServerEngine(self.server.listening_address, **options)

    def bytes(self, outputs: list[Any]) -> bytes:
        ids = [token for output in outputs if isinstance(output, Piece) for token in output.ids]
        text = "".join(output.text or "" for output in outputs if isinstance(output, Piece))
        return b"".join(self.vocabulary.token_bytes(token) or b"" for token in ids) + text.encode()


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    library = pytest.importorskip("xllamacpp")
    params = library.CommonParams()
    params.model.path = str(smollm2().gguf)
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads = 1024, 2, 1  # two that spin wait for each other
    params.warmup, params.verbosity, params.port = False, 0, 0
    params.ctx_shift = True  # an output that nothing ends goes on beyond the context
    found = Peer(library.Server(params), GgufVocabulary(Gguf(smollm2().gguf)))

    async def tokenize() -> list[int]:
        one = found.engine()
        ids = await one.tokenize("<|im_start|>user\nSay the emoji 🦜 now.<|im_end|>\n<|im_start|>assistant\n")
        await one.close()
        return ids

    found.parrot = tuple(asyncio.run(tokenize()))
    yield found
    found.server = None


class Written(unbraid.Constraint):
    """A grammar that is given as text."""

    def __init__(self, gbnf: str) -> None:
        self.llama_cpp = LlamaCppGrammar(Printed(gbnf))


def asking(peer: Peer, text: str, **fields: Any) -> Generation:
    constraint = Written(f"root ::= {text}")
    return Generation(**{"prompt": peer.parrot, "sampling": GREEDY, "constraint": constraint, **fields})


@in_loop
async def test_ids_text_and_usage(peer: Peer) -> None:
    one = peer.engine()
    await one.check()
    assert (one.model, one.context) == (str(smollm2().gguf), 512)
    outputs = await collect(one.generate(asking(peer, '"hello 🦜🦧!"')))
    text = peer.bytes(outputs).decode()  # whole, though the server leaves ids out
    assert text in ("hello 🦜🦧!<|endoftext|>", "hello 🦜🦧!<|im_end|>")
    finish = outputs[-1]
    assert (finish.reason, finish.prompt_tokens) == ("stop", len(peer.parrot))
    assert finish.completion_tokens >= 9
    again = await collect(one.generate(asking(peer, '"hello 🦜🦧!"')))
    assert again[-1].cached_tokens > 0
    await one.close()

    one = peer.engine(vocabulary=None)
    outputs = await collect(one.generate(asking(peer, '"hello 🦜🦧!"')))
    assert [output.ids for output in outputs[:-1]] == [()] * (len(outputs) - 1)
    assert peer.bytes(outputs) == "hello 🦜🦧!".encode()
    await one.close()


@in_loop
async def test_ends(peer: Peer) -> None:
    for vocabulary in (peer.vocabulary, None):
        one = peer.engine(vocabulary=vocabulary)
        outputs = await collect(one.generate(asking(peer, '"one 🦜 two three"', stop=("o th", "🦧"))))
        assert peer.bytes(outputs) == "one 🦜 tw".encode()
        assert (outputs[-1].reason, outputs[-1].stopped_by) == ("stop", "o th")
        assert all((output.text is None) == (vocabulary is not None) for output in outputs[:-1])
        outputs = await collect(one.generate(asking(peer, ENDLESS, max_tokens=4)))
        assert (outputs[-1].reason, outputs[-1].completion_tokens) == ("length", 4)
        await one.close()
    one = peer.engine()
    marker = peer.vocabulary.token_id("<|im_start|>")
    assert marker is not None
    outputs = await collect(one.generate(asking(peer, '"a" <|im_start|> "bcd"', stop_tokens=(marker,))))
    assert peer.bytes(outputs) == b"a<|im_start|>"
    assert outputs[-1] == Finish("stop", len(peer.parrot), 2, 0, marker)
    await one.close()


@in_loop
async def test_logprobs(peer: Peer) -> None:
    one = peer.engine()
    for asked in (0, 3):
        outputs = await collect(one.generate(asking(peer, '"xy"', logprobs=asked)))
        for output in outputs[:-1]:
            (logprob,) = output.logprobs
            assert (logprob.token,) == output.ids
            assert logprob.bytes == peer.vocabulary.token_bytes(logprob.token)
            assert logprob.logprob <= 0.0
            assert len(logprob.top) == asked
    await one.close()


@in_loop
async def test_a_constraint_of_ours(peer: Peer) -> None:
    schema = {"type": "object", "properties": {"n": {"enum": [3]}}, "required": ["n"], "additionalProperties": False}
    tools = [{"type": "function", "function": {"name": "search", "strict": True, "parameters": schema}}]
    constraint = unbraid.constraint("hermes", tools=tools, tool_choice="required", parallel_tool_calls=False)
    one = peer.engine()
    outputs = await collect(one.generate(Generation(prompt=peer.parrot, sampling=GREEDY, constraint=constraint)))
    parser = unbraid.parser("hermes", tools=tools, tokenizer=peer.vocabulary)
    for output in outputs[:-1]:
        parser.feed_tokens(output.ids)
    parser.finish()
    (call,) = parser.message.tool_calls
    assert (call.name, json.loads(call.arguments)) == ("search", {"n": 3})
    await one.close()


@in_loop
async def test_what_goes_wrong(peer: Peer) -> None:
    one = peer.engine()
    with pytest.raises(PromptTooLong, match="exceeds the available context size"):
        await collect(one.generate(Generation(prompt=peer.parrot * 60)))
    with pytest.raises(Unsupported, match="grammar"):
        await collect(one.generate(asking(peer, "(")))
    with pytest.raises(Unsupported, match="has no tokens for"):
        await collect(
            one.generate(asking(peer, "", constraint=unbraid.Constraint(OutputLanguage(Verbatim("\x04"), {}))))
        )
    with pytest.raises(Unsupported, match="takes no audio"):
        await collect(one.generate(Generation(prompt=peer.parrot, audio=(Audio(b"", "wav"),))))
    await one.close()


@in_loop
async def test_abort_and_two_at_once(peer: Peer) -> None:
    one = peer.engine()
    slots = one.replicas[0].engine.address  # type: ignore[attr-defined]

    async def busy() -> int:
        return sum(slot["is_processing"] for slot in await slots.get("/slots"))

    generations = [one.generate(asking(peer, ENDLESS)) for _ in range(2)]
    for outputs in generations:
        await anext(outputs)
    assert await busy() == 2
    for outputs in generations:
        await outputs.aclose()
    while await busy():
        pass
    assert one.load == Load()
    await one.close()
