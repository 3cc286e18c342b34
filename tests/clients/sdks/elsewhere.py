"""Clients that run in a process of their own: the AI SDK in Node, and those for Python that need other packages.

Each task is one run of a program that reads what is asked for and prints what came of it, both as JSON.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import venv
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from ...support.npm_packages import npm_packages
from ...support.real_tokenizers import cache_folder
from ...support.system import for_system_tests
from ...support.waiting import PATIENCE
from .contract import (
    CHAT,
    DESCRIBE,
    GREETING,
    MESSAGES,
    MODEL,
    RESPONSES,
    RESULT,
    TASKS,
    Client,
    Loop,
    Reply,
    Route,
)

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "openai-2" / "requirements.txt"
AI_SDK = HERE / "ai-sdk"
LIMIT = 5 * PATIENCE
"""Seconds for all tasks of a client: some need one of these to be imported."""


class Elsewhere(Client):
    """A client whose tasks a program does, all in one run."""

    can: tuple[str, ...] = tuple(TASKS)

    def __init__(self) -> None:
        self._done: dict[str, Any] = {}
        """What the program printed, by the server's URL."""

    def tasks(self) -> list[str]:
        return list(self.can)

    def command(self) -> list[str]:
        """The program, which is given the names of the tasks."""
        raise NotImplementedError

    def _said(self, task: str, url: str) -> Any:
        """What came of a task."""
        if url not in self._done:
            self._done[url] = self._run(url)
        found = self._done[url][task]
        assert "error" not in found, found["error"]
        return found

    def _run(self, url: str) -> Any:
        questions = {task: self.question(task) for task in ("tools", "streamed_tools")}
        given = {"url": url, "model": MODEL, "greeting": GREETING, "describe": DESCRIBE, "result": RESULT, **questions}
        done = subprocess.run(
            [*self.command(), *self.can],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def answer(self, url: str) -> Reply:
        return Reply(**self._said("answer", url))

    def stream(self, url: str) -> Reply:
        return Reply(**self._said("stream", url))

    def tools(self, url: str) -> Loop:
        found = self._said("tools", url)
        return Loop(found["text"], tuple(found["cities"]))

    def streamed_tools(self, url: str) -> Loop:
        found = self._said("streamed_tools", url)
        return Loop(found["text"], tuple(found["cities"]))

    def structured(self, url: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._said("structured", url)
        return found


class AiSdk(Elsewhere):
    """Vercel's AI SDK, with one of its providers."""

    name = "AI SDK"

    def __init__(self, provider: str, package: str, route: Route) -> None:
        super().__init__()
        self.provider, self.package, self.route = provider, package, route
        self.shows_reasoning = self.returns_reasoning = provider != "chat"

    def __str__(self) -> str:
        return f"{self.name} {self.package} {self.route}"

    def command(self) -> list[str]:
        return ["node", str(npm_packages(AI_SDK) / "client.mjs"), self.provider]


class OtherPython(Elsewhere):
    """A client for Python in the environment of its own."""

    def __init__(self, name: str, package: str, key: str, route: Route, **more: Any) -> None:
        super().__init__()
        self.name, self.package, self.key, self.route = name, package, key, route
        self.can = more.get("can", self.can)
        self.shows_reasoning = more.get("shows_reasoning", False)
        self.returns_reasoning = more.get("returns_reasoning", False)

    def command(self) -> list[str]:
        return [str(environment()), str(HERE / "openai-2" / "client.py"), self.key, self.route]


@for_system_tests("an environment with other packages")
@cache
def environment() -> Path:
    """The Python that has the packages of `REQUIREMENTS`, made once and kept in the tests' cache."""
    name = f"{sys.version_info.major}.{sys.version_info.minor}-{sha256(REQUIREMENTS.read_bytes()).hexdigest()[:16]}"
    folder = cache_folder() / f"openai-2-{name}"
    python, made = folder / "bin" / "python", folder / ".made"
    folder.mkdir(exist_ok=True)
    with (folder / ".lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # other processes may run tests that need the same
        if not made.exists():
            venv.create(folder, with_pip=True)
            options = ["--quiet", "--no-compile", "--disable-pip-version-check"]
            command = [str(python), "-m", "pip", "install", *options, "--requirement", str(REQUIREMENTS)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
            if done.returncode != 0 and "NewConnectionError" in done.stderr + done.stdout:
                pytest.skip(f"pip cannot reach its index: {done.stderr[-200:]}")
            assert done.returncode == 0, done.stderr
            made.touch()
    return python


def _some(name: str, package: str, key: str, routes: tuple[Route, ...], **more: Any) -> tuple[Client, ...]:
    return tuple(OtherPython(name, package, key, route, **more) for route in routes)


CLIENTS: tuple[Client, ...] = (
    AiSdk("chat", "@ai-sdk/openai", CHAT),
    AiSdk("responses", "@ai-sdk/openai", RESPONSES),
    AiSdk("compatible", "@ai-sdk/openai-compatible", CHAT),
    AiSdk("anthropic", "@ai-sdk/anthropic", MESSAGES),
    *_some("LiteLLM", "litellm", "litellm", (CHAT, MESSAGES), shows_reasoning=True, returns_reasoning=True),
    *_some(
        "LiteLLM",
        "litellm",
        "litellm",
        (RESPONSES,),
        shows_reasoning=True,
        returns_reasoning=True,
        can=("answer", "stream", "tools", "streamed_tools"),
    ),
    *_some("instructor", "instructor", "instructor", (CHAT, RESPONSES, MESSAGES), can=("structured",)),
    *_some("LlamaIndex", "llama-index-llms-openai-like", "llama-index", (CHAT,)),
    *_some("LlamaIndex", "llama-index-llms-openai", "llama-index", (RESPONSES,)),
)
