"""A thinking budget: the reasoning ends after so many tokens, in every format, on engines with ids and with text."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid import Message, Parser, Text
from unbraid.core.grammar import Format
from unbraid.engines import EngineFailed, Finish, Generation, Piece, TokenLogprob
from unbraid.engines.replay import ReplayEngine, Script, TimedPiece, script
from unbraid.server.generation.thinking import ThinkingBudget, bounded
from unbraid.tokens import vocabulary

from ..support import patient_http
from ..support.byte_vocabulary import WordVocabulary
from ..support.examples import examples
from ..support.real_tokenizers import encode
from ..support.running_server import service_of, serving
from ..support.scripted_server import HELLO, WEATHER, Scripted

REASONING = [replace(format, speech=None) for format in unbraid.all_formats() if format.reasoning is not None]
"""Without speech, which takes tokens of its own and changes nothing here."""
every_format = pytest.mark.parametrize("format", REASONING, ids=attrgetter("name"))
THOUGHT = "Hm, let me see. What is it that they want? I am not sure; perhaps both."
_TAG = re.compile(r"<[^<>]*>|\[[^\[\]]*\]|◁[^◁▷]*▷")


def rendered(format: Format) -> tuple[str, str]:
    """What a model of the format writes when it thinks and then answers: the whole, and what comes after the end of its
    reasoning."""
    assert format.reasoning is not None
    whole = unbraid.render(format, Message((Text("reasoning", THOUGHT), Text("content", "Both."))))
    _, closer, rest = whole.partition(format.reasoning.close)
    assert closer
    return whole, rest


class Bytes:
    """A tokenizer: every byte is a token, and every tag of the format's markers."""

    def __init__(self, format: Format) -> None:
        tags = sorted(set(_TAG.findall(rendered(format)[0])))
        words = [*(bytes([byte]) for byte in range(256)), *(tag.encode() for tag in tags)]
        self.vocabulary = WordVocabulary(*words, special=len(tags))
        self._cut = re.compile(f"({'|'.join(map(re.escape, tags))})") if tags else None

    def encode(self, text: str) -> tuple[int, ...]:
        ids: list[int] = []
        for part in self._cut.split(text) if self._cut else [text]:
            token = self.vocabulary.token_id(part) if self._cut and self._cut.fullmatch(part) else None
            ids += part.encode() if token is None else [token]
        return tuple(ids)


def run(engine: ReplayEngine, asked: Generation, parser: Parser, budget: ThinkingBudget) -> list[Piece | Finish]:
    """All outputs, each fed to the parser before the next is asked for."""

    async def all_outputs() -> list[Piece | Finish]:
        found = []
        async with aclosing(bounded(engine, asked, parser, budget)) as outputs:
            async for output in outputs:
                found.append(output)
                if isinstance(output, Piece):
                    parser.feed_tokens(output.ids) if output.ids else parser.feed(output.text or "")
        parser.finish(end_of_turn=True)
        return found

    return asyncio.run(all_outputs())


async def unconstrained(prompt: str | tuple[int, ...]) -> None:
    raise AssertionError("nothing was constrained")


def budget_of(format: Format, tokens: int, encode: Callable[[str], tuple[int, ...]] | None = None) -> ThinkingBudget:
    assert format.reasoning is not None
    return ThinkingBudget(tokens, format.reasoning.close, encode, unconstrained)


