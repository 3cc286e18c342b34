"""Headers that the prompt has begun, or written whole."""

from __future__ import annotations

import pytest

from unbraid import Part, ToolCall

from ..support.parsing import content, parse, reasoning

FINAL = "<|end|><|start|>assistant<|channel|>final<|message|>so<|return|>"


@pytest.mark.parametrize(
    ("format", "prompt", "output", "parts"),
    [
        (
            "harmony",
            "<|start|>assistant",
            f"<|channel|>analysis<|message|>why{FINAL}",
            (reasoning("why"), content("so")),
        ),
        (
            "harmony",
            "<|start|>assistant<|channel|>",
            f"analysis<|message|>why{FINAL}",
            (reasoning("why"), content("so")),
        ),
        (
            "harmony",
            "<|start|>assistant<|channel|>ana",
            f"lysis<|message|>why{FINAL}",
            (reasoning("why"), content("so")),
        ),
        ("harmony", "<|start|>assistant<|channel|>", "final<|message|>so<|return|>", (content("so"),)),
        (
            "harmony",
            "<|start|>assistant to=functions.get",
            '_f<|channel|>commentary json<|message|>{"a": 1}<|call|>',
            (ToolCall("get_f", '{"a": 1}'),),
        ),
        (
            "harmony",
            "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>",
            '{"a": 1}<|call|>',
            (ToolCall("f", '{"a": 1}'),),
        ),
        ("harmony", "<|start|>assistant", "Hello", (content("Hello"),)),
        ("functionary-v3.2", ">>>f\n", '{"a": 1}', (ToolCall("f", '{"a": 1}'),)),
        ("functionary-v3.2", ">>>", 'f\n{"a": 1}', (ToolCall("f", '{"a": 1}'),)),
        ("functionary-v3.2", ">>>all\n", "so", (content("so"),)),
    ],
)
def test_a_prompt_that_breaks_off_in_a_header(format: str, prompt: str, output: str, parts: tuple[Part, ...]) -> None:
    message = parse(format, output, prompt=prompt)
    assert message.parts == parts
    assert message.diagnostics == ()
