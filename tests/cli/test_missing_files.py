"""A file that is not there is named, by every command, before anything is loaded or asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from unbraid.cli import main

from ..support.places import ROOT

MODEL = str(ROOT / "examples" / "model")
RECORDING = str(ROOT / "examples" / "step-audio-2.jsonl")
NOBODY = "http://127.0.0.1:9"
"""Where no server is. A command that asks it first says so, and not which file is missing."""
COMMANDS = [
    ["parse", "--format", "qwen3", "{}"],
    ["parse", "--format", "qwen3", "--tools", "{}", "examples/qwen3.txt"],
    ["constrain", "--format", "hermes", "--tools", "{}"],
    ["detect", "{}"],
    ["check", "{}"],
    ["check", "{}", "--format", "qwen3"],
    ["render", "{}"],
    ["render", MODEL, "{}"],
    ["render", MODEL, "--tools", "{}"],
    ["chat", "--url", NOBODY, "--tools", "{}", "Hi"],
    ["chat", "--url", NOBODY, "--load", "{}", "Hi"],
    ["transcribe", "--model", "/nowhere", "{}"],
    ["transcribe", "--model", "/nowhere", "{}", "{}-too"],
    ["serve", "--port", "0", "--config", "{}"],
    ["serve", "--port", "0", "--replay", "{}"],
    ["serve", "--port", "0", "--tls-cert", "{}"],
    ["serve", "--port", "0", "--replay", RECORDING, "--format", "step-audio-2", "--chat-template", "{}"],
    ["serve", "--port", "0", "--model", "{}"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_it_is_named(command: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "missing.file")
    assert main([word.format(missing) for word in command]) == 2
    said = capfd.readouterr().err
    assert missing in said
    assert said.startswith("unbraid: ")
    assert "Traceback" not in said
    assert said.count("cannot read") <= 1


def test_what_is_no_conversation_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text("{}")
    assert main(["chat", "--url", NOBODY, "--load", str(tmp_path / "a.json"), "Hi"]) == 2
    assert "a.json is no conversation: /save writes one" in capfd.readouterr().err