@every_format
@examples(0.5)
@given(data=st.data())
def test_the_reasoning_ends_and_the_answer_follows(format: Format, data: st.DataObject) -> None:
    """However the engine cuts its pieces, the same tokens of the reasoning are there, then its end, then the answer."""
    whole, rest = rendered(format)
    tokens = Bytes(format)
    tokenizer, closer = tokens.vocabulary, tokens.encode(format.reasoning.close if format.reasoning else "")
    most = data.draw(st.integers(1, len(THOUGHT) - 10))
    ids = tokens.encode(whole)

    def choose(request: Generation) -> Script:
        assert not isinstance(request.prompt, str)
        ended = request.prompt[-len(closer) :] == closer
        return script(tokens.encode(rest) if ended else ids, chunks=data.draw(st.integers(1, 9)))

    engine = ReplayEngine(choose, vocabulary=tokenizer)
    parser = Parser(format, tokenizer=tokenizer, prompt="", count_tokens=True)
    *pieces, finish = run(engine, Generation(prompt=(1, 2)), parser, budget_of(format, most, tokens.encode))
    message = parser.message
    assert message.diagnostics == ()
    assert message.content.endswith("Both.")
    # What may be the beginning of the end is waited for.
    thought = len(THOUGHT) - len(THOUGHT.removeprefix(_thought(format, message)))
    # Reasoning that stays in the content has the whitespace around it.
    assert most - format.reasoning_in_content <= thought <= most + len(closer)
    written = [token for piece in pieces if isinstance(piece, Piece) for token in piece.ids]
    assert isinstance(finish, Finish)
    assert (finish.prompt_tokens, finish.completion_tokens) == (2, len(written))
    assert [len(engine.requests), engine.aborted] == [2, 1]
    assert engine.requests[1].prompt == (1, 2, *written[: len(written) - len(tokens.encode(rest))])


def _thought(format: Format, message: Message) -> str:
    assert format.reasoning is not None
    if not format.reasoning_in_content:
        return message.reasoning
    return message.content.partition(format.reasoning.close)[0].partition(format.reasoning.open)[2]


@every_format
def test_an_engine_that_gives_text(format: Format) -> None:
    """A piece counts as one token."""
    whole, rest = rendered(format)
    assert format.reasoning is not None
    words = re.findall(r"\S+\s*|\s+", whole)

    def choose(request: Generation) -> Script:
        assert isinstance(request.prompt, str)
        return script(*([rest] if request.prompt.endswith(format.reasoning.close) else words), chunks=1000)  # type: ignore[union-attr]

    engine = ReplayEngine(choose)
    parser = Parser(format, prompt="", count_tokens=True)
    run(engine, Generation(prompt="Go on: "), parser, budget_of(format, 5))
    assert parser.message.content.endswith("Both.")
    assert THOUGHT.startswith(_thought(format, parser.message).rstrip())
    assert len(_thought(format, parser.message)) < len(THOUGHT)
    prompt = engine.requests[1].prompt
    assert isinstance(prompt, str)
    assert prompt.startswith("Go on: ")


@every_format
def test_what_stays_within_the_budget_is_left_alone(format: Format) -> None:
    tokens = Bytes(format)
    whole, _ = rendered(format)
    engine = ReplayEngine([script(tokens.encode(whole), chunks=4)])
    parser = Parser(format, tokenizer=tokens.vocabulary, prompt="", count_tokens=True)
    run(engine, Generation(prompt=(1,)), parser, budget_of(format, len(THOUGHT) + 3, tokens.encode))
    assert parser.message == unbraid.parse(format, tokens.encode(whole), tokenizer=tokens.vocabulary, prompt="")
    assert len(engine.requests) == 1


def qwen3() -> tuple[Format, Bytes]:
    format = unbraid.find("qwen3")
    return format, Bytes(format)


@pytest.mark.parametrize(
    ("most", "ends"), [(16, "</think>\n\n"), (15, "</think>\n"), (13, "\n"), (12, ""), (20, "</think>\n\nBoth")]
)
def test_the_end_counts_for_max_tokens(most: int, ends: str) -> None:
    """`<think>`, a line break and ten tokens of reasoning; then the marker that ends it, as far as there is room."""
    format, tokens = qwen3()
    whole, rest = rendered(format)

    def choose(request: Generation) -> Script:
        ids = tokens.encode(rest if len(request.prompt) > 1 else whole)
        cut = request.max_tokens is not None and request.max_tokens < len(ids)
        return script(ids[: request.max_tokens], ending="length" if cut else "stop")

    engine = ReplayEngine(choose, vocabulary=tokens.vocabulary)
    parser = Parser(format, tokenizer=tokens.vocabulary, prompt="", count_tokens=True)
    *pieces, finish = run(
        engine, Generation(prompt=(1,), max_tokens=most), parser, budget_of(format, 10, tokens.encode)
    )
    written = [token for piece in pieces if isinstance(piece, Piece) for token in piece.ids]
    text = b"".join(tokens.vocabulary.token_bytes(token) or b"" for token in written).decode()
    assert isinstance(finish, Finish)
    assert (finish.reason, finish.completion_tokens) == ("length", len(written))
    assert len(written) <= most
    assert text == "<think>\n" + THOUGHT[:10] + ("\n" + ends.lstrip("\n") if most > 12 else "")


