"""The coding agents: how each is started without a person and without a network, and which tools it has.

Each is the program that its users run, from npm, with a home of its own and nothing of the environment of the tests.
What keeps it from calling home is part of how it is started; the settings that say where the model is are those that
`docs/clients.md` tells its users.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

import pytest

from ...support.npm_packages import npm_packages
from .scene import COMMAND, TASK, Work

NPM = Path(__file__).parent / "npm"
LIMIT = 300
"""Seconds for one scene: an agent whose requests fail tries again for minutes."""


def _only(modules: Path, pattern: str) -> Path:
    """A program that comes in a package for each platform. npm installs the one for this platform, if there is one."""
    found = list(modules.glob(pattern))
    if not found:
        pytest.skip(f"npm has no {pattern} for this platform")
    (program,) = found
    return program


class Agent(ABC):
    """One agent, with one way to speak to the server."""

    package: str
    """The folder that names its package."""
    route: str
    """The route that it asks."""
    model = "replay"
    """The name that it knows the model by."""
    shows_reasoning = True
    """Whether it shows what the model reasoned."""

    def __init__(self) -> None:
        self.program = self._program(npm_packages(NPM / self.package) / "node_modules")

    def __str__(self) -> str:
        return f"{self.package} {self.route}"

    @abstractmethod
    def _program(self, modules: Path) -> Path:
        """The program, among the packages."""

    @abstractmethod
    def work(self, repository: Path) -> Work:
        """The calls that do what the scene asks for."""

    @abstractmethod
    def settings(self, url: str) -> Mapping[str, str]:
        """The files of its home."""

    @abstractmethod
    def environment(self, url: str) -> Mapping[str, str]:
        """The variables that it reads."""

    @abstractmethod
    def arguments(self) -> list[str]:
        """What comes before the task."""

    def run(self, url: str, repository: Path, home: Path) -> subprocess.CompletedProcess[str]:
        """Have it do the task. `url` is that of the server, without `/v1`."""
        for name, text in self.settings(url).items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text, encoding="utf-8")
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        return subprocess.run(
            [str(self.program), *self.arguments(), TASK],
            cwd=repository,
            env={"PATH": path, "HOME": str(home), **self.environment(url)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )


class Codex(Agent):
    """OpenAI's Codex. To a model that it does not know it gives a shell, and no tool to edit with."""

    package = "codex"
    route = "/v1/responses"

    def _program(self, modules: Path) -> Path:
        return modules / ".bin" / "codex"

    def work(self, repository: Path) -> Work:
        edit = "sed -i 's/a - b/a + b/' add.py"
        return Work(
            read=("exec_command", {"cmd": "cat add.py"}),
            edit=("exec_command", {"cmd": edit, "workdir": str(repository)}),
            run=("exec_command", {"cmd": COMMAND, "yield_time_ms": 10000}),
        )

    def settings(self, url: str) -> Mapping[str, str]:
        provider = f"""
model = "{self.model}"
model_provider = "unbraid"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.unbraid]
name = "unbraid"
base_url = "{url}/v1"
wire_api = "responses"
"""
        return {".codex/config.toml": provider}

    def environment(self, url: str) -> Mapping[str, str]:
        return {}

    def arguments(self) -> list[str]:
        return ["exec", "--json", "--dangerously-bypass-approvals-and-sandbox"]


class CodexWithPatches(Codex):
    """Codex, for a model whose name it knows: that one edits with `apply_patch`, a tool whose input is free text."""

    model = "gpt-5.5"
    shows_reasoning = False  # it asks for no summary of this one's

    def __str__(self) -> str:
        return f"{super().__str__()} apply_patch"

    def work(self, repository: Path) -> Work:
        patch = """\
*** Begin Patch
*** Update File: add.py
@@
 def add(a, b):
-    return a - b
+    return a + b
*** End Patch
"""
        plain = super().work(repository)
        return Work(plain.read, ("apply_patch", {"input": patch}), plain.run)


class ClaudeCode(Agent):
    """Anthropic's Claude Code."""

    package = "claude-code"
    route = "/v1/messages"

    def _program(self, modules: Path) -> Path:
        return _only(modules, "@anthropic-ai/claude-code-*/claude")

    def work(self, repository: Path) -> Work:
        file = str(repository / "add.py")
        return Work(
            read=("Read", {"file_path": file}),
            edit=("Edit", {"file_path": file, "old_string": "    return a - b", "new_string": "    return a + b"}),
            run=("Bash", {"command": COMMAND, "description": "Run it"}),
        )

    def settings(self, url: str) -> Mapping[str, str]:
        return {}

    def environment(self, url: str) -> Mapping[str, str]:
        return {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "any",
            "ANTHROPIC_MODEL": self.model,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "IS_SANDBOX": "1",  # it lets root skip permissions
        }

    def arguments(self) -> list[str]:
        return ["--print", "--output-format=stream-json", "--verbose", "--dangerously-skip-permissions"]


class OpenCode(Agent):
    """opencode, with a provider for OpenAI's chat."""

    package = "opencode"
    route = "/v1/chat/completions"
    provider = "@ai-sdk/openai-compatible"
    options: Mapping[str, object] = {}
    """What it tells the provider of the model."""

    def _program(self, modules: Path) -> Path:
        return _only(modules, "opencode-*/bin/opencode")

    def work(self, repository: Path) -> Work:
        file = str(repository / "add.py")
        return Work(
            read=("read", {"filePath": file}),
            edit=("edit", {"filePath": file, "oldString": "    return a - b", "newString": "    return a + b"}),
            run=("bash", {"command": COMMAND, "description": "Run it"}),
        )

    def settings(self, url: str) -> Mapping[str, str]:
        provider = {
            "npm": self.provider,
            "name": "unbraid",
            "options": {"baseURL": f"{url}/v1", "apiKey": "any"},
            "models": {self.model: {"name": self.model, "options": self.options}},
        }
        chosen = {"provider": {"unbraid": provider}, "model": f"unbraid/{self.model}"}
        quiet = {"autoupdate": False, "share": "disabled", "permission": "allow"}
        quiet |= {"snapshot": False, "lsp": False, "formatter": False}  # half of its time
        return {".config/opencode/opencode.json": json.dumps({**chosen, **quiet})}

    def environment(self, url: str) -> Mapping[str, str]:
        names = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
        return {f"OPENCODE_DISABLE_{name}": "1" for name in names}

    def arguments(self) -> list[str]:
        return ["run", "--pure", "--format=json", "--thinking", "--title=Mend"]  # with a title, it asks the model for none


class OpenCodeResponses(OpenCode):
    """opencode, with the provider for OpenAI's responses."""

    route = "/v1/responses"
    provider = "@ai-sdk/openai"
    options: Mapping[str, object] = {"reasoningSummary": "auto", "forceReasoning": True}  # to show the reasoning


class OpenCodeMessages(OpenCode):
    """opencode, with the provider for Anthropic's messages."""

    route = "/v1/messages"
    provider = "@ai-sdk/anthropic"
