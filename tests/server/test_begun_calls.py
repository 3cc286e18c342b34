"""A reply that was cut off inside a call, sent back to be continued: the next reply has that call whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

import unbraid
from unbraid import Message, ToolCall, find, render
from unbraid.core.message import Text
from unbraid.engines import Generation
from unbraid.engines.replay import ReplayEngine, Script, script
from unbraid.templates import ChatTemplate

from ..support import patient_http
from ..support.real_tokenizers import encode, qwen3_huggingface
from ..support.running_server import RunningServer, service_of, serving
from ..templates.prompt_models import template_source
from .test_round import FORMATS, ChatClient, Client, MessagesClient, ResponsesClient

TEMPLATES = ("Qwen-Qwen3-0.6B", "openai-gpt-oss-120b", "GLM-4.7-Flash", "Kimi-K3", "MiniMax-M1")
CUT = "some an"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    running = RunningServer(service_of(ReplayEngine([]), "hermes"))
    running.start()
    yield running
    running.stop()


class CutOff:
    """A model that writes two calls, breaks off inside the second, and goes on where the prompt ends."""

    def __init__(self, server: RunningServer, name: str) -> None:
        format = find(FORMATS[name])
        calls = ToolCall("alpha", '{"x": "a first"}'), ToolCall("beta", '{"x": "some and more"}')
        self.text = render(format, Message((Text("content", "I say."), *calls)))
        self.format, self.prompts = format, list[str]()
        template = ChatTemplate(template_source(name), bos_token="<s>", eos_token="</s>", name=name)
        server.service.models = service_of(ReplayEngine(self._output), format, template=template).models

    def _output(self, request: Generation) -> Script:
        self.prompts.append(str(request.prompt))
        at = self.text.rindex(CUT) + len(CUT)
        if len(self.prompts) > 1:
            return script(self.text[at:], chunks=3)
        reasoning = self.format.reasoning
        thinks = reasoning is not None and self.prompts[-1].rstrip().endswith(reasoning.open.strip() or "\0")
        return script((reasoning.close if reasoning and thinks else "") + self.text[:at], chunks=3, ending="length")


def calls_of(reply: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """The calls in what a client keeps of a reply."""
    calls: list[tuple[str, Any]] = []
    for each in reply:
        calls += [(call["function"]["name"], call["function"]["arguments"]) for call in each.get("tool_calls", ())]
        if each.get("type") == "function_call":
            calls.append((each["name"], each["arguments"]))
        for block in each["content"] if isinstance(each.get("content"), list) else ():
            if block["type"] == "tool_use":
                calls.append((block["name"], json.dumps(block["input"])))
    return calls


def cut_off(client: Client) -> None:
    """A conversation whose last reply was cut off."""
    client.say("user", "Please.")
    client.ask()
    if isinstance(client, ChatClient):
        client.more = {"continue_final_message": True, "add_generation_prompt": False}


@pytest.mark.parametrize(
    ("kind", "streams"), [*product([ChatClient, ResponsesClient], [True, False]), (MessagesClient, False)]
)
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_call_is_whole_in_the_next_reply(server: RunningServer, name: str, kind: type[Client], streams: bool) -> None:
    model = CutOff(server, name)
    client = kind(server.url, streams)
    cut_off(client)
    before, last = len(client.history), client.history[-1]
    client.ask()
    assert model.prompts[-1].endswith(CUT)
    reply = client.history[before:]
    assert calls_of(reply) == [("beta", '{"x": "some and more"}')]
    assert "I say" not in json.dumps(reply)
    if kind is ChatClient and streams:
        assert reply[0]["tool_calls"][0]["id"] == last["tool_calls"][-1]["id"]
    if kind is ResponsesClient:
        assert reply[0]["call_id"] == last["call_id"]


def test_a_call_goes_on_by_token_ids() -> None:
    tokens = qwen3_huggingface()
    rest = tokens.encode('d <tool_call> more"}}\n</tool_call>', add_special_tokens=False).ids
    engine = ReplayEngine(lambda _: script(tuple(rest), chunks=2))
    call = {"id": "c9", "type": "function", "function": {"name": "beta", "arguments": '{"x": "some an'}}
    turn = {"role": "assistant", "content": "Hi.", "tool_calls": [call]}
    body = {"messages": [{"role": "user", "content": "Please."}, turn], "continue_final_message": True}
    with serving(service_of(engine, "qwen3", tokenizer=tokens)) as server:
        reply = patient_http.post(f"{server.url}/v1/chat/completions", json=body).json()
    (whole,) = reply["choices"][0]["message"]["tool_calls"]
    assert (whole["id"], whole["function"]["arguments"]) == ("c9", '{"x": "some and <tool_call> more"}')
    prompt = engine.requests[0].prompt
    assert not isinstance(prompt, str)
    assert tokens.decode(list(prompt), skip_special_tokens=False).endswith('{"x": "some an')
    assert reply["usage"]["completion_tokens_details"]["tool_call_tokens"] == len(rest)


def test_a_block_does_not_say_where_it_broke_off(server: RunningServer) -> None:
    CutOff(server, TEMPLATES[0])
    client = MessagesClient(server.url, streams=True)
    cut_off(client)
    with pytest.raises(AssertionError, match="A call that was cut off cannot be continued"):
        client.ask()


def begun_body(arguments: str = '{"x": "some an', **more: Any) -> dict[str, Any]:
    """A request whose last message broke off inside a call."""
    call = {"id": "a", "type": "function", "function": {"name": "beta", "arguments": arguments}}
    parameters = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
    return {
        "messages": [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": None, "tool_calls": [call]}],
        "tools": [{"type": "function", "function": {"name": "beta", "strict": True, "parameters": parameters}}],
        "continue_final_message": True,
        "add_generation_prompt": False,
        **more,
    }


@pytest.mark.parametrize("more", [{}, {"tool_choice": "required"}], ids=["strict", "required"])
@pytest.mark.parametrize("by_ids", [True, False])
def test_what_is_enforced_goes_on_inside_a_call(more: dict[str, Any], by_ids: bool) -> None:
    tokens = qwen3_huggingface()
    engine = ReplayEngine([script('d more"}}\n</tool_call>')])
    service = service_of(engine, "qwen2.5", tokenizer=tokens if by_ids else None, syntax="ebnf")
    with serving(service) as server:
        reply = patient_http.post(f"{server.url}/v1/chat/completions", json=begun_body(**more)).json()
    assert reply["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == '{"x": "some and more"}'
    rest = engine.requests[0].constraint
    assert rest is not None
    body = begun_body(**more)
    whole = unbraid.constraint(
        "qwen2.5",
        tools=body["tools"],
        tool_choice=body.get("tool_choice"),
        parallel_tool_calls=False,  # the template shows no tools
        tokenizer=tokens if by_ids else None,
        prompt="<|im_start|>assistant\n",
    )
    written = '<tool_call>\n{"name": "beta", "arguments": {"x": "some an'
    assert rest.to_ebnf() == whole.after(encode(tokens, written) if by_ids else written).to_ebnf()


@pytest.mark.parametrize(
    ("more", "syntax", "field", "why"),
    [
        ({"tool_choice": "required"}, "lark", "tool_choice", "cannot be said in the syntax 'lark'"),
        ({}, "lark", "tools", "cannot be said in the syntax 'lark'"),
        ({"tool_choice": {"type": "function", "function": {"name": "alpha"}}}, "ebnf", "tool_choice", "not allow"),
    ],
)
def test_what_cannot_be_enforced_inside_a_call_is_refused(more: Any, syntax: str, field: str, why: str) -> None:
    body = begun_body(**more)
    body["tools"].append({"type": "function", "function": {"name": "alpha", "parameters": {"type": "object"}}})
    with serving(service_of(ReplayEngine([]), "qwen2.5", syntax=syntax)) as server:
        response = patient_http.post(f"{server.url}/v1/chat/completions", json=body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == field
    assert "cannot be enforced in the middle of this call" in error["message"]
    assert why in error["message"]


@pytest.mark.parametrize("kind", [ChatClient, MessagesClient, ResponsesClient])
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize(
    ("format", "begun", "rest", "calls"),
    [
        (
            "qwen2.5",
            '<tool_call>\n{"name": "be',
            'ta", "arguments": {"x": "y"}}\n</tool_call>',
            [("beta", '{"x": "y"}')],
        ),
        ("llama-3", '{"name": "be', 'ar", "age": 3}', []),
    ],
    ids=["a call", "text"],
)
def test_a_prefill_that_ends_inside_a_name(
    server: RunningServer, kind: type[Client], streams: bool, format: str, begun: str, rest: str, calls: Any
) -> None:
    engine = ReplayEngine([script(rest, chunks=3)])
    server.service.models = service_of(engine, format).models
    client = kind(server.url, streams)
    client.say("user", "Please.")
    client.say("assistant", f"I see.\n{begun}")
    if kind is ChatClient:
        client.more = {"continue_final_message": True, "add_generation_prompt": False}
    if kind is ResponsesClient:
        client.history[-1]["status"] = "incomplete"
    client.ask()
    assert str(engine.requests[0].prompt).endswith(f"I see.\n{begun}")
    reply = client.history[2:]
    assert calls_of(reply) == calls
    assert ('"' + json.dumps(rest)[1:-1] + '"' in json.dumps(reply)) is not bool(calls)
    assert "I see" not in json.dumps(reply)


def test_a_name_that_follows_other_calls(server: RunningServer) -> None:
    server.service.models = service_of(ReplayEngine([]), "qwen2.5").models
    body = begun_body('{"x": "y"}')
    body["messages"][-1]["content"] = '<tool_call>\n{"name": "be'
    response = patient_http.post(f"{server.url}/v1/chat/completions", json=body)
    assert response.status_code == 400
    assert "leave the beginning of that call out" in response.text
