"""Detection: `verified` means that every strand came back which the template can write."""

from __future__ import annotations

import pytest

import unbraid
from unbraid.core.grammar import Between, Call, Calls
from unbraid.core.notations import JsonCall
from unbraid.templates import PromptBuilder, built_in

from .templates import JSON, NAMED, chat

MUSE = chat(f"<act>{NAMED}</act>", reasoning="<muse>…</muse>")
FIELDS = ("reasoning_content", "reasoning", "thinking", "thought", "thoughts", "tool_plan", "chain_of_thought")


@pytest.mark.parametrize("field", FIELDS)
def test_reasoning_has_many_names(field: str) -> None:
    found = unbraid.detect(MUSE.replace("reasoning_content", field))
    assert found.strands == ("content", "reasoning", "calls")
    assert found.required().reasoning == Between("<muse>", "</muse>")
    assert "the template writes content, reasoning and calls, and all of it comes back" in found.reasons


@pytest.mark.parametrize("kind", ["thinking", "reasoning"])
def test_reasoning_may_be_a_part_of_the_content(kind: str) -> None:
    content = (
        "{%- if m.content is string or not m.content -%}{{ m.content or '' }}{%- else -%}{%- for p in m.content -%}"
        f"{{%- if p.type == '{kind}' -%}}<muse>{{{{ p.{kind} }}}}</muse>"
        "{%- else -%}{{ p.text }}{%- endif -%}{%- endfor -%}{%- endif -%}"
    )
    found = unbraid.detect(chat(f"<act>{NAMED}</act>", content=content))
    assert found.required().reasoning == Between("<muse>", "</muse>")


def test_parts_that_a_template_writes_as_they_are_show_no_reasoning() -> None:
    found = unbraid.detect(chat(f"<act>{NAMED}</act>", content="{# 'thinking' #}{{ m.content or '' }}"))
    assert found.strands == ("content", "calls")
    assert found.verified


@pytest.mark.parametrize("switch", ["enable_thinking", "preserve_thinking", "reasoning_effort == 'high'"])
def test_reasoning_that_has_to_be_turned_on(switch: str) -> None:
    found = unbraid.detect(MUSE.replace("if m.reasoning_content", f"if m.reasoning_content and {switch}"))
    assert found.required().reasoning == Between("<muse>", "</muse>")


MESSAGES = (
    "{%- if tools -%}<|begin|>system<|content|>{{ tools | tojson }}<|end|>{%- endif -%}{%- for m in messages -%}"
    "{%- if m.reasoning -%}<|begin|>{{ m.role }}<|think|>{{ m.reasoning }}<|end|>{%- endif -%}"
    "{%- if m.tool_calls -%}<|begin|>{{ m.role }}<|tool_calls|>{%- for c in m.tool_calls -%}"
    "<|tool_call:begin|>{{ c.id }}<|tool_call:name|>{{ c.function.name }}<|tool_call:args|>"
    "{{ c.function.arguments | tojson }}<|tool_call:end|>{%- endfor -%}<|calls|>"
    "{%- else -%}<|begin|>{{ m.role }}<|content|>{{ m.content }}<|end|>{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|begin|>assistant{%- endif -%}"
)


@pytest.mark.parametrize("word", ["think", "ponder"])
def test_each_strand_may_be_a_message(word: str) -> None:
    """As Solar Open writes them, and with a word that no registered format knows."""
    found = unbraid.detect(MESSAGES.replace("<|think|>", f"<|{word}|>"))
    text = f"<|{word}|>Hm.<|end|><|begin|>assistant<|content|>Hello.<|end|>"
    back = unbraid.parse(found.required(), text, prompt="<|end|><|begin|>assistant")
    assert (back.reasoning, back.content, back.diagnostics) == ("Hm.", "Hello.", ())


def test_a_closing_marker_without_reasoning() -> None:
    """What the parser cannot read is not verified, and what is verified can be read."""
    content = "{{ m.content"
    half = "{%- elif m.role == 'assistant' -%}</muse>"
    text = MUSE.replace("{%- endif -%}" + content, half + "{%- endif -%}" + content)
    assert half in text
    found = unbraid.detect(text)
    assert found.format is not None or not found.verified
    if found.verified:
        assert unbraid.parse(found.required(), "</muse>Hello", prompt="<|assistant|>").content == "Hello"
    else:
        assert any("content" in reason and "cannot be read back" in reason for reason in found.reasons)


