"""The parts of vLLM's plug-in that need no vLLM: how its deltas are read, and where reasoning ends in them."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid import Event, Format, Message, Tools
from unbraid.core.message import Fold
from unbraid.plugins.vllm.reading import Reading, vocabulary_of
from unbraid.plugins.vllm.reasoning import DecodedTokens, ReasoningMarks, ReasoningTokens, UpToContent

from ..support import strategies
from ..support.examples import examples
from ..support.parsing import call, content, reasoning
from ..support.places import ROOT
from .vllm_cases import decode, encode, every_format, every_format_with_reasoning, grouped, qwen3, tokenizer_for

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


@dataclass
class Request:
    """What is looked at in vLLM's requests."""

    stop: list[str] = field(default_factory=list)
    stop_token_ids: list[int] = field(default_factory=list)
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True


def reading(format: str | Format, tokenizer: Any, request: Request | None = None, **options: Any) -> Reading:
    found = unbraid.find(format) if isinstance(format, str) else format
    given = {"tools": Tools(strategies.TOOLS), "separate_reasoning": True, "prompt": (), **options}
    return Reading(found, tokenizer, request or Request(), **given)


def said(events: Iterable[Event]) -> Message:
    fold = Fold()
    fold.add(events)
    return fold.message()


def streamed(reader: Reading, deltas: Sequence[tuple[str, Sequence[int]]]) -> Message:
    events: list[Event] = []
    for at, (text, ids) in enumerate(deltas):
        events += reader.feed(text, ids, at == len(deltas) - 1)
    return said(events)


# Deltas


@every_format
@examples(4)
@given(data=st.data())
def test_ids_however_they_are_cut(format: Format, data: st.DataObject) -> None:
    tokenizer = tokenizer_for(format)
    text = data.draw(strategies.hostile(format) | strategies.messages(format).map(lambda m: unbraid.render(format, m)))
    ids = encode(tokenizer, text)
    all_of_it = Request(skip_special_tokens=False, include_stop_str_in_output=True)
    expected = unbraid.parse(format, ids, tools=strategies.TOOLS, tokenizer=tokenizer, prompt="")
    for sizes in ([1], data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=6))):
        # The text that comes beside the ids is not looked at.
        deltas = [("x", group) for group in grouped(ids, sizes)]
        assert streamed(reading(format, tokenizer, all_of_it), [*deltas, ("", [])]).parts == expected.parts
    whole = reading(format, tokenizer, all_of_it, whole=True).whole("x" if ids else "", ids)
    assert said(whole).content == expected.settled().content
    assert said(whole).tool_calls == expected.settled().tool_calls


@every_format
@examples(4)
@given(data=st.data())
def test_text_however_it_is_cut(format: Format, data: st.DataObject) -> None:
    """With stop texts, which vLLM cuts off the text alone."""
    tokenizer = tokenizer_for(format)
    text = data.draw(strategies.hostile(format))
    expected = unbraid.parse(format, text, tools=strategies.TOOLS, prompt="")
    deltas = [(piece, [1]) for piece in data.draw(st.composite(strategies.cuts)(text))]
    request = Request(stop=["\n\n"])
    assert streamed(reading(format, tokenizer, request), deltas).parts == expected.parts


def test_a_stop_text_is_not_shown() -> None:
    tokenizer = qwen3()
    ids = encode(tokenizer, "one two")
    assert streamed(reading("hermes", tokenizer, Request(stop=[" two"])), [("one", ids)]).content == "one"
    kept = Request(stop=[" two"], include_stop_str_in_output=True)
    assert streamed(reading("hermes", tokenizer, kept), [("one two", ids)]).content == "one two"


def test_special_tokens_are_not_shown() -> None:
    tokenizer = qwen3()
    ids = encode(tokenizer, f"<|im_start|>a<|endoftext|>{CALL}<|object_ref_start|>b<|im_end|>")
    found = streamed(reading("qwen3-coder", tokenizer), [("", ids)])
    assert found.content == f"a{CALL}b"  # not a call of this format
    asked = Request(skip_special_tokens=False)
    assert streamed(reading("think", tokenizer, asked), [("", ids[-3:])]).content == "<|object_ref_start|>b"


def test_the_token_that_ends_the_output_is_not_shown() -> None:
    tokenizer = qwen3()
    ids = encode(tokenizer, "a stop")
    asked = Request(stop_token_ids=[ids[-1]])
    assert streamed(reading("hermes", tokenizer, asked), [("", ids)]).content == "a"
    assert streamed(reading("hermes", tokenizer, asked), [("", ids), ("", ids)]).content == "a stopa"
    # `<|object_ref_end|>` ends no turn of this format, and still vLLM may be told to stop there.
    special = encode(tokenizer, "a<|object_ref_end|>")
    shown = Request(skip_special_tokens=False)
    assert streamed(reading("hermes", tokenizer, shown), [("", special)]).content == "a"
    shown.include_stop_str_in_output = True
    assert streamed(reading("hermes", tokenizer, shown), [("", special)]).content == "a<|object_ref_end|>"


