"""Schemas: which are enforced, and what a client is told of those that are not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid import Message, parse
from unbraid.constraints import Unenforced
from unbraid.constraints.derive import Derivation
from unbraid.server.generation.enforcing import HEADER, unenforced_header
from unbraid.templates import PromptBuilder, built_in

from ..support import patient_http
from ..support.examples import examples
from ..support.scripted_server import HELLO, Scripted

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"enum": ["c", "f"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
NAMED = {"type": "function", "function": {"name": "f"}}

SOME = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}


def tool(parameters: Any = CITY, name: str = "f", **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


@pytest.fixture
def api(running: Scripted) -> Iterator[Scripted]:
    running.say("Hi.")
    running.service.models[0].model.syntax, running.service.models[0].model.constrain_auto = "gbnf", False
    yield running
    running.service.models[0].model.loose_schemas, running.service.models[0].model.constrain_auto = False, False


def post(api: Scripted, **body: Any) -> Any:
    return patient_http.post(f"{api.server.url}/v1/chat/completions", json={"messages": HELLO, **body})


def allowed(api: Scripted, seeds: int = 30) -> list[Message]:
    """Some messages that the last request's constraint allows."""
    made = api.engine.requests[-1].constraint
    assert made is not None
    texts = [Derivation(made.language, Random(seed)).text() for seed in range(seeds)]
    return [parse("qwen3", text) for text in texts if text is not None]


def arguments(api: Scripted) -> list[Any]:
    """Arguments that the last request's constraint allows."""
    calls = [call for message in allowed(api) for call in message.tool_calls]
    assert calls
    return [json.loads(call.arguments) for call in calls]


@pytest.mark.parametrize(
    "choice", ["required", NAMED, {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}]
)
@pytest.mark.parametrize("strict", [{}, {"strict": None}, {"strict": True}])
def test_a_required_call_follows_its_schema(api: Scripted, choice: Any, strict: dict[str, Any]) -> None:
    assert post(api, tools=[tool(**strict)], tool_choice=choice).status_code == 200
    for each in arguments(api):
        jsonschema.validate(each, CITY)


def test_optional_calls_follow_it_where_a_grammar_is_in_force(api: Scripted) -> None:
    api.service.models[0].model.constrain_auto = True
    post(api, tools=[tool()])
    for each in arguments(api):
        jsonschema.validate(each, CITY)
    api.service.models[0].model.constrain_auto = False
    post(api, tools=[tool()])
    assert api.engine.requests[-1].constraint is None


def test_a_tool_that_is_not_strict_takes_any_object(api: Scripted) -> None:
    post(api, tools=[tool(strict=False)], tool_choice="required")
    validator = jsonschema.Draft202012Validator(CITY)
    assert not all(validator.is_valid(each) for each in arguments(api))


NOT_ENFORCED = {"type": "object", "properties": {"n": {"type": "integer", "multipleOf": 7}}, "required": ["n"]}


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_not_enforced_is_told(api: Scripted, stream: bool) -> None:
    response = post(api, tools=[tool(NOT_ENFORCED)], tool_choice="required", stream=stream)
    assert response.status_code == 200
    assert "multipleOf" in response.headers[HEADER]
    assert HEADER not in post(api, tools=[tool()], tool_choice="required", stream=stream).headers


def test_what_a_strict_schema_asks_is_enforced_or_refused(api: Scripted) -> None:
    strict = tool(NOT_ENFORCED, strict=True)
    answer = {"type": "json_schema", "json_schema": {"name": "n", "schema": NOT_ENFORCED, "strict": True}}
    asked: list[tuple[dict[str, Any], str]] = [
        ({"tools": [tool(name="g"), strict], "tool_choice": "required"}, "tools[1].function.parameters"),
        ({"tools": [tool(NOT_ENFORCED, name="g"), strict], "tool_choice": "required"}, "tools[0].function.parameters"),
        ({"response_format": answer}, "response_format.json_schema.schema"),
    ]
    for body, param in asked:
        response = post(api, **body)
        assert response.status_code == 400, body
        error = response.json()["error"]
        assert error["param"] == param
        assert "multipleOf" in error["message"]
    api.service.models[0].model.loose_schemas = True
    for body, _ in asked:
        response = post(api, **body)
        assert response.status_code == 200
        assert "multipleOf" in response.headers[HEADER]


