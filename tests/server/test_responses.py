"""The Responses dialect on scripted outputs: items in, items out, streamed as told whole, stored and continued."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import ResponseItem
from pydantic import TypeAdapter

from unbraid import UnbraidError
from unbraid.engines import EngineFailed, Piece, PromptTooLong, TokenLogprob
from unbraid.engines.replay import Script, TimedPiece, script
from unbraid.server.storage.store import Store
from unbraid.tokens import vocabulary

from ..support import patient_http
from ..support.real_tokenizers import encode
from ..support.scripted_server import Scripted
from ..support.waiting import wait_for

WEATHER = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": {"type": "text"}}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich"}}\n</tool_call>'
KEYS = ("sesame", "second")


def call(name: str, arguments: dict[str, Any]) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store") / "responses.sqlite", 30)


@pytest.fixture
def api(running: Scripted, store: Store) -> Iterator[Scripted]:
    running.service.store = store
    yield running
    running.service.api_keys = ()


def events(api: Scripted, **body: Any) -> list[dict[str, Any]]:
    """The events of a stream. Checks what every stream must keep to."""
    response = patient_http.post(f"{api.server.url}/v1/responses", json={"stream": True, **body})
    assert response.status_code == 200, response.text
    *blocks, done, rest = response.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    found = []
    for number, block in enumerate(blocks):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        assert event["sequence_number"] == number
        found.append(event)
    assert [event["type"] for event in found[:2]] == ["response.created", "response.in_progress"]
    return found


def text_of(item: dict[str, Any]) -> str:
    parts = item.get("content") or item.get("summary")
    return str(parts[0]["text"] if parts else item.get("arguments", item.get("input")))


def told(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The output that the deltas tell, each item opened and closed once, one after the other."""
    items: list[dict[str, Any]] = []
    growing: list[str] | None = None
    for event in events:
        kind = event["type"]
        if kind == "response.output_item.added":
            assert growing is None
            assert event["output_index"] == len(items)
            growing, opened = [], event["item"]
            assert opened["status"] == "in_progress"
        elif kind.endswith(".delta"):
            assert growing is not None
            assert event["item_id"] == opened["id"]
            growing.append(event["delta"])
        elif kind == "response.output_item.done":
            assert growing is not None
            item = event["item"]
            assert item["id"] == opened["id"]
            assert "".join(growing) == text_of(item)
            items.append(item)
            growing = None
    assert growing is None
    return items


def without_ids(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in item.items() if key not in ("id", "call_id")} for item in output]


