"""Writes docs/clients.md: how clients are set up, which versions of them are tested, and what each does.

python -m tests.clients.write           write it
python -m tests.clients.write --check   only say whether it is up to date

The settings are those that the agents run with in the tests, a mark in a table is a test that runs, and the versions
are those that are installed for the tests. So the document cannot say what is not so.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator

from ..support.generated import main
from ..support.places import ROOT
from .agents.coding_agents import AGENTS, Agent, ClaudeCode, Codex, OpenCode, formats
from .sdks.clients import CLIENTS
from .sdks.contract import TASKS, Client
from .sdks.elsewhere import AI_SDK, REQUIREMENTS

DOCUMENT = ROOT / "docs" / "clients.md"
_URL = "http://127.0.0.1:8000"
_HEAD = """\
# Clients

Which clients are tested with the server, in which versions, and how they are set up. For what the routes do, see
[server.md](server.md) and [agents.md](agents.md).

Written by `python -m tests.clients.write`; do not edit.

## Coding agents

Each runs as its users run it, without a network, on `unbraid serve` with a recorded model: in a repository it reads a
file, edits it, runs a command and ends. `tests/clients/agents` has the tests. They take 900 MB of npm packages in the
tests' cache, and are skipped where npm cannot get them.
"""
_NOTES = """\
Codex offers the model a web search, and a search for tools of other agents, which run at the vendor. The server
refuses them, so the settings below switch them off. Its `apply_patch` is a tool for models that it knows by name: serve
yours by such a name (`--served-model-name gpt-5.5`) if it can write patches. Otherwise it edits with shell commands.
What an agent says before your first word is 7,000 to 11,000 tokens long, so give the model a context of at least 32,768
(`--context`).
"""
_NAMES = """\
`my-model` is the name that the model is served by. opencode speaks the other dialects with `@ai-sdk/openai` or
`@ai-sdk/anthropic` as `npm`.
"""
_SDKS = """\
## SDKs and frameworks

All of them talk to a model that reasons, calls a tool and answers (`tests/clients/sdks`). The columns say what is
tested: an answer, a streamed one, a loop with a tool, the same streamed, and an answer with a schema. The last two say
whether the client shows the model's reasoning, and whether the model sees it again when the result of its call comes.
"""
_CONFLICTS = """\
LiteLLM and LlamaIndex need version 2 of `openai`, and instructor an older `jiter`: the tests run them in an environment
of their own, in their cache (400 MB). LangChain, Pydantic AI and the AI SDK show the reasoning of a Response only if
they ask for a summary (`reasoning={"summary": "auto"}`, `openai_reasoning_summary`, `reasoningSummary`).
"""


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    head = list(head)
    yield f"| {' | '.join(head)} |"
    yield f"| {' | '.join('---' for _ in head)} |"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _agents() -> Iterator[str]:
    rows = [(agent.title, agent.version, f"`{agent.route}`", ", ".join(formats(agent))) for agent in AGENTS]
    yield from _table(("agent", "version", "route", "formats"), rows)


def _setup(agent: Agent, names: str) -> Iterator[str]:
    """What a user of an agent writes, and where."""
    for file, text in agent.settings(_URL).items():
        yield from ("", f"{names}, in `~/{file}`:", "", f"```{file.rpartition('.')[2]}", text.rstrip(), "```")
    variables = agent.variables(_URL)
    if variables:
        yield from ("", f"{names}, in the environment:", "", "```text")
        yield from (f"export {name}={value}" for name, value in variables.items())
        yield "```"


def _sdks() -> Iterator[str]:
    versions = _versions()
    head = ("client", "package", "version", "route", *TASKS.values(), "shows reasoning", "returns it")
    rows = [(client.name, f"`{client.package}`", versions[client.package], *_marks(client)) for client in CLIENTS]
    yield from _table(head, rows)


def _marks(client: Client) -> Iterator[str]:
    yield f"`{client.route}`"
    tasks = client.tasks()
    for task in TASKS:
        yield "✓" if task in tasks else ""
    yield "✓" if client.shows_reasoning else ""
    yield "✓" if client.returns_reasoning else ""


def _versions() -> dict[str, str]:
    """The version of each package that is installed for the tests."""
    pins = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)
    found = dict(pins.findall(REQUIREMENTS.read_text(encoding="utf-8")))
    found |= dict(pins.findall((ROOT / "requirements" / "test.txt").read_text(encoding="utf-8")))
    named = json.loads((AI_SDK / "package.json").read_text(encoding="utf-8"))
    return {**found, **named["dependencies"]}


def document() -> str:
    lines = [_HEAD, *_agents(), "", _NOTES.rstrip()]
    for agent, names in ((Codex(), "Codex"), (ClaudeCode(), "Claude Code"), (OpenCode(), "opencode")):
        lines += _setup(agent, names)
    lines += [
        "",
        _NAMES,
        _SDKS,
        *_sdks(),
        "",
        _CONFLICTS.rstrip(),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", DOCUMENT, document, sys.argv[1:]))