def test_completions_tell_it_too(api: Scripted) -> None:
    answer = {"type": "json_schema", "json_schema": {"name": "n", "schema": NOT_ENFORCED}}
    url, body = f"{api.server.url}/v1/completions", {"prompt": "Hi", "response_format": answer}
    for stream in (False, True):
        assert "multipleOf" in patient_http.post(url, json={**body, "stream": stream}).headers[HEADER]
    answer["json_schema"]["strict"] = True  # type: ignore[index]
    assert patient_http.post(url, json=body).status_code == 400


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}},
        {"type": "object", "properties": {"a": {"type": "string", "enum": [1]}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a|b)*a(a|b){20}$"}}, "required": ["a"]},
    ],
)
def test_a_schema_that_cannot_be_enforced_leaves_the_arguments_free(api: Scripted, parameters: Any) -> None:
    """Only a client that says `strict` has to change it. Other tools keep their schemas."""
    response = post(api, tools=[tool(name="g"), tool(parameters, "f")], tool_choice="required")
    assert response.status_code == 200
    assert "'f'" in response.headers[HEADER]
    post(api, tools=[tool(parameters), tool(name="g")], tool_choice={"type": "function", "function": {"name": "g"}})
    for each in arguments(api):
        jsonschema.validate(each, CITY)


@examples(5)
@given(st.lists(st.builds(Unenforced, st.text(max_size=400), st.text(max_size=400)), max_size=8))
def test_the_header_is_one_line_of_ascii(unenforced: list[Unenforced]) -> None:
    found = unenforced_header(unenforced)
    assert bool(found) == bool(unenforced)
    for value in found.values():
        assert value.isascii()
        assert value.isprintable()
        assert len(value) < 1100


def test_an_engine_without_constraints_leaves_optional_calls_free(api: Scripted) -> None:
    api.service.models[0].model.unconstrained = True
    try:
        grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": 'start: "a"'}}
        free = {"type": "custom", "custom": {"name": "g", "format": grammar}}
        for ask in ({"tools": [free]}, {"tools": [tool()], "parallel_tool_calls": False}):
            reply = patient_http.post(
                f"{api.server.url}/v1/chat/completions", json={"messages": HELLO, "tool_choice": "auto", **ask}
            )
            assert reply.status_code == 200, reply.text
            assert "no constraints" in reply.headers[HEADER]
            assert api.engine.requests[-1].constraint is None
        strict = {"messages": HELLO, "tools": [tool(), tool(name="h", strict=True)]}
        refused = patient_http.post(f"{api.server.url}/v1/chat/completions", json=strict)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tools[1]")
        api.service.models[0].model.loose_schemas = True
        loose = patient_http.post(f"{api.server.url}/v1/chat/completions", json=strict)
        assert loose.status_code == 200
    finally:
        api.service.models[0].model.unconstrained = False


@pytest.mark.parametrize(
    ("parallel", "shown", "several"), [(None, True, True), (None, False, False), (True, False, True)]
)
def test_one_call_of_a_model_whose_template_shows_no_tools(
    api: Scripted, monkeypatch: pytest.MonkeyPatch, parallel: bool | None, shown: bool, several: bool
) -> None:
    """Such a model would repeat its call to the end of its context."""
    model = api.service.models[0].model
    assert model.builder is not None
    if not shown:
        plain = PromptBuilder(built_in("chatml"), model.builder.encoder, model.builder.format)
        monkeypatch.setattr(model, "builder", plain)
    assert model.builder.capabilities(tools=True).tools == shown
    asked = {"tools": [tool()], "tool_choice": "required", "parallel_tool_calls": parallel}
    assert post(api, **asked).status_code == 200
    assert any(len(message.tool_calls) > 1 for message in allowed(api)) == several