@pytest.mark.parametrize("chunks", [1, 3, 1000])
def test_reasoning_text_and_calls_are_items_in_order(api: Scripted, chunks: int) -> None:
    api.say(f"<think>\nTwo.\n</think>\n\nLet me see.\n{CALL}\n{CALL}<|im_end|>", chunks)
    whole = api.post("/responses", input="Weather?", tools=[WEATHER])
    assert [item["type"] for item in whole["output"]] == ["reasoning", "message", "function_call", "function_call"]
    reasoning, message, first, second = whole["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "Two."}]
    assert message["content"][0]["text"] == "Let me see."
    assert json.loads(first["arguments"]) == {"city": "Zürich"}
    assert first["call_id"] != second["call_id"]
    assert (whole["status"], whole["object"], whole["error"]) == ("completed", "response", None)
    streamed = events(api, input="Weather?", tools=[WEATHER])
    assert without_ids(told(streamed)) == without_ids(whole["output"])
    final = streamed[-1]
    assert final["type"] == "response.completed"
    assert without_ids(final["response"]["output"]) == without_ids(whole["output"])
    assert final["response"]["usage"]["output_tokens"] == whole["usage"]["output_tokens"] > 0


@pytest.mark.parametrize("broken", ["[1]", '{"city": }', '{"city": "a" "b": 1}'])
def test_a_call_that_is_broken_is_a_call_that_fails(api: Scripted, broken: str) -> None:
    api.say(f'<tool_call>\n{{"name": "weather", "arguments": {broken}}}\n</tool_call><|im_end|>')
    streamed = events(api, input="Weather?", tools=[WEATHER])
    final = streamed[-1]["response"]
    assert final["status"] == "completed"
    (item,) = final["output"]
    assert (item["type"], item["status"], item["arguments"].rstrip("\n}")) == (
        "function_call",
        "completed",
        broken.rstrip("}"),
    )
    assert told(streamed) == [item]
    assert without_ids(api.post("/responses", input="Weather?", tools=[WEATHER])["output"]) == without_ids([item])


@pytest.mark.parametrize("name", ["weather", "apply_patch"])
def test_a_cut_off_call_is_never_done(api: Scripted, name: str) -> None:
    cut = call(name, {"input": "*** Begin Patch: all of it"})[:-30]
    api.say(f"Hm.\n{cut}", ending="length")
    ask = {"input": "Weather?", "tools": [WEATHER, PATCH], "max_output_tokens": 30}
    whole = api.post("/responses", **ask)
    assert whole["status"] == "incomplete"
    assert whole["incomplete_details"] == {"reason": "max_output_tokens"}
    kind, key = ("function_call", "arguments") if name == "weather" else ("custom_tool_call", "input")
    assert [(item["type"], item["status"]) for item in whole["output"]] == [
        ("message", "completed"),
        (kind, "incomplete"),
    ]
    assert "*** Begin Pa" in whole["output"][1][key]
    streamed = events(api, **ask)
    final = streamed.pop()
    assert final["type"] == "response.incomplete"
    opened = [event["item"] for event in streamed if event["type"] == "response.output_item.added"]
    done = [event["item"]["id"] for event in streamed if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in opened][1:] == ["function_call" if name == "weather" else "custom_tool_call"]
    assert done == [opened[0]["id"]]
    assert not any(event["type"].endswith(("arguments.done", "input.done")) for event in streamed)
    assert without_ids(final["response"]["output"]) == without_ids(whole["output"])


def test_nothing_said_is_an_empty_message(api: Scripted) -> None:
    api.say("<|im_end|>")
    (message,) = api.post("/responses", input="Hello!")["output"]
    assert message["content"][0]["text"] == ""
    assert told(events(api, input="Hello!")) != []


def test_custom_tools_take_free_text(api: Scripted) -> None:
    text = '*** Begin Patch\n+ "ä" \\ \U0001f600\n*** End Patch\n'
    api.say(call("apply_patch", {"input": text}) + "<|im_end|>")
    whole = api.post("/responses", input="Fix it.", tools=[PATCH])
    (item,) = whole["output"]
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "apply_patch", text)
    assert without_ids(told(events(api, input="Fix it.", tools=[PATCH]))) == without_ids(whole["output"])
    api.say("Done.<|im_end|>")
    result = {"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "Success."}
    api.post("/responses", input=[{"role": "user", "content": "Fix it."}, item, result], tools=[PATCH])
    prompt = api.prompt()
    assert json.dumps({"input": text}, ensure_ascii=False) in prompt
    assert "Success." in prompt


def test_namespaces_are_shown_by_their_own_names_unless_that_is_ambiguous(api: Scripted) -> None:
    inner = {"type": "function", "name": "spawn", "parameters": {"type": "object"}}
    tools = [{"type": "namespace", "name": name, "tools": [inner, {**inner, "name": name}]} for name in ("a", "b")]
    api.say(call("b.spawn", {}) + call("a", {}) + "<|im_end|>")
    first, second = api.post("/responses", input="Go.", tools=tools)["output"]
    assert (first["namespace"], first["name"]) == ("b", "spawn")
    assert (second["namespace"], second["name"]) == ("a", "a")
    api.say("Ok.<|im_end|>")
    api.post(
        "/responses",
        input=[{"role": "user", "content": "Go."}, first, {**second, "type": "function_call"}],
        tools=tools,
    )
    assert '"name": "b.spawn"' in api.prompt()
    top = {"type": "function_call", "call_id": "c", "name": "spawn", "arguments": "{}"}
    api.post("/responses", input=[{"role": "user", "content": "Go."}, top], tools=[*tools, inner])
    assert '"name": "spawn", "arguments"' in api.prompt()


def test_reasoning_goes_back_as_items_as_seal_and_as_summary(api: Scripted) -> None:
    api.say(f"<think>\nA secret plan.\n</think>\n\n{CALL}<|im_end|>")
    ask: dict[str, Any] = {
        "input": [{"role": "user", "content": "Weather?"}],
        "tools": [WEATHER],
        "store": False,
    }
    plain = api.post("/responses", **ask)["output"]
    sealed = api.post("/responses", **ask, include=["reasoning.encrypted_content"])["output"]
    summed = api.post("/responses", **ask, reasoning={"summary": "auto"})["output"]
    assert "content" not in summed[0]
    assert summed[0]["summary"] == [{"type": "summary_text", "text": "A secret plan."}]
    bare: dict[str, Any] = {"type": "reasoning", "summary": [], "encrypted_content": sealed[0]["encrypted_content"]}
    assert "secret" not in bare["encrypted_content"]
    api.say("Sunny.<|im_end|>")
    for output in (plain, sealed, summed, [bare, *sealed[1:]]):
        result = {"type": "function_call_output", "call_id": output[1]["call_id"], "output": "warm"}
        api.post("/responses", **{**ask, "input": [*ask["input"], *output, result]})
        assert "<think>\nA secret plan.\n</think>" in api.prompt()


def test_reasoning_that_somebody_else_sealed_is_refused(api: Scripted) -> None:
    api.say("<think>\nHm.\n</think>\n\nHi.<|im_end|>")
    api.service.api_keys = KEYS
    ask = {"input": "Hi", "include": ["reasoning.encrypted_content"], "store": False}
    theirs = patient_http.post(
        f"{api.server.url}/v1/responses", json=ask, headers={"Authorization": f"Bearer {KEYS[0]}"}
    ).json()["output"][0]["encrypted_content"]
    for content in (theirs, "gAAAAnonsense"):
        item: dict[str, Any] = {"type": "reasoning", "summary": [], "encrypted_content": content}
        refused = patient_http.post(
            f"{api.server.url}/v1/responses",
            json={"input": [item, {"role": "user", "content": "Hi"}]},
            headers={"x-api-key": KEYS[1]},
        )
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "input[0].encrypted_content"


def test_a_conversation_goes_on_from_what_is_stored(api: Scripted) -> None:
    api.say(f"<think>\nLook.\n</think>\n\nLet me see.\n{CALL}<|im_end|>")
    first = api.post("/responses", input="Weather?", instructions="Be brief.", tools=[WEATHER])
    api.say("Warm.<|im_end|>")
    result = {"type": "function_call_output", "call_id": first["output"][2]["call_id"], "output": "21 °C"}
    second = api.post("/responses", input=[result], previous_response_id=first["id"], tools=[WEATHER])
    prompt = api.prompt()
    for part in ("Weather?", "Let me see.", "Zürich", "21 °C"):
        assert part in prompt
    assert "Be brief." not in prompt, "instructions are of one request"
    url = f"{api.server.url}/v1/responses/{second['id']}"
    assert patient_http.get(url).json() == second
    items = patient_http.get(f"{url}/input_items?order=asc&limit=3").json()
    assert [item["type"] for item in items["data"]] == ["message", "reasoning", "message"]
    assert items["has_more"]
    rest = patient_http.get(f"{url}/input_items?order=asc&after={items['last_id']}").json()
    assert [item["type"] for item in rest["data"]] == ["function_call", "function_call_output"]
    reference = {"type": "item_reference", "id": first["output"][1]["id"]}
    api.post("/responses", input=[reference, {"role": "user", "content": "And now?"}])
    assert "Let me see." in api.prompt()
    assert patient_http.delete(url).json()["deleted"]
    assert patient_http.get(url).status_code == 404
    assert patient_http.delete(url).status_code == 404


def test_an_item_that_is_referred_to_outlives_its_response(api: Scripted) -> None:
    api.say("The first answer.<|im_end|>")
    first = api.post("/responses", input="Hello!")
    reference = {"type": "item_reference", "id": first["output"][0]["id"]}
    second = api.post("/responses", input=[reference, {"role": "user", "content": "Go on."}])
    url = f"{api.server.url}/v1/responses/{second['id']}/input_items?order=asc"
    assert [item["type"] for item in patient_http.get(url).json()["data"]] == ["message", "message"]
    patient_http.delete(f"{api.server.url}/v1/responses/{first['id']}")
    for ask in ({"previous_response_id": second["id"], "input": "More."}, {"input": [reference]}):
        api.post("/responses", **ask)
        assert "The first answer." in api.prompt()


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_logprobs_are_those_of_the_answer(api: Scripted, size: int) -> None:
    ids = encode(api.tokenizer, f"<think>\nHello.\n</think>\n\nHello, Zürich.\n{CALL}<|im_end|>")
    known = vocabulary(api.tokenizer)
    logprobs = [TokenLogprob(token, known.token_bytes(token) or b"", -0.5) for token in ids]
    pieces = [
        Piece(tuple(ids[at : at + size]), None, tuple(logprobs[at : at + size])) for at in range(0, len(ids), size)
    ]
    api.choose = lambda _: Script(tuple(map(TimedPiece, pieces)))
    ask = {"input": "Hi", "tools": [WEATHER], "include": ["message.output_text.logprobs"]}
    for output in (api.post("/responses", **ask)["output"], events(api, **ask)[-1]["response"]["output"]):
        (message,) = [item for item in output if item["type"] == "message"]
        told = "".join(one["token"] for one in message["content"][0]["logprobs"])
        assert told.strip() == text_of(message) == "Hello, Zürich."


def test_items_are_listed_as_the_client_has_them(api: Scripted) -> None:
    api.say("Hi.<|im_end|>")
    call_item = {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "warm"}
    asked = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "Let me see."},
        call_item,
        result,
    ]
    made = api.post("/responses", input=asked, tools=[WEATHER])
    url = f"{api.server.url}/v1/responses/{made['id']}"
    items = patient_http.get(f"{url}/input_items?order=asc").json()["data"]
    checks: Any = TypeAdapter(ResponseItem)
    assert [checks.validate_python(item, strict=True).type for item in items] == [
        "message",
        "message",
        "function_call",
        "function_call_output",
    ]
    for query in ("/input_items?order=up", "/input_items?limit=0", "?stream=true"):
        assert patient_http.get(url + query).status_code == 400


