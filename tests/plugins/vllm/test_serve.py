"""vLLM's plug-in in a real `vllm serve` with SmolLM2, asked by the real `openai` client.

The model is too small to call tools of its own accord: what it writes is enforced, by our constraint or by a regular
expression. Where there is no vLLM (`scripts/install-vllm` installs it), all is skipped.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jsonschema
import openai
import pytest

from ...engines.vllm_process import NAME, skip_without_vllm, vllm_serve
from ...support.places import ROOT

pytestmark = pytest.mark.system

CONTEXT = 1024
WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["C", "F"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
CLOCK: dict[str, Any] = {
    "type": "object",
    "properties": {"zone": {"type": "string", "maxLength": 12}},
    "required": ["zone"],
    "additionalProperties": False,
}
SCHEMAS = {"get_weather": WEATHER, "get_time": CLOCK}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "strict": True, "parameters": schema}}
    for name, schema in SCHEMAS.items()
]
LOOSE: list[Any] = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
# Hermes' way to show the tools, and a switch as those models have it whose prompts open the reasoning.
TEMPLATE = """
{%- if tools %}<|im_start|>system
You have these tools: {{ tools | tojson }}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% if not (loop.last and continue_final_message) %}<|im_end|>
{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if thinking == "open" %}<think>
{% elif thinking == "off" %}<think>

</think>

