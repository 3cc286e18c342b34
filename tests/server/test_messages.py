"""Anthropic's dialect on scripted outputs: what each field does, what goes into the prompt, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest

from unbraid.engines import EngineDown, EngineFailed, Finish, Generation, PromptTooLong
from unbraid.engines.replay import ReplayEngine, Script, script
from unbraid.server.messages.request import MessagesRequest, task_of
from unbraid.tokens import vocabulary

from ..support import patient_http
from ..support.anthropic_events import folded_message, read_events
from ..support.real_tokenizers import encode
from ..support.running_server import service_of, serving
from ..support.scripted_server import HELLO, Scripted

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: dict[str, Any] = {"name": "weather", "description": "The weather", "input_schema": SCHEMA}
FUNCTION = {"type": "function", "function": {"name": "weather", "description": "The weather", "parameters": SCHEMA}}
CALLS = (
    'Let me see.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Genève", "days": 1.50}}\n</tool_call>'
)
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
BILLING = "x-anthropic-billing-header: cc_version=2.1.{}; cc_entrypoint=cli;"


def post(
    api: Scripted, path: str = "/v1/messages", headers: dict[str, str] | None = None, **body: Any
) -> httpx.Response:
    asked = {"messages": HELLO, **({"max_tokens": 100} if path == "/v1/messages" else {}), **body}
    return patient_http.post(api.server.url + path, json=asked, headers=headers)


def create(api: Scripted, **body: Any) -> dict[str, Any]:
    response = post(api, **body)
    assert response.status_code == 200, response.text
    assert response.headers["request-id"].startswith("req_")
    return dict(response.json())


def stream(api: Scripted, **body: Any) -> dict[str, Any]:
    response = post(api, stream=True, **body)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["request-id"].startswith("req_")
    return folded_message(read_events(response.text))


def both(api: Scripted, **body: Any) -> dict[str, Any]:
    """The reply. Streamed, it is the same, but for the ids."""
    whole, streamed = create(api, **body), stream(api, **body)

    def essence(message: dict[str, Any]) -> dict[str, Any]:
        blocks = [{key: value for key, value in block.items() if key != "id"} for block in message["content"]]
        return {**message, "id": "", "content": blocks}

    assert essence(whole) == essence(streamed)
    return whole


def refused(response: httpx.Response, status: int, kind: str = "invalid_request_error") -> str:
    """What is said of an error, which is always of the same shape."""
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body) == {"type", "error", "request_id"}
    assert (body["type"], body["error"]["type"]) == ("error", kind)
    assert body["request_id"] == response.headers["request-id"]
    return str(body["error"]["message"])


@pytest.fixture
def api(running: Scripted) -> Iterator[Scripted]:
    running.say("Hi.<|im_end|>")
    yield running
    running.service.api_keys = ()
    running.engine.down = False


# Replies


@pytest.mark.parametrize("chunks", [1, 3, 1000])
def test_thinking_text_and_calls(api: Scripted, chunks: int) -> None:
    api.say(f"<think>\nTwo cities.\n</think>\n\n{CALLS}<|im_end|>", chunks)
    reply = both(api, tools=[WEATHER])
    thinking, text, first, second = reply["content"]
    assert (thinking["type"], thinking["thinking"]) == ("thinking", "Two cities.")
    assert text == {"type": "text", "text": "Let me see."}
    assert first == {"type": "tool_use", "id": first["id"], "name": "weather", "input": {"city": "Zürich"}}
    assert second["input"] == {"city": "Genève", "days": 1.5}
    assert first["id"] != second["id"]
    assert (reply["type"], reply["role"], reply["model"]) == ("message", "assistant", "qwen")
    assert (reply["stop_reason"], reply["stop_sequence"]) == ("tool_use", None)


def test_arguments_are_as_the_model_wrote_them(api: Scripted) -> None:
    api.say(CALLS)
    assert '"input":{"city": "Genève", "days": 1.50}' in post(api, tools=[WEATHER]).text


def test_token_counts(api: Scripted) -> None:
    api.say("Hi.", ending=Finish("stop", 10, 5, 4))
    assert both(api)["usage"] == {
        "input_tokens": 6,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 4,
        "output_tokens": 5,
        "output_tokens_details": {"thinking_tokens": 0},
    }
    start, ping, *_ = read_events(post(api, stream=True).text)
    assert start["message"]["usage"]["input_tokens"] == len(api.engine.requests[-1].prompt)
    assert ping == {"type": "ping"}


@pytest.mark.parametrize(
    ("ending", "asked", "reason"),
    [
        ("stop", {}, "end_turn"),
        ("length", {}, "max_tokens"),
        ("length", {"max_tokens": 32_000}, "model_context_window_exceeded"),
        (Finish("stop", 1, 1, 0, "###"), {"stop_sequences": ["###"]}, "stop_sequence"),
        (Finish("stop", 1, 1, 0, 17), {"stop_sequences": ["###"]}, "end_turn"),
    ],
)
def test_stop_reasons(api: Scripted, ending: Any, asked: dict[str, Any], reason: str) -> None:
    api.say("Hi.", ending=ending)
    reply = both(api, **asked)
    assert reply["stop_reason"] == reason
    assert reply["stop_sequence"] == ("###" if reason == "stop_sequence" else None)
    assert api.engine.requests[-1].stop == tuple(asked.get("stop_sequences", ()))


def test_a_call_that_is_cut_off(api: Scripted) -> None:
    """In a whole reply it is text. A client of the stream has seen it begin, and its JSON stays open."""
    text = '<tool_call>\n{"name": "weather", "arguments": {"city": "Zü'
    api.say(f"Well. {text}", ending="length")
    reply = create(api, tools=[WEATHER])
    assert reply["content"] == [{"type": "text", "text": f"Well. {text}"}]
    assert reply["stop_reason"] == "max_tokens"
    streamed = stream(api, tools=[WEATHER])
    assert streamed["content"][1]["partial_json"] == '{"city": "Zü'
    assert streamed["stop_reason"] == "max_tokens"


@pytest.mark.parametrize(("said", "content"), [("", []), ("\n\n", [{"type": "text", "text": "\n\n"}])])
def test_next_to_nothing(api: Scripted, said: str, content: list[Any]) -> None:
    api.say(f"{said}<|im_end|>")
    assert both(api)["content"] == content


def test_an_engine_that_fails(api: Scripted) -> None:
    api.choose = lambda _: script(encode(api.tokenizer, "Hi there."), ending=EngineFailed("out of order"))
    assert "out of order" in refused(post(api), 502, "api_error")
    response = post(api, stream=True)
    *_, last = read_events(response.text)
    assert last["error"] == {"type": "api_error", "message": "out of order"}
    assert last["request_id"] == response.headers["request-id"]
    api.choose = lambda _: Script((), EngineDown("too busy"))
    assert "too busy" in refused(post(api, stream=True), 503, "overloaded_error")
    api.choose = lambda _: Script((), PromptTooLong("4000 is more than 3000"))
    assert refused(post(api), 400) == "prompt is too long: 4000 is more than 3000"


# Prompts


def prompts_agree(api: Scripted, messages: dict[str, Any], chat: dict[str, Any]) -> str:
    """Checks that the prompt is that of the same conversation in OpenAI's dialect, and counted right."""
    create(api, **messages)
    prompt = api.engine.requests[-1].prompt
    count = post(api, "/v1/messages/count_tokens", **messages).json()
    assert count == {"input_tokens": len(prompt)}
    api.chat(**chat)
    assert prompt == api.engine.requests[-1].prompt
    return api.prompt()


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


