"""The embedded engine, with a real model."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid.constraints.constraint import LlamaCppGrammar
from unbraid.constraints.language import Json, OutputLanguage, one_token
from unbraid.constraints.printers import Printed
from unbraid.engines import (
    Audio,
    EngineError,
    EngineFailed,
    Finish,
    Generation,
    Piece,
    PromptTooLong,
    Sampling,
    Unsupported,
)
from unbraid.engines.llama_cpp.embedded import EmbeddedEngine
from unbraid.engines.llama_cpp.reader import EmbeddedReader
from unbraid.models import Gguf, GgufVocabulary
from unbraid.schema.regular import OneOf, Repeat, Verbatim, chars
from unbraid.tokens.retokenize import spell

from ..support.embedded_model import GREEDY, collect, smollm2
from ..support.examples import examples
from ..support.waiting import PATIENCE
from .conftest import CONTEXT, chat

pytest.importorskip("xllamacpp")

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["C", "F"]}},
                "required": ["city", "unit"],
                "additionalProperties": False,
            },
        },
    }
]


# Tokens


def test_it_says_what_it_is(engine: EmbeddedEngine) -> None:
    assert (engine.model, engine.context) == ("smollm2", CONTEXT)
    assert "<|im_start|>" in (engine.chat_template or "")
    asyncio.run(engine.check())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Hello, world!",
        " two  spaces\n\n\ttabs",
        "naïve café",
        "漢字かな交じり",
        "😀👩‍👩‍👧‍👦🇪🇺",
        "a\u0000b",
        "<|im_end|>",
        "x" * 5000,
    ],
)
def test_texts_come_back(engine: EmbeddedEngine, text: str) -> None:
    vocabulary = engine.vocabulary
    ids = vocabulary.encode(text)
    assert vocabulary.decode(ids) == text
    assert not vocabulary.special & set(ids)


@examples(16)
@given(text=st.text(st.characters(codec="utf-8"), max_size=40))
def test_any_text_comes_back(engine: EmbeddedEngine, text: str) -> None:
    vocabulary = engine.vocabulary
    ids = vocabulary.encode(text)
    whole = b"".join(vocabulary.token_bytes(token) or b"" for token in ids)
    # SmolLM2 has no tokens for a few bytes, and llama.cpp leaves them out.
    lacking = {byte for byte in range(256) if spell(vocabulary, bytes([byte])) is None}
    assert whole == bytes(byte for byte in text.encode() if byte not in lacking)


def test_special_tokens_are_recognised_only_when_asked(engine: EmbeddedEngine) -> None:
    vocabulary = engine.vocabulary
    end = vocabulary.token_id("<|im_end|>")
    assert vocabulary.encode("<|im_end|>", special=True) == [end]
    assert end not in vocabulary.encode("a<|im_end|>b")
    assert vocabulary.encode("\ud800") == vocabulary.encode("\ufffd")


def test_single_tokens_are_found_as_llama_cpp_finds_them(engine: EmbeddedEngine) -> None:
    vocabulary = engine.vocabulary
    for text in ("the", " the", "\n", "}", "<|im_start|>", "<|endoftext|>"):
        assert vocabulary.encode(text, special=True) == [vocabulary.token_id(text)]
    assert vocabulary.token_id("no such token at all") is None
    assert vocabulary.token_bytes(-1) is None
    assert vocabulary.token_bytes(vocabulary.size) is None


# Output


def test_tokens_arrive_while_they_are_made(engine: EmbeddedEngine) -> None:
    found = asyncio.run(collect(engine, chat(engine, "Count from one to twenty in words."), max_tokens=40))
    assert found.pieces > 5
    assert found.finish is not None
    assert found.finish.completion_tokens == len(found.ids)
    assert (found.finish.reason, found.finish.prompt_tokens) == (
        "length" if len(found.ids) == 40 else "stop",
        len(chat(engine, "Count from one to twenty in words.")),
    )


def test_the_model_ends_its_output_itself(engine: EmbeddedEngine) -> None:
    found = asyncio.run(collect(engine, chat(engine, "Answer with one word: what is the capital of France?")))
    end = engine.vocabulary.token_id("<|im_end|>")
    assert "Paris" in engine.vocabulary.decode(found.ids)
    assert found.ids[-1] == end
    assert found.finish is not None
    assert (found.finish.reason, found.finish.stopped_by) == ("stop", end)
    # The end counts as an end even where it is the last token that may come.
    again = asyncio.run(collect(engine, chat(engine, "Answer with one word: what is the capital of France?"),
                                max_tokens=len(found.ids)))  # fmt: skip
    assert (again.ids, again.finish and again.finish.reason) == (found.ids, "stop")


def test_text_prompts_and_cached_tokens(engine: EmbeddedEngine) -> None:
    text = "<|im_start|>user\nName three colours.<|im_end|>\n<|im_start|>assistant\n"
    first = asyncio.run(collect(engine, text, max_tokens=8))

    async def again() -> Finish:
        """llama.cpp frees a slot a moment after it has said that it is done: the next request may get another one."""
        async with asyncio.timeout(PATIENCE):
            while True:
                found = await collect(engine, chat(engine, "Name three colours."), max_tokens=8)
                assert found.ids == first.ids
                assert found.finish is not None
                if found.finish.cached_tokens:
                    return found.finish

    second = asyncio.run(again())
    assert second.cached_tokens == second.prompt_tokens - 1


def test_the_same_seed_gives_the_same_output(engine: EmbeddedEngine) -> None:
    prompt = chat(engine, "Tell me a story.")

    def story(**options: Any) -> list[int]:
        return asyncio.run(collect(engine, prompt, max_tokens=8, sampling=Sampling(**options))).ids

    story(seed=1)  # so that the prompt is known, and computed in the same way each time
    assert story(seed=1) == story(seed=1)
    assert story(seed=2**40 + 1) == story(seed=2**40 + 1)
    assert len({tuple(story(seed=seed, temperature=1.5)) for seed in range(3)}) > 1
    assert story(temperature=0) == story(temperature=0, seed=5) == story(top_k=1) == story(top_p=1e-6)
    penalised = story(temperature=0, repetition_penalty=1.5, presence_penalty=1, frequency_penalty=1, min_p=0.1)
    assert penalised != story(temperature=0)


def test_max_tokens(engine: EmbeddedEngine) -> None:
    prompt = chat(engine, "Tell me a story.")
    whole = asyncio.run(collect(engine, prompt, max_tokens=9))
    for count in (1, 2, 5):
        found = asyncio.run(collect(engine, prompt, max_tokens=count))
        assert found.ids == whole.ids[:count]
        assert found.finish is not None
        assert (found.finish.reason, found.finish.completion_tokens) == ("length", count)
    nothing = asyncio.run(collect(engine, prompt, max_tokens=0))
    assert (nothing.ids, nothing.finish) == ([], Finish("length", len(prompt), 0))


def test_characters_that_are_cut_over_tokens(engine: EmbeddedEngine) -> None:
    """llama.cpp streams no token that ends inside of a character; it has them all where it does not stream."""
    fields = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["a😀é漢"]}}}
    constraint = unbraid.constraint("hermes", response_format=fields, tokenizer=engine.vocabulary)
    prompt = chat(engine, "Say it.")
    body = {
        "prompt": prompt,
        "n_predict": 40,
        "samplers": ["top_k"],
        "top_k": 1,
        "verbose": True,
        "return_tokens": True,
    }
    told: list[bytes] = []

    def tell(said: bytes) -> bool:
        told.append(said)
        return False

    engine._llama.complete(json.dumps({**body, **constraint.to_llama_cpp()}).encode(), tell)
    wanted = json.loads(told[0])["__verbose"]["tokens"]
    for count in range(1, len(wanted) + 1):
        found = asyncio.run(collect(engine, prompt, max_tokens=count, constraint=constraint, logprobs=0))
        assert found.ids == wanted[:count]
    assert json.loads(engine.vocabulary.decode(found.ids[:-1])) == "a😀é漢"
    assert b"".join(one.bytes for one in found.logprobs) == engine.vocabulary.decode(found.ids).encode()


def test_stop_texts(engine: EmbeddedEngine) -> None:
    prompt, vocabulary = chat(engine, "Count from one to twenty in digits: 1, 2, 3"), engine.vocabulary
    whole = vocabulary.decode(asyncio.run(collect(engine, prompt, max_tokens=24)).ids)
    for at in (5, 11, 17):
        stop = whole[at : at + 4]
        found = asyncio.run(collect(engine, prompt, max_tokens=24, stop=("never said", stop)))
        assert vocabulary.decode(found.ids) == whole[: whole.index(stop)]
        assert found.finish is not None
        assert (found.finish.reason, found.finish.stopped_by) == ("stop", stop)
    found = asyncio.run(collect(engine, prompt, max_tokens=24, stop=(whole[-3:] + "never said",)))
    assert vocabulary.decode(found.ids) == whole


def test_stop_tokens_are_part_of_the_output(engine: EmbeddedEngine) -> None:
    prompt = chat(engine, "Tell me a story.")
    whole = asyncio.run(collect(engine, prompt, max_tokens=12)).ids
    found = asyncio.run(collect(engine, prompt, max_tokens=12, stop_tokens=(whole[7],)))
    assert found.ids == whole[: whole.index(whole[7]) + 1]
    assert found.finish is not None
    assert (found.finish.reason, found.finish.stopped_by) == ("stop", whole[7])


def test_logprobs(engine: EmbeddedEngine) -> None:
    prompt = chat(engine, "Is the sky blue?")
    found = asyncio.run(collect(engine, prompt, max_tokens=5, logprobs=3, sampling=Sampling(seed=3, temperature=2)))
    assert [one.token for one in found.logprobs] == found.ids
    for one in found.logprobs:
        assert one.bytes == engine.vocabulary.token_bytes(one.token)
        assert len(one.top) == 3
        values = [other.logprob for other in one.top]
        assert values == sorted(values, reverse=True)
        assert one.logprob <= values[0] <= 0
    alone = asyncio.run(collect(engine, prompt, max_tokens=2, logprobs=0))
    assert [one.top for one in alone.logprobs] == [(), ()]
    assert not asyncio.run(collect(engine, prompt, max_tokens=2)).logprobs


def test_logit_bias(engine: EmbeddedEngine) -> None:
    prompt = chat(engine, "Is the sky blue?")
    likely = asyncio.run(collect(engine, prompt, max_tokens=1)).ids[0]
    banned = Sampling(temperature=0, logit_bias={likely: float("-inf")})
    assert asyncio.run(collect(engine, prompt, max_tokens=1, sampling=banned)).ids[0] != likely
    forced = Sampling(temperature=0, logit_bias={1234: float("inf")})
    assert asyncio.run(collect(engine, prompt, max_tokens=3, sampling=forced)).ids == [1234] * 3


# Constraints


def test_a_required_call(engine: EmbeddedEngine) -> None:
    prompt = chat(engine, "What is the weather in Rome?")
    options: dict[str, Any] = {"tools": TOOLS, "tokenizer": engine.vocabulary}
    constraint = unbraid.constraint("hermes", tool_choice="required", parallel_tool_calls=False, **options)
    for sampling in (GREEDY, Sampling(seed=1)):
        found = asyncio.run(collect(engine, prompt, max_tokens=120, constraint=constraint, sampling=sampling))
        message = unbraid.parse("hermes", found.ids, **options)
        assert [call.name for call in message.tool_calls] == ["get_weather"]
        assert not message.content.strip()
        arguments = json.loads(message.tool_calls[0].arguments)
        jsonschema.validate(arguments, TOOLS[0]["function"]["parameters"])


def test_a_call_that_may_come_or_not(engine: EmbeddedEngine) -> None:
    options: dict[str, Any] = {"tools": TOOLS, "tokenizer": engine.vocabulary}
    constraint = unbraid.constraint("hermes", tool_choice="auto", **options)
    assert constraint.to_llama_cpp()["grammar_lazy"]
    text = asyncio.run(collect(engine, chat(engine, "Say hello."), max_tokens=12, constraint=constraint))
    assert unbraid.parse("hermes", text.ids, **options).content
    # The model has learnt no calls, so it is led to one.
    example = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "unit": "C"}}\n</tool_call>'
    encode, end = engine.vocabulary.encode, engine.vocabulary.encode("<|im_end|>\n", special=True)
    prompt = ((*chat(engine, "Weather?"), *encode(example), *end) * 3) + chat(engine, "Weather?")
    call = asyncio.run(collect(engine, prompt, max_tokens=100, constraint=constraint))
    message = unbraid.parse("hermes", call.ids, **options)
    assert message.tool_calls
    jsonschema.validate(json.loads(message.tool_calls[0].arguments), TOOLS[0]["function"]["parameters"])


def _towards_calls(engine: EmbeddedEngine) -> Sampling:
    start = engine.vocabulary.encode("<tool_call>")
    return Sampling(temperature=0, logit_bias={start[0]: 12.0})


def test_no_call(engine: EmbeddedEngine) -> None:
    options: dict[str, Any] = {"tools": TOOLS, "tokenizer": engine.vocabulary}
    constraint = unbraid.constraint("hermes", tool_choice="none", **options)
    prompt = chat(engine, "What is the weather?")
    found = asyncio.run(collect(engine, prompt, max_tokens=20, constraint=constraint, sampling=_towards_calls(engine)))
    assert "<tool_call>" not in engine.vocabulary.decode(found.ids)
    assert not unbraid.parse("hermes", found.ids, **options).tool_calls


def test_an_answer_that_follows_a_schema(engine: EmbeddedEngine) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 10}, "age": {"type": "integer", "maximum": 150}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    fields = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": schema}}
    constraint = unbraid.constraint("hermes", response_format=fields, tokenizer=engine.vocabulary)
    found = asyncio.run(collect(engine, chat(engine, "Describe a person."), max_tokens=80, constraint=constraint))
    message = unbraid.parse("hermes", found.ids, tokenizer=engine.vocabulary)
    jsonschema.validate(json.loads(message.content), schema)


class _Written(unbraid.Constraint):
    """A grammar that is given as text."""

    def __init__(self, gbnf: str) -> None:
        self.llama_cpp = LlamaCppGrammar(Printed(gbnf))


def test_a_grammar_that_llama_cpp_cannot_read_is_refused(engine: EmbeddedEngine) -> None:
    prompt = chat(engine, "Hello")
    unread = ['root ::= "a', "root ::= b", 'b ::= "a"', 'root ::= root "a"', "# nothing", " ", "root ::= <|nope|>"]
    for grammar in unread:
        with pytest.raises(Unsupported, match="grammar"):
            asyncio.run(collect(engine, prompt, max_tokens=3, constraint=_Written(grammar)))


def test_a_grammar_that_the_model_has_no_tokens_for_is_refused(engine: EmbeddedEngine) -> None:
    """By each of these the process of llama.cpp would end."""
    unknown = one_token([49152], Verbatim("?"))
    roots = [Verbatim("a\x04"), Verbatim("a\U00050000"), chars("\x04\x06"), Repeat(chars("\x04\x06"), 1), unknown]
    for root in [*roots, OneOf((Verbatim("a\x04"), Verbatim("b"))), Json({"enum": ["\U00050000"]}, "p")]:
        constraint = unbraid.Constraint(OutputLanguage(root, {}))
        with pytest.raises(Unsupported, match="has no tokens for"):
            asyncio.run(collect(engine, chat(engine, "Hello"), max_tokens=3, constraint=constraint))
    possible = unbraid.Constraint(OutputLanguage(OneOf((Verbatim("\x04"), chars("\x04\x06"), Verbatim("quiet"))), {}))
    found = asyncio.run(collect(engine, chat(engine, "Hello"), max_tokens=9, constraint=possible))
    assert engine.vocabulary.decode(found.ids).startswith("quiet")


def test_a_constraint_goes_before_a_bias(engine: EmbeddedEngine) -> None:
    """If it did not, there might be no token to choose, and llama.cpp would end the process."""
    never = Sampling(temperature=0, logit_bias=dict.fromkeys(range(engine.vocabulary.size), float("-inf")))
    only = _Written('root ::= "quiet"')
    found = asyncio.run(collect(engine, chat(engine, "Hello"), max_tokens=9, constraint=only, sampling=never))
    assert engine.vocabulary.decode(found.ids).startswith("quiet<|")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "^(a?){1000}$"},
        {"type": "string", "pattern": "^(-|--|---)*x$"},
        {"enum": [f"value {number}" for number in range(10_000)]},
        {"type": "array", "prefixItems": [{}] * 300, "items": False},
        {"type": "object", "properties": {f"p{number}": {"type": "integer"} for number in range(100)}},
    ],
)
def test_no_schema_keeps_it_busy(engine: EmbeddedEngine, schema: Any) -> None:
    """It ends at all: some of these once took llama.cpp seconds over a single token, or forever."""
    constraint = unbraid.Constraint(OutputLanguage(Json(schema, "p"), {}))
    asyncio.run(collect(engine, chat(engine, "Hello"), max_tokens=12, constraint=constraint))


# What is refused


def test_a_schema_that_would_keep_it_busy_is_refused(engine: EmbeddedEngine) -> None:
    schema = {"type": "object", "properties": {f"p{number}": {"type": "integer"} for number in range(900)}}
    constraint = unbraid.Constraint(OutputLanguage(Json(schema, "p"), {}))
    with pytest.raises(Unsupported, match=r"^p leaves too many alternatives open"):
        asyncio.run(collect(engine, chat(engine, "Hello"), constraint=constraint))


def test_what_is_refused(engine: EmbeddedEngine) -> None:
    prompt = chat(engine, "Hello")
    room = CONTEXT - len(prompt)

    def refused(error: type[EngineError], match: str, prompt: Any = prompt, **options: Any) -> str | None:
        with pytest.raises(error, match=match) as raised:
            asyncio.run(collect(engine, prompt, **options))
        return raised.value.field

    long = f"{CONTEXT} tokens does not fit the context of {CONTEXT}"
    assert refused(PromptTooLong, long, prompt=(5,) * CONTEXT) == "prompt"
    assert refused(PromptTooLong, f"and {room + 1} tokens of output", max_tokens=room + 1) == "max_tokens"
    refused(Unsupported, "empty prompt", prompt=())
    refused(Unsupported, "no token 49152", prompt=(49152,))
    refused(Unsupported, "no token -1", sampling=Sampling(temperature=0, logit_bias={-1: 1.0}))
    refused(Unsupported, "not a number", sampling=Sampling(temperature=0, logit_bias={1: float("nan")}))
    refused(Unsupported, "smollm2 takes no audio", audio=(Audio(b"", "wav"),))
    assert asyncio.run(collect(engine, prompt, max_tokens=1)).ids


def test_the_context_can_be_used_up(engine: EmbeddedEngine) -> None:
    prompt = (*engine.vocabulary.encode("a b c d ") * CONTEXT,)[: CONTEXT - 4]
    endless = Sampling(temperature=0, logit_bias=dict.fromkeys(engine.vocabulary.special, -100.0))
    for options in ({}, {"max_tokens": 4}):
        found = asyncio.run(collect(engine, prompt, sampling=endless, **options))
        assert len(found.ids) == 4
        assert found.finish is not None
        assert found.finish.reason == "length"


# Reading llama.cpp's answers


@pytest.fixture(scope="module")
def vocabulary() -> GgufVocabulary:
    return GgufVocabulary(Gguf(smollm2().gguf))


def test_bytes_that_are_no_text_cost_no_tokens(vocabulary: GgufVocabulary) -> None:
    reader = EmbeddedReader(Generation(prompt=(1,)), vocabulary, 1, 10)
    token = vocabulary.token_id("a")

    def chunk(text: str, count: int) -> dict[str, Any]:
        choice = {"text": text, "finish_reason": None, "logprobs": None}
        return {"choices": [choice], "__verbose": {"tokens": [token], "tokens_predicted": count}}

    piece = reader.read(chunk("\ufffda", 2))
    assert piece is not None
    assert vocabulary.decode(piece.ids) == "\ufffda"
    assert reader.read(chunk("a", 3)) == Piece((token or 0,))
    with pytest.raises(EngineFailed, match="does not tell"):
        reader.read({"choices": [{"text": "a", "finish_reason": None}]})
