"""Reasoning in ids and in text, for vLLM's engine and for tool parsers of vLLM's own. vLLM is not needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid import Format, Message, Text
from unbraid.plugins.vllm.reasoning import DecodedTokens, ReasoningCounter, ReasoningMarkers, ReasoningPrefix
from unbraid.plugins.vllm.response_reader import vocabulary_of

from ...support import strategies
from ...support.examples import examples
from .cases import decode, encode, every_format_with_reasoning, grouped, qwen3, tokenizer_for
from .test_response_reader import CALL, Unknown

PROMPTS = {
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n": None,
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n{open}\n": "open",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n{open}\n\n{close}\n\n": "close",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n{open}\nAs far as I": "open",
    # What was said in an earlier turn says nothing about this one.
    "<|im_start|>assistant\n{open}\na\n{close}\n\nb<|im_end|>\n<|im_start|>assistant\n": None,
    "<|im_start|>assistant\n{open}\na<|im_end|>\n<|im_start|>assistant\n{open}\n\n{close}\n\n": "close",
    # Outputs
    "{open}a{close}b<|im_end|>": "close",
    "{open}a{close}": "close",
    "{open}a": "open",
    "a": None,
    "": None,
}


def markers_of(format: Format) -> tuple[ReasoningMarkers, Any]:
    tokenizer = tokenizer_for(format)
    vocabulary = vocabulary_of(tokenizer)
    assert vocabulary is not None
    return ReasoningMarkers(format, vocabulary), tokenizer


@every_format_with_reasoning
@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_last_marker_of_the_turn(format: Format, prompt: str) -> None:
    markers, tokenizer = markers_of(format)
    ended = prompt.replace("<|im_end|>", format.ends[0])
    text = ended.replace("{open}", markers.open).replace("{close}", markers.close)
    mark, after = markers.last(encode(tokenizer, text))
    assert (None if mark == "end" else mark) == PROMPTS[prompt]
    if mark == "close":
        # What follows the marker begins with the next token, or in the one that ends the marker.
        assert decode(tokenizer, encode(tokenizer, text)[after:]) in text.rpartition(markers.close)[2]


@every_format_with_reasoning
@examples(4)
@given(data=st.data())
def test_the_end_is_seen_when_it_comes(format: Format, data: st.DataObject) -> None:
    """Step by step, looking at the last ids alone, the end is found where looking at all of them finds it."""
    markers, tokenizer = markers_of(format)
    thought = data.draw(strategies.texts(format))
    prompt = encode(tokenizer, "Hi")
    output = encode(tokenizer, f"{markers.open}\n{thought}{markers.close}\n\nb")
    ids, found = list(prompt), []
    for group in grouped(output, data.draw(st.lists(st.integers(1, 4), min_size=1))):
        ids += group
        found.append(markers.closed_at(ids, len(group)) is not None)
        if markers.last(ids)[0] == "close":
            break
    assert found == [False] * (len(found) - 1) + [True]


@every_format_with_reasoning
def test_an_output_that_does_not_begin_with_reasoning(format: Format) -> None:
    markers, tokenizer = markers_of(format)
    for text, otherwise in (
        ("", False),
        ("\n", False),
        (markers.open[:2], False),
        (markers.open, False),
        (f"\n{markers.open}\na", False),
        ("a", True),
        ("\n a", True),
        (f"{markers.open[:2]}a", True),
    ):
        assert markers.begins_otherwise(encode(tokenizer, text)) is otherwise, text


def test_markers_in_a_tokenizer_that_we_cannot_read() -> None:
    tokenizer = qwen3()
    markers = ReasoningMarkers(unbraid.find("qwen3"), DecodedTokens(Unknown(tokenizer)))
    assert markers.last(encode(tokenizer, "<think>\na</think>b")) == ("close", 4)
    spelled = ReasoningMarkers(unbraid.find("mistral"), DecodedTokens(Unknown(tokenizer)))
    ids = encode(tokenizer, "[THINK]a[/THINK]")
    assert spelled.last(ids) == ("close", len(ids))


@every_format_with_reasoning
def test_tokens_of_the_reasoning(format: Format) -> None:
    markers, tokenizer = markers_of(format)
    vocabulary = vocabulary_of(tokenizer)
    assert vocabulary is not None
    opened, thought = encode(tokenizer, f"{markers.open}\n"), encode(tokenizer, "one two three")
    ids = [*opened, *thought, *encode(tokenizer, f"{markers.close}"), *encode(tokenizer, "four five")]
    counter = ReasoningCounter(format, vocabulary, "")
    counts = [counter.count(ids[:at]) for at in range(len(ids) + 1)]
    assert counts[len(opened)] <= 1  # the line break
    assert counts[len(opened) + len(thought)] - counts[len(opened)] == len(thought)
    # A marker that is spelled out is not known for one before its end.
    assert counts[-1] - counts[len(opened) + len(thought)] < len(markers.close)
    assert ReasoningCounter(format, vocabulary, "").count(ids) == counts[-1]


# Reasoning for the tool parsers of others


@every_format_with_reasoning
@examples(4)
@given(data=st.data())
def test_up_to_the_content(format: Format, data: st.DataObject) -> None:
    """However the text is cut; and all of it is in one of the two, save markers and the space around them."""
    text = data.draw(strategies.hostile(format))
    prompt = data.draw(st.sampled_from([None, "", format.reasoning.open if format.reasoning else ""]))

    def split(pieces: Sequence[str]) -> tuple[str, str]:
        stream = ReasoningPrefix(format, prompt)
        found = [stream.feed(piece) for piece in pieces]
        found.append(stream.finish())
        return "".join(one for one, _ in found), "".join(two for _, two in found)

    thought, rest = split([text])
    assert split(text) == (thought, rest)
    assert split(data.draw(st.composite(strategies.cuts)(text))) == (thought, rest)
    assert format.reasoning is not None
    put_back = format.reasoning.open.strip() if format.reasoning_in_content else ""  # the marker of the prompt
    assert text.endswith(rest.removeprefix(put_back).lstrip())
    assert format.tools is None or format.tools.open.strip() not in thought  # what opens a call is for others to read
    without_calls = replace(format, tools=None, other_tools=(), versions=())
    parsed = unbraid.parse(without_calls, text, prompt=prompt)
    assert parsed.reasoning.startswith(thought)
    if not rest.strip():
        assert parsed.reasoning == thought


@pytest.mark.parametrize(
    ("text", "thought", "rest"),
    [
        ("<think>\na\n</think>\n\nb", "a", "b"),
        ("\n<think>\na\n</think>\n\nb", "a", "\nb"),
        (f"<think>\na\n</think>\n\n{CALL}", "a", CALL),
        (f"<think>\na{CALL}", "a", CALL),  # a call ends the reasoning
        ("<think>\na\n<tool_call>\n<function=f>", "a\n", "<tool_call>\n<function=f>"),  # of any notation
        (f"{CALL}<think>\na", "", f"{CALL}<think>\na"),
        ("b</think>", "", "b</think>"),
        ("<think>\na", "a", ""),
        ("<thin", "", "<thin"),
    ],
)
def test_what_is_left_to_others(text: str, thought: str, rest: str) -> None:
    stream = ReasoningPrefix(unbraid.find("qwen3"), "")
    found = [stream.feed(char) for char in text] + [stream.finish()]
    assert ("".join(one for one, _ in found), "".join(two for _, two in found)) == (thought, rest)


@every_format_with_reasoning
def test_what_the_prompt_began_need_not_come(format: Format) -> None:
    """A header, of which the prompt has the beginning."""
    if format.reasoning_in_content:
        pytest.skip("the reasoning stays in the content")
    said = Message((Text("reasoning", "Why?"), Text("content", "So.")))
    start = format.prompt if format.headers is not None else ""
    stream = ReasoningPrefix(format, start)
    steps = [*map(stream.feed, unbraid.render(format, said).removeprefix(start)), stream.finish()]
    assert "".join(reasoning for reasoning, _ in steps) == "Why?"
    assert "So." in "".join(content for _, content in steps)
