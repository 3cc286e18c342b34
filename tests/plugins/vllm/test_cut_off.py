"""Calls that `max_tokens` cuts off, through vLLM's interfaces, and what vLLM accepts that others refuse."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

import unbraid
from unbraid import Format, Message, Text, ToolCall

from .cases import encode, every_format_with_tools
from .server import Server, ToolParserManager, chat, server_for

PATH = {"type": "object", "properties": {"command": {"type": "string"}, "force": {"type": "boolean"}}}
TOOL = {"type": "function", "function": {"name": "bash", "parameters": PATH}}
CALLS = [("bash", {"command": "rm -rf /srv/old", "force": True}), ("bash", {"command": "ls", "force": False})]


def is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


@every_format_with_tools
def test_a_call_that_is_cut_off_is_not_run(format: Format) -> None:
    """At every cut: a whole reply has none but the calls of the whole output, and a stream leaves their JSON open."""
    server = server_for(format)
    made = Message(
        (Text("content", "One moment."), *(ToolCall(name, json.dumps(given), "abcdefghi") for name, given in CALLS))
    )
    ids = encode(server.tokenizer, unbraid.render(format, made))
    request = chat(tools=[TOOL])
    meant = [(name, given) for name, given in CALLS]
    full = server.whole(ids, request)
    assert [(name, json.loads(arguments)) for name, arguments in full.calls] == meant
    for cut in range(len(ids)):
        whole = server.whole(ids[:cut], request)
        assert [(name, json.loads(arguments)) for name, arguments in whole.calls] == meant[: len(whole.calls)]
        streamed = server.streamed([*([token] for token in ids[:cut]), []], request)
        complete = [(name, json.loads(arguments)) for name, arguments in streamed.calls if is_json(arguments)]
        assert complete == meant[: len(complete)]


def test_the_end_of_the_turn_completes_what_lacks_only_its_closing() -> None:
    server = Server("unbraid-qwen3_coder", None, server_for(unbraid.find("qwen3-coder")).tokenizer)
    text = "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n"
    ids = encode(server.tokenizer, text)
    request = chat(tools=[TOOL])
    assert server.whole(ids, request).calls == []
    assert server.whole([*ids, server.tokenizer.eos_token_id], request).calls == [("bash", '{"command": "ls"}')]


def nested(depth: int) -> Any:
    """Deeper than anybody reads it; vLLM takes whatever JSON can be read as."""
    return {"type": "object", "properties": {"b": nested(depth - 1)}} if depth else {"type": "string"}


JUNK: list[Any] = [
    {"type": "object", "properties": {"a": {"type": "float"}}},
    {"type": "dict"},
    {"type": "any"},
    {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}},
    {"type": "object", "properties": {"a": {"type": None}}},
    {"type": "object", "required": True},
    {"type": "object", "properties": {"a": {"enum": "abc"}}},
    {"type": "object", "properties": []},
    nested(300),
]


@pytest.mark.parametrize("schema", JUNK, ids=lambda schema: json.dumps(schema)[:60])
def test_schemas_that_cannot_be_read_mean_anything(schema: Any) -> None:
    server = server_for(unbraid.find("hermes"))
    given = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    ids = encode(server.tokenizer, '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>')
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", unbraid.SchemaWarning)
        for choice in ("auto", "required"):
            request = chat(tools=given, tool_choice=choice)
            assert server.whole(ids, request).calls == [("f", '{"a": 1}')]
            assert server.streamed([ids], request).calls == [("f", '{"a": 1}')]


def test_asked_without_a_request_or_without_tools() -> None:
    made = ToolParserManager.get_tool_parser("unbraid-hermes")
    tokenizer = server_for(unbraid.find("hermes")).tokenizer
    text = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    for parser, request in (
        (made(tokenizer), None),
        (made(tokenizer), chat(tools=None)),
        (made(tokenizer, chat(tools=[TOOL]).tools), None),
        (made(tokenizer, chat(tools=[TOOL]).tools), chat(tools=None)),
    ):
        [call] = parser.extract_tool_calls(text, request).tool_calls
        assert (call.function.name, call.function.arguments) == ("f", '{"a": 1}')


def test_an_answer_that_must_not_be_empty() -> None:
    server = Server("unbraid-qwen3_coder", "unbraid-nemotron_v3", server_for(unbraid.find("qwen3-coder")).tokenizer)
    ids = encode(server.tokenizer, "<think>\nOnly thoughts.\n</think>\n")
    plain, forced = chat(), chat(chat_template_kwargs={"force_nonempty_content": True})
    assert server.whole(ids, plain).content == ""
    assert server.whole(ids, forced).content == "Only thoughts."
    assert server.streamed([[token] for token in ids], forced).content == "Only thoughts."


@pytest.mark.parametrize(("choice", "expected"), [("", "emit"), ("text", "text"), ("drop", "drop"), ("emit", "emit")])
def test_calls_to_unknown_tools(monkeypatch: pytest.MonkeyPatch, choice: str, expected: str) -> None:
    """By default vLLM's own parser decides, and that for Hermes passes them on."""
    monkeypatch.setenv("UNBRAID_UNKNOWN_TOOLS", choice)
    server = server_for(unbraid.find("hermes"))
    text = '<tool_call>\n{"name": "nobody", "arguments": {}}\n</tool_call>'
    ids = encode(server.tokenizer, text)
    whole = server.whole(ids, chat(tools=[TOOL]))
    assert whole == server.streamed([ids], chat(tools=[TOOL]))
    assert (whole.content, whole.calls) == (
        "" if expected != "text" else text,
        [("nobody", "{}")] * (expected == "emit"),
    )
    assert server.whole(ids, chat(tools=[TOOL], tool_choice="none")).content == text