def test_it_ends_where_the_context_does() -> None:
    format, tokens = qwen3()
    ids = tokens.encode(rendered(format)[0])
    engine = ReplayEngine([script(ids)], vocabulary=tokens.vocabulary, context=12)
    parser = Parser(format, tokenizer=tokens.vocabulary, prompt="", count_tokens=True)
    *_, finish = run(engine, Generation(prompt=(1,)), parser, budget_of(format, 8, tokens.encode))
    assert isinstance(finish, Finish)
    assert finish.reason == "length"
    assert len(engine.requests) == 1


def test_reasoning_that_begins_again_ends_again() -> None:
    format, tokens = qwen3()
    whole, rest = rendered(format)
    engine = ReplayEngine([script(tokens.encode(text)) for text in (whole, whole, rest)], vocabulary=tokens.vocabulary)
    parser = Parser(format, tokenizer=tokens.vocabulary, prompt="", count_tokens=True)
    run(engine, Generation(prompt=(1,)), parser, budget_of(format, 3, tokens.encode))
    assert parser.message.reasoning == "Hm,"
    assert parser.message.content == "Both."
    assert len(engine.requests) == 3


def test_logprobs_are_there_for_all_tokens() -> None:
    format, tokens = qwen3()
    whole, rest = rendered(format)

    def piece(ids: Sequence[int]) -> TimedPiece:
        return TimedPiece(Piece(tuple(ids), logprobs=tuple(TokenLogprob(id, b"", -1.0) for id in ids)))

    scripts = [Script((piece(tokens.encode(text)),)) for text in (whole, rest)]
    engine = ReplayEngine(scripts, vocabulary=tokens.vocabulary)
    parser = Parser(format, tokenizer=tokens.vocabulary, prompt="", count_tokens=True)
    *pieces, _ = run(engine, Generation(prompt=(1,), logprobs=0), parser, budget_of(format, 3, tokens.encode))
    told = [one for piece in pieces if isinstance(piece, Piece) for one in piece.logprobs]
    assert [one.token for one in told] == [token for piece in pieces if isinstance(piece, Piece) for token in piece.ids]
    forced = [(one.bytes, one.logprob) for one in told if one.logprob == 0.0]
    assert b"".join(data for data, _ in forced) == b"\n</think>\n\n"


def test_an_engine_that_ends_without_saying_how() -> None:
    """Whoever reads the outputs says so, as without a budget."""

    class Broken(ReplayEngine):
        async def generate(self, request: Generation) -> Any:
            yield Piece((65,))

    format, tokens = qwen3()
    parser = Parser(format, tokenizer=tokens.vocabulary, prompt="", count_tokens=True)
    assert run(Broken([]), Generation(prompt=(1,)), parser, budget_of(format, 3, tokens.encode)) == [Piece((65,))]


# Over HTTP


@pytest.fixture(scope="module")
def api(running: Scripted) -> Scripted:
    return running


def think(api: Scripted, answer: str = "Both.<|im_end|>", chunks: int = 1) -> None:
    """A model that thinks without end, unless its prompt has ended that."""
    end = vocabulary(api.tokenizer).token_id("</think>")
    thinks, answers = (encode(api.tokenizer, text) for text in ("<think>\n" + " one" * 500, answer))
    api.choose = lambda request: script(answers if end in request.prompt[-3:] else thinks, chunks=chunks)


