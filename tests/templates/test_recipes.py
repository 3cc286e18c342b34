"""Prompts that are made by a recipe are those that the template renders."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.caching import LruCache
from unbraid.templates import InvalidMessages, PromptBuilder, TemplateError, from_source
from unbraid.templates.prompt.prepared import PreparedTemplate

from ..support.examples import examples
from .prompt_cases import NEEDS, TOOLS, qwen3_builder, vendor_builder
from .prompt_models import ALL_TEMPLATES

ROLES = st.sampled_from(
    [
        *(("user",), ("system", "user"), ("user", "assistant", "user"), ("system", "user", "assistant", "user")),
        *(("developer", "user"), ("user", "user"), ("user", "system", "user"), ("system", "user", "assistant")),
    ]
)
WORDS = st.sampled_from(
    [
        *(
            "",
            " ",
            "\n",
            "a",
            " a ",
            "a\n",
            "é天😀",
            "0",
            "[]",
            '{"a": "b"}',
            "<|im_end|>",
            "<think>a</think>b",
            "</think>",
        ),
        *("<tool_response>a</tool_response>", "[/INST]", "/no_think", "/think", "detailed thinking on", "a" * 3_000),
    ]
)
SAID = st.one_of(WORDS, st.text(max_size=8), st.tuples(WORDS, WORDS).map("".join))


@cache
def rendering(builder: PromptBuilder) -> PromptBuilder:
    """The same builder without recipes."""
    other = PromptBuilder(builder.templates, builder.encoder, builder.format)
    for prepared in (other._plain, other._with_tools):
        prepared._recipes = LruCache(0)
    return other


def prompt(builder: PromptBuilder, messages: list[dict[str, Any]], **more: Any) -> Any:
    try:
        built = builder.build(messages, **more)
    except (InvalidMessages, TemplateError) as error:
        return type(error), str(error)
    return built.text, built.ids


@pytest.mark.parametrize("name", ALL_TEMPLATES)
@examples(0.1)
@given(data=st.data())
def test_a_recipe_writes_what_the_template_renders(name: str, data: st.DataObject) -> None:
    builder, other = vendor_builder(name), rendering(vendor_builder(name))
    roles = data.draw(ROLES)
    options = {"tools": data.draw(st.sampled_from([None, TOOLS])), "template_kwargs": NEEDS.get(name)}
    options["check_tools"] = data.draw(st.booleans())
    for texts in data.draw(st.lists(st.tuples(*[SAID for _ in roles]), min_size=3, max_size=8)):
        messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
        assert prompt(builder, messages, **options) == prompt(other, messages, **options)


def test_a_kind_that_came_before_is_not_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    builder, other = qwen3_builder(), rendering(qwen3_builder())

    def conversation(text: str) -> list[dict[str, Any]]:
        return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]

    for text in ("One?", "Two?"):
        builder.build(conversation(text), tools=TOOLS)
    expected = other.build(conversation("Three?"), tools=TOOLS)
    others = other.build([*conversation("Three?"), {"role": "user", "content": "Four?"}], tools=TOOLS)
    with monkeypatch.context() as patch:
        patch.setattr(PreparedTemplate, "render", None)
        assert builder.build(conversation("Three?"), tools=TOOLS) == expected
        with pytest.raises(TypeError):
            builder.build([*conversation("Three?"), {"role": "user", "content": "Four?"}], tools=TOOLS)
    assert builder.build([*conversation("Three?"), {"role": "user", "content": "Four?"}], tools=TOOLS) == others


def test_a_kind_that_is_given_to_the_template_as_it_is_is_not_even_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    builder, other = qwen3_builder(), rendering(qwen3_builder())

    def built(by: PromptBuilder, text: str) -> Any:
        return by.build([{"role": "user", "content": text}], tools=TOOLS, check_tools=False)

    for text in ("One?", "Two?"):
        built(builder, text)
    texts = ("Three?", "天 \ud800", "<|im_end|>")
    expected = [built(other, text) for text in texts]
    monkeypatch.setattr(PromptBuilder, "_prepared", None)
    assert [built(builder, text) for text in texts] == expected
    with pytest.raises(TypeError):
        built(builder, " ")


def test_what_reads_the_clock_is_rendered() -> None:
    template = from_source("{{ strftime_now('%H:%M:%S.%f') }}{% for m in messages %}{{ m.content }}{% endfor %}")
    builder = PromptBuilder(template)
    said = [builder.build([{"role": "user", "content": "Hi"}]).text for _ in range(5)]
    assert len(set(said)) == 5
