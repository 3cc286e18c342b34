"""The command line, run as users run it: in a process of its own where streams matter, otherwise through `main`."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import unbraid
from unbraid import Content, Diagnostic
from unbraid.cli import main
from unbraid.cli.view import View

from ..support.places import ROOT

EXAMPLES = ROOT / "examples"
UNBRAID = [sys.executable, "-m", "unbraid"]
STEP_AUDIO = str(EXAMPLES / "step-audio-2.txt")
TOOLS = str(EXAMPLES / "tools.json")
ESCAPE = "\x1b["


@pytest.fixture(autouse=True)
def _no_color_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def run(*arguments: str, input: bytes = b"", **env: str) -> tuple[int, str, str]:
    done = subprocess.run([*UNBRAID, *arguments], input=input, capture_output=True, env=environment(**env))
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def start(*arguments: str) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen([*UNBRAID, *arguments], stdin=pipe, stdout=pipe, stderr=pipe, env=environment())


def parsed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["parse", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "output.txt"
    path.write_bytes(text.encode())
    return str(path)


# --- In a process of its own ------------------------------------------------------------------------------------------


def test_a_live_pipe_shows_at_once_and_characters_may_be_cut() -> None:
    process = start("parse", "--format", "think", "--events")
    assert process.stdin is not None
    assert process.stdout is not None
    umlaut = "ü".encode()
    process.stdin.write(b"gr" + umlaut[:1])
    process.stdin.flush()
    # The process has to answer while its input is still open.
    assert json.loads(process.stdout.readline()) == {"type": "Content", "text": "gr", "start": 0, "end": 2}
    process.stdin.write(umlaut[1:] + b"n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline()) == {"type": "Content", "text": "ün", "start": 2, "end": 4}
    out, err = process.communicate()
    assert (process.returncode, out, err) == (0, b"", b"")


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    code, out, err = run("parse", "--format", "think", "-", input=b"a\xffb\xe4\xbd")
    assert (code, out, err) == (0, "[content]\na�b�\n", "")


def test_a_file_in_a_locale_that_knows_no_unicode() -> None:
    code, out, err = run("parse", "--format", "step-audio-2", STEP_AUDIO, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (code, err) == (0, "")
    assert out == (
        "[speech 0]\nSure, let me look that up.我查一下，请稍等。\n♪ 20 codes\n"
        '[tool call 0] search\n{"query": "今天北京天气"}\n'
    )


def test_a_reader_who_goes_away_ends_it_quietly() -> None:
    process = start("parse", "--format", "think")
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write(b"first\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"[content]\n"
    process.stdout.close()
    process.stdin.write(b"second\n")
    process.stdin.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 0


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C reaches a child process differently on Windows")
def test_ctrl_c_ends_it_quietly() -> None:
    process = start("parse", "--format", "think")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"first\n")
    process.stdin.flush()
    process.stdout.readline()  # it runs
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert (process.returncode, err) == (130, b"")


def test_colors_follow_the_environment() -> None:
    arguments = ("parse", "--format", "qwen3", str(EXAMPLES / "qwen3.txt"))
    assert ESCAPE not in run(*arguments)[1]
    assert ESCAPE in run(*arguments, FORCE_COLOR="1")[1]
    assert ESCAPE not in run(*arguments, FORCE_COLOR="1", NO_COLOR="1")[1]
    assert ESCAPE in run(*arguments, "--color", "always", NO_COLOR="1")[1]
    assert ESCAPE not in run(*arguments, "--color", "never", FORCE_COLOR="1")[1]


def test_stream_example() -> None:
    script = [sys.executable, str(EXAMPLES / "stream.py"), "hermes", str(EXAMPLES / "hermes.txt")]
    done = subprocess.run(script, capture_output=True, check=True, encoding="utf-8", env=environment())
    deltas = [json.loads(line) for line in done.stdout.splitlines()]
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert [call["function"]["name"] for call in calls if "id" in call] == ["get_weather", "write_file"]
    arguments = "".join(call["function"]["arguments"] for call in calls if call["index"] == 1)
    assert "</tool_call>" in json.loads(arguments)["text"]


# --- What it shows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hermes", "qwen3", "mistral", "step-audio-2"])
def test_the_examples_have_nothing_wrong_with_them(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = parsed(capsys, "--format", name, "--tools", TOOLS, str(EXAMPLES / f"{name}.txt"))
    assert result["diagnostics"] == []
    assert all(result["complete"])
    assert len(result["complete"]) == len(result["message"]["tool_calls"])


def test_without_color_strands_have_labels(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parse", "--format", "qwen3", str(EXAMPLES / "qwen3.txt")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("[")] == ["[reasoning]", "[content]", "[tool call 0] get_weather"]
    assert lines[-1] == '{"city": "Hamburg", "date": "2025-06-14"}'


def test_with_color_strands_have_colors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parse", "--format", "step-audio-2", "--color", "always", STEP_AUDIO]) == 0
    out = capsys.readouterr().out
    assert "[speech" not in out
    assert f"{ESCAPE}35mSure,{ESCAPE}0m" in out
    assert f"{ESCAPE}2m♪ 20 codes\n{ESCAPE}0m{ESCAPE}2m→ {ESCAPE}0m{ESCAPE}1;36msearch{ESCAPE}0m {ESCAPE}32m{{" in out


def test_diagnostics_go_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, 'hi\n<tool_call>\n{"name": "f", "arguments": {"a": 1')
    assert main(["parse", "--format", "hermes", path]) == 0
    out, err = capsys.readouterr()
    assert out == '[content]\nhi\n[tool call 0] f\n{"a": 1 (incomplete)\n'
    assert err.startswith("unfinished_call at 49:49: ")
    assert err.count("\n") == 1
    main(["parse", "--format", "hermes", "--color", "always", path])
    assert capsys.readouterr().err.startswith(f"{ESCAPE}33munfinished_call")


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["parse", "--format", "think", written(tmp_path, "a\x1b[2Jb\x9bc\td")])
    assert capsys.readouterr().out == "[content]\na␛[2Jb\\x9bc\td\n"


def test_whitespace_alone_is_not_worth_a_label(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["parse", "--format", "think", written(tmp_path, "\n <think>\nhm\n</think>\n\n\n\n  code\n")])
    assert capsys.readouterr().out == "[reasoning]\nhm\n[content]\n  code\n"


def test_the_view_does_not_depend_on_the_pieces() -> None:
    raw = "\n  indented <think>\n\n  hm\n</think>\n\n\n\n  code\n"
    shown = []
    for size in (1, 2, 5, len(raw)):
        out = io.StringIO()
        view, parser = View(out, io.StringIO()), unbraid.parser("think")
        for at in range(0, len(raw), size):
            view.show(parser.feed(raw[at : at + size]))
        view.show(parser.finish())
        view.finish()
        shown.append(out.getvalue())
    assert len(set(shown)) == 1


def test_a_diagnostic_gets_a_line_of_its_own_where_streams_meet() -> None:
    both = io.StringIO()
    view = View(both, both)
    view.show([Content("hi ", 0, 3), Diagnostic("stray_closer", "it closes nothing", 3, 3), Content("there", 3, 8)])
    view.finish()
    assert both.getvalue() == "[content]\nhi \nstray_closer at 3:3: it closes nothing\nthere\n"
    command = [*UNBRAID, "parse", "--format", "think"]
    out = subprocess.check_output(command, input=b"hi </think> there", stderr=subprocess.STDOUT, env=environment())
    assert b"\nstray_closer at " in out


# --- Options ----------------------------------------------------------------------------------------------------------


def test_json_says_which_calls_are_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = '<tool_call>{"name": "f", "arguments": {"city": "München"'
    result = parsed(capsys, "--format", "hermes", written(tmp_path, call + "}}</tool_call>\n" + call))
    assert set(result) == {"message", "complete", "diagnostics"}
    assert result["complete"] == [True, False]
    assert [one["function"]["name"] for one in result["message"]["tool_calls"]] == ["f", "f"]
    assert set(result["diagnostics"][0]) == {"kind", "message", "start", "end"}


def test_json_without_calls_has_no_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = parsed(capsys, "--format", "hermes", written(tmp_path, "hi"))
    message = {"role": "assistant", "content": "hi", "reasoning_content": None}
    assert result == {"message": message, "diagnostics": []}


def test_events_carry_type_fields_and_spans(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parse", "--format", "mistral", "--events", str(EXAMPLES / "mistral.txt")]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = ["Content", *["ToolCallStart", "ToolCallArguments", "ToolCallEnd"] * 2]
    assert [event["type"] for event in events] == kinds
    raw = (EXAMPLES / "mistral.txt").read_text(encoding="utf-8")
    assert raw[events[0]["start"] : events[0]["end"]] == events[0]["text"]
    assert raw[events[1]["start"] : events[1]["end"]] == events[1]["name"] == "get_weather"


def test_tools_and_unknown_tools(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = '<tool_call>{"name": "rm", "arguments": {}}</tool_call>'
    arguments = ("--format", "hermes", "--tools", TOOLS, written(tmp_path, raw))
    as_text = parsed(capsys, *arguments)
    assert as_text["message"]["content"] == raw
    assert as_text["diagnostics"][0]["kind"] == "unknown_tool"
    assert parsed(capsys, *arguments, "--unknown-tools", "emit")["complete"] == [True]


def test_prompt_and_keep_reasoning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "hm\n</think>\n\nyes")
    message = parsed(capsys, "--format", "qwen3", "--prompt", "<think>", path)["message"]
    assert (message["reasoning_content"], message["content"]) == ("hm", "yes")
    raw = "<think>\nhm\n</think>\n\nyes"
    message = parsed(capsys, "--format", "qwen3", "--keep-reasoning", written(tmp_path, raw))["message"]
    assert (message["reasoning_content"], message["content"]) == (None, raw)


def test_a_format_made_of_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "<think>hm</think>[TOOL_CALLS]f[ARGS]{}")
    result = parsed(capsys, "--reasoning-parser", "deepseek-r1", "--tool-call-parser", "mistral", path)
    assert result["message"]["reasoning_content"] == "hm"
    assert result["complete"] == [True]
    assert parsed(capsys, "--audio-parser", "step-audio-2", STEP_AUDIO)["message"]["tts_content"]


def test_formats(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["formats"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["name", "reasoning", "tools", "speech", "other", "names"]
    assert len(rows) == len(unbraid.all_formats())
    assert next(row for row in rows if row.startswith("hermes ")).split()[:4] == ["hermes", "-", "yes", "-"]
    assert main(["formats", "--json"]) == 0
    listed = {format["name"]: format for format in json.loads(capsys.readouterr().out)}
    assert listed["step-audio-2"]["speech"] is True
    assert all(unbraid.find(other).name == name for name, format in listed.items() for other in format["other_names"])
    assert "Qwen/Qwen3-8B" in listed["qwen3"]["models"]


def listed_formats(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(["formats", *arguments]) == 0
    return [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]


def test_formats_are_sorted_and_can_be_filtered(capsys: pytest.CaptureFixture[str]) -> None:
    names = listed_formats(capsys)
    assert names.index("apertus") < names.index("glm-4.5") < names.index("glm-4.7") < names.index("xlam")
    assert names.index("mistral-v3") < names.index("mistral-v11")  # numbers by their size
    assert listed_formats(capsys, "magistral") == ["mistral-v13"]
    assert listed_formats(capsys, "unsloth/Qwen3-Coder-480B-A35B-Instruct-GGUF") == ["qwen3-coder"]
    assert listed_formats(capsys, "meta-llama/") == ["llama-3", "llama-4-pythonic"]
    assert set(listed_formats(capsys, "--with", "speech", "--with", "tools")) < set(names)
    assert main(["formats", "hermess"]) == 2
    assert "did you mean hermes" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == f"unbraid {unbraid.__version__}"
    assert rest[0].startswith("Python 3.")
    templates = next((line for line in rest if line.startswith("templates: ")), "")
    assert "jinja2" in templates  # what is installed beside it, by extra


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["detct"], "no command 'detct' (did you mean detect?)"),
        (["parse", "--fromat", "qwen3"], "--fromat (did you mean --format?)"),
        (["serve", "--prot", "0"], "--prot (did you mean --port?)"),
        (["parse", "--format", "Qwen/Qwen3.5x-8B"], "did you mean qwen3.5"),
    ],
)
def test_a_typo_gets_a_suggestion(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: object = main(words)
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    assert says in capsys.readouterr().err


# --- Without a format -------------------------------------------------------------------------------------------------


def test_parse_finds_the_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "<think>\nhm\n</think>\n\nIt rains.")
    assert main(["parse", "--json", path]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["message"]["reasoning_content"] == "hm"
    assert "reading it as" in err
    assert main(["parse", written(tmp_path, "It rains.")]) == 2
    assert "give --format NAME" in capsys.readouterr().err


def test_a_dataset_finds_its_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "parsed.jsonl"
    dataset = str(EXAMPLES / "outputs.jsonl")
    assert main(["parse", "--dataset", dataset, "--out", str(out), "--processes", "1"]) == 0
    assert "reading it as qwen3 (certain)" in capsys.readouterr().err
    assert json.loads(out.read_text(encoding="utf-8").splitlines()[0])["reasoning"] == "Hm."


def test_detect_from_outputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["detect", "--output", STEP_AUDIO]) == 0
    assert capsys.readouterr().out.startswith("step-audio-2: certain; reads the output with nothing left over\n")
    assert main(["detect", "--output", str(EXAMPLES / "outputs.jsonl"), "--json"]) == 0
    best, *_ = json.loads(capsys.readouterr().out)
    assert (best["format"], best["clean"], best["outputs"]) == ("qwen3", 2, 2)
    (tmp_path / "a.txt").write_text("[TOOL_CALLS]f[ARGS]{}")
    (tmp_path / "b.jsonl").write_text('{"text": "[TOOL_CALLS]g[ARGS]{}"}\n')
    assert main(["detect", "--output", str(tmp_path)]) == 0
    assert "reads 2 of 2 outputs" in capsys.readouterr().out


def test_detect_from_a_pipe() -> None:
    code, out, _ = run("detect", "--output", input="◁think▷Hm.◁/think▷It rains.".encode())
    assert (code, out.splitlines()[0]) == (0, "kimi-vl: certain; reads the output with nothing left over")
    code, out, _ = run("detect", "--output", "--column", "o", input='{"o": "◁think▷Hm.◁/think▷Yes."}\n'.encode())
    assert (code, out.startswith("kimi-vl")) == (0, True)
    code, out, err = run("detect", "--output", input=b"It rains.")
    assert (code, out) == (2, "")
    assert "plain text" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "Name a model's folder or template"),
        (["template.jinja", "--output", STEP_AUDIO], "not both"),
        (["--output", "nowhere.txt"], "cannot read nowhere.txt"),
        (["--output", "nowhere.jsonl"], "no file or folder nowhere.jsonl"),
        (["nowhere/template.jinja"], "no file or folder nowhere/template.jinja"),
    ],
)
def test_what_detect_cannot_use(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["detect", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_detect_a_model_on_the_hub(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the files with its template are fetched."""
    fetched: list[str] = []

    def download(repository: str, file: str, cache: Path | None, *, quiet: bool = False) -> Path:
        fetched.append(f"{repository}/{file}")
        return EXAMPLES / "model" / file

    files = ["chat_template.jinja", "model.safetensors", "tokenizer.json"]
    monkeypatch.setattr("unbraid.templates.sources.hub_files", lambda repository: files)
    monkeypatch.setattr("unbraid.templates.sources.hub_download", download)
    assert main(["detect", "someone/Some-Model"]) == 0
    assert capsys.readouterr().out.startswith("qwen3\n")
    assert fetched == ["someone/Some-Model/chat_template.jinja"]


