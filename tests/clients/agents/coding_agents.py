"""The coding agents: how each is started without a person and without a network, and which tools it has.

Each is the program that its users run, from npm, with a home of its own and nothing of the environment of the tests.
What says where the model is stands apart from what keeps an agent to itself: `docs/clients.md` shows the first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import pytest

from ...support.npm_packages import npm_packages
from .scene import COMMAND, TASK, Call, Work

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

    title: str
    package: str
    """The folder that names its package."""
    route: str
    """The route that it asks."""
    model = "my-model"
    """The name that it knows the model by."""
    shows_reasoning = True
    """Whether it shows what the model reasoned."""

    def __str__(self) -> str:
        return type(self).__name__

    @cached_property
    def program(self) -> Path:
        return self._program(npm_packages(NPM / self.package) / "node_modules")

    @property
    def version(self) -> str:
        named = json.loads((NPM / self.package / "package.json").read_text(encoding="utf-8"))
        versions = set((named.get("dependencies") or named["optionalDependencies"]).values())
        (version,) = map(str, versions)
        return version

    @abstractmethod
    def _program(self, modules: Path) -> Path:
        """The program, among the packages."""

    @abstractmethod
    def work(self, repository: Path) -> Work:
        """The calls that do what the scene asks for."""

    @abstractmethod
    def writing(self, file: Path, text: str) -> Call:
        """The call that writes a file."""

    def settings(self, url: str) -> Mapping[str, str]:
        """The files of its home that say where the model is."""
        return {}

    def variables(self, url: str) -> Mapping[str, str]:
        """The variables that do."""
        return {}

    def quiet_settings(self, settings: Mapping[str, str]) -> Mapping[str, str]:
        """The files, with what else keeps it from calling home and from asking."""
        return settings

    def quiet_variables(self) -> Mapping[str, str]:
        """The variables that do."""
        return {}

    @abstractmethod
    def arguments(self) -> list[str]:
        """What comes before the task."""

    def run(self, url: str, repository: Path, home: Path) -> subprocess.CompletedProcess[str]:
        """Have it do the task. `url` is that of the server, without `/v1`."""
        for name, text in self.quiet_settings(self.settings(url)).items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text, encoding="utf-8")
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        return subprocess.run(
            [str(self.program), *self.arguments(), TASK],
            cwd=repository,
            env={"PATH": path, "HOME": str(home), **self.variables(url), **self.quiet_variables()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )


class Codex(Agent):
    """OpenAI's Codex. To a model that it does not know it gives a shell, and no tool to edit with."""

    title = "Codex"
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
            look=("exec_command", {"cmd": "ls"}),
        )

    def writing(self, file: Path, text: str) -> Call:
        return "exec_command", {"cmd": f"cat > {file} << 'END OF FILE'\n{text}END OF FILE\n"}

    def settings(self, url: str) -> Mapping[str, str]:
        text = f"""\
model = "{self.model}"
model_provider = "unbraid"
web_search = "disabled"

[model_providers.unbraid]
name = "unbraid"
base_url = "{url}/v1"
wire_api = "responses"

[features]
multi_agent = false
"""
        return {".codex/config.toml": text}

    def quiet_settings(self, settings: Mapping[str, str]) -> Mapping[str, str]:
        ((name, text),) = settings.items()
        return {name: f"check_for_update_on_startup = false\n{text}\n[analytics]\nenabled = false\n"}

    def arguments(self) -> list[str]:
        return ["exec", "--json", "--dangerously-bypass-approvals-and-sandbox"]


class CodexWithPatches(Codex):
    """Codex, for a model whose name it knows: that one edits with `apply_patch`, a tool whose input is free text."""

    title = "Codex, with `apply_patch`"
    model = "gpt-5.5"
    shows_reasoning = False  # it asks for no summary of this one's

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
        return Work(plain.read, ("apply_patch", {"input": patch}), plain.run, plain.look)


