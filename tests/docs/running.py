"""Runs blocks of the documentation: Python in one process a document, commands in a shell, servers for real."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tokenizers import Tokenizer

from ..speech.synthesis.kokoro_models import kokoro_files
from ..speech.whisper.whisper_models import files as whisper
from ..support import real_tokenizers
from ..support.embedded_model import smollm2
from ..support.places import CACHE, ROOT
from ..support.real_speech import recording
from .blocks import Block, Command, commands, matches

PRINTED = "127.0.0.1:8000"
"""Where the documentation says that the server is. Each server of the tests has a free port in its place."""
FILES: dict[str, Callable[[Path], object]] = {
    "talk.wav": lambda path: shutil.copy(recording("en", "jfk").path, path),
    "qwen3/tokenizer.json": lambda path: real_tokenizers.qwen3_huggingface().save(str(path)),
    "step-audio-2/tokenizer.json": lambda path: _step_audio_2().save(str(path)),
}
"""Files that a reader brings, and how each is made here."""
WHISPERS = ("whisper-tiny", "whisper-base")
"""Models that a block may need by name."""
LIMIT = 300
"""Seconds that one command may take: far more than any needs."""


def environment() -> dict[str, str]:
    """That of a reader who has installed unbraid: its commands first on the path, its models in the cache."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("UNBRAID_", "PYTEST_", "COV_"))}
    # Not resolved: in a virtual environment the interpreter is a link to one outside of it.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return kept | {
        "PATH": path,
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "default",
        "NO_COLOR": "1",
        "COLUMNS": "80",
        "UNBRAID_CACHE": str(CACHE),
        "UNBRAID_STORE": os.environ["UNBRAID_STORE"],
    }


@contextmanager
def scratch() -> Iterator[Path]:
    """An empty folder with the examples in it."""
    with tempfile.TemporaryDirectory(prefix="unbraid-docs-") as folder:
        shutil.copytree(ROOT / "examples", Path(folder) / "examples")
        yield Path(folder)


def provide(block: Block, folder: Path) -> None:
    """What a block needs besides a server. Skips the test where it cannot be fetched."""
    if "model" in block.needs or (block.server is not None and "--replay" not in block.server):
        smollm2()
    for name in WHISPERS:
        if name in " ".join(block.needs):
            whisper(name)
    if "--speech-model kokoro" in " ".join(block.needs):
        kokoro_files()
    for need in block.needs:
        if need in FILES:
            path = folder / need
            path.parent.mkdir(exist_ok=True)
            FILES[need](path)


def _step_audio_2() -> Tokenizer:
    tokenizer = real_tokenizers.step_audio_2(kind="huggingface")
    assert isinstance(tokenizer, Tokenizer)
    return tokenizer


class Server:
    """`unbraid serve`, started in a folder on a free port, until `stop`."""

    def __init__(self, flags: Sequence[str], folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "unbraid", "serve", "--port", "0", *flags],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._log: list[str] = []
        self._reading = threading.Thread(target=self._log.extend, args=(self._process.stderr,), daemon=True)
        self._reading.start()
        line = self._process.stdout.readline()
        found = re.search(r"127\.0\.0\.1:\d+", line)
        if found is None:
            self.stop()
            raise AssertionError(f"`unbraid serve {shlex.join(flags)}` did not start:\n{''.join(self._log)}")
        self.address = found[0]
        line += self._process.stdout.readline()  # where the playground is
        self.ready = line.replace(self.address, PRINTED)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reading.join(10)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._process.stdout.close()
        self._process.stderr.close()


def run_python(found: Sequence[Block]) -> list[tuple[str, str]]:
    """What each block of a document prints, and the traceback of one that fails; those after it are missing."""
    with scratch() as folder, ExitStack() as running:
        servers: dict[str, Server] = {}
        code = []
        for block in found:
            provide(block, folder)
            text = block.text
            if block.server is not None:
                if block.server not in servers:
                    server = servers[block.server] = Server(shlex.split(block.server), folder)
                    running.callback(server.stop)
                text = text.replace(PRINTED, servers[block.server].address)
            code.append((str(block), block.line, text))
        results = folder / "results.json"
        done = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("run_python.py")), str(results)],
            input=json.dumps(code),
            cwd=folder,
            env=environment() | {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        assert results.exists(), f"the blocks ended the process:\n{done.stderr}"
        return [(output, error) for output, error in json.loads(results.read_text(encoding="utf-8"))]


def run_console(block: Block) -> None:
    """Run a block's commands one after the other. Each must succeed, and print what stands below it. A server that a
    command starts runs until the end of the block."""
    with scratch() as folder, ExitStack() as running:
        provide(block, folder)
        address = PRINTED
        if block.server is not None:
            server = Server(shlex.split(block.server), folder)
            running.callback(server.stop)
            address = server.address
        for command in commands(block):
            words = shlex.split(command.text, comments=True)
            if words[:2] == ["unbraid", "serve"] and "--help" not in words:
                server = Server(words[2:], folder)
                running.callback(server.stop)
                address = server.address
                _compare(block, command, server.ready)
            else:
                _compare(block, command, _shell(block, command, folder, address))


def _shell(block: Block, command: Command, folder: Path, address: str) -> str:
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command.text.replace(PRINTED, address)],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, f"{block}: `{command.text}` ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout.replace(address, PRINTED)


def _compare(block: Block, command: Command, output: str) -> None:
    expected = command.prints or block.prints or ""
    if expected:
        assert matches(expected, output), f"{block}: `{command.text}` printed:\n{output}\nbut {block} says:\n{expected}"
