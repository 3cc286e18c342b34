"""Law 10, the vendors' half: what a vendor's own template writes for an assistant's turn parses back to that turn.

The templates are those in the shared data. Where one loses something of the turn itself, `vendor_templates` says what,
and just that must be missing. `docs/templates.md` is written from the same table.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import unbraid
from unbraid import UnknownFormat
from unbraid.templates import PromptError

from ...constraints.walks import constraint_accepts
from ...support.mutations import MUTATIONS, check
from ...support.places import absent
from ...templates.prompt_models import ALL_TEMPLATES
from ...templates.prompt_models import TEMPLATES as FOLDER
from .rendering import ArgumentsAs, assistant, render, written
from .templates import TEMPLATES, WITHOUT_FORMAT
from .turns import IDS, TOOLS, TURNS, USER, Turn
from .write import DOCUMENT, document

if not FOLDER.is_dir():
    pytest.skip(absent(FOLDER), allow_module_level=True)


def cases() -> Iterator[tuple[str, str, ArgumentsAs]]:
    for vendor, template in TEMPLATES.items():
        yield from ((vendor, name, arguments_as) for name, arguments_as in template.turns())


def some_cases() -> list[tuple[str, str, ArgumentsAs]]:
    """A constraint takes long to make: a third of the cases, which the long run completes."""
    every = list(cases())
    return every if os.environ.get("HYPOTHESIS_PROFILE") == "long" else every[::3]


def test_every_template_is_in_the_table() -> None:
    assert sorted({*(template.file for template in TEMPLATES.values()), *WITHOUT_FORMAT}) == ALL_TEMPLATES


@pytest.mark.parametrize("name", [name for why in WITHOUT_FORMAT.values() for name in re.findall("`(.*)`", why)])
def test_a_template_without_a_format_has_none(name: str) -> None:
    """If there is one now, the template belongs into `TEMPLATES`."""
    with pytest.raises(UnknownFormat):
        unbraid.find(name)


@pytest.mark.parametrize(("vendor", "name", "arguments_as"), list(cases()))
def test_what_a_template_writes_parses_back(vendor: str, name: str, arguments_as: ArgumentsAs) -> None:
    template, turn = TEMPLATES[vendor], TURNS[name]
    prompt, output = written(template, turn, arguments_as)
    left = template.left_of(turn, arguments_as)
    expected = left.message()
    for format in template.formats:
        message = unbraid.parse(format, output, tools=TOOLS, prompt=prompt)
        parser = unbraid.parser(format, tools=TOOLS, prompt=prompt)
        for character in output:
            parser.feed(character)
        parser.finish()
        assert parser.message == message
        assert message == expected
        assert bool(message.diagnostics) is template.opens(left)
        if template.ids:
            assert [call.id for call in message.tool_calls] == IDS[: len(message.tool_calls)]
        if format.startswith("mistral"):
            assert all(re.fullmatch("[a-zA-Z0-9]{9}", call.id) for call in message.tool_calls)


def single_calls(vendor: str) -> list[tuple[str, ArgumentsAs]]:
    """The turns of a vendor that have one call."""
    return [(name, arguments_as) for name, arguments_as in TEMPLATES[vendor].turns() if len(TURNS[name].calls) == 1]


@cache
def texts_with_one_call(vendor: str) -> list[tuple[str, str]]:
    """What the template writes for one call, after which prompt. It may be the same for two forms of arguments."""
    template = TEMPLATES[vendor]
    return list(dict.fromkeys(written(template, TURNS[name], form) for name, form in single_calls(vendor)))


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("vendor", [vendor for vendor in TEMPLATES if single_calls(vendor)])
def test_a_call_stays_what_it_was_or_the_difference_is_reported(vendor: str, mutation: str) -> None:
    """What the template writes for one call, changed in one place."""
    for prompt, output in texts_with_one_call(vendor):
        for format in map(unbraid.find, TEMPLATES[vendor].formats):
            options: dict[str, Any] = {"tools": TOOLS, "prompt": prompt}
            for changed in MUTATIONS[mutation](format, output, options):
                check(format, output, changed, options)


@pytest.mark.parametrize(("vendor", "name", "arguments_as"), some_cases())
def test_what_a_template_writes_is_what_the_constraint_accepts(
    vendor: str, name: str, arguments_as: ArgumentsAs
) -> None:
    template, turn = TEMPLATES[vendor], TURNS[name]
    prompt, output = written(template, turn, arguments_as)
    # Given a string, some templates quote it. That is read, but it is not what the model should write.
    quoted = arguments_as == "text" and re.search(r'"\{(\\"|\}")', output) is not None
    unusual = quoted or name in template.unusual or template.opens(template.left_of(turn, arguments_as))
    for format in template.formats:
        if format == "llama-3" and "{" in template.left_of(turn, arguments_as).content:
            pytest.xfail("a bracket opens a call, and is kept out of the content")
        constraint = unbraid.constraint(format, tools=TOOLS if template.arguments else None, prompt=prompt)
        assert constraint_accepts(constraint, output) is not unusual


def test_every_loss_is_one() -> None:
    """The table names no loss that no turn shows, and no turn is refused that a template takes."""
    for vendor, template in TEMPLATES.items():
        turns = [TURNS[name] for name, _ in template.turns()]
        for loss in template.losses:
            assert any(loss.left(turn) != turn for turn in turns), (vendor, loss.what)
        assert template.unusual <= {name for name, _ in template.turns()}
        for turn in TURNS.values():
            if template.refuses(turn):
                with pytest.raises(PromptError):
                    render(template, [USER, assistant(template, turn, "object")])


@pytest.mark.parametrize(
    ("vendor", "thinking", "output"),
    [
        ("Qwen 3", True, "<think>\nHm.\n</think>\n\nYes."),
        ("Qwen 3", False, "Yes."),
        ("QwQ", True, "Hm.\n</think>\n\nYes."),
        ("QwQ", False, "Yes."),
        ("DeepSeek R1", True, "Hm.\n</think>\n\nYes."),
        ("DeepSeek R1 Distill Llama", True, "Hm.\n</think>\n\nYes."),
        ("DeepSeek R1 Distill Qwen", True, "Hm.\n</think>\n\nYes."),
        ("DeepSeek R1 Distill Qwen", False, "Yes."),
        ("DeepSeek V3.1", True, "Hm.</think>Yes."),
        ("DeepSeek V3.1", False, "Yes."),
        ("DeepSeek V3.2", True, "Hm.</think>Yes."),
        ("DeepSeek V3.2", False, "Yes."),
        ("DeepSeek V4", True, "Hm.</think>Yes."),
        ("DeepSeek V4", False, "Yes."),
        ("GLM 4.6", True, "\n<think>Hm.</think>\nYes."),
        ("GLM 4.6", False, "\nYes."),
        ("GLM 4.7", True, "Hm.</think>Yes."),
        ("GLM 4.7", False, "Yes."),
        ("gpt-oss", True, "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes."),
        ("gpt-oss", False, "<|channel|>final<|message|>Yes."),
        ("Command R7B", True, "<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Yes.<|END_RESPONSE|>"),
        ("Command R7B", False, "<|START_RESPONSE|>Yes.<|END_RESPONSE|>"),
        ("Cohere 2 MoE", True, "Hm.<|END_THINKING|><|START_TEXT|>Yes.<|END_TEXT|>"),
        ("Kimi K3", True, "Hm.<|close|>think<|sep|><|open|>response<|sep|>Yes.<|close|>response<|sep|>"),
        ("Laguna XS.2", True, "\nHm.\n</think>\nYes."),
        ("Laguna XS.2", False, "\nYes."),
        ("MiniMax M2", True, "Hm.\n</think>\n\nYes."),
        ("Nemotron Nano 2", True, "Hm.\n</think>\n\nYes."),
        ("Seed-OSS", True, "<seed:think>Hm.</seed:think>\nYes."),
    ],
)
def test_the_generation_prompt_says_where_the_output_begins(vendor: str, thinking: bool, output: str) -> None:
    template = replace(TEMPLATES[vendor], options={"enable_thinking": thinking})
    prompt = render(template, [USER], generate=True)
    expected = Turn("Yes.", reasoning="Hm." if thinking else "").message()
    for format in template.formats:
        assert unbraid.parse(format, output, prompt=prompt) == expected


def test_the_document_is_up_to_date() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(), "run python -m tests.formats.vendors.write"
