"""Traffic that the proxy recorded is checked as a probe's replies are."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest

from unbraid import renderer
from unbraid.cli import main
from unbraid.verify.attribution import Witness
from unbraid.verify.exchange import ProbeRequest
from unbraid.verify.probes import ASK_WEATHER, WEATHER
from unbraid.verify.recording import RecordingProxy, check_recording, read_exchanges
from unbraid.verify.server import VerifiedServer

from ..support.handler_server import served
from ..support.real_tokenizers import qwen3_config, qwen3_huggingface
from ..support.waiting import wait_for
from .faults import edits
from .faulty import Planted, faulty
from .obedient_model import Obedient
from .planted import planted_server


@contextmanager
def recorded(path: Path, upstream: str, *, ids: bool = False) -> Iterator[str]:
    with path.open("a", encoding="utf-8") as file:
        proxy = RecordingProxy(upstream, file, ids=ids)
        thread = threading.Thread(target=proxy.serve)
        thread.start()
        try:
            yield proxy.url
        finally:
            proxy.close()
            thread.join()


def test_traffic_is_handed_on_and_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "traffic.jsonl"
    request = ProbeRequest(text=ASK_WEATHER, tools=(WEATHER,), choice="required")
    with planted_server("unknown_name") as upstream, recorded(path, upstream) as url:
        endpoint = VerifiedServer(url, key="secret")
        replies = [endpoint.ask(request, stream=stream).reply for stream in (False, True)]
        endpoint.close()
    assert [[call.name for call in reply.calls] for reply in replies] == [["get_wether"]] * 2
    assert "secret" not in path.read_text(encoding="utf-8")
    result = check_recording(path, Witness())
    assert (result.trials, {each.fault.kind for each in result.faults}) == (2, {"unknown_name"})
    assert main(["verify", "--recording", str(path)]) == 1
    assert "unknown_name ×2" in capsys.readouterr().out


def test_the_same_requests_are_asked_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, before = tmp_path / "traffic.jsonl", tmp_path / "before.json"
    request = ProbeRequest(text=ASK_WEATHER, tools=(WEATHER,), choice="required")
    with planted_server("unknown_name") as upstream, recorded(path, upstream) as url:
        endpoint = VerifiedServer(url)
        for stream in (False, True):
            endpoint.ask(request, stream=stream)
        endpoint.close()
    assert main(["verify", "--recording", str(path), "--json", str(before)]) == 1
    again = ["--recording", str(path), "--baseline", str(before)]
    with planted_server("") as upstream:
        assert main(["verify", upstream, *again]) == 0
    assert "recording: failed → ok (-unknown_name)" in capsys.readouterr().out
    with planted_server("invalid_json") as upstream:
        assert main(["verify", upstream, *again]) == 1
    assert "calls in 2 of 2 replies" in capsys.readouterr().out


def test_a_bad_request_of_a_client_teaches_nothing(tmp_path: Path) -> None:
    path, good = tmp_path / "traffic.jsonl", {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0.5}
    rows = row("/v1/chat/completions", good | {"temperature": "warm"}, "{}", status=400)
    path.write_text(rows + row("/v1/chat/completions", good, "{}"), encoding="utf-8")
    wrong = '{"error": {"message": "the temperature is no number", "type": "bad", "param": "temperature"}}'
    obedient = Obedient()
    refusing = Planted(ask=lambda body: (400, wrong) if body["temperature"] == "warm" else body)
    with faulty(obedient, refusing) as upstream:
        server = VerifiedServer(upstream)
        asked = [(each.reply.status, each.body["temperature"]) for each in read_exchanges(path, server)]
        server.close()
    obedient.close()
    assert not server.refused
    assert asked == [(400, "warm"), (200, 0.5)]


@pytest.mark.parametrize(("options", "code"), [(None, 0), ({"include_usage": True}, 1)])
def test_a_stream_counts_tokens_if_it_is_asked_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: object, code: int
) -> None:
    path = tmp_path / "traffic.jsonl"
    choice = {"index": 0, "delta": {"content": "Hi."}, "finish_reason": "stop"}
    reply = (
        f"data: {json.dumps({'id': 'a', 'object': 'chat.completion.chunk', 'choices': [choice]})}\n\ndata: [DONE]\n\n"
    )
    request = {"model": "m", "messages": [], "stream": True, "stream_options": options}
    row = {"path": "/v1/chat/completions", "request": request, "status": 200, "reply": reply}
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    assert main(["verify", "--recording", str(path)]) == code, capsys.readouterr().out


def row(path: str, request: Any, reply: str, **more: Any) -> str:
    return json.dumps({"path": path, "request": request, "status": 200, "reply": reply, **more}) + "\n"


def found(path: Path) -> list[str]:
    return [str(each.fault) for each in check_recording(path, Witness()).faults]


@pytest.mark.parametrize("bad", [{"tools": 5}, {"tools": ["x"], "tool_choice": 3}, {"stream_options": "all"}, [1]])
def test_a_request_may_be_anything(tmp_path: Path, bad: Any) -> None:
    path = tmp_path / "traffic.jsonl"
    with planted_server("") as upstream, recorded(path, upstream) as url:
        httpx.post(f"{url}/chat/completions", json=bad)
        VerifiedServer(url).ask(ProbeRequest(text="Hello"), stream=False)
    assert check_recording(path, Witness()).trials == 1 + isinstance(bad, dict)


def test_a_reply_that_the_client_did_not_wait_for_is_no_fault(tmp_path: Path) -> None:
    path, said = tmp_path / "traffic.jsonl", 'data: {"id": "a", "choices": []}\n\n'
    gone = threading.Event()

    class Slow(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(said.encode())
            gone.wait(60)
            with suppress(OSError):  # many more, until the proxy sees that nobody reads them
                for _ in range(10_000):
                    self.wfile.write(said.encode() * 100)

        def log_message(self, format: str, *args: Any) -> None:
            """The tests' output is not its log."""

    with served(Slow) as upstream, recorded(path, upstream) as url:
        with httpx.stream("POST", f"{url}/chat/completions", json={"stream": True}) as response:
            next(response.iter_raw())
        gone.set()
        wait_for(lambda: path.read_text(encoding="utf-8").endswith("\n"))
    assert json.loads(path.read_text(encoding="utf-8"))["left"] is True
    result = check_recording(path, Witness())
    assert (result.trials, result.faults) == (0, ())


