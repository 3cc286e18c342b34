"""Laws 13 and 17: nothing that was sampled changes, and what follows it is what the template writes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import count, product
from typing import Any

import pytest
from hypothesis import event, given, reject
from hypothesis import strategies as st

import unbraid
from unbraid.rollouts import Rendering, Turn
from unbraid.templates import ChatTemplate, TemplateError
from unbraid.templates.control_tokens import mark_grammar
from unbraid.templates.prompt.encoders import Encoder
from unbraid.templates.sandbox.budget import stopped_clock
from unbraid.templates.switches import switches_of

from ..support.examples import LONG, examples
from .cases import KINDS, TEMPLATES, TOOLS, encoding_of, renderer, sampled_ids
from .further import further_templates, templates_of_folder

SCALE = 6 if LONG else 0.5
WORDS = st.sampled_from(["And now?", " ", "<|im_end|>", "a\nb", "é天😀", "</think>", "[/INST]"])


@st.composite
def following(draw: st.DrawFn, turn: Turn) -> list[dict[str, Any]]:
    """What may come after a turn: the results of its calls, in any order, or words of the user."""
    calls = turn.message.settled().tool_calls
    if not calls or not draw(st.integers(0, 5)):
        return [{"role": "user", "content": draw(WORDS)}]
    ordered = draw(st.permutations(calls))
    return [{"role": "tool", "tool_call_id": call.id, "content": draw(WORDS)} for call in ordered]


def first_prompt(made: unbraid.Renderer, messages: list[dict[str, Any]], tools: bool) -> Rendering:
    try:
        return made.render(messages, TOOLS if tools else None)
    except TemplateError:  # there are templates for tools alone
        return made.render(messages, TOOLS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TEMPLATES)
@examples(SCALE)
@given(data=st.data())
def test_nothing_that_was_sampled_changes(name: str, kind: str, data: st.DataObject) -> None:
    made, encoding = renderer(name, kind), encoding_of(name, kind)
    first: list[dict[str, Any]] = [{"role": "user", "content": data.draw(WORDS)}]
    if data.draw(st.booleans()):
        first.insert(0, {"role": "system", "content": "Be brief."})
    prompt = first_prompt(made, first, data.draw(st.booleans()))
    turns: list[tuple[Rendering, list[int], Turn]] = []
    for _ in range(data.draw(st.integers(1, 3))):
        ids = data.draw(sampled_ids(made, encoding))
        turn = made.parse(ids, prompt)
        new = data.draw(following(turn))
        by_template = made.extend(prompt, ids, new)
        reason = made.obstacle(prompt, ids, new)
        assert (by_template is None) == (reason is not None)
        more = made.extend(prompt, ids, new, past="sampled")
        reason = made.obstacle(prompt, ids, new, past="sampled")
        assert (more is None) == (reason is not None)
        if more is None:
            break
        assert more.ids[: len(prompt) + len(ids)] == (*prompt.ids, *ids)
        assert by_template is None or by_template.ids == more.ids
        turns.append((prompt, ids, turn))
        prompt = more
    whole, at = prompt, 0
    assert len(whole.sampled) == len(whole.messages) == len(whole.content) == len(whole)
    expected: list[bool] = []
    for before, ids, turn in turns:
        again = made.parse(
            whole.ids[len(before) : len(before) + len(ids)], whole.ids[: len(before)], tools=before.tools
        )
        assert again == turn
        assert len(turn.strands) == len(turn.markup) == len(ids)
        expected += [False] * (len(before) - at) + [True] * len(ids)
        at = len(before) + len(ids)
    assert list(whole.sampled) == expected + [False] * (len(whole) - at)
    if turns:
        sample = made.training_sample([(before, ids) for before, ids, _ in turns])
        assert list(sample.loss_mask) == [int(each) for each in expected]
        assert sample.ids == whole.ids[: len(sample.ids)]
        assert all(bool(weight) == bool(mask) for weight, mask in zip(sample.weights, sample.loss_mask, strict=True))


# Law 17: an extension is the template's

SWITCHES = ("/no_think", "/think", "<think>\nHm.\n</think>\n\nYes", "a </think> b", "<think>", "<tool_response>\n7\n")
OPTIONS = ("enable_thinking", "thinking", "preserve_thinking")
"""Variables of templates that switch reasoning on or off, or keep it."""
MORE = ("", "", "", " 7", " and so on" * 40, "?\n\nOr not.")
"""What else texts differ in: templates may ask how long they are."""
OTHER_TOOLS = [{"type": "function", "function": {**TOOLS[0]["function"], "description": "Something else."}}]


@st.composite
def words(draw: st.DrawFn, made: unbraid.Renderer, number: int) -> str:
    """What somebody says: words that no template has, and perhaps some that switch the template."""
    own = [switch for each in made.builder.templates.values() for switch in switches_of(each).words if len(switch) < 20]
    switch = draw(st.sampled_from([*[""] * 4, *SWITCHES, *own]))
    said = f"Word{number}x{draw(st.sampled_from(MORE))}"
    return draw(st.sampled_from([f"{said} {switch}".strip(), f"{switch} {said}".strip(), said]))


@st.composite
def calls(draw: st.DrawFn, numbers: Iterator[int], count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": f"call{next(numbers):05}",
            "type": "function",
            "function": {
                "name": "get_weather",
                "arguments": f'{{"city": "{draw(st.sampled_from(["Oslo", "Rome"]))}"}}',
            },
        }
        for _ in range(count)
    ]


@st.composite
def histories(draw: st.DrawFn, made: unbraid.Renderer, numbers: Iterator[int]) -> list[dict[str, Any]]:
    """A conversation up to where the model is to speak."""
    history: list[dict[str, Any]] = []
    if draw(st.booleans()):
        history.append({"role": "system", "content": draw(words(made, next(numbers)))})
    for last in [False] * draw(st.integers(0, 2)) + [True]:
        history.append({"role": "user", "content": draw(words(made, next(numbers)))})
        for _ in range(draw(st.integers(0, 2)) if made.format.tools is not None else 0):
            said = draw(calls(numbers, draw(st.integers(1, 2))))
            history.append({**draw(assistants(made, numbers, empty=True)), "tool_calls": said})
            as_user = not draw(st.integers(0, 4))
            for call in said:
                result = {"content": draw(words(made, next(numbers)))}
                history.append(
                    {"role": "user", "content": f"<tool_response>\n{result['content']}\n</tool_response>"}
                    if as_user
                    else {"role": "tool", "tool_call_id": call["id"], **result}
                )
        if not last:
            history.append(draw(assistants(made, numbers, empty=False)))
    return history


@st.composite
def assistants(draw: st.DrawFn, made: unbraid.Renderer, numbers: Iterator[int], empty: bool) -> dict[str, Any]:
    message = {
        "role": "assistant",
        "content": "" if empty and draw(st.booleans()) else draw(words(made, next(numbers))),
    }
    if draw(st.booleans()):
        message["reasoning_content"] = f"Thought{next(numbers)}"
    return message


@st.composite
def turns(draw: st.DrawFn, made: unbraid.Renderer, encoding: Encoder, numbers: Iterator[int]) -> list[int]:
    """What a model sampled: reasoning, words and calls as its format has them; sometimes anything."""
    if not draw(st.integers(0, 4)):
        return draw(sampled_ids(made, encoding))
    parts: list[unbraid.Part] = []
    if made.format.reasoning is not None and draw(st.booleans()):
        parts.append(unbraid.Text("reasoning", f"Thought{next(numbers)}"))
    count = draw(st.integers(0, 2)) if made.format.tools is not None else 0
    if not count or draw(st.booleans()):
        parts.append(unbraid.Text("content", draw(words(made, next(numbers)))))
    parts += [unbraid.ToolCall("get_weather", '{"city": "Oslo"}', f"call{next(numbers):05}") for _ in range(count)]
    try:
        text = unbraid.render(mark_grammar(made.format, encoding.controls), unbraid.Message(tuple(parts)))
    except unbraid.UnbraidError:  # the format has no way to say this
        text = "Word"
    stop = draw(st.sampled_from([None, *made.stop_ids]))
    return [*encoding.encode(text), *([] if stop is None else [stop])]


def text_of(encoding: Encoder, ids: Sequence[int]) -> str:
    return b"".join(encoding.vocabulary.token_bytes(id) or b"" for id in ids).decode("utf-8", "replace")


@pytest.mark.parametrize("name", TEMPLATES)
@examples(SCALE)
@given(data=st.data())
def test_17_an_extension_is_the_templates(name: str, data: st.DataObject) -> None:
    check_extension(renderer(name, "bytes"), encoding_of(name, "bytes"), data)


ASKING = """{%- if tools %}<|im_start|>tools
{{ tools | tojson }}<|im_end|>
{% endif %}{% set seen = namespace(it=false) %}{% for m in messages %}
{% if QUESTION %}{% set seen.it = true %}{% endif %}
<|im_start|>{{ m.role }}
{{ m.content or '' }}{% for call in m.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if seen.it %}<think>