CACHED = {"cache_control": {"type": "ephemeral"}}


def test_the_prompt_is_that_of_a_chat(api: Scripted) -> None:
    api.say(f"<think>\nTwo cities.\n</think>\n\n{CALLS}<|im_end|>")
    content = create(api, tools=[WEATHER])["content"]
    ids = [block["id"] for block in content if block["type"] == "tool_use"]
    conversation = [
        {"role": "user", "content": [text("Hello!"), text("How is it?", **CACHED)]},
        {"role": "assistant", "content": content},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": ids[0], "content": "sunny", **CACHED},
                {"type": "tool_result", "tool_use_id": ids[1], "content": [text("no"), text("way")], "is_error": True},
                text("And?"),
            ],
        },
    ]
    calls = [
        {"id": id, "type": "function", "function": {"name": "weather", "arguments": arguments}}
        for id, arguments in zip(ids, ['{"city": "Zürich"}', '{"city": "Genève", "days": 1.5}'], strict=True)
    ]
    chat = [
        {"role": "system", "content": "Be brief.\nBe kind."},
        {"role": "user", "content": "Hello!\nHow is it?"},
        {"role": "assistant", "content": "Let me see.", "reasoning_content": "Two cities.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": ids[0], "content": "sunny"},
        {"role": "tool", "tool_call_id": ids[1], "content": "Error: no\nway"},
        {"role": "user", "content": "And?"},
    ]
    system = [text("Be brief.", **CACHED), text("Be kind.")]
    asked = {"system": system, "messages": conversation, "tools": [{**WEATHER, **CACHED}]}
    prompts_agree(api, asked, {"messages": chat, "tools": [FUNCTION]})
    conversation[-1]["content"] = conversation[-1]["content"][:-1]
    assert "Two cities." in prompts_agree(api, asked, {"messages": chat[:-1], "tools": [FUNCTION]})