def test_a_call_that_was_cut_off_goes_back_as_text(api: Scripted) -> None:
    api.say(CALL[:-25], ending="length")
    cut = events(api, input="Weather?", tools=[WEATHER])[-1]["response"]
    assert (cut["output"][0]["type"], cut["output"][0]["status"]) == ("function_call", "incomplete")
    call_item = {
        "type": "function_call",
        "call_id": "c",
        "name": "weather",
        "arguments": '{"ci',
        "status": "incomplete",
    }
    api.say("Again.<|im_end|>")
    api.post("/responses", input="Go on.", previous_response_id=cut["id"], tools=[WEATHER])
    assert f"weather {cut['output'][0]['arguments']}" in api.prompt()
    question = {"role": "user", "content": "Weather?"}
    api.post("/responses", input=[question, call_item, {"role": "user", "content": "Go on."}], tools=[WEATHER])
    turn = api.prompt().rpartition("Weather?")[2]
    assert "<tool_call>" not in turn
    assert '{"ci' in turn


def test_what_is_incomplete_at_the_end_goes_on(api: Scripted) -> None:
    question = {"role": "user", "content": "Weather?"}
    call = {"call_id": "c", "name": "weather", "arguments": '{"city": "Pa', "status": "incomplete"}
    api.say('ris"}}\n</tool_call><|im_end|>')
    reply = api.post("/responses", input=[question, {"type": "function_call", **call}], tools=[WEATHER])
    assert api.prompt().endswith('{"city": "Pa')
    assert [(each["call_id"], each["arguments"]) for each in reply["output"]] == [("c", '{"city": "Paris"}')]
    api.say(" sunny.<|im_end|>")
    half = {"type": "message", "role": "assistant", "status": "incomplete", "content": "It is"}
    reply = api.post("/responses", input=[question, half])
    assert api.prompt().endswith("It is")
    assert reply["output"][0]["content"][0]["text"] == " sunny."