</think>

{% endif %}{% endif %}"""
QUESTIONS = (
    "m.role == 'tool' and '/no_think' in m.content",
    "m.role == 'tool' and m.content.startswith('<tool_response>')",
    "m.role == 'user' and m.content | length > 40",
    "m.content | wordcount > 20",
    "m.role == 'user' and m.content[-1] == '7'",
    "m.role != 'assistant' and m.content.splitlines() | length > 1",
    "m.content in {'/think': 1, 'Word11x': 2}",
    "m.role == 'user' and m.content.isalnum()",
    "loop.index > 6",
    "m.tool_calls and 'city' in m.tool_calls[0].function.arguments",
)


@pytest.mark.parametrize("question", QUESTIONS)
@examples(4 * SCALE)
@given(data=st.data())
def test_17_whatever_a_template_asks_of_its_history(question: str, data: st.DataObject) -> None:
    made = asking(question)
    check_extension(made, encoding_of("Qwen-Qwen3-0.6B", "bytes"), data)


@cache
def asking(question: str) -> unbraid.Renderer:
    template = ChatTemplate(ASKING.replace("QUESTION", question), eos_token="<|im_end|>")
    return unbraid.renderer(template, encoding_of("Qwen-Qwen3-0.6B", "bytes"), "hermes")


@pytest.mark.parametrize("past", ["template", "sampled"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_17_a_turn_without_words(name: str, past: Any) -> None:
    """Some templates refuse it: so does `extend`, and says why."""
    made = renderer(name, "bytes")
    prompt = first_prompt(made, [{"role": "user", "content": "Hello"}], tools=False)
    new = [{"role": "user", "content": "Word1x"}]
    more = made.extend(prompt, [], new, past=past)
    assert (more is None) == bool(made.obstacle(prompt, [], new, past=past))
    assert more is None or "Word1x" in text_of(encoding_of(name, "bytes"), more.ids)


@pytest.mark.slow
@examples(SCALE)
@given(data=st.data())
def test_17_for_templates_of_other_projects(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([*sorted(further_templates()), *templates_of_folder()]))
    try:
        made = renderer(name, "bytes")
    except unbraid.UnbraidError:  # its format cannot be told
        reject()
    with stopped_clock():  # some write the time
        check_extension(made, encoding_of(name, "bytes"), data)


def check_extension(made: unbraid.Renderer, encoding: Encoder, data: st.DataObject) -> None:
    """What `extend` returns ends as the template's own rendering of the whole conversation does, and has all that is
    new; what the template rewrites, it refuses."""
    numbers = count(10)
    history = data.draw(histories(made, numbers))
    tools = TOOLS if made.format.tools is not None or data.draw(st.booleans()) else None
    sources = [each.source for each in made.builder.templates.values()]
    options = [name for name in OPTIONS if any(name in source for source in sources)]
    variables: dict[str, Any] = {name: data.draw(st.booleans()) for name in options if data.draw(st.booleans())}
    try:
        prompt = made.render(history, tools, **variables)
    except TemplateError:  # it does not take such a conversation
        reject()
    sampled = data.draw(turns(made, encoding, numbers))
    shown = OTHER_TOOLS if tools and not data.draw(st.integers(0, 5)) else tools
    turn = made.parse(sampled, prompt, tools=shown)
    new: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": call.id, "content": data.draw(words(made, next(numbers)))}
        for call in turn.settled.tool_calls
    ]
    if not new or not data.draw(st.integers(0, 3)):
        new.append({"role": "user", "content": data.draw(words(made, next(numbers)))})
    whole = [*history, turn.to_openai(), *new]
    past = [*prompt.ids, *sampled]
    prompts: tuple[Rendering | Sequence[int], ...] = (prompt, prompt.ids)
    for known, kept in product(prompts, ("template", "sampled")):
        more = made.extend(known, sampled, new, tools=shown, past=kept, **variables)  # type: ignore[arg-type]
        reason = made.obstacle(known, sampled, new, tools=shown, past=kept, **variables)  # type: ignore[arg-type]
        assert (more is None) == bool(reason)
        if more is None:
            event("refused")
            continue
        event(f"goes on, past={kept}")
        assert list(more.ids[: len(past)]) == past
        end = text_of(encoding, more.ids[len(past) :])
        rendered = text_of(encoding, made.render(whole, shown, **variables).ids)
        assert rendered.endswith(end), (kept, end, rendered[-len(end) - 99 :])
        at = 0
        for message in new:
            at = end.index(re.search(r"Word\d+x", message["content"])[0], at)  # type: ignore[index]
        if kept == "template":
            begun = text_of(encoding, prompt.ids)
            assert rendered.startswith(begun)
            written = rendered.removesuffix(end)[len(begun) :]
            again = made.parse(encoding.encode(encoding.controls.mark(written)), prompt, tools=shown).settled
            if not encoding.controls.spells(turn.settled.content + turn.settled.reasoning):
                assert again.content.strip() == turn.settled.content.strip()
                assert again.reasoning.strip() == turn.settled.reasoning.strip()
                ignored = encoding.encode(encoding.controls.mark("".join(made.format.ignored)))
                stops = {*made.stop_ids} - {*ignored}
                ends = [id for id in encoding.encode(encoding.controls.mark(written)) if id in stops]
                assert len(ends) <= sum(id in stops for id in sampled), "a turn that ends in its middle"
            assert [call.name for call in again.tool_calls] == [call.name for call in turn.settled.tool_calls]
