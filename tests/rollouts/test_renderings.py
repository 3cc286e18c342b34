"""Prompts are those of Hugging Face, and a prompt that was extended is the one that the template writes."""

from __future__ import annotations

import re
from typing import Any

import pytest

import unbraid
from unbraid.rollouts import Rendering
from unbraid.templates import TemplateError
from unbraid.templates.control_tokens import mark_grammar

from ..templates.prompt_cases import CALL, as_hugging_face_wants, conversation, qwen3, qwen3_transformers
from .cases import KINDS, NEEDS, TEMPLATES, TOOLS, encoding_of, renderer, template, tokenizer

USER = {"role": "user", "content": "How is the weather?"}
AGAIN = {"role": "user", "content": "And tomorrow?"}
RESULT = {"role": "tool", "content": "sunny all day"}
ANSWER = unbraid.Message((unbraid.Text("content", "Sunny."),))
CALLED = unbraid.Message((unbraid.ToolCall("get_weather", '{"city": "Paris"}', "call00001"),))


def canonical_ids(name: str, kind: str, message: unbraid.Message, stop: int) -> list[int]:
    """A turn in the tokens that the tokenizer would take, and the token that ends it."""
    made, encoding = renderer(name, kind), encoding_of(name, kind)
    text = unbraid.render(mark_grammar(made.format, encoding.controls), message)
    return [*encoding.encode(text), stop]


