"""Coding agents, as their users run them, with `unbraid serve` in the place of the model's vendor.

The server plays a recording of what a model of each format would write. The agent is real: it reads a file, edits it,
runs a command and ends, and what it did is checked where it did it, in the repository.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unbraid.engines import Generation
from unbraid.engines.recording import read_recording
from unbraid.engines.replay import ReplayEngine, Script, script
from unbraid.formats import find

from ...support import patient_http
from ...support.running_server import service_of, serving
from ...support.serve_process import record, serve
from .coding_agents import AGENTS, Agent, OpenCodeWithTitle, formats
from .scene import BROKEN, FIRST_WORDS, LAST_WORDS, MENDED, TASK, THOUGHT, outputs, repository

pytestmark = pytest.mark.system

SCENES = [(agent, format) for agent in AGENTS for format in formats(agent)]


@pytest.mark.parametrize(
    ("agent", "format"), SCENES, ids=lambda value: value if isinstance(value, str) else type(value).__name__
)
def test_an_agent_mends_a_file(agent: Agent, format: str, tmp_path: Path) -> None:
    place = repository(tmp_path / "repository")
    written = outputs(format, agent.work(place))
    scripts = [script(text, chunks=(1, 9), seed=number) for number, text in enumerate(written)]
    played, seen = record(tmp_path / "played.jsonl", *scripts), tmp_path / "seen.jsonl"
    flags = ["--replay", played, "--format", format, "--served-model-name", agent.model, "--record", str(seen)]
    with serve(*flags) as server:
        done = agent.run(server.url.removesuffix("/v1"), place, tmp_path / "home")
        metrics = patient_http.get(server.url.removesuffix("/v1") + "/metrics").text
        said = f"{done.stdout}\n{done.stderr}\n{''.join(server.log)}"
    assert done.returncode == 0, said
    assert (place / "add.py").read_text(encoding="utf-8") == MENDED, said
    assert (place / "sum.txt").read_text(encoding="utf-8") == "5\n", said
    assert LAST_WORDS in done.stdout, said
    assert (THOUGHT in done.stdout) is (agent.shows_reasoning and find(format).reasoning is not None), said
    statuses = re.findall(r'unbraid_requests_total{route="(\S+)",status="(\d+)"}', metrics)
    assert [status for route, status in statuses if route != "metrics"] == ["200"], f"{statuses}\n{said}"
    prompts = [str(request.prompt) for request in read_recording(seen).requests]
    assert len(prompts) == len(written), said
    wrong = BROKEN.splitlines()[1].strip()
    assert [wrong in prompt for prompt in prompts] == [False, True, True, True], "the model sees what it read"
    assert [FIRST_WORDS in prompt for prompt in prompts] == [False, True, True, True], "and what it said"


def test_an_agent_that_asks_for_something_beside_the_work(tmp_path: Path) -> None:
    """A title, say. A recording is played in its order, so here the scripts are chosen by what the prompt asks for."""
    agent, place = OpenCodeWithTitle(), repository(tmp_path / "repository")
    written = iter(outputs("hermes", agent.work(place)))
    titles: list[str] = []

    def choose(request: Generation) -> Script:
        prompt = str(request.prompt)
        if "title generator" not in prompt:
            return script(next(written), chunks=(1, 9))
        titles.append(prompt)
        return script("Mend add.py", chunks=3)

    with serving(service_of(ReplayEngine(choose, model=agent.model), "hermes")) as server:
        done = agent.run(server.url, place, tmp_path / "home")
    assert done.returncode == 0, done.stderr
    assert (place / "add.py").read_text(encoding="utf-8") == MENDED, done.stdout
    assert LAST_WORDS in done.stdout
    assert len(titles) == 1
    assert TASK in titles[0]
