"""`unbraid check`, `unbraid render` and `unbraid completion`, and what all commands have in common."""

from __future__ import annotations

import io
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from unbraid.cli import all_commands, main

from ..support.places import ROOT
from ..support.recordings import recorded

CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
OPENS = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
OUTPUT = str(ROOT / "examples/step-audio-2.txt")
MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def messages(tmp_path: Path) -> str:
    path = tmp_path / "messages.json"
    path.write_text(json.dumps(MESSAGES))
    return str(path)


# --- check ------------------------------------------------------------------------------------------------------------


def test_recorded_output_keeps_the_laws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recorded(tmp_path, "", "<think>", "Hm.</th", "ink>It ", "rains.")
    assert main(["check", path, "--format", "think", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outputs"] == [
        {"output": "request 0", "ok": True, "broken": [], "diagnostics": [], "warnings": []}
    ]
    assert main(["check", OUTPUT, "--format", "step-audio-2"]) == 0


def test_a_diagnostic_fails_only_where_it_should(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recorded(tmp_path, "", '<tool_call>{"name": "f", "argu')
    assert main(["check", path, "--format", "hermes"]) == 0
    assert "unfinished" in capsys.readouterr().out
    assert main(["check", path, "--format", "hermes", "--strict"]) == 1


def test_the_wrong_format_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "output.txt"
    path.write_text('<think>\nHm.\n</think>\n\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>')
    assert main(["check", str(path), "--format", "harmony"]) == 0
    said = capsys.readouterr().out
    assert "warning: `<tool_call>` stays in the text" in said
    assert "warning: 1 call stayed text: qwen3 reads it, harmony does not" in said
    assert main(["check", str(path), "--format", "harmony", "--strict"]) == 1
    assert main(["check", str(path), "--format", "qwen3", "--strict"]) == 0


def test_a_law_that_does_not_hold(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A fault of ours, which cannot be had otherwise."""
    monkeypatch.setattr("unbraid.stream_checks.in_a_row", lambda events: 0)
    assert main(["check", OUTPUT, "--format", "step-audio-2"]) == 1
    assert "nothing is lost: the end of the text is in no event" in capsys.readouterr().out


def test_a_template_and_a_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    template = tmp_path / "template.jinja"
    template.write_text(CHATML + OPENS)
    assert main(["check", str(template)]) == 0
    calls = "{% for c in m.tool_calls %}<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}<|im_end|>"
    template.write_text(CHATML.replace("{{ m.content }}<|im_end|>", "{{ m.content or '' }}" + calls) + OPENS)
    capsys.readouterr()
    assert main(["check", str(template), "--format", "hermes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["format"] == "hermes"
    assert main(["check", str(template), "--format", "llama-3"]) == 1
    assert "cannot be read back" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["missing.jinja"], [OUTPUT], [OUTPUT, "--format", "nonsense"]])
def test_input_that_cannot_be_used(arguments: list[str]) -> None:
    assert main(["check", *arguments]) == 2


# --- render -----------------------------------------------------------------------------------------------------------


def test_messages_as_a_prompt(messages: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "chatml", messages]) == 0
    whole = capsys.readouterr().out
    assert whole.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert main(["render", "chatml", messages, "--no-generation-prompt", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"text": whole.removesuffix("<|im_start|>assistant\n"), "ids": None, "notes": []}
    template = tmp_path / "template.jinja"
    template.write_text(CHATML + "{{ mood }}{{ count }}")
    assert main(["render", str(template), messages, "--set", "mood=calm", "--set", "count=3"]) == 0
    assert capsys.readouterr().out.endswith("calm3")


def test_a_whole_request_from_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    request = {"messages": MESSAGES, "tools": [{"type": "function", "function": {"name": "get_weather"}}]}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(request).encode())))
    assert main(["render", "chatml"]) == 0
    assert "get_weather" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere.jinja", "{messages}"], "no file or folder nowhere.jinja"),
        (["chatml", "nowhere.json"], "cannot read nowhere.json"),
        (["chatml", "{messages}", "--ids"], "--tokenizer"),
        (["chatml", "{messages}", "--set", "x"], "NAME=JSON"),
        (["chatml", OUTPUT], "is not JSON"),
    ],
)
def test_what_cannot_be_rendered(
    arguments: list[str], says: str, messages: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["render", *(each.format(messages=messages) for each in arguments)]) == 2
    assert says in capsys.readouterr().err


def test_a_grammar_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    tools = str(ROOT / "examples/tools.json")
    assert main(["constrain", "--format", "hermes", "--tools", tools, "--syntax", "gbnf", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["syntax"] == "gbnf"
    assert found["grammar"].startswith("root ::=")
    assert found["unenforced"] == []


# --- completion, and all commands -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_for_shells(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    made = capsys.readouterr().out
    for name in all_commands():
        assert name in made
    assert "tool-call-parser" in made
    if shutil.which(shell):  # bash is everywhere; the others are read where they are installed
        subprocess.run([shell, "-n"], input=made.encode(), check=True)


def completed(*words: str) -> list[str]:
    """What bash offers for the last word."""
    made = subprocess.run([sys.executable, "-m", "unbraid", "completion", "bash"], capture_output=True, cwd=ROOT)
    line = " ".join(map(shlex.quote, words))
    ask = f'COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _unbraid; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", made.stdout.decode() + ask], capture_output=True, check=True)
    return done.stdout.decode().split()


def test_bash_completes() -> None:
    assert completed("unbraid", "tran") == ["transcribe"]
    assert completed("unbraid", "parse", "--too") == ["--tool-call-parser", "--tools"]
    assert completed("unbraid", "parse", "--color", "al") == ["always"]


@pytest.mark.parametrize("name", list(all_commands()))
def test_the_examples_of_a_command_are_commands(name: str) -> None:
    _, parser = all_commands()[name]
    assert parser.epilog is not None
    heading, *lines = parser.epilog.splitlines()
    assert heading == "examples:"
    assert lines
    for line in lines:
        words = shlex.split(line.rpartition("|")[2].partition(">")[0])
        assert words[:2] == ["unbraid", name], line
        parser.parse_args(words[2:])
