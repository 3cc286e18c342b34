"""No request keeps the event loop busy for long, however large it or its reply is: the loop answers all the others.

What is measured is the longest turn of the loop, in CPU time of its thread, beside a piece of work of some 10 ms in the
same run (`moment`). What the interpreter does in other threads without letting the loop go on is not seen here: that
no large body is decoded there is in `test_large_requests.py`.
"""

from __future__ import annotations

import base64
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from unbraid.engines import Generation, Piece, TokenLogprob
from unbraid.engines.replay import Script, TimedPiece, script
from unbraid.server.planning.planner import Planner
from unbraid.server.storage.store import Store

from ..support import patient_http
from ..support.attacks import HELLO, Body, tool
from ..support.loop_watch import moment, watched
from ..support.real_tokenizers import encode
from ..support.scripted_server import Scripted

pytestmark = pytest.mark.system

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": [1, 2]}}\n</tool_call>\n'
MOMENTS = 4
"""The longest turn of the loop."""
ROUTES: dict[str, Body] = {
    "/chat/completions": {"messages": HELLO, "tools": [tool({})]},
    "/completions": {"prompt": "x"},
    "/responses": {"input": "x", "tools": [{"type": "function", "name": "f"}]},
    "/messages": {"messages": HELLO, "max_tokens": 9, "tools": [{"name": "f", "input_schema": {}}]},
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    scripted = Scripted(fast=False)
    model = scripted.service.models[0].model
    model.syntax, model.constrain_auto, model.loose_schemas = "gbnf", True, True
    scripted.engine.context = 1_000_000
    scripted.service.planner = Planner(2, 20.0)
    scripted.service.planner.add(model)
    scripted.service.store = Store(Path(tmp_path_factory.mktemp("store")) / "responses", 1)
    scripted.server.start()
    scripted.server.call(scripted.service.planner.warm)
    scripted.say("Hello.")
    for path, body in ROUTES.items():  # what is done once is done
        scripted.post(path, **body)
        post(scripted, path, {**body, "stream": True})
    yield scripted
    scripted.server.stop()
    gc.unfreeze()  # what `watched` has hidden


def post(running: Scripted, path: str, body: Body) -> int:
    return patient_http.post(f"{running.server.url}/v1{path}", json=body).status_code


def check(running: Scripted, path: str, body: Body, statuses: tuple[int, ...] = (200,)) -> None:
    with watched() as watch:
        assert post(running, path, body) in statuses
    assert watch.seconds < MOMENTS * moment(), str(watch)


LONG = "ab c1! " * 50_000
REQUESTS: dict[str, tuple[str, Body]] = {
    "a long text": ("/chat/completions", {"messages": [{"role": "user", "content": "ab c1! " * 300_000}]}),
    "many values": ("/chat/completions", {"messages": HELLO, "documents": [{"a": []}] * 95_000}),
    "a body that is read at once": ("/chat/completions", {"messages": HELLO, "documents": [{"a": []}] * 9_900}),
    "audio": (
        "/chat/completions",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "input_audio",
                            "input_audio": {"data": base64.b64encode(bytes(20_000_000)).decode(), "format": "wav"},
                        }
                    ],
                }
            ]
        },
    ),
    "many choices and tools": (
        "/chat/completions",
        {"messages": HELLO, "n": 128, "tools": [tool({"type": "object"}, description="x" * 1_000)]},
    ),
    "the ids of a long chat": (
        "/chat/completions",
        {"messages": [{"role": "user", "content": LONG}], "return_token_ids": True},
    ),
    "many ids": ("/completions", {"prompt": [100] * 299_000}),
    "many ids, told again": (
        "/completions",
        {"prompt": [100] * 200_000, "return_token_ids": True, "echo": True, "n": 8},
    ),
    "many prompts": ("/completions", {"prompt": ["x"] * 128}),
    "many blocks": (
        "/messages",
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 20_000}], "max_tokens": 5},
    ),
    "counting": ("/messages/count_tokens", {"messages": [{"role": "user", "content": LONG}]}),
    "many items": ("/responses", {"input": [{"role": "user", "content": "ab"}] * 19_000}),
    "long instructions": ("/responses", {"input": "x", "instructions": LONG, "stream": True}),
    "tokens": ("/tokenize", {"prompt": LONG, "return_token_strs": True}),
    "parsing": ("/parse", {"text": CALL * 2_000, "unknown_tools": "emit"}),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_large_request(running: Scripted, name: str) -> None:
    running.say("Hello.")
    path, body = REQUESTS[name]
    check(running, path, body, (200, 400))


JSON_ROUTES = (*ROUTES, "/messages/count_tokens", "/parse", "/tokenize")


@pytest.mark.parametrize("path", JSON_ROUTES)
@pytest.mark.parametrize(
    "body",
    [b'{"x": [' + b'{"a":[]},' * 2_000_000, b'{"x": "' + b"ab c1! " * 4_000_000, b" " * 63_000_000 + b"{"],
    ids=["objects", "text", "space"],
)
def test_tens_of_megabytes_that_are_no_request(running: Scripted, path: str, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    with watched() as watch:
        response = patient_http.post(f"{running.server.url}/v1{path}", content=body, headers=headers)
    assert response.status_code in (400, 413), response.text
    assert watch.seconds < MOMENTS * moment(), str(watch)


def test_a_long_conversation_that_is_stored(running: Scripted) -> None:
    running.say("Hello.")
    id = None
    for _ in range(4):
        items = [{"role": "user", "content": "ab c1! " * 20}] * 400
        id = running.post("/responses", input=items, previous_response_id=id)["id"]
    check(running, "/responses", {"input": "x", "previous_response_id": id})
    with watched() as watch:
        listed = patient_http.get(f"{running.server.url}/v1/responses/{id}/input_items?limit=100")
        assert listed.json()["has_more"]
    assert watch.seconds < MOMENTS * moment(), str(watch)


def outputs(running: Scripted) -> dict[str, Script]:
    ids = encode(running.tokenizer, "Hello there, how are you? ") * 4_000
    call = encode(running.tokenizer, CALL)
    begin, end = (encode(running.tokenizer, text) for text in CALL.split("[1, 2]"))
    open, text, close = begin, encode(running.tokenizer, '"'), end
    return {
        "a long text": script(ids, chunks=100),
        "a long text in one piece": script(ids, chunks=len(ids)),
        "many calls": script(call * 1_500, chunks=100),
        "many calls in one piece": script(call * 1_500, chunks=10**9),
        "a long call": script([*open, *text, *ids, *text, *close], chunks=100),
        "a long call that is cut off": script([*open, *text, *ids], chunks=100, ending="length"),
    }


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_large_reply(running: Scripted, path: str, stream: bool) -> None:
    for name, said in outputs(running).items():
        running.choose = _always(said)
        try:
            check(running, path, {**ROUTES[path], "stream": stream})
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/chat/completions", {"logprobs": True, "top_logprobs": 20}),
        ("/completions", {"logprobs": 5}),
        ("/responses", {"include": ["message.output_text.logprobs"], "top_logprobs": 20}),
    ],
)
def test_logprobs(running: Scripted, path: str, asked: Body) -> None:
    (token,) = encode(running.tokenizer, "a")
    top = tuple(TokenLogprob(token, b"a", -1.0) for _ in range(20))
    pieces = [Piece((token,), logprobs=(TokenLogprob(token, b"a", -1.0, top),))] * 4_000
    running.choose = _always(Script(tuple(map(TimedPiece, pieces))))
    check(running, path, {**ROUTES[path], **asked})


def _always(said: Script) -> Any:
    def choose(_: Generation) -> Script:
        return said

    return choose
