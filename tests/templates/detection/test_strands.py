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


def test_the_end_of_a_turn_tells_families_apart() -> None:
    """EXAONE 4 writes calls and reasoning as Qwen3 does."""
    template = chat(f"<tool_call>{JSON}</tool_call>", between="\n", reasoning="<think>\n…\n</think>\n\n")
    for end in ("[|endofturn|]\n", "<|endofturn|>\n"):  # of 4.0, and of 4.5
        found = unbraid.detect(template.replace("<|end|>", end))
        assert (found.name, found.verified) == ("exaone-4", True)


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


# What templates do to turns themselves


_PYTHONIC = "{{ f.name }}({% for k, v in f.arguments.items() %}{{ k }}=VALUE{{ ', ' if not loop.last }}{% endfor %})"


@pytest.mark.parametrize(
    ("call", "remark"),
    [
        (_PYTHONIC.replace("VALUE", "{{ v }}"), "the template writes strings without quotes"),
        (
            _PYTHONIC.replace("VALUE", "{{ v | tojson }}").replace("', '", "''"),
            "the template writes arguments with nothing between them",
        ),
    ],
)
def test_calls_that_the_template_spoils(call: str, remark: str) -> None:
    """Examples of vLLM's do so. What can be read of the format comes back, and the rest is said."""
    found = unbraid.detect(chat(call, "[", ", ", "]"))
    assert (found.verified, found.strands) == (True, ("content", "calls"))
    assert remark in " ".join(found.reasons)
    message = unbraid.parse(found.required(), '[look(place="Paris", days=3)]')
    assert [(one.name, one.arguments) for one in message.tool_calls] == [("look", '{"place": "Paris", "days": 3}')]


def test_calls_that_nothing_reads_are_not_excused() -> None:
    """A fault of one turn excuses that turn. Some turn with calls must come back whole."""
    spoiled = _PYTHONIC.replace("VALUE", "{{ v }}").replace("({%", "(x={%")
    assert not unbraid.detect(chat(spoiled, "[", ", ", "]")).verified


def test_a_label_before_the_answers_of_earlier_turns() -> None:
    """As vLLM's template for Hunyuan-A13B has it."""
    found = unbraid.detect(
        chat(f"<tool_call>\n{JSON}\n</tool_call>", content="{{ 'Helper: ' ~ m.content if m.content }}")
    )
    assert not found.verified  # the user's words have it too, and so does the prompt's end
    content = (
        "{{ ('助手：' if m.role == 'assistant') ~ m.content if m.content and not m.tool_calls else (m.content or '') }}"
    )
    found = unbraid.detect(chat(f"<tool_call>\n{JSON}\n</tool_call>", content=content))
    assert found.verified
    assert "the template writes `助手：` before answers, and not in the prompt" in " ".join(found.reasons)


@pytest.mark.parametrize(
    ("prompt", "start"),
    [
        # SmolLM3 closes the reasoning, if it is turned off; RWKV opens it, if it is turned on.
        ("{{ '<think>\n\n</think>\n' if enable_thinking is defined and not enable_thinking }}", "content"),
        ("{{ ' <think>' if enable_thinking }}", "content"),
        ("{{ '<think>\n' if enable_thinking is not defined or enable_thinking else '<think></think>' }}", "reasoning"),
    ],
)
def test_reasoning_that_only_the_prompt_shows(prompt: str, start: str) -> None:
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n" + prompt + "{% endif %}"
    )
    found = unbraid.detect(template)
    assert (found.verified, found.strands, found.how) == (True, ("content", "reasoning"), "rendered")
    assert unbraid.Parser(found.required()).strand == start
    message = unbraid.parse(found.required(), "<think>\nHm.\n</think>\nHello.", prompt="")
    assert (message.reasoning, message.content) == ("Hm.", "Hello.")


def test_a_template_that_writes_the_tools_with_the_last_question() -> None:
    """As vLLM's template for parallel calls of Mistral does: an answer changes what stands before the question."""
    tools = "{% if loop.last and tools %}[TOOLS]{{ tools | tojson }}[/TOOLS]{% endif %}"
    one = '{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}, "id": "{{ c.id }}"}'
    template = (
        f"{{% for m in messages %}}{{% if m.role == 'user' %}}{tools}[INST] {{{{ m.content }}}}[/INST]"
        "{% elif m.tool_calls %}[TOOL_CALLS] [{% for c in m.tool_calls %}{% set f = c.function %}"
        f"{one}{{{{ ', ' if not loop.last }}}}{{% endfor %}}]"
        "{% else %} {{ m.content }}{% endif %}{% endfor %}"
    )
    found = unbraid.detect(template)
    assert (found.name, found.verified, found.strands) == ("mistral", True, ("content", "calls"))
