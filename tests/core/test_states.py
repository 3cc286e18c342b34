"""What frames declare is what the machine does: every transition is declared, and every declared one happens."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import unbraid
from unbraid import Format
from unbraid.caching import LruCache
from unbraid.core.machine import driver
from unbraid.core.machine.machine import START, Frame, Machine
from unbraid.core.machine.scopes import CitationFrame, CitationRule

from ..support import strategies
from ..support.cases import cases
from .write_machine import DOCUMENT, document, frames

Transition = tuple[str, str]
TABLE = {(opener, kind) for kind, frame in frames().items() for opener in frame.opened_by}

CITY = [{"name": "f", "parameters": {"properties": {"a": {"type": "array"}}}}]
EXAMPLES: dict[Transition, tuple[str, str, str]] = {
    ("start", "scope"): ("qwen3", "", ""),
    ("start", "header"): ("harmony", "<|start|>assistant", ""),
    ("start", "leading_marker"): ("qwen3", "<think>\n", ""),
    ("scope", "leading_marker"): ("qwen3", "", "<think>"),
    ("scope", "scope"): ("qwen3", "", "<think>"),
    ("scope", "header"): ("harmony", "x", "<|start|>"),
    ("scope", "citation"): ("command-r", "", "x <co: 0"),
    ("scope", "calls"): ("qwen3", "", "<tool_call>"),
    ("header", "scope"): ("harmony", "", "<|channel|>analysis<|message|>"),
    ("header", "calls"): ("harmony", "", "<|channel|>commentary to=functions.f<|message|>"),
    ("calls", "code"): ("harmony", "", "<|channel|>analysis to=python code<|message|>print("),
    ("calls", "value"): ("deepseek-v3.1", "", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"),
    ("calls", "schema_value"): ("mistral-v11", "", "[TOOL_CALLS]f{"),
    ("json_call", "schema_value"): ("mistral-v3", "", '[TOOL_CALLS][{"name": "f", "arguments": {'),
    ("calls", "quoted"): ("mistral-v11", "", '[TOOL_CALLS]f"{'),
    ("calls", "json_call"): ("hermes", "", '<tool_call>{"id'),
    ("calls", "tagged"): ("qwen3-coder", "", "<tool_call><function=f>"),
    ("calls", "xml"): ("minicpm-5", "", '<function name="f"><param'),
    ("calls", "elements"): ("minimax-m3", "", ']<]minimax[>[<tool_call>]<]minimax[>[<invoke name="f">'),
    ("calls", "python"): ("pythonic", "", "[f("),
    ("calls", "python_dict"): ("sarashina", "", "<|tool_calls|>[{'name': 'f', 'arguments': {"),
    ("calls", "bare"): ("gemma-4", "", "<|tool_call>call:f{"),
    ("json_call", "value"): ("hermes", "", '<tool_call>{"name": "f", "arguments": {'),
    ("json_call", "quoted"): ("hermes", "", '<tool_call>{"name": "f", "arguments": "'),
    ("tagged", "tagged_value"): ("qwen3-coder", "", "<tool_call><function=f><parameter=b>"),
    ("tagged_value", "argument"): ("qwen3-coder", "", "<tool_call><function=f><parameter=a>["),
    ("xml", "xml_value"): ("minicpm-5", "", '<function name="f"><param name="b">'),
    ("elements", "leaf"): (
        "minimax-m3",
        "",
        ']<]minimax[>[<tool_call>]<]minimax[>[<invoke name="f">]<]minimax[>[<b>x',
    ),
    ("leaf", "argument"): (
        "minimax-m3",
        "",
        ']<]minimax[>[<tool_call>]<]minimax[>[<invoke name="f">]<]minimax[>[<a>[1',
    ),
    ("argument", "python_argument"): ("qwen3-coder", "", "<tool_call><function=f><parameter=a>['"),
    ("python_argument", "argument"): ("qwen3-coder", "", "<tool_call><function=f><parameter=a>['x', y]"),
    ("argument", "escaped_argument"): ("qwen3-coder", "", '<tool_call><function=f><parameter=a>[\\"'),
    ("escaped_argument", "argument"): ("qwen3-coder", "", '<tool_call><function=f><parameter=a>[\\"x\\", y]'),
    ("calls", "plain"): ("cwm", "", "<tool: f>\nls"),
    ("tagged", "value"): ("qwen3-coder", "", "<tool_call><function=f>{"),
    ("tagged", "wrapper"): (
        "deepseek-v3.2",
        "",
        '<｜DSML｜function_calls><｜DSML｜invoke name="f"><｜DSML｜parameter name="arguments" string="true">',
    ),
    ("xml", "xml_wrapper"): ("minicpm-5", "", '<function name="f"><param name="arguments">'),
    ("xml_value", "argument"): ("minicpm-5", "", '<function name="f"><param name="a">['),
    ("xml_value", "decoded"): ("minicpm-5", "", '<function name="f"><param name="a">['),
    ("xml", "value"): ("minicpm-5", "", '<function name="f">{'),
}
"""For each transition a format, the end of a prompt, and an output that makes it."""


@pytest.fixture(scope="module")
def seen() -> Iterator[set[Transition]]:
    """The transitions that machines make while it is in use."""
    transitions: set[Transition] = set()
    push = Machine.push

    def watched_push(self: Machine, frame: Frame) -> None:
        transitions.add((self.running.kind if self.running else START, frame.kind))
        push(self, frame)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Machine, "push", watched_push)
        patch.setattr(driver, "_kinds", LruCache(1))  # a machine that is copied makes none
        yield transitions


def test_every_frame_says_what_it_is() -> None:
    assert all("about" in vars(frame) for frame in frames().values())


def test_a_transition_that_is_not_declared_fails() -> None:
    machine = unbraid.parser("qwen3").machine
    with pytest.raises(AssertionError, match="opens"):
        machine.push(CitationFrame(CitationRule((), "", re.compile(""))))


def test_every_transition_has_an_example() -> None:
    assert set(EXAMPLES) == TABLE


@pytest.mark.parametrize("transition", EXAMPLES, ids=" to ".join)
def test_the_transition_happens(seen: set[Transition], transition: Transition) -> None:
    format, prompt, output = EXAMPLES[transition]
    seen.clear()
    unbraid.parser(format, tools=CITY, prompt=prompt).feed(output)
    assert transition in seen


@pytest.mark.parametrize("format", strategies.FORMATS, ids=[f.name for f in strategies.FORMATS])
def test_no_other_transition_happens(seen: set[Transition], format: Format) -> None:
    for case in cases(format):
        seen.clear()
        parser = unbraid.parser(format, **case.options)
        parser.feed(case.text)
        parser.finish()
        assert seen <= TABLE


def test_the_document_is_up_to_date() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document()