def test_a_custom_tool_goes_on_inside_its_text(api: Scripted) -> None:
    custom = {"type": "custom", "name": "note"}
    cut = {"type": "custom_tool_call", "call_id": "c", "name": "note", "input": "a lin", "status": "incomplete"}
    api.say('e"}}\n</tool_call><|im_end|>')
    reply = api.post("/responses", input=[{"role": "user", "content": "Hi."}, cut], tools=[custom])
    assert api.prompt().endswith('{"input": "a lin')
    assert [(each["call_id"], each["input"]) for each in reply["output"]] == [("c", "a line")]


def test_a_response_is_kept_however_its_stream_ends(api: Scripted) -> None:
    ids = encode(api.tokenizer, "Half of it")
    api.choose = lambda _: script(ids).failing(2, EngineFailed("it broke"))
    failed = events(api, input="Hello!")[-1]["response"]
    assert patient_http.get(f"{api.server.url}/v1/responses/{failed['id']}").json() == failed
    assert failed["usage"] is None
    api.choose = lambda _: script(ids).hanging(2)
    with httpx.stream("POST", f"{api.server.url}/v1/responses", json={"input": "Hello!", "stream": True}) as response:
        told = next(line for line in response.iter_lines() if line.startswith("data: "))
        left = json.loads(told.removeprefix("data: "))["response"]["id"]
        url = f"{api.server.url}/v1/responses/{left}"
    wait_for(lambda: patient_http.get(url).status_code == 200)
    assert patient_http.get(url).json()["status"] == "cancelled"


