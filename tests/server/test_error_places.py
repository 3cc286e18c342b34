"""Errors name the part of the request that the client sent, in the words of its dialect, and no text is rewritten."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator
from typing import Any

import pytest

from unbraid.errors import InvalidSchema, Place, UnbraidError, about
from unbraid.server.errors import api_error_of
from unbraid.server.generation.task import client_place

from ..support import patient_http
from ..support.scripted_server import HELLO, Scripted

FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
BROKEN = {"$ref": "#/no"}
IMAGE: dict[str, Any] = {"type": "image", "source": {"type": "url", "url": "data:,"}}


def refused(api: Scripted, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = patient_http.post(api.server.url + path, json=body)
    assert answer.status_code == 400, answer.text
    return dict(answer.json()["error"])


def test_a_place_is_a_path_and_a_text() -> None:
    place = Place("tools", 0) / "function" / "name"
    assert (place, place.path) == ("tools[0].function.name", ("tools", 0, "function", "name"))
    named = Place("tools", 0, text="tool 'f'") / "parameters"
    assert (named, named.plain) == ("tool 'f'.parameters", "tools[0].parameters")
    assert pickle.loads(pickle.dumps(named)).path == named.path


def test_an_error_has_its_places_as_values_in_another_process_too() -> None:
    error = UnbraidError(Place("messages", 1), " says 'messages[1]'")
    again = pickle.loads(pickle.dumps(error))
    again.rename(lambda place: client_place({("messages", 1): ("input", 4)}, place))
    assert (str(again), again.field) == ("input[4] says 'messages[1]'", "input[4]")


def test_a_check_that_knows_no_request_is_told_what_it_is_about() -> None:
    with pytest.raises(InvalidSchema) as raised, about(Place("tools", 0, text="tool 'f'")):
        raise InvalidSchema("tool 'f'.x is wrong")
    raised.value.rename(lambda place: client_place({("tools", 0): ("input", 2, "tools", 5)}, place))
    assert str(raised.value) == "input[2].tools[5].x is wrong"


def test_what_stands_inside_of_a_message_is_not_what_the_client_sent() -> None:
    place = client_place({("messages", 1): ("input", 4)}, Place("messages", 1, "tool_calls", 0, "id"))
    assert (place, place.plain) == ("input[4]: tool_calls[0].id", "input[4]")


def test_a_place_that_the_client_has_no_field_for_is_no_param() -> None:
    assert api_error_of(UnbraidError(Place(text="item item_1"), " is wrong")).param is None


RESPONSES: list[tuple[dict[str, Any], str, str]] = [
    (
        {"instructions": "x", "input": [{"role": "user", "content": [{"type": "messages[0]"}]}]},
        "input[0].content[0]",
        "input[0].content[0]: parts of type 'messages[0]' are not supported here, only text",
    ),
    (
        {"input": [{"type": "function_call_output", "call_id": "a", "output": [{"type": "tools[0]"}]}]},
        "input[0].output[0]",
        "input[0].output[0]: parts of type 'tools[0]'",
    ),
    (
        {"input": [{"type": "function_call", "call_id": "a", "name": "", "arguments": "{}"}]},
        "input[0].name",
        "input[0].name must be a non-empty string",
    ),
    (
        {"input": "x", "tools": [{"type": "function", "name": "messages[0]", "strict": True, "parameters": BROKEN}]},
        "tools[0].parameters",
        "tool 'messages[0]': parameters.$ref",
    ),
    (
        {
            "input": [
                {"type": "additional_tools", "tools": [{"type": "function", "name": "f", "strict": "maybe"}]},
                {"role": "user", "content": "x"},
            ]
        },
        "input[0].tools[0].strict",
        "input[0].tools[0] ('f').strict must be",
    ),
    (
        {"input": "x", "text": {"format": {"type": "json_schema", "name": "a", "schema": BROKEN}}},
        "text.format.schema",
        "text.format.schema.$ref",
    ),
]


@pytest.mark.parametrize(("body", "param", "message"), RESPONSES)
def test_responses(running: Scripted, body: dict[str, Any], param: str, message: str) -> None:
    error = refused(running, "/v1/responses", {**body, **({"tool_choice": "required"} if "tools" in body else {})})
    assert (error["param"], error["message"][: len(message)]) == (param, message)


MESSAGES: list[tuple[dict[str, Any], str]] = [
    ({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages[0].content[0]: parts of type 'image'"),
    (
        {"system": "Hi", "messages": [*HELLO, {"role": "user", "content": [{"type": "messages[0].content[0]"}]}]},
        "messages[1].content[0]: parts of type 'messages[0].content[0]'",
    ),
    (
        {"tools": [{"name": "parameters", "strict": True, "input_schema": BROKEN}]},
        "tools[0].input_schema.$ref: '#/no' leads nowhere",
    ),
    (
        {"tools": [{"name": "tools[0].function", "strict": 3, "input_schema": {}}]},
        "tools[0] ('tools[0].function').strict",
    ),
    ({"output_format": {"type": "json_schema", "schema": BROKEN}}, "output_format.schema.$ref"),
    ({"output_config": {"format": {"type": "json_schema", "schema": BROKEN}}}, "output_config.format.schema.$ref"),
]


@pytest.mark.parametrize(("body", "message"), MESSAGES)
def test_messages(running: Scripted, body: dict[str, Any], message: str) -> None:
    error = refused(running, "/v1/messages", {"messages": HELLO, "max_tokens": 5, **body})
    assert error["message"].startswith(message)


@pytest.mark.parametrize(("body", "message"), MESSAGES[:2])
def test_counting_tokens(running: Scripted, body: dict[str, Any], message: str) -> None:
    error = refused(running, "/v1/messages/count_tokens", {"messages": HELLO, **body})
    assert error["message"].startswith(message)


CHAT: list[tuple[dict[str, Any], str]] = [
    ({"messages": [{"role": "user", "content": [{"type": "tools[0]"}]}]}, "messages[0].content[0]"),
    ({"tools": [{**FUNCTION, "function": {"name": "f", "strict": "tools[0]"}}]}, "tools[0].function.strict"),
    ({"modalities": ["x - at `$.model`"]}, "modalities[0]"),
    ({"prompt_token_ids": [1], "token_ids": [2], "add_generation_prompt": False}, "add_generation_prompt"),
]


@pytest.mark.parametrize(("body", "param"), CHAT)
def test_chat(running: Scripted, body: dict[str, Any], param: str) -> None:
    assert refused(running, "/v1/chat/completions", {"messages": HELLO, **body})["param"] == param


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
LARK = {"type": "grammar", "syntax": "lark", "definition": 'start: "a"'}
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
GOOD: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "x"}]},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "a", "content": "3"},
        ],
        "tools": [
            {"type": "function", "function": {"name": "f", "strict": True, "parameters": SCHEMA}},
            {"type": "custom", "custom": {"name": "c", "format": {"type": "grammar", "grammar": LARK}}},
        ],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "logit_bias": {"5": 1},
        "stream_options": {"include_usage": True},
        "reasoning_effort": "low",
    },
    "/v1/responses": {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "3"}]},
            {
                "type": "additional_tools",
                "tools": [{"type": "function", "name": "g", "parameters": {"type": "object"}}],
            },
        ],
        "tools": [
            {"type": "function", "name": "f", "strict": True, "parameters": SCHEMA},
            {"type": "custom", "name": "c", "format": LARK},
        ],
        "tool_choice": {"type": "function", "name": "f"},
        "reasoning": {"effort": "low"},
        "max_output_tokens": 20,
    },
    "/v1/tokenize": {
        "messages": [{"role": "user", "content": "x"}],
        "tools": [FUNCTION, {"name": "g", "strict": True, "parameters": SCHEMA}],
        "chat_template_kwargs": {"enable_thinking": False},
    },
    "/v1/parse": {"text": "x", "format": "hermes", "tools": [FUNCTION]},
}
OTHERS: list[Any] = ["messages[0]", {"type": "tools[0]"}, [7]]
"""What a client may send in place of anything: names of other places, and what has no hash."""


def places_in(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*path, key)
        yield from places_in(each, (*path, key))


def put(body: dict[str, Any], path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    body = json.loads(json.dumps(body))
    inner: Any = body
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return body


def is_sent(param: str, body: Any) -> bool:
    """Whether a body has such a place, or lacks just its last part."""
    *path, last = [int(at) if at else name for at, name in re.findall(r"\[(\d+)\]|([^.\[\]]+)", param)]
    for key in path:
        if not isinstance(body, dict | list) or (key not in body if isinstance(body, dict) else key >= len(body)):
            return False
        body = body[key]
    return isinstance(body, dict) or (isinstance(body, list) and isinstance(last, int) and last < len(body))


@pytest.mark.parametrize("path", GOOD)
def test_whatever_a_part_is_replaced_with_the_error_is_about_what_was_sent(running: Scripted, path: str) -> None:
    running.say("Hi.<|im_end|>")
    assert patient_http.post(running.server.url + path, json=GOOD[path]).status_code == 200
    for place in places_in(GOOD[path]):
        for value in OTHERS:
            body = put(GOOD[path], place, value)
            answer = patient_http.post(running.server.url + path, json=body)
            assert answer.status_code in (200, 400, 404), (place, value, answer.text)
            error = answer.json().get("error") if answer.status_code != 200 else None
            assert error is None or is_sent(str(error["param"]), body), (place, value, error)