def test_reasoning_without_markers_is_not_verified() -> None:
    found = unbraid.detect(chat(f"<act>{NAMED}</act>", reasoning="… "))
    assert found.strands == ("content", "reasoning", "calls")
    assert not found.verified
    plain = "{% for m in messages %}[{{ m.role }}]{{ m.reasoning or '' }} {{ m.content }}[end]{% endfor %}"
    found = unbraid.detect(plain)
    assert (found.verified, found.strands) == (False, ("content", "reasoning"))


def test_an_answer_in_tags_is_not_plain() -> None:
    text = (
        "{%- for m in messages -%}<|{{ m.role }}|>{%- if m.role == 'assistant' -%}<say>{{ m.content }}</say>"
        "{%- else -%}{{ m.content }}{%- endif -%}<|end|>{%- endfor -%}"
        "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
    )
    found = unbraid.detect(text)
    assert not found.verified or unbraid.parse(found.required(), "<say>Hello</say>").content == "Hello"


def test_arguments_with_entities_are_not_plain_tags() -> None:
    one = "<act>{{ f.name }}{% for k, v in f.arguments.items() %}<k>{{ k }}</k><v>VALUE</v>{% endfor %}</act>"
    plain, escaped = (one.replace("VALUE", f"{{{{ {value} }}}}") for value in ("v | string", "v | string | e"))
    assert unbraid.detect(chat(plain)).verified
    found = unbraid.detect(chat(escaped))
    text = "<act>look<k>place</k><v>A &amp; B</v></act>"
    assert not found.verified or unbraid.parse(found.required(), text).tool_calls[0].arguments == '{"place": "A & B"}'


def test_content_that_a_template_writes_as_reasoning() -> None:
    content = (
        "{%- if m.content and m.tool_calls -%}<muse>{{ m.content }}</muse>"
        "{%- else -%}{{ m.content or '' }}{%- endif -%}"
    )
    found = unbraid.detect(chat(f"<act>{NAMED}</act>", reasoning="<muse>…</muse>", content=content))
    assert not found.verified or any("as it writes reasoning" in reason for reason in found.reasons)


def test_line_breaks_on_both_sides_of_a_call_are_counted_once() -> None:
    line = "{{ '\\n' }}"
    found = unbraid.detect(chat(f"{line}<act>{JSON}</act>{line}"))
    assert found.required().tools == Calls("\n<act>", Call((JsonCall(),)), "</act>\n")
    assert unbraid.detect(chat(f"<act>{JSON}</act>{line}")).required().tools == Calls(
        "<act>", Call((JsonCall(),)), "</act>\n"
    )


SUFFIXED = chat(
    "<tool_call:lab>{{ f.name }}<tool_sep:lab>LINE"
    "{% for k, v in f.arguments.items() %}<arg_key:lab>{{ k }}</arg_key:lab>LINE"
    "<arg_value:lab>{{ v if v is string else v | tojson }}</arg_value:lab>LINE{% endfor %}</tool_call:lab>LINE",
    "<tool_calls:lab>LINE",
    "",
    "</tool_calls:lab>",
    reasoning="<think:lab>…</think:lab>",
).replace("LINE", "{{ '\\n' }}")


def test_tags_with_a_suffix() -> None:
    found = unbraid.detect(SUFFIXED)
    assert (found.name, found.verified, found.how) == ("hunyuan-3:lab", True, "rendered")
    assert found.format == unbraid.find("hunyuan-3:lab")


def test_a_suffix_is_none_of_a_pattern() -> None:
    assert unbraid.parse("harmony:lab", "<|channel|>final<|message|>Hi<|return|>").content.startswith("Hi")


def test_tools_of_a_request_are_checked_once() -> None:
    builder = PromptBuilder(built_in("chatml"))
    messages = [{"role": "user", "content": "x"}]
    with pytest.raises(unbraid.InvalidTools):
        builder.build(messages, tools=[{"name": "f", "strict": "yes"}])
    builder.build(messages, tools=[{"name": "f", "strict": "yes"}], check_tools=False)
