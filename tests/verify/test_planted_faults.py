"""`unbraid verify` finds every kind of fault that is planted, and none where there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unbraid.cli import main
from unbraid.verify.checks import KINDS
from unbraid.verify.running import ProbeResult, verify
from unbraid.verify.server import VerifiedServer

from .planted import planted_server

ELSEWHERE = {"prompt_differs"}
"""Faults that a server without a tokenizer cannot have; `test_attribution.py` has them."""


SHOWN_BY = {
    "cut_but_complete": "cut call",
    "error_undocumented": "errors",
    "history_refused": "round",
    "length_ignored": "length",
    "markup_leaked": "answer",
    "parallel_ignored": "single",
    "reasoning_mixed": "reasoning",
    "server_error": "errors",
    "stop_ignored": "stop",
    "stream_differs": "stream",
    "value_changed": "values",
}
"""The probe that shows a fault; `required` shows the others."""


def verified(plant: str, probes: list[str] | None = None) -> list[ProbeResult]:
    with planted_server(plant) as url:
        endpoint = VerifiedServer(url)
        results = list(verify(endpoint, probes=probes))
        endpoint.close()
    return results


def test_a_good_server_has_no_fault() -> None:
    results = verified("")
    assert [result.verdict for result in results] == ["ok"] * len(results), [
        (result.name, [each.fault for each in result.faults]) for result in results if result.verdict != "ok"
    ]


@pytest.mark.parametrize("kind", sorted(set(KINDS) - ELSEWHERE))
def test_a_planted_fault_is_seen(kind: str) -> None:
    results = verified(kind, [SHOWN_BY.get(kind, "required")])
    seen = {each.fault.kind for result in results for each in result.faults}
    assert kind in seen


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