class ClaudeCode(Agent):
    """Anthropic's Claude Code."""

    title = "Claude Code"
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
            look=("Bash", {"command": "ls", "description": "List files"}),
        )

    def writing(self, file: Path, text: str) -> Call:
        return "Write", {"file_path": str(file), "content": text}

    def variables(self, url: str) -> Mapping[str, str]:
        return {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "any",
            "ANTHROPIC_MODEL": self.model,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

    def quiet_variables(self) -> Mapping[str, str]:
        return {"IS_SANDBOX": "1"}  # it lets root skip permissions

    def arguments(self) -> list[str]:
        return ["--print", "--output-format=stream-json", "--verbose", "--dangerously-skip-permissions"]


class OpenCode(Agent):
    """opencode, with a provider for OpenAI's chat."""

    title = "opencode"
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
            look=("bash", {"command": "ls", "description": "List files"}),
        )

    def writing(self, file: Path, text: str) -> Call:
        return "write", {"filePath": str(file), "content": text}

    def settings(self, url: str) -> Mapping[str, str]:
        provider = {
            "npm": self.provider,
            "name": "unbraid",
            "options": {"baseURL": f"{url}/v1", "apiKey": "any"},
            "models": {self.model: {"options": self.options} if self.options else {}},
        }
        chosen = {"provider": {"unbraid": provider}, "model": f"unbraid/{self.model}"}
        return {".config/opencode/opencode.json": json.dumps(chosen, indent=2) + "\n"}

    def quiet_settings(self, settings: Mapping[str, str]) -> Mapping[str, str]:
        ((name, text),) = settings.items()
        quiet = {"autoupdate": False, "share": "disabled", "permission": "allow"}
        quick = {"snapshot": False, "lsp": False, "formatter": False}  # half of its time
        return {name: json.dumps({**json.loads(text), **quiet, **quick})}

    def quiet_variables(self) -> Mapping[str, str]:
        names = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
        return {f"OPENCODE_DISABLE_{name}": "1" for name in names}

    def arguments(self) -> list[str]:
        return [
            "run",
            "--pure",
            "--format=json",
            "--thinking",
            "--title=Mend",
        ]  # with a title, it asks the model for none


class OpenCodeWithTitle(OpenCode):
    """opencode, as it is without a title: it has the model write one, beside the work."""

    def arguments(self) -> list[str]:
        return [argument for argument in super().arguments() if not argument.startswith("--title")]


class OpenCodeResponses(OpenCode):
    """opencode, with the provider for OpenAI's responses."""

    route = "/v1/responses"
    provider = "@ai-sdk/openai"
    options: Mapping[str, object] = {"reasoningSummary": "auto", "forceReasoning": True}  # to show the reasoning


class OpenCodeMessages(OpenCode):
    """opencode, with the provider for Anthropic's messages."""

    route = "/v1/messages"
    provider = "@ai-sdk/anthropic"


class QwenCode(Agent):
    """Alibaba's Qwen Code, with OpenAI's chat."""

    title = "Qwen Code"
    package = "qwen-code"
    route = "/v1/chat/completions"

    def _program(self, modules: Path) -> Path:
        return modules / ".bin" / "qwen"

    def work(self, repository: Path) -> Work:
        file = str(repository / "add.py")
        change = {"file_path": file, "old_string": "    return a - b", "new_string": "    return a + b"}
        return Work(
            read=("read_file", {"file_path": file}),
            edit=("edit", change),
            run=("run_shell_command", {"command": COMMAND, "is_background": False}),
            look=("list_directory", {"path": str(repository)}),
        )

    def writing(self, file: Path, text: str) -> Call:
        return "write_file", {"file_path": str(file), "content": text}

    def variables(self, url: str) -> Mapping[str, str]:
        return {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "any", "OPENAI_MODEL": self.model}

    def quiet_settings(self, settings: Mapping[str, str]) -> Mapping[str, str]:
        quiet = {
            "general": {"disableAutoUpdate": True, "disableUpdateNag": True},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
        }
        return {".qwen/settings.json": json.dumps(quiet)}

    def arguments(self) -> list[str]:
        return ["--yolo", "--auth-type=openai", "--output-format=stream-json"]


AGENTS: tuple[Agent, ...] = (
    Codex(),
    CodexWithPatches(),
    ClaudeCode(),
    OpenCode(),
    OpenCodeResponses(),
    OpenCodeMessages(),
)
FORMATS = ("hermes", "qwen3-coder", "harmony")
"""One that writes calls as JSON, one with a tag for each argument, and one in channels, with reasoning."""


def formats(agent: Agent) -> tuple[str, ...]:
    """Those in which an agent is tested. In another dialect it is the same agent: one is enough."""
    return ("harmony",) if isinstance(agent, OpenCodeResponses | OpenCodeMessages) else FORMATS
