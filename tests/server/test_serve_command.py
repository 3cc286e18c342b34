"""`unbraid serve` as a process: the line when it is ready, signals, and a recording played."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from unbraid.engines.replay import script

from ..support import patient_http
from ..support.embedded_model import smollm2
from ..support.serve_process import HELLO, Process, record, serve
from ..support.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.system

# The embedded model


def test_the_default_is_a_small_model_and_two_lines_say_that_it_is_ready_and_where_the_page_is() -> None:
    cache = smollm2().gguf.parents[1]
    with serve(UNBRAID_CACHE=str(cache)) as process:
        ready = r"unbraid \S+: smollm2-135m-instruct \(hermes\) is ready at http://127\.0\.0\.1:\d+/v1\n"
        assert re.fullmatch(ready, process.line)
        parameters = {"type": "object", "properties": {}, "additionalProperties": False}
        tool = {"type": "function", "function": {"name": "now", "strict": True, "parameters": parameters}}
        asks = {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False}
        (choice,) = process.chat(**asks, max_tokens=80, temperature=0).json()["choices"]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["tool_calls"][0]["function"]["name"] == "now"
        assert "has no place for tools" in "".join(process.log), "the fallback is told of"
        process.popen.send_signal(signal.SIGTERM)
        assert process.popen.wait(PATIENCE) == 0
        assert process.popen.stdout is not None
        page = process.url.removesuffix("v1")
        assert process.popen.stdout.read() == f"Open {page} for the playground.\n", "and nothing else"


# Recordings


def test_a_recording_is_played(tmp_path: Path) -> None:
    path = record(tmp_path / "recording.jsonl", script("<think>\nHm.\n</think>\n\nHi!"))
    with serve("--replay", path, "--format", "qwen3", "--served-model-name", "mine", "--served-model-name", "m") as one:
        assert "mine (qwen3) is ready" in one.line
        message = one.chat(model="m").json()["choices"][0]["message"]
        assert (message["content"], message["reasoning"], message["reasoning_content"]) == ("Hi!", "Hm.", "Hm.")


def test_outputs_are_recorded(tmp_path: Path) -> None:
    path, again = record(tmp_path / "recording.jsonl", script("Hi!")), tmp_path / "again.jsonl"
    with serve("--replay", path, "--format", "hermes", "--record", str(again)) as one:
        assert one.chat().json()["choices"][0]["message"]["content"] == "Hi!"
    with serve("--replay", str(again), "--format", "hermes") as other:
        assert other.chat().json()["choices"][0]["message"]["content"] == "Hi!"


# Signals


def events(response: httpx.Response) -> Iterator[Any]:
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield line.removeprefix("data: ")


@pytest.mark.parametrize("in_time", [True, False])
def test_sigterm(tmp_path: Path, in_time: bool) -> None:
    """Streams go on to their end, or until the time is up, and then say so; new ones are refused at once."""
    path = record(tmp_path / "recording.jsonl", script("Hi there."), delay=0.25 if in_time else 3600.0)
    patience = PATIENCE if in_time else 0.5
    with serve("--replay", path, "--format", "hermes", "--shutdown-seconds", str(patience)) as one:
        asks = {"messages": HELLO, "stream": True}
        with httpx.stream("POST", f"{one.url}/chat/completions", json=asks, timeout=PATIENCE) as response:
            found = events(response)
            next(found)
            one.popen.send_signal(signal.SIGTERM)
            wait_for(one.refuses)
            *chunks, last, done = list(found)
        assert done == "[DONE]"
        if in_time:
            assert json.loads(last)["choices"][0]["finish_reason"] == "stop"
            assert "".join(json.loads(c)["choices"][0]["delta"]["content"] for c in chunks).endswith("there.")
        else:
            assert json.loads(last)["error"]["code"] == "shutdown"
        assert one.popen.wait(PATIENCE) == 0


def test_sigterm_while_a_whole_reply_is_made(tmp_path: Path) -> None:
    """Who asked is told, and nothing is in the log that looks like a fault."""
    path = record(tmp_path / "recording.jsonl", script("Hi there."), delay=3600.0)
    with serve("--replay", path, "--format", "hermes", "--shutdown-seconds", "0.5") as one:
        found: list[httpx.Response] = []
        asking = threading.Thread(target=lambda: found.append(one.chat()))
        asking.start()
        metrics = one.url.removesuffix("/v1") + "/metrics"
        wait_for(
            lambda: bool(re.search(r"^unbraid_engine_running{.*} 1\.0$", patient_http.get(metrics).text, re.MULTILINE))
        )
        one.popen.send_signal(signal.SIGTERM)
        asking.join(PATIENCE)
        assert found[0].status_code == 503
        assert found[0].json()["error"]["code"] == "shutdown"
        assert one.popen.wait(PATIENCE) == 0
        assert "Traceback" not in "".join(one.log)


def is_ready(one: Process) -> bool:
    return patient_http.get(one.url.removesuffix("/v1") + "/ready").status_code == 200


def test_sigterm_with_time_to_drain(tmp_path: Path) -> None:
    """It is not ready from then on, and everything else goes on; a second signal ends that."""
    path = record(tmp_path / "recording.jsonl", script("Hi there."), delay=0.05)
    with serve("--replay", path, "--format", "hermes", "--drain-seconds", str(10 * PATIENCE)) as one:
        assert is_ready(one)
        one.popen.send_signal(signal.SIGTERM)
        wait_for(lambda: not is_ready(one))
        assert one.chat().json()["choices"][0]["message"]["content"] == "Hi there."
        assert patient_http.get(one.url.removesuffix("/v1") + "/health").status_code == 200
        wait_for(lambda: refuses_after_a_signal(one))
        assert one.popen.wait(PATIENCE) == 0


def refuses_after_a_signal(one: Process) -> bool:
    one.popen.send_signal(signal.SIGTERM)
    return one.refuses()


def test_the_port_closes_when_the_time_to_drain_is_over(tmp_path: Path) -> None:
    path = record(tmp_path / "recording.jsonl", script("Hi there."))
    with serve("--replay", path, "--format", "hermes", "--drain-seconds", "0.3") as one:
        one.popen.send_signal(signal.SIGTERM)
        assert one.popen.wait(PATIENCE) == 0


def test_ctrl_c_does_not_drain(tmp_path: Path) -> None:
    path = record(tmp_path / "recording.jsonl", script("Hi there."))
    with serve("--replay", path, "--format", "hermes", "--drain-seconds", str(10 * PATIENCE)) as one:
        one.popen.send_signal(signal.SIGINT)
        assert one.popen.wait(PATIENCE) == 0


@pytest.mark.parametrize("flags", [(), ("--workers", "2")], ids=" ".join)
def test_ctrl_c_right_after_it_is_ready_is_quiet(flags: tuple[str, ...], tmp_path: Path) -> None:
    """The processes that work requests out are still starting then."""
    path = record(tmp_path / "recording.jsonl", script("Hi there."))
    with serve("--replay", path, "--format", "hermes", *flags) as one:
        one.ctrl_c()
        assert one.popen.wait(PATIENCE) == 0
        assert one.log_ended.wait(PATIENCE)
    assert not [line for line in one.log if "Traceback" in line or "ERROR" in line or "KeyboardInterrupt" in line]


def test_a_second_signal_hurries_streams(tmp_path: Path) -> None:
    path = record(tmp_path / "recording.jsonl", script("Hi there."), delay=3600.0)
    with serve("--replay", path, "--format", "hermes", "--shutdown-seconds", str(10 * PATIENCE)) as one:
        asks = {"messages": HELLO, "stream": True}
        with httpx.stream("POST", f"{one.url}/chat/completions", json=asks, timeout=PATIENCE) as response:
            found = events(response)
            next(found)
            one.popen.send_signal(signal.SIGTERM)
            wait_for(one.refuses)
            assert one.popen.poll() is None
            last = hurried(one, found)
        assert json.loads(last)["error"]["code"] == "shutdown"
        assert one.popen.wait(PATIENCE) == 0


def hurried(one: Process, found: Iterator[str]) -> str:
    """The last event before the end, of a stream that goes on until the server gets another signal."""
    ended = threading.Event()

    def signals() -> None:
        while not ended.wait(0.05) and one.popen.poll() is None:
            one.popen.send_signal(signal.SIGTERM)

    sender = threading.Thread(target=signals)
    sender.start()
    try:
        *_, last, done = found
    finally:
        ended.set()
        sender.join()
    assert done == "[DONE]"
    return last


# What cannot be served


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--model", "/nowhere.gguf"], "there is no model '/nowhere.gguf'"),
        (["--replay", "/nowhere.jsonl"], "No such file"),
        (["--replay", __file__], "is no line of a recording"),
        (["--sglang", "http://a", "--vllm", "http://b"], "--sglang and --vllm name different engines"),
        (["--sglang", "http://127.0.0.1:9"], "Start it first, or give --tokenizer"),
        (["--format", "hermes", "--tool-call-parser", "hermes", "--replay", "R"], "not both"),
        (["--format", "nothing", "--replay", "R"], "no format named 'nothing'"),
        (["--format", "hermes", "--replay", "R", "--chat-template", "/nowhere"], "no file or folder /nowhere"),
        (["--format", "hermes", "--replay", "R", "--vocoder", "nothing:here"], "is named MODULE:NAME"),
        (["--format", "hermes", "--replay", "R", "--sampling", '{"heat": 1}'], "--sampling must be JSON"),
        (["--vllm-local", "--model", "M", "--vllm-options", "{"], "--vllm-options must be JSON"),
        (["--vllm-local", "--model", "M", "--vllm-options", "2"], "--vllm-options must be a JSON object such as"),
        (["--config", "/nowhere.toml"], "the configuration /nowhere.toml cannot be read"),
        (["--port", "many"], "--port must be a whole number from 0 to 65535, not 'many'"),
        (["--drain-seconds", "-1"], "--drain-seconds must be a number of at least 0, not '-1'"),
        (["--upstream-timeout", "1,2,3"], "--upstream-timeout must be one number or two"),
        (
            ["--openai", "http://a", "--upstream-timeout", "0"],
            "one number or two, separated by a comma, above 0, not '0'",
        ),
        (["--replay", "R", "--upstream-connect-timeout", "0"], "--upstream-connect-timeout must be a number above 0"),
        (["--replay", "IDS", "--format", "hermes"], "holds the ids of tokens: give --tokenizer"),
        (
            ["--openai", "http://a", "--upstream-retries", "-1"],
            "must be a whole number of at least 0, not '-1'",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_it_says_what_is_wrong_and_ends(flags: list[str], said: str, tmp_path: Path) -> None:
    recordings = {
        "R": record(tmp_path / "recording.jsonl", script("Hi!")),
        "IDS": record(tmp_path / "ids.jsonl", script([1, 2])),
    }
    given = [recordings.get(flag, flag) for flag in flags]
    command = [sys.executable, "-m", "unbraid", "serve", *given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    path = record(tmp_path / "recording.jsonl", script("Hi!"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "unbraid", "serve", "--replay", path, "--format", "hermes", "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode
    assert "address already in use" in done.stderr
    assert "Traceback" not in done.stderr
