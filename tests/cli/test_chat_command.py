"""`unbraid chat`, against a real server: at a terminal, in a pipe, and with a server of its own."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from unbraid.cli import main
from unbraid.engines.replay import ReplayEngine, Script, script

from ..support.places import ROOT
from ..support.recordings import recorded
from ..support.running_server import RunningServer, service_of
from ..support.waiting import wait_for

TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


class Played:
    """A server whose model says what the test says, one after the other."""

    def __init__(self) -> None:
        self.scripts: list[Script] = []
        self.engine = ReplayEngine(lambda _: self.scripts.pop(0), model="played")
        self.server = RunningServer(service_of(self.engine, "qwen3", names=("played",)))

    def prompt(self, number: int) -> str:
        found = self.engine.requests[number].prompt
        assert isinstance(found, str)
        return found


@pytest.fixture
def played() -> Iterator[Played]:
    made = Played()
    made.server.start()
    yield made
    made.server.stop()


class Terminal:
    """`unbraid chat` at a terminal."""

    def __init__(self, url: str, home: Path, *arguments: str) -> None:
        self.seen = ""
        self._ours, theirs = pty.openpty()
        os.set_blocking(self._ours, False)
        command = [sys.executable, "-m", "unbraid", "chat", "--url", url, *arguments]
        env = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(home), "TERM": "dumb"}
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True
        )
        os.close(theirs)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # nothing there, or nobody
            self.seen += os.read(self._ours, 65536).decode()

    def expect(self, text: str) -> None:
        def there() -> bool:
            self._read()
            return text in self.seen

        wait_for(there)
        self.seen = self.seen.partition(text)[2]

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self) -> int:
        wait_for(lambda: self.process.poll() is not None)
        os.close(self._ours)
        return self.process.returncode


def test_one_message(played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    played.scripts = [script("<think>\nEasy.\n</think>\n\nParis.")]
    assert main(["chat", "--url", played.server.url, "The capital of France?", "--system", "Be brief."]) == 0
    assert capsys.readouterr().out == "[reasoning]\nEasy.\n[content]\nParis.\n"
    assert "Be brief." in played.prompt(0)


def test_one_message_as_json(played: Played, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps(TOOLS))
    played.scripts = [script(CALL)]
    assert main(["chat", "--url", played.server.url, "Weather?", "--json", "--tools", str(tools)]) == 0
    found = json.loads(capsys.readouterr().out)
    (call,) = found["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("get_weather", {"city": "Paris"})
    assert found["usage"]["completion_tokens"] > 0


def test_a_call_is_answered_by_hand_and_the_conversation_is_kept(played: Played, tmp_path: Path) -> None:
    tools, saved = tmp_path / "tools.json", tmp_path / "talk.json"
    tools.write_text(json.dumps(TOOLS))
    played.scripts = [script(CALL), script("It rains."), script("Yes.")]
    terminal = Terminal(played.server.url, tmp_path, "--tools", str(tools))
    terminal.expect("you> ")
    terminal.type("Weather in \\\nParis?\n")
    terminal.expect("get_weather")
    terminal.expect("result of get_weather> ")
    terminal.type("rain\n")
    terminal.expect("It rains.")
    terminal.expect("you> ")
    terminal.type("/nonsense\n")
    terminal.expect("/save FILE")
    terminal.expect("you> ")
    terminal.type(f"/save {saved}\n")
    terminal.expect("you> ")
    terminal.type("/retry\n")
    terminal.expect("Yes.")
    terminal.expect("you> ")
    terminal.type("/quit\n")
    assert terminal.end() == 0
    said = json.loads(saved.read_text())
    assert [each["role"] for each in said] == ["user", "assistant", "tool", "assistant"]
    assert said[0]["content"] == "Weather in \nParis?"
    assert "rain" in played.prompt(1)
    assert "rain" not in played.prompt(2)
    assert "/save" in (tmp_path / "unbraid/chat_history").read_text()


def test_ctrl_c_stops_an_answer_and_not_the_chat(played: Played, tmp_path: Path) -> None:
    played.scripts = [script("One two three four").hanging(8), script("Done.")]
    terminal = Terminal(played.server.url, tmp_path, "--no-history")
    terminal.expect("you> ")
    terminal.type("Count.\n")
    terminal.expect("One two")
    os.killpg(terminal.process.pid, signal.SIGINT)
    terminal.expect("(stopped)")
    terminal.expect("you> ")
    terminal.type("Go on.\n")
    terminal.expect("Done.")
    terminal.expect("you> ")
    terminal.type("\x04")
    assert terminal.end() == 0
    assert "One two" in played.prompt(1)


def test_a_pipe_is_one_message(played: Played) -> None:
    played.scripts = [script("Hello.")]
    command = [sys.executable, "-m", "unbraid", "chat", "--url", played.server.url]
    done = subprocess.run(command, input=b"Hi", capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stdout.decode(), done.stderr.decode()) == (0, "[content]\nHello.\n", "")


def test_a_server_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "--url", "http://127.0.0.1:9", "Hi"]) == 2
    assert "cannot be reached" in capsys.readouterr().err


def test_a_failure_in_the_middle_is_told(played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    played.scripts = [script("One two").failing(3)]
    assert main(["chat", "--url", played.server.url, "Hi"]) == 2
    found = capsys.readouterr()
    assert found.out.startswith("[content]\nOne")
    assert "breaks down" in found.err


def test_with_a_server_of_its_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It is started on settings, and ends with the chat."""
    prompt = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    recording = recorded(tmp_path, prompt, "Hello.")
    settings = tmp_path / "settings.toml"
    settings.write_text(f'replay = "{recording}"\nchat_template = "chatml"\nformat = "hermes"\n')
    assert main(["chat", "--config", str(settings), "Hi"]) == 0
    assert "Hello." in capfd.readouterr().out


def test_a_server_that_cannot_start(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "--model", str(tmp_path / "missing.gguf"), "Hi"]) == 2
    assert "missing.gguf" in capfd.readouterr().err
