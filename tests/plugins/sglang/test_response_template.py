"""A checkpoint that says itself how it writes: `--tool-call-parser unbraid-response_template`, in SGLang."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import unbraid
from unbraid.plugins import sglang as plugin
from unbraid.templates.detection.response_template import format_from_response_template

from ...templates.detection.test_response_template import RESPONSES
from .cases import tools
from .package import is_before_0_5_23

OWN = "response_template"
CALL = unbraid.ToolCall("get_weather", '{"city": "Paris"}')
TURN = unbraid.Message((unbraid.Text("reasoning", "Where?"), CALL))
PROMPT = "<|im_start|>assistant\n"


def read(sglang: Any, name: str, text: str, template: Any, size: int) -> tuple[str, str, list[tuple[str, str]], int]:
    """Reasoning, content and calls as SGLang's server streams them, and in how many pieces the arguments came."""
    tokenizer = Tokenizer(template)
    calls = sglang.FunctionCallParser(tools(sglang, "get_weather"), name, tokenizer=tokenizer, prefix=PROMPT)
    reasoning: Any = None
    if "thinking" in template["fields"]:
        reasoning = sglang.ReasoningParser(name, tokenizer=tokenizer, prefix=PROMPT)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    steps = [("", piece) for piece in pieces]
    if reasoning is not None:
        steps = [*map(reasoning.parse_stream_chunk, pieces), reasoning.parse_stream_end()]
    content = ""
    items: list[Any] = []
    for part, more in [*(calls.parse_stream_chunk(rest or "") for _, rest in steps), calls.parse_stream_end()]:
        content, items = content + part, [*items, *more]
    named = {item.tool_index: item.name for item in items if item.name}
    arguments = {at: "".join(item.parameters for item in items if item.tool_index == at) for at in named}
    thought = "".join(thought or "" for thought, _ in steps)
    return thought, content, [(named[at], arguments[at]) for at in named], sum(bool(item.parameters) for item in items)


class Tokenizer(SimpleNamespace):
    """As much of a tokenizer as SGLang's own detector reads."""

    def __init__(self, template: Any) -> None:
        super().__init__(response_template=template, eos_token="<|im_end|>")

    def encode(self, text: str, **_: Any) -> list[int]:
        return list(map(ord, text))


@pytest.mark.parametrize("template", RESPONSES)
def test_it_is_read_as_it_says(installed: Any, template: str) -> None:
    response, _ = RESPONSES[template]
    if is_before_0_5_23(installed):
        pytest.skip("this SGLang reads no response_template")
    format = format_from_response_template(response, "<|im_end|>")
    text = unbraid.render(format, TURN if format.reasoning is not None else unbraid.Message((CALL,)))
    for size in (1, 7, len(text)):
        theirs = read(installed, OWN, text, response, size)
        ours = read(installed, f"unbraid-{OWN}", text, response, size)
        assert theirs[2] == [("get_weather", '{"city": "Paris"}')]
        assert (ours[0], ours[2]) == (theirs[0].strip(), theirs[2])
        assert ours[1].strip() == ""
    assert read(installed, f"unbraid-{OWN}", text, response, 1)[3] > 2


def test_in_the_place_of_sglangs_own(sglang: Any) -> None:
    if is_before_0_5_23(sglang):
        pytest.skip("this SGLang reads no response_template")
    plugin.install(replace=True)
    for registry in (sglang.FunctionCallParser.ToolCallParserEnum, sglang.ReasoningParser.DetectorMap):
        assert registry[OWN] is registry[f"unbraid-{OWN}"]