@pytest.mark.parametrize(
    ("messages", "chat"),
    [
        (
            [{"role": "user", "content": "A"}, {"role": "user", "content": [text("B")]}],
            [{"role": "user", "content": "A\nB"}],
        ),
        (
            [*HELLO, {"role": "assistant", "content": "A"}, {"role": "assistant", "content": "B"}, *HELLO],
            [*HELLO, {"role": "assistant", "content": "A\nB"}, *HELLO],
        ),
        (
            [*HELLO, {"role": "system", "content": "A"}, {"role": "system", "content": [text("B")]}, *HELLO],
            [*HELLO, {"role": "system", "content": "A\nB"}, *HELLO],
        ),
        (
            [*HELLO, {"role": "assistant", "content": []}, *HELLO],
            [*HELLO, {"role": "assistant", "content": ""}, *HELLO],
        ),
    ],
)
def test_messages_of_one_role_are_one(api: Scripted, messages: list[Any], chat: list[Any]) -> None:
    prompts_agree(api, {"messages": messages}, {"messages": chat})


def test_a_result_says_that_it_is_an_error(api: Scripted) -> None:
    def result(**more: Any) -> str:
        call = {"type": "tool_use", "id": "a", "name": "weather", "input": {}}
        block = {"type": "tool_result", "tool_use_id": "a", **more}
        create(api, messages=[*HELLO, {"role": "assistant", "content": [call]}, {"role": "user", "content": [block]}])
        return api.prompt().split("<tool_response>\n")[1].split("\n</tool_response>")[0]

    assert result(content="Exit code 1", is_error=True) == "Error: Exit code 1"
    assert result(content="<tool_use_error>No.", is_error=True) == "<tool_use_error>No."
    assert result(content="Error, no.", is_error=False) == "Error, no."
    assert result(is_error=True) == result(content=[], is_error=True) == "Error"
    assert result() == ""