def test_a_marker_at_the_end_is_one() -> None:
    """Also where it is a special token."""
    tokenizer = tokenizer_for(unbraid.find("step-audio-2"))
    ids = encode(tokenizer, "<tts_start>Hi<tts_end>")
    assert streamed(reading("step-audio-2", tokenizer), [("", ids)]).speech[0].text == "Hi"


def test_an_empty_delta_decides_nothing() -> None:
    tokenizer = qwen3()
    deltas: list[tuple[str, list[int]]] = [("", []), (CALL, encode(tokenizer, CALL)), ("", [])]
    assert streamed(reading("hermes", tokenizer), deltas).parts == (call("f", '{"a": 1}'),)
    assert streamed(reading("hermes", tokenizer), [("", [])]).parts == ()
    # Where there are no ids, it is text that is read.
    assert streamed(reading("hermes", tokenizer), [("", []), (CALL, []), ("", [])]).tool_calls


def test_a_call_that_is_cut_off_is_text_in_a_whole_reply() -> None:
    tokenizer = qwen3()
    text = f'a{CALL}<tool_call>\n{{"name": "f", "arguments": {{"b'
    whole = said(reading("hermes", tokenizer, whole=True).whole(text, encode(tokenizer, text)))
    assert whole.tool_calls == (call("f", '{"a": 1}'),)
    assert whole.content == 'a<tool_call>\n{"name": "f", "arguments": {"b'


def test_nobody_forges_a_call() -> None:
    tokenizer = qwen3()
    ids = [token for char in CALL for token in encode(tokenizer, char)]
    assert decode(tokenizer, ids) == CALL
    assert streamed(reading("hermes", tokenizer), [(CALL, ids)]).parts == (content(CALL),)


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
    assert streamed(reading("qwen3", tokenizer, prompt=start), [("", ids)]).parts == expected
    as_text = Request(stop=["x"])
    assert streamed(reading("qwen3", tokenizer, as_text, prompt=start), [("a</think>b", ids)]).parts == expected
    assert streamed(reading("qwen3", Unknown(tokenizer), prompt=start), [("a</think>b", ids)]).parts == expected


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
    reader = reading("qwen3", tokenizer, prompt=prompt)
    assert streamed(reader, [("a</think>", [1]), (CALL, [2])]).parts == (reasoning("a"), call("f", '{"a": 1}'))


# Where reasoning ends


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


def marks_of(format: Format) -> tuple[ReasoningMarks, Any]:
    tokenizer = tokenizer_for(format)
    vocabulary = vocabulary_of(tokenizer)
    assert vocabulary is not None
    return ReasoningMarks(format, vocabulary), tokenizer


@every_format_with_reasoning
@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_last_marker_of_the_turn(format: Format, prompt: str) -> None:
    marks, tokenizer = marks_of(format)
    text = prompt.replace("{open}", marks.open).replace("{close}", marks.close).replace("<|im_end|>", format.ends[0])
    mark, after = marks.last(encode(tokenizer, text))
    assert (None if mark == "end" else mark) == PROMPTS[prompt]
    if mark == "close":
        # What follows the marker begins with the next token, or in the one that ends the marker.
        assert decode(tokenizer, encode(tokenizer, text)[after:]) in text.rpartition(marks.close)[2]


@every_format_with_reasoning
@examples(4)
@given(data=st.data())
def test_the_end_is_seen_when_it_comes(format: Format, data: st.DataObject) -> None:
    """Step by step, looking at the last ids alone, the end is found where looking at all of them finds it."""
    marks, tokenizer = marks_of(format)
    thought = data.draw(strategies.texts(format))
    prompt = encode(tokenizer, "Hi")
    output = encode(tokenizer, f"{marks.open}\n{thought}{marks.close}\n\nb")
    ids, found = list(prompt), []
    for group in grouped(output, data.draw(st.lists(st.integers(1, 4), min_size=1))):
        ids += group
        found.append(marks.closes(ids, len(group)))
        if marks.last(ids)[0] == "close":
            break
    assert found == [False] * (len(found) - 1) + [True]