@pytest.mark.parametrize("chunks", [1, 3, 50])
@pytest.mark.parametrize("asked", [{"thinking_token_budget": 4}, {"reasoning": {"max_tokens": 4}}])
def test_in_a_chat(api: Scripted, asked: dict[str, Any], chunks: int) -> None:
    think(api, chunks=chunks)
    reply = api.post("/chat/completions", messages=HELLO, **asked)
    message = reply["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == (" one one one one", "Both.")
    details = reply["usage"]["completion_tokens_details"]
    assert details["reasoning_tokens"] == len(encode(api.tokenizer, "<think>\n one one one one\n</think>\n\n"))
    assert reply["usage"]["completion_tokens"] == details["reasoning_tokens"] + details["content_tokens"]
    streamed = api.stream(**asked)
    assert (streamed["reasoning"], streamed["content"]) == (" one one one one", "Both.")
    first, second = api.engine.requests[-2:]
    assert first.prompt == second.prompt[: len(first.prompt)]
    assert reply["usage"]["prompt_tokens"] == len(first.prompt)


def test_none_at_all(api: Scripted) -> None:
    """The end is in the prompt where the prompt leaves the reasoning open; elsewhere it follows the beginning."""
    think(api)
    assert api.chat(thinking_token_budget=0)["message"]["reasoning"] is None
    assert len(api.engine.requests[-1].prompt) > len(api.engine.requests[-2].prompt)
    open = {"messages": [*HELLO, {"role": "assistant", "content": "<think>\n"}], "continue_final_message": True}
    choice = api.chat(thinking_token_budget=0, **open)
    assert (choice["message"]["reasoning"], choice["message"]["content"]) == (None, "Both.")
    assert api.prompt().endswith("<think>\n\n</think>\n\n")


@pytest.mark.parametrize("budget", [None, -1, 100])
def test_no_limit(api: Scripted, budget: int | None) -> None:
    api.say("<think>\nHm.\n</think>\n\nBoth.<|im_end|>")
    before = len(api.engine.requests)
    assert api.chat(thinking_token_budget=budget)["message"]["reasoning"] == "Hm."
    assert len(api.engine.requests) == before + 1


def test_the_constraint_goes_on_after_the_reasoning(api: Scripted) -> None:
    think(api, '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call><|im_end|>')
    choice = api.chat(thinking_token_budget=3, tools=[WEATHER], tool_choice="required")
    assert choice["finish_reason"] == "tool_calls"
    first, second = api.engine.requests[-2:]
    assert first.constraint is not None
    assert second.constraint is not None
    assert second.constraint.language.root != first.constraint.language.root, "there is no reasoning to come"


def test_an_answer_in_json_follows_reasoning_that_the_client_began(api: Scripted) -> None:
    think(api, "{}<|im_end|>")
    begun = {"messages": [*HELLO, {"role": "assistant", "content": "<think>\nHm,"}], "continue_final_message": True}
    choice = api.chat(thinking_token_budget=3, response_format={"type": "json_object"}, **begun)
    assert choice["message"]["content"] == "{}"


def test_budgets_that_differ(api: Scripted) -> None:
    body = {"messages": HELLO, "thinking_token_budget": 3, "reasoning": {"max_tokens": 4}}
    response = patient_http.post(f"{api.server.url}/v1/chat/completions", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "reasoning.max_tokens"
    body = {"messages": HELLO, "reasoning": {"exclude": True}}
    response = patient_http.post(f"{api.server.url}/v1/chat/completions", json=body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "reasoning")


def test_an_engine_without_a_tokenizer() -> None:
    def choose(request: Generation) -> Script:
        assert isinstance(request.prompt, str)
        return script("Both.") if "</think>" in request.prompt else script("<think>\n", *["Hm. "] * 50, chunks=100)

    with serving(service_of(ReplayEngine(choose, model="m"), "qwen3")) as server:
        body = {"messages": HELLO, "thinking_token_budget": 3}
        reply = patient_http.post(f"{server.url}/v1/chat/completions", json=body).json()
    message = reply["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == ("Hm. Hm. Hm. ", "Both.")
    assert "completion_tokens_details" not in reply["usage"]


def test_a_failure_after_the_end_of_the_reasoning(api: Scripted) -> None:
    think(api)
    inner = api.choose
    end = vocabulary(api.tokenizer).token_id("</think>")
    api.choose = lambda request: (
        inner(request).failing(0, EngineFailed("no")) if end in request.prompt else inner(request)
    )
    body = {"messages": HELLO, "thinking_token_budget": 3}
    response = patient_http.post(f"{api.server.url}/v1/chat/completions", json=body)
    assert response.status_code == 502