def test_a_model_that_cannot_be_had_is_told_by_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_network(repository: str) -> list[str]:
        raise unbraid.UnbraidError("the hub cannot be reached")

    monkeypatch.setattr("unbraid.templates.sources.hub_files", no_network)
    assert main(["detect", "Qwen/Qwen3-8B"]) == 2
    assert "By its name it writes qwen3: --format qwen3" in capsys.readouterr().err
    assert main(["detect", "someone/Nothing-Like-It"]) == 2
    assert capsys.readouterr().err == "unbraid: the hub cannot be reached\n"


# --- Bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--format", "hermess"], "did you mean hermes"),
        ([], "which format?"),
        (["--format", "hermes", "--tool-call-parser", "hermes"], "not both"),
        (["--tool-call-parser", "think"], "has no tools"),
        (["--format", "hermes", "no/such/file"], "cannot read no/such/file: No such file"),
        (["--format", "hermes", str(EXAMPLES)], "cannot read"),
        (["--format", "hermes", "--tools", "no/such/tools"], "cannot read no/such/tools"),
        (["--format", "hermes", "--tools", STEP_AUDIO], "is not JSON"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parse", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("unbraid: ")
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("tools", "says"),
    [
        (b'{"name": "f"}', "must be a list"),
        (b'[{"type": "function"}]', "has no name"),
        (b"\xff\xfe\xfd", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
    ],
)
def test_bad_tools_are_one_line(tools: bytes, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tools.json"
    path.write_bytes(tools)
    assert main(["parse", "--format", "hermes", "--tools", str(path)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"unbraid: {path}")
    assert says in err
    assert err.count("\n") == 1


def test_bad_input_leaves_no_traceback() -> None:
    code, out, err = run("parse", "--format", "no-such-format-at-all")
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    code, _, err = run("parse", "--json", "--events")
    assert code == 2
    assert "not allowed with" in err


def test_constrain(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["constrain", "-f", "hermes", "--tools", TOOLS, "--tool-choice", "required", "--syntax", "gbnf"]) == 0
    assert capsys.readouterr().out.startswith("root ::= ")
    assert main(["constrain", "-f", "hermes", "--tools", TOOLS, "--syntax", "structural_tag"]) == 0
    assert json.loads(capsys.readouterr().out)["type"] == "structural_tag"
    schema = written(tmp_path, json.dumps({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}))
    assert main(["constrain", "-f", "hermes", "--response-schema", schema]) == 0
    shown = capsys.readouterr()
    assert "%json" in shown.out or "start:" in shown.out
    assert "response_format.json_schema.schema: `uniqueItems` is not enforced" in shown.err
    assert main(["constrain", "-f", "hermes", "--tools", TOOLS, "--tool-choice", "nope"]) == 2
    assert "'nope', which is not among the tools" in capsys.readouterr().err
    assert main(["constrain", "-f", "hermes", "--tools", str(tmp_path / "none.json")]) == 2
    assert "cannot read" in capsys.readouterr().err
