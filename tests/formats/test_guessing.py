"""Outputs are attributed to the format that wrote them, or to one that reads them in the same way; prose to none.

The outputs are made by chance, from words: nothing in `unbraid.guessing` was written for them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

import unbraid
from unbraid import Format, Message, Speech, Text, ToolCall, UnbraidError
from unbraid.core.message import Part
from unbraid.guessing import overlooked

from ..support.places import ROOT

TEXT = """The weather in Paris is rather mild, and we should look it up before we answer, because someone asked for
tomorrow morning: a train, a hotel, a price, a list of nine cities with rain."""
WORDS = [word.strip(".,:").lower() for word in TEXT.split()]
TOOLS = ("get_weather", "search", "send_mail", "book-train")


def sentence(chance: random.Random) -> str:
    words = " ".join(chance.choices(WORDS, k=chance.randint(2, 14)))
    return words[0].upper() + words[1:] + chance.choice(".?!")


def paragraph(chance: random.Random) -> str:
    return chance.choice(["\n", "\n\n", " "]).join(sentence(chance) for _ in range(chance.randint(1, 4)))


def value(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.randrange(6 if depth < 2 else 4)
    if kind < 2:
        return sentence(chance) if kind else chance.choice(["Zürich", "東京", "a, b", "it's", ""])
    if kind < 4:
        return chance.choice([chance.randint(-5, 1000), round(chance.random(), 2), True, None])
    if kind == 4:
        return [value(chance, depth + 1) for _ in range(chance.randint(0, 3))]
    return {word: value(chance, depth + 1) for word in chance.choices(WORDS, k=2)}


def call(chance: random.Random) -> ToolCall:
    arguments = {word: value(chance) for word in chance.choices(WORDS, k=chance.randint(0, 3))}
    return ToolCall(
        chance.choice(TOOLS),
        json.dumps(arguments, ensure_ascii=False),
        "".join(chance.choices("abcXYZ0189", k=9)),
    )


def message(format: Format, chance: random.Random) -> Message:
    """A message with reasoning, with calls or with both."""
    reasons = format.reasoning is not None and (bool(format.prompt) or format.tools is None or chance.random() < 0.6)
    calls = format.tools is not None and (not reasons or chance.random() < 0.7)
    parts: list[Part] = [Text("reasoning", paragraph(chance))] if reasons else []
    if not calls or chance.random() < 0.5:
        speech = format.speech
        if speech is not None and speech.implied:
            codes = tuple(chance.randrange(speech.codes) for _ in range(4 if speech.code else 0))
            parts.append(Speech(paragraph(chance), codes))
        else:
            parts.append(Text("content", paragraph(chance)))
    return Message((*parts, *(call(chance) for _ in range(chance.randint(1, 3) if calls else 0))))


def outputs(format: Format, count: int) -> Iterator[str]:
    chance = random.Random(f"held out: {format.name}")
    while count:
        try:
            yield unbraid.render(format, message(format, chance))
        except UnbraidError:  # an argument that the format cannot write
            continue
        count -= 1


WRITTEN = [
    format
    for format in unbraid.all_formats()
    # A format that leaves the reasoning in the content reads another's outputs in its own way.
    if (format.reasoning or format.tools) and not format.reasoning_in_content
]


def missed(format: Format, count: int) -> list[str]:
    """Outputs whose best guess reads them in another way than the format that wrote them."""
    wrong = []
    for text in outputs(format, count):
        parts = unbraid.parse(format, text).parts
        guesses = unbraid.guess(text)
        if not guesses or unbraid.parse(guesses[0].format, text).parts != parts:
            wrong.append(f"{guesses[0].name if guesses else None} for {text!r}")
    return wrong


@pytest.mark.parametrize("format", WRITTEN, ids=lambda one: one.name)
def test_an_output_is_attributed_to_its_format(format: Format) -> None:
    assert missed(format, 2) == []


@pytest.mark.slow
@pytest.mark.parametrize("format", WRITTEN, ids=lambda one: one.name)
def test_of_100_outputs_99_are_attributed(format: Format) -> None:
    wrong = missed(format, 100)
    assert len(wrong) <= 1, "\n".join(wrong)


PROSE = (
    "Hello! How can I help you today?",
    "It rains.\n\nTake an umbrella.",
    'Use a list like [1, 2, 3] or a dict {"a": 1}, as in [1] and [print(x)].',
    '```json\n{"name": "Paris", "population": 2100000}\n```',
    "```python\nprint(f(x=1))\nrows = [bar(a=1), baz()]\n```",
    '[{"name": "Ann", "age": 3}]',
    '{"city": "Paris", "temperature": 20}',
    "The tag <div> opens a block. Use <b>bold</b> and <answer>42</answer>.",
    "Use `<think>` to open the reasoning; `</think>` closes it.",
    "The model writes <think> before its reasoning and </think> after it.",
    "Then comes </think> and the answer.",
    "- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n$\\{x \\mid x > 0\\}$",
    "Thought: I should go.\nAction: go home.\nObservation: it rains.",
    "Here is my response: call functools.partial(f, 1), see [the docs](https://example.com).",
    "",
    " \n",
)


@pytest.mark.parametrize("text", PROSE)
def test_prose_is_attributed_to_none(text: str) -> None:
    assert unbraid.guess(text) == []


def test_generated_prose_is_attributed_to_none() -> None:
    chance = random.Random(0)
    assert not any(unbraid.guess(paragraph(chance)) for _ in range(20))


@pytest.mark.parametrize("name", ["hermes", "qwen3", "mistral", "step-audio-2", "glm-4-voice"])
def test_the_examples(name: str) -> None:
    best = unbraid.guess((ROOT / f"examples/{name}.txt").read_text(encoding="utf-8"))[0]
    assert name in (best.name, *best.same)
    assert best.sure in ("certain", "likely")


def test_what_a_format_leaves_over_is_told() -> None:
    text = '<think>\nHm.\n</think>\n\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    best, *others = unbraid.guess([text, text])
    assert (best.name, best.sure, best.clean, best.outputs, best.unexplained) == ("qwen3", "certain", 2, 2, ())
    hermes = next(each for each in others if each.name == "hermes")
    assert hermes.sure == "partly"
    assert hermes.unexplained == ("`<think>` stays in the text (2 times)", "`</think>` stays in the text (2 times)")
    assert "qwen2.5" in hermes.same
    assert hermes.to_json()["format"] == "hermes"


def test_an_end_that_is_written_out_tells_formats_apart() -> None:
    text = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    assert unbraid.guess(text)[0].name == "hermes"
    assert unbraid.guess(text + "<|end_of_text|>")[0].name == "granite-4"


def test_many_outputs_are_sampled_from_all_over() -> None:
    calls = ['[TOOL_CALLS]f[ARGS]{"a": 1}'] * 300
    best = unbraid.guess(["It rains."] * 300 + calls)[0]
    assert best.name.startswith("mistral")
    assert 0 < best.explains < best.outputs <= 200


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(UnbraidError, match="takes texts, not bytes"):
        unbraid.guess([b"<think>"])  # type: ignore[list-item]


def test_what_another_format_would_read_is_overlooked() -> None:
    text = '<think>\nHm.\n</think>\n\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call><|im_end|>'
    harmony = unbraid.find("harmony")
    warnings = overlooked(harmony, unbraid.parse(harmony, text))
    assert "`<tool_call>` stays in the text" in warnings
    assert warnings[-1] == "1 call stayed text: qwen3 reads it, harmony does not"
    qwen = unbraid.find("qwen3")
    assert overlooked(qwen, unbraid.parse(qwen, text)) == []
    named = "In Qwen's template `<tool_call>` opens a call."
    assert overlooked(harmony, unbraid.parse(harmony, named)) == []
