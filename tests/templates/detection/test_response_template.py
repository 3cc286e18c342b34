"""Detection: Hugging Face's response_template as a format, and as a second opinion."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import unbraid
from unbraid.format_checks import TOOL_DEFINITIONS, check, messages_of
from unbraid.templates.detection import DetectionError
from unbraid.templates.detection.response_template import format_from_response_template

from ...rollouts.further import fallbacks_of_transformers, response_templates
from ..prompt_models import template_source
from .templates import SYNTHETIC, made_from

FUNCTION = {"name": "{content.name}", "arguments": "{content.arguments}"}
THINKING = {"open": "<think>", "close": "</think>", "content": "text"}


def stated(calls: dict[str, Any] | None = None, **fields: dict[str, Any]) -> dict[str, Any]:
    called = {} if calls is None else {"tool_calls": {"repeats": True, "content": "json", **calls}}
    return {
        "defaults": {"role": "assistant"},
        "start_anchor": "<|im_start|>assistant\n",
        "fields": {**fields, **called},
    }


HERMES_CALLS = {"open": "<tool_call>", "close": "</tool_call>", "transform": {"type": "function", "function": FUNCTION}}
RESPONSES: dict[str, tuple[dict[str, Any], str]] = {
    "Qwen-Qwen3-0.6B": (stated(HERMES_CALLS, thinking=THINKING, content={"close": "<|im_end|>"}), "qwen3"),
    "Qwen3-Coder": (
        stated(
            {
                "open_pattern": r"<tool_call>\s*<function=(?P<name>\w+)>",
                "close": "</tool_call>",
                "content": "xml-inline",
                "content_args": {
                    "tag_pattern": r"<parameter=(?P<key>\w+)>\s*(?P<value>.*?)\s*</parameter>",
                    "value_parser": {"name": "json", "args": {"allow_non_json": True}},
                },
                "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
            }
        ),
        "qwen3-coder",
    ),
    "Cohere2MoE": (
        stated(
            {
                "open": "<|START_ACTION|>",
                "close": "<|END_ACTION|>",
                "repeats": False,
                "transform_each": True,
                "transform": {"function": {"name": "{tool_name}", "arguments": "{parameters}"}},
            },
            thinking={"open": "<|START_THINKING|>", "close": "<|END_THINKING|>"},
            content={"open": "<|START_TEXT|>", "close": "<|END_TEXT|>"},
        ),
        "cohere-command-4",
    ),
    "meetkai-functionary-medium-v3.1": (
        stated(
            {
                "open_pattern": r"<function=(?P<name>[^>]+)>",
                "close": "</function>",
                "transform": {"function": {"name": "{name}", "arguments": "{content}"}},
            }
        ),
        "functionary-v3.1",
    ),
}


@pytest.mark.parametrize("template", RESPONSES)
def test_a_response_template_reads_what_the_template_writes(template: str) -> None:
    """Beside a registered format it is a second witness; where there is none, it is the format."""
    response, name = RESPONSES[template]
    config = {"chat_template": template_source(template), "response_template": response, "eos_token": "<|im_end|>"}
    found = unbraid.detect(config)
    assert (found.name, found.how) == (name, "rendered")
    assert "the tokenizer's response_template reads it too" in found.reasons
    alone = unbraid.detect({"response_template": response, "eos_token": "<|im_end|>"})
    assert (alone.name, alone.verified, alone.how) == ("response_template", False, "response_template")
    assert alone.format is not None
    assert alone.format.ends == ("<|im_end|>",)
    assert made_from(alone.definition or "") == alone.format


def test_a_response_template_where_no_format_is_known() -> None:
    calls = {**HERMES_CALLS, "open": "<act>", "close": "</act>", "transform": {"function": "{content}"}}
    response = stated(calls, reasoning_content={"open": ["<muse>", "<ponder>"], "close": "</muse>"})
    config = {"chat_template": SYNTHETIC["JSON in tags"], "response_template": response}
    found = unbraid.detect(config)
    assert (found.name, found.verified, found.how) == ("response_template", True, "response_template")
    said = unbraid.parse(found.required(), '<ponder>Hm.</muse>Yes.<act>{"name": "look", "arguments": {}}</act>')
    assert (said.reasoning, said.content) == ("Hm.", "Yes.")
    assert [call.name for call in said.tool_calls] == ["look"]


def test_a_response_template_that_is_wrong() -> None:
    """One that does not read what the chat template writes is told, and not believed."""
    config = {"chat_template": SYNTHETIC["JSON in tags"], "response_template": stated(HERMES_CALLS)}
    found = unbraid.detect(config)
    assert found.how == "derived"
    assert found.reasons[-1] == "the tokenizer's response_template does not read what it writes"


def test_reasoning_that_begins_with_the_output() -> None:
    found = unbraid.detect(
        {"response_template": stated(thinking={"close": "</muse>"}, content={"open": "<say>", "close": "</say>"})}
    )
    assert found.format is not None
    said = unbraid.parse(found.format, "Hm.</muse><say>Yes.</say>")
    assert (said.reasoning, said.content) == ("Hm.", "Yes.")


def calls(**changed: Any) -> dict[str, Any]:
    return stated({**HERMES_CALLS, **changed})


@pytest.mark.parametrize(
    ("response", "said"),
    [
        ([], "an object, not list"),
        ({"fields": {}}, "at least one field"),
        ({"fields": {"content": {}}, "version": 2}, "version 2"),
        ({"fields": {"content": {}}, "filds": {}}, "filds"),
        (stated(citations={"open": "<c>"}), "'citations'"),
        (stated(content=[]), "'content' is an object"),  # type: ignore[arg-type]
        (stated(thinking={**THINKING, "opens": "<t>"}), "'thinking'.*opens"),
        (stated(thinking={"open": "<t>"}), "'thinking' is not closed"),
        (stated(thinking={**THINKING, "content": "json"}), "'thinking' has to be text"),
        (stated(thinking={"close": "END"}), "'thinking' has no open"),
        (stated(thinking={"open": 3, "close": "</t>"}), "'thinking' needs a text as open"),
        (calls(content="kv-lines"), "'tool_calls' holds 'kv-lines'"),
        (calls(content_args={"unquoted_keys": True}), "'tool_calls'.*unquoted_keys"),
        (calls(transform=None), "'tool_calls' needs a transform"),
        (calls(transform={"function": {"name": "now", "arguments": "{content}"}}), "'tool_calls' needs placeholders"),
        (calls(close=["</a>", "</b>"]), "'tool_calls' is closed by 2 texts"),
        (calls(content="xml-inline"), "'tool_calls' is xml-inline"),
        (stated({"open_pattern": " to=(?P<name>.*)", "transform": {"function": FUNCTION}}), "tells a call from prose"),
        (stated({"open_pattern": r"<c>(?P<name>\w+", "transform": {"function": FUNCTION}}), "is not closed"),
        (stated({"open_pattern": "<c>.*?", "transform": {"function": FUNCTION}}), "'tool_calls': open_pattern: '.*?'"),
        (stated({"close": "</c>", "transform": {"function": FUNCTION}}), "'tool_calls' needs an open"),
        (
            stated({"open_pattern": "", "transform": {"function": FUNCTION}}),
            "'tool_calls' needs a text as open_pattern",
        ),
        (stated(thinking={"open_pattern": "", "close": "</t>"}), "'thinking' needs a text as open_pattern"),
    ],
)
def test_a_response_template_that_is_no_format(response: Any, said: str) -> None:
    """The error names the field. Where the chat template tells the format, it is only a remark."""
    with pytest.raises(DetectionError, match=said):
        unbraid.detect({"response_template": response})
    found = unbraid.detect({"response_template": response, "chat_template": SYNTHETIC["JSON in tags"]})
    assert found.verified
    assert "response_template" in found.reasons[-1]


# Beside transformers' own parser

NAMED = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
SHIPPED: dict[str, dict[str, Any]] = {
    "calls in the body of a message with a header": {
        "defaults": {"role": "assistant"},
        "start_anchor": "<|start|>assistant",
        "fields": {
            "reasoning_content": {"open_pattern": r"to=self<\|message\|>", "close": "<|eom|>", "content": "text"},
            "content": {"open_pattern": r"to=user<\|message\|>", "close": ["<|eot|>", "<|eom|>"], "content": "text"},
            "tool_calls": {
                "open_pattern": r'<atem:invoke\b[^>]*?\bname="(?P<name>[^"]+)">',
                "close": "</atem:invoke>",
                "repeats": True,
                "content": "xml-inline",
                "content_args": {
                    "tag_pattern": r'<atem:parameter\b[^>]*?\bname="(?P<key>[^"]+)"[^>]*?>'
                    r"(?P<value>.*?)</atem:parameter>",
                    "value_parser": {"name": "json", "args": {"allow_non_json": True}},
                },
                "transform": NAMED,
            },
        },
    },
    "closed by one of several, or by the end": stated(
        {"open": "<tool_call>", "close_pattern": r"</tool_call>\s*", "transform": {"function": "{content}"}},
        reasoning_content={"open": "<think>", "close_pattern": r"</think>\s*"},
        content={"close_pattern": r"(?:<\|im_end\|>|<\|endoftext\|>)\s*|$"},
    ),
    "reasoning that the prompt opened": stated(
        reasoning_content={"open_pattern": r"(?=[\s\S]*?</think>)", "close_pattern": r"</think>\s*"},
        content={"close_pattern": r"<\|im_end\|>\s*|$"},
    ),
    "bare keys": stated(
        {
            "open_pattern": r"<\|tool_call>call:(?P<name>\w+)",
            "close_pattern": r"<tool_call\|>\s*",
            "content_args": {"string_delims": [['<|"|>', '<|"|>']], "unquoted_keys": True},
            "transform": NAMED,
        },
        content={"close_pattern": r"<turn\|>\s*|$"},
    ),
    "a list of calls in Python": stated(
        {
            "open_pattern": r"(?:<\|calls\|>\[|,\s*)(?P<name>\w+)\(",
            "close_pattern": r"\)(?:\]<\|done\|>)?\s*",
            "content": "xml-inline",
            "content_args": {
                "tag_pattern": r"(?P<key>\w+)=(?P<value>'[^']*'|\"[^\"]*\"|[^,)]*)",
                "value_parser": {"name": "json", "args": {"string_delims": [["'", "'"]], "allow_non_json": True}},
            },
            "transform": NAMED,
        },
        content={"close_pattern": r"<\|im_end\|>\s*"},
    ),
    "a call that the turn's end closes": stated(
        {
            "open_pattern": r'\{"name":\s*"(?P<name>[^"]+)",\s*"parameters":\s*',
            "close_pattern": r"\}<\|eot_id\|>\s*",
            "transform": NAMED,
        },
        content={"close_pattern": r"<\|eot_id\|>\s*"},
    ),
    "a call that two tags close": stated(
        {
            "open_pattern": r"\s*<tool_call>\s*<function=(?P<name>[^>\n]+)>",
            "close_pattern": r"</function>\s*</tool_call>",
            "content": "xml-inline",
            "content_args": {"tag_pattern": r"<parameter=(?P<key>[^>\n]+)>\s*(?P<value>.*?)\s*</parameter>"},
            "transform": NAMED,
        },
        reasoning_content=THINKING,
        content={"close_pattern": r"\s*(?:<\|im_end\|>|<\|endoftext\|>)"},
    ),
    "a line's end that may be missing": stated(
        {
            "open_pattern": r"<tool_call>(?P<name>\S+)\n?",
            "close_pattern": r"</tool_call>\s*",
            "content": "xml-inline",
            "content_args": {
                "tag_pattern": r"<arg_key>(?P<key>[^<]+)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>",
                "value_parser": {"name": "json", "args": {"allow_non_json": True}},
            },
            "transform": NAMED,
        },
        content={"close_pattern": r"<\|user\|>\s*|$"},
    ),
    "messages with headers": {
        **stated(
            {
                "open_pattern": r"to=tools\.(?P<name>\S+?)<\|part\|>aside\s+json<\|says\|>",
                "close_pattern": r"<\|done\|>\s*",
                "transform": NAMED,
            },
            reasoning_content={"open": "<|part|>musing<|says|>", "close_pattern": r"<\|stop\|>\s*"},
            content={"open": "<|part|>answer<|says|>", "close_pattern": r"<\|over\|>\s*"},
        ),
        "start_anchor": "<|begin|>assistant",
    },
    "headers that hold more": {
        **stated(
            {
                "open_pattern": r"<\|part\|>aside to=tools\.(?P<name>\w+).*?<\|says\|>",
                "close": "<|done|>",
                "transform": NAMED,
            },
            reasoning_content={"open": "<|part|>musing<|says|>", "close": "<|stop|>"},
            content={"open": "<|part|>answer<|says|>", "close": "<|over|>"},
        ),
        "start_anchor": "<|begin|>assistant",
    },
    "headers that end in several ways": {
        **stated(
            {
                "open_pattern": r"(?:<\|begin\|>)?[^<]*<\|calls\|>",
                "close": "<|over|>",
                "transform": {"function": {"name": "{content.name}", "arguments": "{content.args}"}},
            },
            reasoning_content={"open_pattern": r"(?:<\|begin\|>)?[^<]*<\|muses\|>", "close": "<|over|>"},
            content={"open_pattern": r"(?:<\|begin\|>)?[^<]*<\|says\|>", "close": "<|over|>"},
        ),
        "start_anchor": "<|begin|>",
    },
    "an output that may begin in the reasoning": stated(
        {"open": "<tool_call>", "close": "</tool_call>", "transform": {"function": "{content}"}},
        reasoning_content={"open_pattern": r"(?:^|<muse>\s*)", "close": "</muse>"},
        content={"open": "<say>\n", "close_pattern": r"\n?</say>"},
    ),
}


def said_by_transformers(response: dict[str, Any], text: str) -> tuple[Any, ...] | None:
    parser = pytest.importorskip("transformers.utils.chat_parsing.response_parser")
    try:
        message = parser.parse_response(text, response, prefix="", tools=TOOL_DEFINITIONS)
        calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", [])]
    except (ValueError, KeyError):  # it gives up where it cannot read a call, or returns one without a name
        return None
    reasoning = message.get("reasoning_content") or message.get("thinking") or ""
    return (message.get("content") or "").strip(), reasoning.strip(), calls


def said_here(format: unbraid.Format, text: str) -> tuple[Any, ...]:
    parser = unbraid.Parser(format, prompt=format.prompt, tools=unbraid.Tools(TOOL_DEFINITIONS), unknown_tools="emit")
    for character in text:
        parser.feed(character)
    parser.finish(end_of_turn=True)
    message = parser.message.settled()
    calls = [(call.name, json.loads(call.arguments)) for call in message.tool_calls]
    return message.content.strip(), message.reasoning.strip(), calls


@pytest.mark.parametrize("name", SHIPPED)
def test_what_transformers_reads_is_read(name: str) -> None:
    """With the shapes of all that TRL and the tests of transformers have, on outputs whole and cut off."""
    check_whole(SHIPPED[name], one_call="turn's end" in name)


def test_the_tags_of_a_list_of_calls() -> None:
    """The template does not mention them: transformers ignores them, as all that stands in no field."""
    response = SHIPPED["calls in the body of a message with a header"]
    whole = (
        " to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>I look.<|eom|>"
        "<|start|>assistant to=tools<|message|><atem:function_calls>\n"
        '<atem:invoke name="get_weather">\n<atem:parameter name="city">Paris</atem:parameter>\n</atem:invoke>\n'
        '<atem:invoke name="get_weather">\n</atem:invoke>\n</atem:function_calls><|eot|>'
    )
    for output in (whole, whole.replace("to=user<|message|>I look.<|eom|><|start|>assistant ", "")):
        theirs = said_by_transformers(response, output)
        assert theirs is not None
        assert len(theirs[2]) == 2
        assert said_here(format_from_response_template(response), output) == theirs


@pytest.mark.parametrize("name", SHIPPED)
def test_what_is_damaged(name: str) -> None:
    check_damaged(SHIPPED[name])


def test_those_that_transformers_carries() -> None:
    """`transformers serve` has some for models whose tokenizers have none."""
    for response in fallbacks_of_transformers():
        check_whole(response, one_call=False)
        check_damaged(response)


def test_an_answer_that_goes_up_to_the_end() -> None:
    """Nothing closes it but the end of the output."""
    response = {"start_anchor": "<|a|>", "fields": {"thinking": THINKING, "content": {"open": "<say>"}}}
    with pytest.raises(DetectionError, match="not closed by anything"):
        format_from_response_template(response)
    format = format_from_response_template(response, "<eos>")
    for output in ("<think>Hm.</think><say>Yes, <b>that</b>.", "<say>\nYes.", ""):
        said = said_by_transformers(response, output)
        assert said_here(format, f"{output}<eos>") == said_here(format, output) == said


@pytest.mark.system
def test_those_that_trl_carries() -> None:
    templates = response_templates()
    assert len(templates) >= 9
    for name, response in templates.items():
        check_whole(response, one_call=name == "llama3_template")
        check_damaged(response)


def check_whole(response: dict[str, Any], one_call: bool) -> None:
    """one_call: transformers cannot read two of them."""
    format = format_from_response_template(response)
    check(format)
    compared = 0
    for parts in messages_of(format):
        if one_call and sum(isinstance(part, unbraid.ToolCall) for part in parts) > 1:
            continue
        last = format.ends[0] if format.ends else ""
        whole = unbraid.render(format, unbraid.Message(parts)).removeprefix(format.prompt) + last
        content = "".join(part.text for part in parts if isinstance(part, unbraid.Text) and part.strand == "content")
        cut = [len(whole), *(range(len(whole) - len(last)) if content and len(parts) == 1 else ())]
        for end in cut:
            theirs = said_by_transformers(response, whole[:end])
            if theirs is not None:
                assert said_here(format, whole[:end]) == theirs, whole[:end]
                compared += 1
    assert compared > 0


def check_damaged(response: dict[str, Any]) -> None:
    """There the two may differ: transformers reads a call without the arguments that it cannot read, drops text that no
    field claims, and takes a call in open reasoning for reasoning. Here no call is read that lacks one of its
    arguments, and no word is lost."""
    format = format_from_response_template(response)
    parts = [each for each in messages_of(format) if sum(isinstance(part, unbraid.ToolCall) for part in each) < 2][-1]
    whole = unbraid.render(format, unbraid.Message(parts)).removeprefix(format.prompt)
    said = [json.loads(part.arguments) for part in parts if isinstance(part, unbraid.ToolCall)]
    compared = 0
    for at in range(0, len(whole), 4):
        damaged = whole[:at] + whole[at + 1 :]
        content, reasoning, calls = said_here(format, damaged)
        theirs = said_by_transformers(response, damaged)
        if theirs is not None:
            lacking = any(
                0 < len(arguments) < len(said[0])
                and not all(str(value) in str(arguments) for value in said[0].values())
                for _, arguments in theirs[2]
            )
            assert not lacking or calls != theirs[2], damaged
            words = {*re.findall(r"\w+", f"{content} {reasoning} {calls} {damaged if not calls else ''}")}
            assert {word for word in theirs[1].split() if word.isalpha()} <= words
            compared += 1
    assert compared > 0