def test_headers_for_the_service_do_not_change_the_prompt(api: Scripted) -> None:
    """An engine's cache finds the whole conversation again, whatever such a header says."""
    create(api, system="Be brief.")
    plain = api.engine.requests[-1].prompt
    for at in range(3):
        header = BILLING.format(at)
        for system in ([text(header), text("Be brief.")], f"{header}\n\nBe brief.", [text(f"{header}\nBe brief.")]):
            create(api, system=system)
            assert api.engine.requests[-1].prompt == plain
    create(api, system=f"Be brief.\n{BILLING}")
    assert f"Be brief.\n{BILLING}" in api.prompt(), "elsewhere it is text"
    create(api, system=[text(BILLING)])
    alone = api.prompt()
    create(api)
    assert alone == api.prompt()


def test_prefill(api: Scripted) -> None:
    api.say("B)<|im_end|>")
    messages = [*HELLO, {"role": "assistant", "content": "The answer is ("}]
    assert both(api, messages=messages)["content"] == [text("B)")]
    assert api.prompt().endswith("The answer is (")
    api.say("<think>\nHm, let", ending="length")
    (cut,) = both(api)["content"]
    api.say(" me see.\n</think>\n\nYes.<|im_end|>")
    thinking, answer = both(api, messages=[*HELLO, {"role": "assistant", "content": [cut]}])["content"]
    assert api.prompt().endswith("<think>\nHm, let")
    assert (thinking["thinking"], answer) == (" me see.", text("Yes."))
    call = {"type": "tool_use", "id": "a", "name": "weather", "input": {}}
    response = post(api, messages=[*HELLO, {"role": "assistant", "content": [call]}])
    assert refused(response, 400).startswith("messages[1]: its `tool_use` has no `tool_result` after it")


def test_texts_of_documents(api: Scripted) -> None:
    document = {
        "type": "document",
        "title": "Tea",
        "source": {"type": "text", "media_type": "text/plain", "data": "Leaves in water."},
    }
    found = {"type": "search_result", "title": "Cups", "source": "cups.example", "content": [text("Round.")]}
    blocks = {"type": "document", "source": {"type": "content", "content": [text("Hot.")]}}
    create(api, messages=[{"role": "user", "content": [document, found, blocks, text("Well?")]}])
    assert "Tea\nLeaves in water.\nCups\ncups.example\nRound.\nHot.\nWell?<|im_end|>" in api.prompt()


@pytest.mark.parametrize("kind", ["image", "document", "server_tool_use", "container_upload"])
def test_what_is_no_text_is_refused_by_its_place(api: Scripted, kind: str) -> None:
    block = {**IMAGE, "type": kind}
    said = f"parts of type '{kind}' are not supported here, only text"
    asked: list[dict[str, Any]] = [*HELLO, *HELLO, {"role": "user", "content": [text("Look:"), block]}]
    assert refused(post(api, system="Hm.", messages=asked), 400) == f"messages[2].content[1]: {said}"
    asked[-1]["content"] = [{"type": "tool_result", "tool_use_id": "a", "content": [text("Look:"), block]}]
    assert refused(post(api, messages=asked), 400) == f"messages[2].content[0].content[1]: {said}"


# Thinking


@pytest.mark.parametrize("kind", ["enabled", "adaptive", "between_tools"])
def test_thinking_is_turned_on_and_off(api: Scripted, kind: str) -> None:
    closed = "<think>\n\n</think>\n\n"
    create(api, thinking={"type": kind})
    assert not api.prompt().endswith(closed)
    create(api, thinking={"type": "disabled"})
    assert api.prompt().endswith(closed)
    create(api)
    assert not api.prompt().endswith(closed), "the template decides"


def test_the_thinking_budget(api: Scripted) -> None:
    """Its end is forced, and the reply tells how many tokens were thoughts."""
    thoughts = encode(api.tokenizer, "<think>\n" + "Hm. " * 20)

    def choose(request: Generation) -> Script:
        end = vocabulary(api.tokenizer).token_id("</think>")
        return script(encode(api.tokenizer, "Hi.<|im_end|>") if end in request.prompt else thoughts)

    api.choose = choose
    reply = both(api, thinking={"type": "enabled", "budget_tokens": 9})
    assert [block["type"] for block in reply["content"]] == ["thinking", "text"]
    assert reply["content"][1]["text"] == "Hi."
    assert 9 <= reply["usage"]["output_tokens_details"]["thinking_tokens"] < reply["usage"]["output_tokens"]
    disabled = {"thinking": {"type": "disabled"}}
    prompts_agree(api, disabled, {"messages": HELLO, "chat_template_kwargs": {"enable_thinking": False}})