def test_nothing_of_one_key_is_seen_by_another(api: Scripted) -> None:
    api.say("Hi.<|im_end|>")
    api.service.api_keys = KEYS
    mine, other = ({"Authorization": f"Bearer {key}"} for key in KEYS)
    made = patient_http.post(f"{api.server.url}/v1/responses", json={"input": "Hello!"}, headers=mine).json()
    url = f"{api.server.url}/v1/responses/{made['id']}"
    for path in ("", "/input_items"):
        assert patient_http.get(url + path, headers=mine).status_code == 200
        assert patient_http.get(url + path, headers=other).status_code == 404
    assert patient_http.delete(url, headers=other).status_code == 404
    assert patient_http.post(f"{url}/cancel", headers=other).status_code == 404
    for body in (
        {"previous_response_id": made["id"], "input": "Go on."},
        {"input": [{"type": "item_reference", "id": made["output"][0]["id"]}]},
    ):
        assert patient_http.post(f"{api.server.url}/v1/responses", json=body, headers=other).status_code in (400, 404)
    assert patient_http.delete(url, headers=mine).status_code == 200


def test_in_the_background(api: Scripted) -> None:
    api.say("Hi.<|im_end|>")
    made = api.post("/responses", input="Hello!", background=True)
    assert made["status"] == "queued"
    url = f"{api.server.url}/v1/responses/{made['id']}"
    wait_for(lambda: patient_http.get(url).json()["status"] == "completed")
    assert patient_http.get(url).json()["output"][0]["content"][0]["text"] == "Hi."
    ids = encode(api.tokenizer, "Half of it")
    api.choose = lambda _: script(ids).hanging(2)
    made = api.post("/responses", input="Hello!", background=True)
    url = f"{api.server.url}/v1/responses/{made['id']}"
    wait_for(lambda: api.engine.load.running == 1)
    early = patient_http.post(f"{api.server.url}/v1/responses", json={"previous_response_id": made["id"], "input": "x"})
    assert (early.status_code, early.json()["error"]["param"]) == (400, "previous_response_id")
    assert patient_http.post(f"{url}/cancel").json()["status"] == "cancelled"
    assert patient_http.get(url).json()["status"] == "cancelled"
    wait_for(lambda: api.engine.load.running == 0)
    api.choose = lambda _: script(ids).failing(2, EngineFailed("it broke"))
    made = api.post("/responses", input="Hello!", background=True)
    url = f"{api.server.url}/v1/responses/{made['id']}"
    wait_for(lambda: patient_http.get(url).json()["status"] == "failed")
    assert "it broke" in patient_http.get(url).json()["error"]["message"]


def test_a_response_whose_process_is_gone_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    response: dict[str, Any] = {"id": "resp_1", "status": "in_progress", "error": None, "output": []}
    store = Store(tmp_path / "responses.sqlite", 30)
    store.put("me", [], response)
    found = store.get("me", "resp_1")
    assert found is not None
    assert found.response["status"] == "in_progress"
    assert store.beat("me", "resp_1")
    monkeypatch.setattr("unbraid.server.storage.store.SILENCE", -1.0)
    found = store.get("me", "resp_1")
    assert found is not None
    assert found.response["status"] == "failed"
    assert "ended" in found.response["error"]["message"]


