"""One response as vLLM delivers it, parsed by ids or by text. vLLM is not needed."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid import Event, Format, Message, Tools
from unbraid.core.message import Fold
from unbraid.plugins.vllm.response_reader import ResponseReader, vocabulary_of

from ...support import strategies
from ...support.examples import examples
from ...support.parsing import call, content, reasoning
from ..one_field import parse
from .cases import decode, encode, every_format, grouped, qwen3, tokenizer_for

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


@dataclass
class Request:
    """What is looked at in vLLM's requests."""

    stop: list[str] = field(default_factory=list)
    stop_token_ids: list[int] = field(default_factory=list)
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True


def reader(format: str | Format, tokenizer: Any, request: Request | None = None, **options: Any) -> ResponseReader:
    found = unbraid.find(format) if isinstance(format, str) else format
    given = {"tools": Tools(strategies.TOOLS), "separate_reasoning": True, "prompt": (), **options}
    return ResponseReader(found, tokenizer, request or Request(), **given)


def said(events: Iterable[Event]) -> Message:
    fold = Fold()
    fold.add(events)
    return fold.message()


def streamed(made: ResponseReader, deltas: Sequence[tuple[str, Sequence[int]]]) -> Message:
    events: list[Event] = []
    for at, (text, ids) in enumerate(deltas):
        events += made.feed(text, ids, at == len(deltas) - 1)
    return said(events)


# Deltas


@every_format
@examples(4)
@given(data=st.data())
def test_however_it_is_cut(format: Format, data: st.DataObject) -> None:
    """By ids; and by text where there are stop texts, which vLLM cuts off the text alone."""
    tokenizer = tokenizer_for(format)
    text = data.draw(strategies.hostile(format) | strategies.messages(format).map(lambda m: unbraid.render(format, m)))
    expected = parse(format, text, tools=strategies.TOOLS, prompt="")
    pieces = [(piece, [1]) for piece in data.draw(st.composite(strategies.cuts)(text))]
    assert streamed(reader(format, tokenizer, Request(stop=["\n\n"])), pieces).parts == expected.parts
    ids = encode(tokenizer, text)
    all_of_it = Request(skip_special_tokens=False, include_stop_str_in_output=True)
    options: dict[str, Any] = {"tools": strategies.TOOLS, "tokenizer": tokenizer, "prompt": ""}
    expected = parse(format, ids, **options)
    for sizes in ([1], data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=6))):
        # The text that comes beside the ids is not looked at.
        deltas = [("x", group) for group in grouped(ids, sizes)]
        assert streamed(reader(format, tokenizer, all_of_it), [*deltas, ("", [])]).parts == expected.parts
    whole = reader(format, tokenizer, all_of_it, whole=True).whole("x" if ids else "", ids)
    if not ids or ids[-1] not in tokenizer.all_special_ids:  # that would say that the model has ended its turn
        expected = parse(format, ids, whole=True, **options)
    assert said(whole).content == expected.content
    assert said(whole).tool_calls == expected.tool_calls


def test_a_stop_text_is_not_shown() -> None:
    tokenizer = qwen3()
    ids = encode(tokenizer, "one two")
    assert streamed(reader("hermes", tokenizer, Request(stop=[" two"])), [("one", ids)]).content == "one"
    kept = Request(stop=[" two"], include_stop_str_in_output=True)
    assert streamed(reader("hermes", tokenizer, kept), [("one two", ids)]).content == "one two"


def test_special_tokens_are_not_shown() -> None:
    tokenizer = qwen3()
    ids = encode(tokenizer, f"<|im_start|>a<|endoftext|>{CALL}<|object_ref_start|>b<|im_end|>")
    found = streamed(reader("qwen3-coder", tokenizer), [("", ids)])
    assert found.content == f"a{CALL}b"  # not a call of this format
    asked = Request(skip_special_tokens=False)
    assert streamed(reader("think", tokenizer, asked), [("", ids[-3:])]).content == "<|object_ref_start|>b"


def test_the_token_that_ends_the_output_is_not_shown() -> None:
    tokenizer = qwen3()
    ids = encode(tokenizer, "a stop")
    asked = Request(stop_token_ids=[ids[-1]])
    assert streamed(reader("hermes", tokenizer, asked), [("", ids)]).content == "a"
    assert streamed(reader("hermes", tokenizer, asked), [("", ids), ("", ids)]).content == "a stopa"
    # `<|object_ref_end|>` ends no turn of this format, and still vLLM may be told to stop there.
    special = encode(tokenizer, "a<|object_ref_end|>")
    shown = Request(skip_special_tokens=False)
    assert streamed(reader("hermes", tokenizer, shown), [("", special)]).content == "a"
    shown.include_stop_str_in_output = True
    assert streamed(reader("hermes", tokenizer, shown), [("", special)]).content == "a<|object_ref_end|>"