def test_effort_and_variables_go_to_the_template(api: Scripted) -> None:
    asked = MessagesRequest(
        messages=HELLO, max_tokens=9, output_config={"effort": "low"}, chat_template_kwargs={"x": 1, "thinking": False}
    )
    variables = task_of(api.service.seal, "", asked).template_kwargs
    assert variables == {"reasoning_effort": "low", "x": 1, "thinking": False}


def thought(api: Scripted, **more: Any) -> dict[str, Any]:
    """A thinking block of the server's, as it comes in a reply."""
    api.say("<think>\nHm, hm.\n</think>\n\nHi.<|im_end|>")
    headers = more.pop("headers", None)
    content = post(api, headers=headers, **more).json()["content"]
    return dict(content[0])


def sent_back(api: Scripted, block: dict[str, Any], **headers: str) -> httpx.Response:
    """A conversation in which the model thought this before a call: the template shows it."""
    call = {"type": "tool_use", "id": "a", "name": "weather", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
    turns = [{"role": "assistant", "content": [block, call]}, {"role": "user", "content": [result]}]
    return post(api, messages=[*HELLO, *turns], headers=headers)


def test_thinking_goes_back_into_the_prompt(api: Scripted) -> None:
    assert sent_back(api, thought(api)).status_code == 200
    assert "<think>\nHm, hm.\n</think>" in api.prompt()
    sealed = {"type": "redacted_thinking", "data": api.service.seal.close("Hush.", "")}
    assert sent_back(api, sealed).status_code == 200
    assert "<think>\nHush.\n</think>" in api.prompt()


def test_thinking_that_is_not_to_be_seen(api: Scripted) -> None:
    thinking = {"type": "adaptive", "display": "omitted"}
    block = thought(api, thinking=thinking)
    assert block["thinking"] == ""
    assert sent_back(api, block).status_code == 200
    assert "<think>\nHm, hm.\n</think>" in api.prompt()
    api.say("<think>\nHm, hm.\n</think>\n\nHi.<|im_end|>")
    streamed = stream(api, thinking=thinking)["content"][0]
    assert streamed["thinking"] == ""
    assert sent_back(api, streamed).status_code == 200


def test_thinking_that_is_not_ours(api: Scripted) -> None:
    block = thought(api)
    where = "messages[1].content[0]"
    for wrong in ({**block, "thinking": "Ha!"}, {**block, "signature": "sig"}, {**block, "signature": "ä"}):
        said = refused(sent_back(api, wrong), 400)
        assert said.startswith(f"{where}.signature: Invalid `signature` in `thinking` block: it was not made by")
    said = refused(sent_back(api, {"type": "redacted_thinking", "data": "abc"}), 400)
    assert said.startswith(f"{where}.data: Invalid `data` in `redacted_thinking` block: it was not made by")
    assert refused(sent_back(api, {"type": "thinking", "thinking": "x"}), 400).startswith(f"{where}.signature: must be")


def test_thinking_is_the_business_of_one_client(api: Scripted) -> None:
    api.service.api_keys = ("one", "two")
    block = thought(api, headers={"x-api-key": "one"})
    assert sent_back(api, block, authorization="Bearer one").status_code == 200
    assert "Invalid `signature`" in refused(sent_back(api, block, **{"x-api-key": "two"}), 400)
    assert "the API key is missing" in refused(sent_back(api, block), 401, "authentication_error")


# Tools and formats


@pytest.mark.parametrize(
    ("asked", "constrained"),
    [
        ({"tool_choice": {"type": "auto"}}, False),
        ({"tool_choice": {"type": "none"}}, False),
        ({"tool_choice": {"type": "any"}}, True),
        ({"tool_choice": {"type": "tool", "name": "weather"}}, True),
        ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, True),
        ({"tools": [{**WEATHER, "strict": True, "type": "custom"}]}, True),
        ({"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}, "tools": []}, True),
        ({"output_format": {"type": "json_schema", "schema": SCHEMA}, "tools": []}, True),
    ],
)
def test_when_the_output_is_constrained(api: Scripted, asked: dict[str, Any], constrained: bool) -> None:
    create(api, **{"tools": [WEATHER], **asked})
    assert (api.engine.requests[-1].constraint is not None) == constrained
    assert ('"weather"' in api.prompt()) == (asked.get("tools") != [] and asked != {"tool_choice": {"type": "none"}})


def test_examples_of_inputs_are_shown(api: Scripted) -> None:
    create(api, tools=[{**WEATHER, "input_examples": [{"city": "Ulm"}]}])
    assert '"examples": [{"city": "Ulm"}]' in api.prompt()


def test_sampling_is_handed_on(api: Scripted) -> None:
    create(api, temperature=0.5, top_p=0.9, top_k=5, max_tokens=7)
    request = api.engine.requests[-1]
    assert (request.sampling.temperature, request.sampling.top_p, request.sampling.top_k) == (0.5, 0.9, 5)
    assert request.max_tokens == 7


def test_max_tokens_may_be_more_than_the_context_has(api: Scripted) -> None:
    create(api, max_tokens=32_000)
    request = api.engine.requests[-1]
    assert request.max_tokens == 4096 - len(request.prompt)
    said = refused(post(api, messages=[{"role": "user", "content": "word " * 5000}]), 400)
    assert said.startswith("the prompt is too long: 5")
    assert said.endswith(" tokens > 4095 maximum")


def test_without_a_tokenizer() -> None:
    """Only the engine can count: the prompt is told at the end, and cannot be told alone."""
    engine = ReplayEngine([script("Hi.", ending=Finish("stop", 10, 5, 0))], context=100, repeat=True)
    with serving(service_of(engine, "qwen3")) as server:
        asked = {"messages": HELLO, "max_tokens": 32_000}
        response = patient_http.post(f"{server.url}/v1/messages", json={**asked, "stream": True})
        start, *_ = read_events(response.text)
        assert start["message"]["usage"]["input_tokens"] == 0
        assert folded_message(read_events(response.text))["usage"]["input_tokens"] == 10
        assert engine.requests[-1].max_tokens is None
        response = patient_http.post(f"{server.url}/v1/messages/count_tokens", json={"messages": HELLO})
        assert "start the server with --tokenizer" in refused(response, 400)


# What is refused


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"max_tokens": None}, "max_tokens: expected int"),
        ({"max_tokens": 0}, "max_tokens: expected int >= 1"),
        ({"messages": []}, "messages is empty"),
        ({"messages": [], "system": "Be brief."}, "messages is empty"),
        ({"messages": [{"role": "system", "output_config": {}}]}, "messages is empty"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role: must be user, assistant or system"),
        ({"messages": [{"role": "user"}]}, "messages[0].content: must be a string or a list of blocks"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content: is empty"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]: must be an object with a type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text: must be"),
        (
            {"messages": [*HELLO, {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f"}]}]},
            "messages[1].content[0].input: must be an object",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]},
            "messages[0].content[0].tool_use_id: must be the id of a tool_use block",
        ),
        ({"system": [{"type": "image"}]}, "system[0] must be a text block"),
        ({"messages": [*HELLO, {"role": "system", "content": 3}]}, "messages[1].content must be a string"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0]: 'bash_20250124' is a tool that"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "give a tool of your own with a name"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema must be a JSON schema"),
        ({"tools": [{"input_schema": {}}]}, "tools[0] has no name"),
        ({"tools": [{**WEATHER, "strict": "yes"}]}, "tools[0] ('weather').strict must be true or false"),
        (
            {"tools": [{"name": "f", "strict": True, "input_schema": {"$ref": "#/no"}}]},
            "tools[0].input_schema.$ref: '#/no' leads nowhere",
        ),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "maybe"}}, "tool_choice.type must be auto, any, tool or none, not 'maybe'"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "fly"}}, "'fly', which is not among the tools"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name must be"),
        ({"thinking": {"type": "sometimes"}}, "thinking.type must be one of enabled, adaptive"),
        ({"thinking": {"type": "enabled", "budget_tokens": "all"}}, "thinking.budget_tokens must be"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format must have a type of json_schema"),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"$ref": "#/no"}}}},
            "output_config.format.schema",
        ),
        (
            {
                "messages": [*HELLO, {"role": "assistant", "content": "{"}],
                "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
            },
            "output_config.format: JSON cannot be enforced in the middle of an answer",
        ),
        ({"output_config": {"effort": 3}}, "output_config.effort must be a word"),
        ({"stop_sequences": ["a", ""]}, "stop_sequences: an empty text"),
        ({"max_token": 3}, "did you mean max_tokens?"),
        ({"mcp_servers": [{}]}, "mcp_servers is not supported: connect to them in your program"),
        ({"container": "x"}, "container is not supported"),
    ],
)
def test_what_is_wrong_is_named_in_the_words_of_the_dialect(api: Scripted, more: dict[str, Any], said: str) -> None:
    message = refused(post(api, **more), 400)
    assert said in message
    assert "parameters" not in message
    assert "response_format" not in message