def stop_before(name: str, kind: str, messages: list[dict[str, Any]]) -> int:
    """The token that ends the last turn but one, where the template writes one that models stop at."""
    made = renderer(name, kind)
    try:
        written = masked(made.render(messages, TOOLS), len(messages) - 2)
    except TemplateError:  # extending says so too
        written = ()
    return next((id for id in reversed(written) if id in made.stop_ids), made.stop_ids[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("system", [False, True], ids=["user", "system"])
def test_a_bridge_is_what_the_template_writes(name: str, kind: str, system: bool) -> None:
    """Where the template goes on by itself: the same text from the end of the turn on, and the same masks."""
    made = renderer(name, kind)
    first: list[dict[str, Any]] = [*([{"role": "system", "content": "Be brief."}] if system else []), USER]
    first += [{"role": "assistant", "content": "Where?"}, {"role": "user", "content": "In Paris."}]
    for message, new in ((ANSWER, AGAIN), (CALLED, RESULT)):
        if message.tool_calls and made.format.tools is None:
            continue
        prompt = made.render(first, TOOLS)
        given = {
            "role": "assistant",
            "content": message.content,
            "tool_calls": [each.to_openai() for each in message.tool_calls],
        }
        answered = {**new, "tool_call_id": "call00001"} if message.tool_calls else new
        ids = canonical_ids(name, kind, message, stop_before(name, kind, [*first, given, answered]))
        turn = made.parse(ids, prompt)
        if new["role"] == "tool" and turn.message.tool_calls:
            new = {**new, "tool_call_id": turn.message.tool_calls[0].id}
        more = made.extend(prompt, ids, [new])
        if more is None:
            assert made.obstacle(prompt, ids, [new])
            continue
        try:
            whole = made.render([*first, turn.to_openai(), new], TOOLS)
        except TemplateError:
            pytest.fail("extended, but not rendered")
        size = len(more) - len(prompt) - len(ids)
        assert size > 0
        assert more.ids[-size:] == whole.ids[-size:]
        assert more.messages[-size:] == whole.messages[-size:]
        assert more.content[-size:] == whole.content[-size:]
        assert not any(more.sampled[-size:])
        assert made.warnings or not any(whole.sampled[-size:])


def masked(rendering: Rendering, message: int) -> tuple[int, ...]:
    """The ids of a message that were sampled."""
    told = zip(rendering.ids, rendering.messages, rendering.sampled, strict=True)
    return tuple(id for id, owner, sampled in told if owner == message and sampled)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_what_is_marked_as_sampled_parses_back(name: str, kind: str) -> None:
    """The mask of an answer in a rendered conversation has the answer, and nothing else of the prompt."""
    made = renderer(name, kind)
    messages = [USER, {"role": "assistant", "content": "Sunny, I think."}, AGAIN]
    rendering = made.render(messages, TOOLS)
    ids = masked(rendering, 1)
    assert sum(rendering.sampled) == len(ids)
    begin = rendering.sampled.index(True)
    if made.warnings:  # its blocks say something else
        return
    turn = made.parse(ids, rendering.ids[:begin])
    assert turn.message.content.strip() == "Sunny, I think."
    assert not turn.message.reasoning.strip()
    content = [
        id
        for id, said, owner in zip(rendering.ids, rendering.content, rendering.messages, strict=True)
        if said and owner == 1
    ]
    assert "Sunny, I think" in "".join(map(text_of(name, kind), [content]))


def text_of(name: str, kind: str) -> Any:
    vocabulary = encoding_of(name, kind).vocabulary
    return lambda ids: b"".join(vocabulary.token_bytes(id) or b"" for id in ids).decode("utf-8", "replace")


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["no tools", "tools"])
def test_ids_are_those_of_transformers(name: str, tools: Any) -> None:
    """Of the text that transformers renders, encoded by the tokenizer itself."""
    import transformers

    made = renderer(name, "bpe")
    capabilities = made.builder.capabilities(bool(tools))
    asked = [
        {**each, "content": "Weather?" if each["role"] == "user" else each["content"]} for each in conversation()[1:4]
    ]
    if tools and not capabilities.tools:  # we write them into the system message, transformers leaves them out
        assert any("no place for tools" in note for note in made.render(asked, tools).notes)
        tools = None
    messages = [capabilities.adapt(dict(each)) for each in asked]
    variables = {"bos_token": "<s>", "eos_token": "</s>", **NEEDS.get(name, {})}
    try:
        text = transformers.utils.chat_template_utils.render_jinja_template(
            [messages], chat_template=template(name).source, add_generation_prompt=True, tools=tools, **variables
        )[0][0]
    except TypeError as error:  # there are templates for tools alone, and some that only llama.cpp can render
        if capabilities.tools_always:
            assert made.render(asked, tools).ids
            return
        with pytest.raises(TemplateError, match=re.escape(str(error))):
            made.render(asked, tools)
        return
    theirs = tokenizer(name, "bpe").encode(text, add_special_tokens=False).ids
    assert list(made.render(asked, tools).ids) == theirs


@pytest.mark.parametrize("count", [2, 4, 6, 8])
def test_ids_and_masks_of_qwen3_are_those_of_transformers(count: int) -> None:
    made = unbraid.renderer(qwen3(), qwen3_transformers())
    theirs = qwen3_transformers().apply_chat_template(
        as_hugging_face_wants()[:count], tools=TOOLS, add_generation_prompt=True, return_dict=False
    )
    assert list(made.render(conversation()[:count], TOOLS).ids) == list(theirs)


BLOCKS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "<|im_end|>{% endgeneration %}\n{% else %}{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_generation_blocks_are_what_transformers_masks() -> None:
    tokens = qwen3_transformers()
    messages = [USER, {"role": "assistant", "content": "Sunny."}, AGAIN, {"role": "assistant", "content": "Rain."}]
    theirs = tokens.apply_chat_template(
        messages, chat_template=BLOCKS, return_assistant_tokens_mask=True, return_dict=True, tokenize=True
    )
    made = unbraid.renderer(BLOCKS, tokens, "qwen3").render(messages, add_generation_prompt=False)
    assert list(made.ids) == list(theirs["input_ids"])
    assert [int(each) for each in made.sampled] == list(theirs["assistant_masks"])
    without = BLOCKS.replace("{% generation %}", "{% if true %}").replace("{% endgeneration %}", "{% endif %}")
    assert unbraid.renderer(without, tokens, "qwen3").render(messages, add_generation_prompt=False).masks == made.masks


def test_masks_of_a_conversation() -> None:
    made = unbraid.renderer(qwen3(), qwen3_transformers())
    rendering = made.render(conversation(), TOOLS)
    call = made.parse(masked(rendering, 4)).message.tool_calls[0]
    assert (call.name, call.arguments) == (CALL["function"]["name"], '{"city": "Tōkyō"}')  # type: ignore[index]
    assert [made.parse(masked(rendering, at)).message.content for at in (2, 6)] == ["Hello.", "It is sunny."]