def test_a_marker_at_the_end_is_one() -> None:
    """Also where it is a special token."""
    tokenizer = tokenizer_for(unbraid.find("step-audio-2"))
    ids = encode(tokenizer, "<tts_start>Hi<tts_end>")
    assert streamed(reader("step-audio-2", tokenizer), [("", ids)]).speech[0].text == "Hi"


def test_an_empty_delta_decides_nothing() -> None:
    tokenizer = qwen3()
    deltas: list[tuple[str, list[int]]] = [("", []), (CALL, encode(tokenizer, CALL)), ("", [])]
    assert streamed(reader("hermes", tokenizer), deltas).parts == (call("f", '{"a": 1}'),)
    assert streamed(reader("hermes", tokenizer), [("", [])]).parts == ()
    # Where there are no ids, it is text that is read.
    assert streamed(reader("hermes", tokenizer), [("", []), (CALL, []), ("", [])]).tool_calls


def test_a_call_that_is_cut_off_is_text_in_a_whole_reply() -> None:
    tokenizer = qwen3()
    text = f'a{CALL}<tool_call>\n{{"name": "f", "arguments": {{"b'
    whole = said(reader("hermes", tokenizer, whole=True).whole(text, encode(tokenizer, text)))
    assert whole.tool_calls == (call("f", '{"a": 1}'),)
    # Text around calls keeps its lines.
    assert whole.content == 'a\n<tool_call>\n{"name": "f", "arguments": {"b'


def test_nobody_forges_a_call() -> None:
    tokenizer = qwen3()
    ids = [token for char in CALL for token in encode(tokenizer, char)]
    assert decode(tokenizer, ids) == CALL
    assert streamed(reader("hermes", tokenizer), [(CALL, ids)]).parts == (content(CALL),)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("<|im_start|>assistant\n", (content("a</think>b"),)),
        ("<|im_start|>assistant\n<think>\n", (reasoning("a"), content("b"))),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", (content("a</think>b"),)),
        # The message that the model is to go on with.
        ("<|im_start|>assistant\n<think>\nAs far as I", (reasoning("a"), content("b"))),
        ("<|im_start|>assistant\n<think>\nYes.</think>\n\nAs far as I", (content("a</think>b"),)),
    ],
)
def test_the_prompt_says_where_the_output_begins(prompt: str, expected: tuple[unbraid.Part, ...]) -> None:
    tokenizer = qwen3()
    start, ids = encode(tokenizer, prompt), encode(tokenizer, "a</think>b")
    # As a token, too, what closes nothing in an answer is text: law 16.
    assert streamed(reader("qwen3", tokenizer, prompt=start), [("", ids)]).parts == expected
    as_text = Request(stop=["x"])
    assert streamed(reader("qwen3", tokenizer, as_text, prompt=start), [("a</think>b", ids)]).parts == expected
    assert streamed(reader("qwen3", Unknown(tokenizer), prompt=start), [("a</think>b", ids)]).parts == expected


class Unknown:
    """A tokenizer of a kind that we cannot read."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.all_special_ids = tokenizer.all_special_ids
        self.decode, self.get_vocab = tokenizer.decode, tokenizer.get_vocab


def test_text_will_do_for_a_tokenizer_that_we_cannot_read() -> None:
    tokenizer = Unknown(qwen3())
    assert vocabulary_of(tokenizer) is None
    prompt = encode(qwen3(), "<|im_start|>assistant\n<think>\n")
    made = reader("qwen3", tokenizer, prompt=prompt)
    assert streamed(made, [("a</think>", [1]), (CALL, [2])]).parts == (reasoning("a"), call("f", '{"a": 1}'))


def test_special_tokens_that_are_pieces_of_markers_are_read() -> None:
    """PLaMo's markers consist of several special tokens each."""
    tokenizer = copy.deepcopy(qwen3())
    pieces = ["<|plamo:begin_", "<|plamo:end_", ":plamo|>", "<|plamo:constrain|>", "<|plamo:msg|>", "<|plamo:tag|>"]
    tokenizer.add_tokens(pieces, special_tokens=True)
    expected = Message((reasoning("why"), call("f", '{"a": 1}')))
    ids = encode(tokenizer, unbraid.render("plamo-3", expected) + "<|plamo:tag|>")
    assert {tokenizer.convert_tokens_to_ids(piece) for piece in pieces} <= set(ids)
    for deltas in ([("", ids)], [("", [token]) for token in ids]):
        assert streamed(reader("plamo-3", tokenizer), deltas).parts == expected.parts