def test_other_errors(api: Scripted) -> None:
    assert "not served here" in refused(post(api, model="claude"), 404, "not_found_error")
    assert "there is no GET" in refused(patient_http.get(f"{api.server.url}/v1/messages"), 405)
    wrong = patient_http.get(f"{api.server.url}/v1/messages/batches", headers={"anthropic-version": "2023-06-01"})
    assert "there is no GET" in refused(wrong, 404, "not_found_error")
    threaded = post(api, thread={"id": "x"}).json()["error"]
    assert threaded["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    response = patient_http.post(
        f"{api.server.url}/v1/messages", content=b"{", headers={"Content-Type": "application/json"}
    )
    assert "not JSON" in refused(response, 400)
    assert "max_tokens is missing" in refused(
        patient_http.post(f"{api.server.url}/v1/messages", json={"messages": HELLO}), 400
    )


# What Claude Code sends


def test_fields_of_claude_code(api: Scripted) -> None:
    """All that version 2.1 sends, with a conversation of its kind."""
    block = thought(api)
    asked = {
        "model": "qwen",
        "max_tokens": 32_000,
        "stream": True,
        "metadata": {"user_id": '{"device_id": "x", "session_id": "y"}'},
        "thinking": {"type": "adaptive", "display": "updates"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "system": [text(BILLING), text("You are an agent.", **CACHED), text("\nYou help.", **CACHED)],
        "tools": [
            {
                **WEATHER,
                "defer_loading": True,
                "eager_input_streaming": True,
                "input_schema": {**SCHEMA, "$schema": "https://json-schema.org/draft/2020-12/schema"},
            }
        ],
        "messages": [
            {"role": "user", "content": [text("<system-reminder>"), text("Fix it.", **CACHED)]},
            {"role": "system", "content": "Available agents: none."},
            {
                "role": "assistant",
                "content": [block, text("I look."), {"type": "tool_use", "id": "t", "name": "weather", "input": {}}],
            },
            {
                "role": "user",
                "content": [{"tool_use_id": "t", "type": "tool_result", "content": "ok", "is_error": False, **CACHED}],
            },
        ],
    }
    api.say("Done.<|im_end|>")
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "claude-code-20250219", "x-api-key": "any"}
    response = patient_http.post(f"{api.server.url}/v1/messages?beta=true", json=asked, headers=headers)
    assert folded_message(read_events(response.text))["content"] == [text("Done.")]
    assert "<|im_start|>system\nAvailable agents: none.<|im_end|>" in api.prompt()
    assert "billing" not in api.prompt()
    assert patient_http.request("HEAD", f"{api.server.url}/").status_code == 200