def test_another_process_may_cancel_what_runs(api: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unbraid.server.responses.routes.BEAT", 0.01)
    api.choose = lambda _: script(encode(api.tokenizer, "Half of it")).hanging(2)
    made = api.post("/responses", input="Hello!", background=True)
    url = f"{api.server.url}/v1/responses/{made['id']}"
    wait_for(lambda: api.engine.load.running == 1)
    api.service.store.cancel("", made["id"])  # as another process would, which has the same file
    assert patient_http.get(url).json()["status"] == "cancelled", "it is told so at once"
    wait_for(lambda: api.engine.load.running == 0)
    assert patient_http.get(url).json()["status"] == "cancelled"


def test_an_answer_that_cannot_be_stored_is_given_all_the_same(api: Scripted, tmp_path: Path) -> None:
    api.say("Hi.<|im_end|>")
    usual, api.service.store = api.service.store, Store(tmp_path / "responses.sqlite", 30)
    api.service.store.close()
    try:
        whole = api.post("/responses", input="Hello!")
        assert (text_of(whole["output"][0]), whole["store"]) == ("Hi.", False)
        assert events(api, input="Hello!")[-1]["type"] == "response.completed"
    finally:
        api.service.store = usual


def test_a_conversation_that_goes_on_is_kept_as_a_whole(tmp_path: Path) -> None:
    store = Store(tmp_path / "responses.sqlite", 30)
    first: dict[str, Any] = {"id": "resp_1", "status": "completed", "output": []}
    store.put("me", [], first)
    with sqlite3.connect(tmp_path / "responses.sqlite") as database:
        database.execute("UPDATE responses SET created = 0")
    database.close()
    assert store.get("me", "resp_1") is None
    store.put("me", [], {**first, "id": "resp_2", "previous_response_id": "resp_1"})
    assert store.get("me", "resp_1") is not None


def test_a_conversation_goes_on_without_what_was_deleted(api: Scripted) -> None:
    api.say("The answer.<|im_end|>")
    tools = {"type": "additional_tools", "tools": [WEATHER]}
    first = api.post("/responses", input=[tools, {"role": "user", "content": "First."}])
    second = api.post("/responses", input="Second.", previous_response_id=first["id"])
    assert '"name": "weather"' in api.prompt(), "tools among the items are of the conversation"
    patient_http.delete(f"{api.server.url}/v1/responses/{first['id']}")
    api.post("/responses", input="Third.", previous_response_id=second["id"])
    assert "First." not in api.prompt()
    assert "Second." in api.prompt()


def test_a_store_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "responses.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version=77")
    database.close()
    with pytest.raises(UnbraidError, match="another version of unbraid made it"):
        Store(path, 30)


def test_what_was_deleted_does_not_come_back(tmp_path: Path) -> None:
    response: dict[str, Any] = {"id": "resp_1", "status": "completed", "output": []}
    store = Store(tmp_path / "responses.sqlite", 30)
    store.put("me", [], response)
    assert store.delete("me", "resp_1")
    store.put("me", [], response, again=True)
    assert store.get("me", "resp_1") is None


def test_a_stream_that_fails_says_so(api: Scripted) -> None:
    ids = encode(api.tokenizer, "Half of it")
    api.choose = lambda _: script(ids).failing(2, EngineFailed("it broke"))
    last = events(api, input="Hello!")[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["error"] == {"code": "server_error", "message": "it broke"}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"input": [{"role": "robot", "content": "Hi"}]}, "input[0].role"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}]}, "input[0].content[0]"),
    ({"input": [{"type": "web_search_call", "id": "ws_1"}]}, "input[0]"),
    ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0].call_id"),
    ({"input": "Hi", "tools": [{"type": "web_search"}]}, "tools[0]"),
    ({"input": "Hi", "tools": [WEATHER, {"type": "mcp", "server_url": "x"}]}, "tools[1]"),
    ({"input": "Hi", "tools": [WEATHER], "tool_choice": {"type": "file_search"}}, "tool_choice"),
    (
        {
            "input": "Hi",
            "tools": [{"type": "namespace", "name": "a", "tools": [WEATHER, {**WEATHER, "strict": "yes"}]}],
        },
        "tools[0].tools[1].strict",
    ),
    ({"input": "Hi", "tools": [WEATHER], "tool_choice": {"type": "function", "name": "nix"}}, "tool_choice"),
    ({"input": "Hi", "include": ["everything"]}, "include[0]"),
    ({"input": "Hi", "text": {"format": {"type": "yaml"}}}, "text.format"),
    ({"input": "Hi", "conversation": "conv_1"}, "conversation"),
    ({"input": "Hi", "n": 2}, "n"),
    ({"input": "Hi", "guided_json": {}}, "guided_json"),
    ({"input": "Hi", "text": {"formt": {"type": "json_object"}}}, "text.formt"),
    ({"input": "Hi", "reasoning": {"efort": "low"}}, "reasoning.efort"),
    ({"input": [{"id": ["a"], "role": "user", "content": "Hi"}]}, "input[0].id"),
    ({"input": [{"type": "additional_tools", "tools": ["x"]}, {"role": "user", "content": "Hi"}]}, "input[0].tools[0]"),
    ({"input": "Hi", "previous_response_id": "resp_nope"}, "previous_response_id"),
    ({"input": "Hi", "background": True, "stream": True}, "stream"),
    ({"input": "Hi", "background": True, "store": False}, "background"),
    ({}, "input"),
]


