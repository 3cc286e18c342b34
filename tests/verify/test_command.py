"""The command `unbraid verify`: what it prints and writes, and its exit codes."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from unbraid.cli import main
from unbraid.verify.checks import Fault
from unbraid.verify.exchange import ObservedReply, ProbeRequest, VerifyExchange
from unbraid.verify.report import as_junit, compared, report
from unbraid.verify.running import Blamed, ProbeResult

from .planted import planted_server


def test_the_command_writes_its_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {name: tmp_path / f"report.{name}" for name in ("json", "junit", "html")}
    options = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    with planted_server("invalid_json") as url:
        assert main(["verify", url, "--probe", "required", "--probe", "answer", *options]) == 1
    printed = capsys.readouterr().out
    assert "ok      answer" in printed
    assert "failed  required" in printed
    assert "invalid_json" in printed
    report = json.loads(files["json"].read_text(encoding="utf-8"))
    assert not report["ok"]
    (probe,) = (probe for probe in report["probes"] if probe["verdict"] == "failed")
    fault = probe["faults"][0]
    assert fault["kind"] == "invalid_json"
    assert json.loads(fault["reply"])["choices"][0]["message"]["tool_calls"]
    assert 'type="invalid_json"' in files["junit"].read_text(encoding="utf-8")
    assert "the arguments of a call are not JSON" in files["html"].read_text(encoding="utf-8")


def test_a_baseline_fails_only_on_what_is_worse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, probes = tmp_path / "old.json", ["--probe", "required"]
    with planted_server("usage_wrong") as url:
        assert main(["verify", url, *probes, "--json", str(old)]) == 1
        assert main(["verify", url, *probes, "--baseline", str(old)]) == 0
    assert "no difference from the baseline" in capsys.readouterr().out
    with planted_server("unknown_name") as url:
        assert main(["verify", url, *probes, "--baseline", str(old)]) == 1
    assert "+unknown_name, -usage_wrong" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["verify"], "which server?"),
        (["verify", "http://127.0.0.1:1", "--model", "m"], "cannot be reached"),
        (["verify", "--recording", "nowhere.jsonl"], "there is no file"),
    ],
)
def test_bad_input_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert said in capsys.readouterr().err


def test_an_unknown_probe_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with planted_server() as url:
        assert main(["verify", url, "--probe", "nonsense"]) == 2
    assert "choose from answer, stream" in capsys.readouterr().err


def test_the_reports_say_what_the_server_did_not_take(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {name: tmp_path / f"report.{name}" for name in ("json", "junit", "html")}
    options = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    with planted_server("max_tokens_refused") as url:
        assert main(["verify", url, "--probe", "answer", *options]) == 0
    said = "max_tokens was sent as max_completion_tokens; the server says: "
    assert f"note    {said}" in capsys.readouterr().out
    assert json.loads(files["json"].read_text())["refused"]["max_tokens"]["remedy"] == "sent as max_completion_tokens"
    assert said in files["html"].read_text()
    assert said in str(ElementTree.fromstring(files["junit"].read_text()).findtext("system-out"))


def reported(whose: str, name: str = "auto") -> dict[str, Any]:
    exchange = VerifyExchange(request=ProbeRequest(text=""), body={}, streamed=False, raw="", reply=ObservedReply())
    faults = () if not whose else (Blamed(Fault("unknown_name", "get_wether"), exchange, whose),)
    return report([ProbeResult(name, "calls", 1, 1, faults, 2)], url="http://host", model="m", api="chat")


@pytest.mark.parametrize(
    ("whose", "verdict", "failures", "skipped"),
    [("model", "model", 0, 1), ("parser", "failed", 1, 0), ("model or parser", "failed", 1, 0), ("", "ok", 0, 0)],
)
def test_what_the_model_wrote_is_no_failure_of_the_server(
    whose: str, verdict: str, failures: int, skipped: int
) -> None:
    found = reported(whose)
    assert (found["probes"][0]["verdict"], found["ok"]) == (verdict, failures == 0)
    suite = ElementTree.fromstring(as_junit(found))
    assert (suite.get("failures"), suite.get("skipped")) == (str(failures), str(skipped))
    assert (len(suite.findall("testcase/failure")), len(suite.findall("testcase/skipped"))) == (failures, skipped)


@pytest.mark.parametrize(
    ("old", "new", "said", "worse"),
    [
        (reported(""), reported("parser"), "auto: ok → failed (+unknown_name)", True),
        (reported(""), reported("model"), "auto: ok → model (+unknown_name)", False),
        (reported("parser"), reported(""), "auto: failed → ok (-unknown_name)", False),
        (reported("", "answer"), reported("parser"), "auto: failed; not in the baseline", True),
        (reported("", "answer"), reported(""), "answer: ok in the baseline; not asked now", False),
    ],
)
def test_a_baseline_says_what_changed(old: dict[str, Any], new: dict[str, Any], said: str, worse: bool) -> None:
    changes, is_worse = compared(new, old)
    assert said in changes
    assert is_worse is worse


def test_a_server_that_says_nothing_is_given_more_time(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert main(["verify", url, "--model", "m", "--probe", "length", "--timeout", "0.05"]) == 1
    assert "nothing came for 0.05 seconds; if it is only slow, give --timeout more" in capsys.readouterr().out