def test_tools_that_come_and_go(api: Scripted) -> None:
    """What the prompt begins with stays, but for a tool that a message defines."""

    def system(*blocks: Any, **more: Any) -> dict[str, Any]:
        return {"role": "system", "content": list(blocks), **more}

    named = {"type": "tool_reference", "name": "weather"}
    comes, goes = {"type": "tool_addition", "tool": named}, {"type": "tool_removal", "tool": named}
    create(api, tools=[WEATHER], messages=[*HELLO, system(text("Well,"), comes), *HELLO, system(goes)])
    said = ("Well,\nThe tool weather can be called now.", "The tool weather can no longer be called.")
    assert all(f"<|im_start|>system\n{each}<|im_end|>" in api.prompt() for each in said)
    defined = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": WEATHER}}
    create(api, messages=[*HELLO, system(defined)])
    assert '"name": "weather"' in api.prompt()
    call = {"type": "tool_use", "id": "a", "name": "find", "input": {}}
    result = {
        "type": "tool_result",
        "tool_use_id": "a",
        "content": [{"type": "tool_reference", "tool_name": "weather"}],
    }
    create(api, messages=[*HELLO, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}])
    assert "The tool weather can be called now." in api.prompt()
    wrong = [*HELLO, system({"type": "tool_addition", "tool": {"type": "mcp_toolset_reference", "server_name": "x"}})]
    assert refused(post(api, messages=wrong), 400).startswith("messages[1].content[0] must be a text block")


