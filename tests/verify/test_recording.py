"""Traffic that the proxy recorded is checked as a probe's replies are."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from unbraid import renderer
from unbraid.cli import main
from unbraid.verify.attribution import Witness
from unbraid.verify.exchange import ProbeRequest
from unbraid.verify.probes import ASK_WEATHER, WEATHER
from unbraid.verify.recording import RecordingProxy, check_recording
from unbraid.verify.server import VerifiedServer

from ..support.real_tokenizers import qwen3_config, qwen3_huggingface
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