{% endif %}{% endif %}"""
PARIS = "The capital of France is Paris."
CAPITAL: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
BONN: list[Any] = [{"role": "user", "content": "How is the weather in Bonn?"}]
# So that the model comes to the point: it may reason before a call, and would not stop.
BRIEFLY = {"chat_template_kwargs": {"thinking": "off"}}


@dataclass
class Said:
    """What a client was told."""

    reasoning: str = ""
    content: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list, compare=False)
    finish: str | None = None


@dataclass
class Asked:
    client: openai.OpenAI

    def whole(self, **fields: Any) -> Said:
        reply = self.client.chat.completions.create(model=NAME, temperature=0.0, **{"max_tokens": 160, **fields})
        (choice,) = reply.choices
        message: Any = choice.message
        calls = message.tool_calls or ()
        return Said(
            getattr(message, "reasoning", None) or "",
            message.content or "",
            [(call.function.name, call.function.arguments) for call in calls],
            [call.id for call in calls],
            choice.finish_reason,
        )

    def streamed(self, **fields: Any) -> Said:
        said = Said()
        stream: Any = self.client.chat.completions.create(
            model=NAME, temperature=0.0, stream=True, **{"max_tokens": 160, **fields}
        )
        for chunk in stream:
            for choice in chunk.choices:
                delta = choice.delta
                said.reasoning += getattr(delta, "reasoning", None) or ""
                said.content += delta.content or ""
                for call in delta.tool_calls or ():
                    if call.id is not None:
                        said.ids.append(call.id)
                        said.calls.append((call.function.name, ""))
                    assert call.index == len(said.calls) - 1
                    name, arguments = said.calls[-1]
                    said.calls[-1] = (name, arguments + call.function.arguments)
                said.finish = choice.finish_reason or said.finish
        return said

    def both(self, **fields: Any) -> Said:
        """Streamed and not, which is the same; but a whole reply leaves whitespace beside calls out, and a stream has
        sent it before it knows of a call."""
        streamed = self.streamed(**fields)
        blank = streamed.calls and not streamed.content.strip()
        assert (replace(streamed, content="") if blank else streamed) == self.whole(**fields)
        return streamed


def follows(said: Said) -> list[tuple[str, dict[str, Any]]]:
    """The calls, whose arguments follow their schemas."""
    made = [(name, json.loads(arguments)) for name, arguments in said.calls]
    for name, arguments in made:
        jsonschema.validate(arguments, SCHEMAS[name])
    assert len(set(said.ids)) == len(made)
    return made


def template(folder: Path) -> str:
    path = folder / "template.jinja"
    path.write_text(TEMPLATE, encoding="utf-8")
    return f"--chat-template={path}"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """A server that finds the plug-in by itself, as where unbraid is installed. All is of one format."""
    skip_without_vllm()
    folder = tmp_path_factory.mktemp("installed")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = folder / "site" / "unbraid-0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: unbraid\nVersion: 0\n")
    points = project["entry-points"]["vllm.general_plugins"]
    lines = ["[vllm.general_plugins]", *(f"{name} = {value}" for name, value in points.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    path = os.pathsep.join([str(metadata.parent), str(ROOT)])
    flags = ["--enable-auto-tool-choice", "--tool-call-parser=unbraid-qwen3", "--reasoning-parser=unbraid-qwen3"]
    with vllm_serve(CONTEXT, folder, [*flags, template(folder)], {"PYTHONPATH": path}) as server:
        yield Asked(openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0))


class TestInstalled:
    def test_an_answer(self, installed: Asked) -> None:
        assert installed.both(messages=CAPITAL) == Said(content=PARIS, finish="stop")

    @pytest.mark.parametrize("thinking", ["open", "off"])
    def test_the_prompt_says_where_the_output_begins(self, installed: Asked, thinking: str) -> None:
        asked = {"messages": CAPITAL, "extra_body": {"chat_template_kwargs": {"thinking": thinking}}, "max_tokens": 6}
        said = installed.both(**asked)
        assert said.finish == "length"
        assert bool(said.reasoning) is (thinking == "open")
        assert bool(said.content) is (thinking == "off")

    def test_a_message_that_is_gone_on_with(self, installed: Asked) -> None:
        messages = [*CAPITAL, {"role": "assistant", "content": "<think>\nThe capital of France"}]
        body = {"continue_final_message": True, "add_generation_prompt": False}
        said = installed.both(messages=messages, extra_body=body, max_tokens=5)
        assert said == Said(reasoning=" is Paris.", finish=said.finish)

    def test_stop_texts(self, installed: Asked) -> None:
        assert installed.both(messages=CAPITAL, stop=["ranc"]) == Said(content="The capital of F", finish="stop")

    def test_a_required_call(self, installed: Asked) -> None:
        asked = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
        said = installed.both(messages=BONN, **asked, extra_body=BRIEFLY)
        ((name, _),) = follows(said)
        assert (said.content.strip(), said.finish) == ("", "tool_calls")
        assert name in SCHEMAS

    def test_a_call_to_a_function_by_name(self, installed: Asked) -> None:
        choice = {"type": "function", "function": {"name": "get_time"}}
        said = installed.both(messages=BONN, tools=TOOLS, tool_choice=choice, extra_body=BRIEFLY)
        assert [name for name, _ in follows(said)] == ["get_time"]
        assert (said.content.strip(), said.finish) == ("", "stop")

    def test_several_calls(self, installed: Asked) -> None:
        asked = {"tools": TOOLS, "tool_choice": "required", "max_tokens": 100}
        assert follows(installed.streamed(messages=BONN, **asked, extra_body=BRIEFLY))

    def test_reasoning_before_a_call(self, installed: Asked) -> None:
        """Asked to call, the model may still reason first; and this one goes on and on."""
        said = installed.both(messages=BONN, tools=TOOLS, tool_choice="required", max_tokens=12)
        assert said == Said(reasoning=said.reasoning, content=said.content, finish="length")
        assert said.reasoning
        assert not said.content.strip()

    def test_a_call_that_need_not_be(self, installed: Asked) -> None:
        said = installed.both(messages=CAPITAL, tools=TOOLS, tool_choice="auto", max_tokens=40)
        assert said.content or follows(said)

    def test_an_answer_that_is_json_although_there_are_tools(self, installed: Asked) -> None:
        schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": WEATHER}}
        said = installed.both(messages=BONN, tools=TOOLS, response_format=schema)
        if not follows(said):
            jsonschema.validate(json.loads(said.content), WEATHER)

    def test_several_choices(self, installed: Asked) -> None:
        asked: Any = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
        asked |= {"n": 2, "seed": 1, "temperature": 0.1, "max_tokens": 160}
        reply = installed.client.chat.completions.create(model=NAME, messages=BONN, **asked, extra_body=BRIEFLY)
        made: Any = [choice.message.tool_calls for choice in reply.choices]
        assert len(made) == 2
        for (call,) in made:
            jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[call.function.name])
        assert made[0][0].id != made[1][0].id

    @pytest.mark.parametrize(("thinking", "before"), [("off", ""), ("", "The")])
    def test_a_regular_expression(self, installed: Asked, thinking: str, before: str) -> None:
        """vLLM enforces nothing before the reasoning is over. That a model does not reason shows in its first word."""
        body = {"structured_outputs": {"regex": "zebra"}, "chat_template_kwargs": {"thinking": thinking}}
        assert installed.both(messages=CAPITAL, extra_body=body).content == f"{before}zebra"

    def test_the_responses_api(self, installed: Asked) -> None:
        tool: Any = {"type": "function", "name": "get_weather", "strict": True, "parameters": WEATHER}
        reply = installed.client.responses.create(
            model=NAME,
            input="How is the weather in Bonn?",
            tools=[tool],
            tool_choice="required",
            temperature=0.0,
            max_output_tokens=160,
            parallel_tool_calls=False,
        )
        (made,) = [item for item in reply.output if item.type == "function_call"]
        assert made.name == "get_weather"
        jsonschema.validate(json.loads(made.arguments), WEATHER)

    def test_tools_that_are_wrong(self, installed: Asked) -> None:
        schema = {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}
        wrong: Any = {"type": "function", "function": {"name": "f", "strict": True, "parameters": schema}}
        with pytest.raises(openai.BadRequestError, match="'#/nowhere' leads nowhere"):
            installed.whole(messages=BONN, tools=[wrong])


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """A server that is told of the plug-in as a file of a checkout. Reasoning and calls are of different formats, and
    constraints hold in the reasoning too, so that we can have the model reason."""
    skip_without_vllm()
    folder = tmp_path_factory.mktemp("named")
    file = ROOT / "unbraid" / "plugins" / "vllm" / "plugin.py"
    flags = [
        f"--tool-parser-plugin={file}",
        f"--reasoning-parser-plugin={file}",
        "--enable-auto-tool-choice",
        "--tool-call-parser=unbraid-hermes",
        "--reasoning-parser=unbraid-think",
        "--structured-outputs-config.enable_in_reasoning=true",
    ]
    with vllm_serve(CONTEXT, folder, [*flags, template(folder)]) as server:
        yield Asked(openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0))


class TestNamed:
    CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Bonn </tool_call>"}}\n</tool_call>'

    def written(self, asked: Asked, text: str, **fields: Any) -> Said:
        """What comes of a text that the model has to write."""
        return asked.both(messages=BONN, tools=LOOSE, extra_body=self.enforced(text), **fields)

    def enforced(self, text: str) -> dict[str, Any]:
        pattern = re.escape(text).replace("\\\n", "\\n").replace("\\ ", " ")
        return {"structured_outputs": {"regex": pattern}}

    def test_all_at_once(self, named: Asked) -> None:
        said = self.written(named, f"<think>\nhm\n</think>\n\nLet me see.\n{self.CALL}\n{self.CALL} So.")
        call = ("get_weather", '{"city": "Bonn </tool_call>"}')
        assert said == Said("hm", "Let me see. So.", [call, call], finish="tool_calls")

    def test_a_call_in_the_reasoning(self, named: Asked) -> None:
        said = self.written(named, f"<think>\nhm {self.CALL}\n</think>\n\nYes.")
        assert (said.reasoning, said.content, len(said.calls)) == ("hm ", "Yes.", 1)

    def test_a_call_that_is_cut_off(self, named: Asked) -> None:
        """Who has seen it begin has seen a call; in a whole reply it is what the model wrote."""
        text = self.CALL.replace("Bonn", "Bonn on the Rhine, where it rains as often as not, " * 20)
        fields = {"messages": BONN, "tools": LOOSE, "extra_body": self.enforced(text), "max_tokens": 100}
        streamed, whole = named.streamed(**fields), named.whole(**fields)
        ((name, arguments),) = streamed.calls
        assert (name, streamed.content, streamed.finish) == ("get_weather", "", "length")
        assert whole == Said(content=text[: len(whole.content)], finish="length")
        assert whole.content.endswith(arguments)
        assert "Rhine" in arguments

    def test_a_tool_that_there_is_not(self, named: Asked) -> None:
        text = '<tool_call>\n{"name": "get_wether", "arguments": {}}\n</tool_call>'
        assert self.written(named, text) == Said(content=text, finish="stop")

    def test_what_was_held_back_comes_at_the_end(self, named: Asked) -> None:
        assert self.written(named, "It is <tool_call>\n{") == Said(content="It is <tool_call>\n{", finish="stop")

    def test_no_tools_no_calls(self, named: Asked) -> None:
        text = f"<think>\nhm\n</think>\n\n{self.CALL}"
        said = self.written(named, text, tool_choice="none")
        assert said == Said("hm", self.CALL, finish="stop")

    def test_tokens_of_the_reasoning(self, named: Asked) -> None:
        body = {"structured_outputs": {"regex": "<think>\\none two three\\n</think>\\n\\nfour"}}
        reply = named.client.chat.completions.create(model=NAME, messages=BONN, temperature=0.0, extra_body=body)
        assert reply.usage is not None
        details = reply.usage.completion_tokens_details
        assert details is not None
        assert details.reasoning_tokens is not None
        assert 3 <= details.reasoning_tokens < reply.usage.completion_tokens

    def test_a_required_call(self, named: Asked) -> None:
        asked = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
        assert len(follows(named.both(messages=BONN, **asked, extra_body=BRIEFLY))) == 1