def test_messages_of_the_system_for_one_turn(api: Scripted) -> None:
    once = {"role": "system", "content": "Only now.", "clear_at": "next_user_message"}
    create(api, messages=[*HELLO, once])
    assert "Only now." in api.prompt()
    create(api, messages=[*HELLO, once, {"role": "assistant", "content": "Hi."}, *HELLO])
    assert "Only now." not in api.prompt()
    messages = [*HELLO, {"role": "system", "output_config": {"effort": "max"}}]
    asked = MessagesRequest(messages=messages, max_tokens=9, output_config={"effort": "low"})
    assert task_of(api.service.seal, "", asked).template_kwargs == {"reasoning_effort": "max"}


def test_models(api: Scripted) -> None:
    def get(path: str) -> Any:
        return patient_http.get(api.server.url + path, headers={"anthropic-version": "2023-06-01"})

    found = get("/v1/models").json()
    (card,) = found["data"]
    assert (card["type"], card["id"], card["max_input_tokens"]) == ("model", "qwen", 4096)
    assert {key: value for key, value in found.items() if key != "data"} == {
        "has_more": False,
        "first_id": "qwen",
        "last_id": "qwen",
    }
    assert get("/v1/models/qwen").json() == card
    assert "not served here" in refused(get("/v1/models/other"), 404, "not_found_error")


def test_the_description_describes_what_is_taken(api: Scripted) -> None:
    described = patient_http.get(f"{api.server.url}/openapi.json").json()
    schema = described["paths"]["/v1/messages"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    whole = {**schema, "components": described["components"]}
    jsonschema.validate({"messages": HELLO, "max_tokens": 1, "tools": [WEATHER], "system": "x"}, whole)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"messages": HELLO}, whole)
    error = {**described["components"]["schemas"]["AnthropicError"], "components": described["components"]}
    jsonschema.validate(json.loads(post(api, max_tokens=0).text), error)


def test_stop_tokens_of_the_format_end_the_turn(api: Scripted) -> None:
    create(api)
    assert vocabulary(api.tokenizer).token_id("<|im_end|>") in api.engine.requests[-1].stop_tokens