def test_a_stream_that_the_server_breaks_off_ends_for_the_client_too(tmp_path: Path) -> None:
    path = tmp_path / "traffic.jsonl"

    class Breaking(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"3\r\nabc\r\n")
            self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            """The tests' output is not its log."""

    with served(Breaking) as upstream, recorded(path, upstream) as url:
        reply = VerifiedServer(url, model="m", timeout=60).ask(ProbeRequest(text="Hello"), stream=True).reply
    assert "RemoteProtocolError" in reply.error
    assert [each.fault.kind for each in check_recording(path, Witness()).faults] == ["server_error"]


def test_calls_of_custom_tools_are_calls(tmp_path: Path) -> None:
    path, head = tmp_path / "traffic.jsonl", {"type": "custom", "custom": {"name": "run", "input": "ls"}}
    asked = {"tools": [{"type": "custom", "custom": {"name": "run"}}], "tool_choice": "required"}
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    whole = {"message": {"role": "assistant", "tool_calls": [{"id": "c", **head}]}, "finish_reason": "tool_calls"}
    deltas = [
        {"delta": {"tool_calls": [{"index": 0, "id": "c", **head}]}},
        {"delta": {"tool_calls": [{"index": 0, "custom": {"input": " -l"}}]}},
        {"delta": {}, "finish_reason": "tool_calls"},
    ]
    stream = "".join(f"data: {json.dumps({'id': 'a', 'choices': [each]})}\n\n" for each in deltas) + "data: [DONE]\n\n"
    rows = row("/v1/chat/completions", asked, json.dumps({"id": "b", "choices": [whole], "usage": usage}))
    path.write_text(rows + row("/v1/chat/completions", asked | {"stream": True}, stream), encoding="utf-8")
    assert not found(path)
    replies = [exchange.reply for exchange in read_exchanges(path)]
    assert [[(call.name, call.arguments) for call in reply.calls] for reply in replies] == [
        [("run", '{"input": "ls"}')],
        [("run", '{"input": "ls -l"}')],
    ]


def test_calls_of_custom_tools_are_calls_in_responses(tmp_path: Path) -> None:
    path = tmp_path / "traffic.jsonl"
    item = {"type": "custom_tool_call", "id": "i", "call_id": "c", "name": "run", "input": "ls", "status": "completed"}
    usage = {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8}
    response = {"id": "r", "status": "completed", "output": [item], "usage": usage}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": 0, "item": item | {"input": ""}},
        {"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": "ls"},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    ]
    asked = {"tools": [{"type": "custom", "name": "run"}], "tool_choice": "required"}
    stream = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    rows = row("/v1/responses", asked, json.dumps(response))
    path.write_text(rows + row("/v1/responses", asked | {"stream": True}, stream), encoding="utf-8")
    assert not found(path)
    assert [len(exchange.reply.calls) for exchange in read_exchanges(path)] == [1, 1]


def test_further_choices_do_not_mix_with_the_first(tmp_path: Path) -> None:
    path = tmp_path / "traffic.jsonl"
    chunks = [
        {"index": at, "delta": {"content": text}, "finish_reason": end}
        for text, end in (("Hi", None), (".", "stop"))
        for at in (0, 1)
    ]
    stream = "".join(f"data: {json.dumps({'id': 'a', 'choices': [each]})}\n\n" for each in chunks) + "data: [DONE]\n\n"
    path.write_text(row("/v1/chat/completions", {"n": 2, "stream": True}, stream), encoding="utf-8")
    assert not found(path)
    assert next(read_exchanges(path)).reply.content == "Hi."


def test_a_server_that_is_gone_is_said(tmp_path: Path) -> None:
    with recorded(tmp_path / "traffic.jsonl", "http://127.0.0.1:1") as url:
        reply = VerifiedServer(url, model="m").ask(ProbeRequest(text="Hello"), stream=False).reply
    assert reply.status == 502


def test_a_bad_line_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "traffic.jsonl"
    path.write_text(json.dumps({"path": "/v1/models", "request": {}, "status": 200, "reply": ""}) + "\nnonsense\n")
    assert main(["verify", "--recording", str(path)]) == 2
    assert "line 2" in capsys.readouterr().err


@pytest.mark.parametrize(("ids", "whose"), [(True, "parser"), (False, "model or parser")])
def test_recorded_ids_say_whose_a_fault_is(tmp_path: Path, ids: bool, whose: str) -> None:
    witness = Witness(renderer=renderer(qwen3_config()["chat_template"], qwen3_huggingface(), "qwen3"))
    path, obedient = tmp_path / "traffic.jsonl", Obedient()
    wrong = Planted(edits("name", lambda name: f"functions.{name}"))
    with faulty(obedient, wrong) as upstream, recorded(path, upstream, ids=ids) as url:
        server = VerifiedServer(url)
        for stream in (False, True):
            server.ask(ProbeRequest(text=ASK_WEATHER, tools=(WEATHER,)), stream=stream)
        server.close()
    obedient.close()
    result = check_recording(path, witness)
    assert [(each.fault.kind, each.whose) for each in result.faults] == [("unknown_name", whose)] * 2
