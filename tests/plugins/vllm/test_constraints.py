"""What vLLM is asked to enforce, for both of its APIs."""

from __future__ import annotations

import json
from typing import Any

import pytest

import unbraid

from .cases import (
    qwen3,
)
from .server import (
    STRICT,
    TOOLS,
    WEATHER,
    ParserManager,
    ReasoningParserManager,
    ResponsesRequest,
    Said,
    Server,
    ToolParserManager,
    VLLMValidationError,
    chat,
    hermes,
    mistral,
    qwen,
)


def enforced(request: Any) -> dict[str, Any] | None:
    if request.structured_outputs is None:
        return None
    given = request.structured_outputs.structural_tag
    assert given is not None
    return dict(json.loads(given))


def expected(name: str, **options: Any) -> dict[str, Any]:
    return unbraid.constraint(name, tokenizer=qwen3(), **options).to_structural_tag()


@pytest.mark.parametrize(
    "asked",
    [
        {"tool_choice": "required"},
        {"tool_choice": {"type": "function", "function": {"name": "get_weather"}}},
        {"tool_choice": "required", "parallel_tool_calls": False},
        {"tool_choice": "auto", "tools": [WEATHER]},
        {"tool_choice": "auto", "parallel_tool_calls": False},
        {"tool_choice": "auto", "response_format": {"type": "json_object"}},
    ],
)
def test_calls_are_enforced(asked: dict[str, Any]) -> None:
    asked = {"tools": TOOLS, **asked}
    for server, name in ((hermes(), "hermes"), (qwen(), "qwen3")):
        request = server.adjusted(chat(**asked))
        assert enforced(request) == expected(name, **asked)
        assert request.response_format is None
        # The constraint begins with the reasoning: vLLM is not to wait for its end.
        assert request._grammar_from_parser is (name == "qwen3")
        assert request.resolve_reasoning_ended(server.parser(server.tokenizer), []) is (
            True if name == "qwen3" else None
        )


def test_calls_that_nothing_is_asked_of_are_not_enforced() -> None:
    for fields in ({}, {"tool_choice": "auto"}, {"tool_choice": "none", "tools": [WEATHER]}, {"tools": None}):
        assert enforced(qwen().adjusted(chat(**fields))) is None
    # An answer that was asked for in other words is left to vLLM.
    regex = qwen().adjusted(chat(tools=[WEATHER], structured_outputs={"regex": "a+"}))
    assert (regex.structured_outputs.regex, regex.structured_outputs.structural_tag) == ("a+", None)
    only_json = qwen().adjusted(chat(tools=None, response_format={"type": "json_object"}))
    assert only_json.response_format.type == "json_object"


def test_strict_arguments_can_be_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_ENFORCE_STRICT_TOOL_CALLING", "0")
    assert enforced(qwen().adjusted(chat(tools=[WEATHER]))) is None
    assert enforced(qwen().adjusted(chat(tools=[WEATHER], tool_choice="required"))) is not None


@pytest.mark.parametrize("level", ["function", "parameter"])
def test_the_strict_level_of_the_server(level: str) -> None:
    tokenizer = qwen3()
    made = ParserManager.get_parser("unbraid-hermes", enable_auto_tools=True, tool_strict_level=level)
    loose = {"type": "function", "function": {"name": "get_weather", "parameters": STRICT}}
    request = made(tokenizer).adjust_request(chat(tools=[loose]))
    assert enforced(request) == expected("hermes", tools=[WEATHER if level == "parameter" else loose])