@every_format_with_reasoning
def test_an_output_that_does_not_begin_with_reasoning(format: Format) -> None:
    marks, tokenizer = marks_of(format)
    for text, otherwise in (
        ("", False),
        ("\n", False),
        (marks.open[:2], False),
        (marks.open, False),
        (f"\n{marks.open}\na", False),
        ("a", True),
        ("\n a", True),
        (f"{marks.open[:2]}a", True),
    ):
        assert marks.begins_otherwise(encode(tokenizer, text)) is otherwise, text


def test_marks_in_a_tokenizer_that_we_cannot_read() -> None:
    tokenizer = qwen3()
    marks = ReasoningMarks(unbraid.find("qwen3"), DecodedTokens(Unknown(tokenizer)))
    assert marks.last(encode(tokenizer, "<think>\na</think>b")) == ("close", 4)
    spelled = ReasoningMarks(unbraid.find("mistral"), DecodedTokens(Unknown(tokenizer)))
    ids = encode(tokenizer, "[THINK]a[/THINK]")
    assert spelled.last(ids) == ("close", len(ids))


@every_format_with_reasoning
def test_tokens_of_the_reasoning(format: Format) -> None:
    marks, tokenizer = marks_of(format)
    vocabulary = vocabulary_of(tokenizer)
    assert vocabulary is not None
    opened, thought = encode(tokenizer, f"{marks.open}\n"), encode(tokenizer, "one two three")
    ids = [*opened, *thought, *encode(tokenizer, f"{marks.close}"), *encode(tokenizer, "four five")]
    counter = ReasoningTokens(format, vocabulary, "")
    counts = [counter.count(ids[:at]) for at in range(len(ids) + 1)]
    assert counts[len(opened)] <= 1  # the line break
    assert counts[len(opened) + len(thought)] - counts[len(opened)] == len(thought)
    # A marker that is spelled out is not known for one before its end.
    assert counts[-1] - counts[len(opened) + len(thought)] < len(marks.close)
    assert ReasoningTokens(format, vocabulary, "").count(ids) == counts[-1]


# Reasoning for the tool parsers of others


@every_format_with_reasoning
@examples(4)
@given(data=st.data())
def test_up_to_the_content(format: Format, data: st.DataObject) -> None:
    """However the text is cut; and all of it is in one of the two, save markers and the space around them."""
    text = data.draw(strategies.hostile(format))
    prompt = data.draw(st.sampled_from([None, "", format.reasoning.open if format.reasoning else ""]))

    def split(pieces: Sequence[str]) -> tuple[str, str]:
        stream = UpToContent(format, prompt)
        found = [stream.feed(piece) for piece in pieces]
        found.append(stream.finish())
        return "".join(one for one, _ in found), "".join(two for _, two in found)

    thought, rest = split([text])
    assert split(text) == (thought, rest)
    assert split(data.draw(st.composite(strategies.cuts)(text))) == (thought, rest)
    assert text.endswith(rest.lstrip())
    parsed = unbraid.parse(format, text, prompt=prompt)
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
        (f"{CALL}<think>\na", "", f"{CALL}<think>\na"),
        ("b</think>", "", "b</think>"),
        ("<think>\na", "a", ""),
        ("<thin", "", "<thin"),
    ],
)
def test_what_is_left_to_others(text: str, thought: str, rest: str) -> None:
    stream = UpToContent(unbraid.find("qwen3"), "")
    found = [stream.feed(char) for char in text] + [stream.finish()]
    assert ("".join(one for one, _ in found), "".join(two for _, two in found)) == (thought, rest)


# The module that vLLM loads


def test_vllm_is_not_imported() -> None:
    code = "import sys, unbraid, unbraid.plugins; print(any(name.partition('.')[0] == 'vllm' for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT).stdout == "False\n"


def test_the_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, function = project["entry-points"]["vllm.general_plugins"]["unbraid"].partition(":")
    assert module == "unbraid.plugins.vllm"
    assert f"def {function}()" in (ROOT / module.replace(".", "/") / "__init__.py").read_text()


def test_without_vllm_it_says_so() -> None:
    if find_spec("vllm") is not None:
        pytest.skip("vLLM is installed")
    with pytest.raises(ImportError, match=r"made for vLLM 0\.32\. Here is no vLLM: pip install vllm"):
        importlib.import_module("unbraid.plugins.vllm").register()


def test_with_another_vllm_it_says_so(tmp_path: Path) -> None:
    """One that has none of the modules."""
    package = tmp_path / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text("")
    metadata = tmp_path / "vllm-0.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.2\n")
    path = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]"
    code = f"{path}; import unbraid.plugins.vllm as plugin; plugin.register()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "Here is vLLM 0.2, which does not have what the plug-in needs (No module named 'vllm." in done.stderr