@pytest.mark.parametrize(("body", "param"), REFUSED, ids=lambda value: str(value)[:60])
def test_what_is_wrong_is_named(api: Scripted, body: dict[str, Any], param: str) -> None:
    api.say("Hi.<|im_end|>")
    refused = patient_http.post(f"{api.server.url}/v1/responses", json=body)
    assert refused.status_code == 400, refused.text
    assert refused.json()["error"]["param"] == param
    assert "messages" not in refused.json()["error"]["message"]


def test_a_prompt_that_is_too_long_is_told_of_the_input(api: Scripted) -> None:
    api.choose = lambda _: script("").failing(0, PromptTooLong("5000 tokens are too many"))
    refused = patient_http.post(f"{api.server.url}/v1/responses", json={"input": "Hi"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input")


def test_a_conversation_that_is_too_long_loses_its_oldest_turns(api: Scripted) -> None:
    api.say("Hi.<|im_end|>")
    turns = [
        item
        for at in range(60)
        for item in (
            {"role": "user", "content": f"Question {at}. " + "word " * 100},
            {"role": "assistant", "content": f"Answer {at}."},
        )
    ]
    ask = {"instructions": "Be brief.", "input": [*turns, {"role": "user", "content": "The last one."}]}
    api.post("/responses", **ask)
    assert "Question 0." in api.prompt()
    assert api.post("/responses", **ask, truncation="auto")["truncation"] == "auto"
    prompt = api.prompt()
    assert "Question 0." not in prompt
    assert prompt.index("Be brief.") < prompt.index("Question 59.") < prompt.index("The last one.")


def test_more_tokens_than_there_is_room_for_are_as_many_as_there_is(api: Scripted) -> None:
    api.say("Hi.<|im_end|>")
    assert api.post("/responses", input="Hello!", max_output_tokens=32_000)["status"] == "completed"
    asked = api.engine.requests[-1]
    assert asked.max_tokens == 4096 - len(asked.prompt)


def test_the_openai_client(api: Scripted) -> None:
    client = openai.OpenAI(base_url=f"{api.server.url}/v1", api_key="any")
    api.say(f"<think>\nHm.\n</think>\n\nLet me see.\n{CALL}<|im_end|>")
    tool: Any = {**WEATHER, "strict": True}
    with client.responses.stream(model="qwen", input="Weather?", tools=[tool]) as stream:
        final = stream.get_final_response()
    assert final.output_text == "Let me see."
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    assert client.responses.retrieve(final.id).output_text == "Let me see."
    assert [item.type for item in client.responses.input_items.list(final.id)] == ["message"]
    client.responses.delete(final.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(final.id)
    with pytest.raises(openai.BadRequestError, match="run at the vendor"):
        client.responses.create(model="qwen", input="Hi", tools=[{"type": "web_search"}])


def test_a_killed_process_loses_nothing_that_was_stored(tmp_path: Path) -> None:
    """SQLite's promise, kept by how we use it: what was put is there for another process that opens the file."""
    response = {"id": "resp_1", "status": "completed", "output": [{"id": "msg_1", "type": "message"}]}
    store = Store(tmp_path / "folder" / "responses.sqlite", 30)
    store.put("me", [{"id": "item_1", "role": "user", "content": "Hi"}], response)
    other = Store(tmp_path / "folder" / "responses.sqlite", 30)  # the first one was never closed
    found = other.get("me", "resp_1")
    assert found is not None
    assert found.response == response
    assert other.get("you", "resp_1") is None
    assert other.item("me", "msg_1") == {"id": "msg_1", "type": "message"}
    assert other.item("you", "msg_1") is None
    assert other.secret() == store.secret()
    assert Store(tmp_path / "folder" / "responses.sqlite", 0).get("me", "resp_1") is None