def test_a_level_of_functions_holds_arguments_between_tags_to_their_names() -> None:
    """That of vLLM's parser for GLM, if nobody says another."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    loose = {"type": "function", "function": {"name": "get_weather", "parameters": schema}}
    closed = {"type": "function", "function": {"name": "get_weather", "parameters": {**schema, **CLOSED}}}
    made = ParserManager.get_parser("unbraid-glm47", enable_auto_tools=True)(qwen3())
    assert enforced(made.adjust_request(chat(tools=[loose]))) == expected("glm-4.7", tools=[closed])
    open = {"type": "function", "function": {"name": "get_weather", "parameters": {**schema, **OPEN}}}
    assert enforced(made.adjust_request(chat(tools=[open]))) == expected("glm-4.7", tools=[open])


CLOSED, OPEN = {"additionalProperties": False}, {"additionalProperties": True}


def test_another_syntax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNBRAID_VLLM_SYNTAX", "lark")
    request = hermes().adjusted(chat(tool_choice="required"))
    wanted = unbraid.constraint("hermes", tools=TOOLS, tool_choice="required", tokenizer=qwen3()).to_lark()
    assert request.structured_outputs.grammar == wanted
    monkeypatch.setenv("UNBRAID_VLLM_SYNTAX", "larck")
    with pytest.raises(
        ValueError, match="UNBRAID_VLLM_SYNTAX is one of structural_tag, ebnf, regex, lark, not 'larck'"
    ):
        hermes().adjusted(chat(tool_choice="required"))


def test_tools_that_are_wrong_are_refused() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}
    wrong = {"type": "function", "function": {"name": "f", "strict": True, "parameters": schema}}
    with pytest.raises(ValueError, match="'#/nowhere' leads nowhere"):
        hermes().adjusted(chat(tools=[wrong]))


def test_special_markers_are_shown_where_text_is_read() -> None:
    tokenizer = mistral(11)
    server = Server("unbraid-mistral", None, tokenizer)
    assert server.adjusted(chat()).skip_special_tokens  # by ids: vLLM's text is not looked at
    assert not server.adjusted(chat(stop=["x"])).skip_special_tokens
    assert hermes().adjusted(chat(stop=["x"])).skip_special_tokens  # Qwen's markers are text to vLLM
    alone = ToolParserManager.get_tool_parser("unbraid-mistral")(tokenizer)
    shown = alone.adjust_request(chat())
    assert not shown.skip_special_tokens
    assert not shown.spaces_between_special_tokens
    for nothing_to_read in (chat(tool_choice="none"), chat(tools=None)):
        assert alone.adjust_request(nothing_to_read).skip_special_tokens
    thinking = ReasoningParserManager.get_reasoning_parser("unbraid-mistral")(mistral(13))
    assert not thinking.adjust_request(chat()).skip_special_tokens


def test_the_other_api() -> None:
    """`/v1/responses` has other requests. Its engine waits for the end of the reasoning, and the constraint begins
    there."""
    tool = {"type": "function", **WEATHER["function"]}  # type: ignore[dict-item]
    for choice in ("required", {"type": "function", "name": "get_weather"}):
        request = qwen().adjusted(ResponsesRequest(input="Hi", tools=[tool], tool_choice=choice))
        named = {"type": "function", "function": {"name": "get_weather"}} if isinstance(choice, dict) else choice
        wanted = expected("qwen3", tools=[WEATHER], tool_choice=named, reasoning=False, prompt="")
        assert enforced(request) == wanted
        assert request.extract_structured_outputs() is request.structured_outputs
    said = qwen().said(["<think>", "hm", "</think>", '<tool_call>{"name": "get_weather", "arguments": {}}'], request)
    assert said == Said("hm", "", [("get_weather", "{}")])


def test_tools_that_are_shown_as_functions() -> None:
    """A tool that takes a text, and functions in a namespace: vLLM tells the model of them as of any other."""
    custom = {"type": "custom", "name": "shell"}
    member = {"type": "function", "name": "f", "parameters": {"type": "object"}}
    space = {"type": "namespace", "name": "ns", "description": "Some.", "tools": [member]}
    for tool, name, arguments in ((custom, "shell", '{"input": "ls"}'), (space, "ns__f", '{"a": 1}')):
        made = f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'
        assert qwen().said([made], ResponsesRequest(input="Hi", tools=[tool])) == Said("", "", [(name, arguments)])
        required = qwen().adjusted(ResponsesRequest(input="Hi", tools=[tool], tool_choice="required"))
        assert name in required.structured_outputs.structural_tag
    choice = {"type": "custom", "name": "shell"}
    named = qwen().adjusted(ResponsesRequest(input="Hi", tools=[custom, space], tool_choice=choice))
    assert "shell" in named.structured_outputs.structural_tag
    assert "ns__f" not in named.structured_outputs.structural_tag
    with pytest.raises(VLLMValidationError, match="no function tool the model can call"):
        qwen().adjusted(ResponsesRequest(input="Hi", tools=[{"type": "web_search_preview"}], tool_choice="required"))
