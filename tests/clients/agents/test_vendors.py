"""Coding agents on vendors' templates: every normal run ends with exact edits, every damaged one recovers or says so.

python -m tests.clients.agents.test_vendors   play all scenes, and write the table in docs/agents.md

The table says what came out of each scene; a scene that comes out otherwise fails here.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from ...support.places import ROOT
from .coding_agents import Agent, ClaudeCode, Codex, CodexWithPatches, OpenCode, QwenCode
from .vendor_scenes import DAMAGES, TEMPLATES, played

DOCUMENT = ROOT / "docs" / "agents.md"
AGENTS: dict[str, Agent] = {
    "Codex": Codex(),
    "Codex, `apply_patch`": CodexWithPatches(),
    "Claude Code": ClaudeCode(),
    "opencode": OpenCode(),
    "Qwen Code": QwenCode(),
}
Outcomes = dict[tuple[str, str, str], str]
"""By template, agent and damage."""
_BEGIN, _END = "<!-- agents on vendors' templates -->\n", "<!-- end -->\n"


def table(outcomes: Outcomes) -> str:
    rows = [["template", *AGENTS], ["---"] * (1 + len(AGENTS))]
    rows += [[template, *(_cell(outcomes, template, agent) for agent in AGENTS)] for template in TEMPLATES]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cell(outcomes: Outcomes, template: str, agent: str) -> str:
    by_damage = {damage: outcomes.get((template, agent, damage)) for damage in DAMAGES}
    said = [by_damage.pop("none") or "–"]
    for outcome in ("recovers", "says so", "wrong"):
        damages = [damage for damage, each in by_damage.items() if each == outcome]
        if damages:
            said.append(f"{outcome}: {', '.join(damages)}")
    return "; ".join(said)


def listed() -> Outcomes:
    """What the table says."""
    _, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(_BEGIN)
    outcomes: Outcomes = {}
    for row in rest.partition(_END)[0].splitlines()[2:]:
        template, *cells = [cell.strip() for cell in row.strip("|").split("|")]
        for agent, cell in zip(AGENTS, cells, strict=True):
            normal, *others = cell.split("; ")
            outcomes[template, agent, "none"] = normal
            for outcome, damages in (other.split(": ") for other in others):
                outcomes |= {(template, agent, damage): outcome for damage in damages.split(", ")}
    return outcomes


def test_the_table_is_of_all_scenes() -> None:
    outcomes = listed()
    assert {template for template, _, _ in outcomes} == set(TEMPLATES)
    assert "wrong" not in outcomes.values()
    assert re.search(re.escape(_BEGIN) + r"\| template", DOCUMENT.read_text(encoding="utf-8"))


@pytest.mark.system
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_on_a_template(agent: str, template: str, damage: str) -> None:
    outcome, said = played(AGENTS[agent], template, damage)
    assert outcome == listed().get((template, agent, damage), outcome), said
    assert outcome in (("edits",) if damage == "none" else ("recovers", "says so")), said


def main() -> None:
    scenes = [(template, agent, damage) for agent in AGENTS for damage in DAMAGES for template in TEMPLATES]
    with ThreadPoolExecutor(2) as threads:
        results = threads.map(lambda scene: played(AGENTS[scene[1]], scene[0], scene[2])[0], scenes)
        outcomes = dict(zip(scenes, results, strict=True))
    write(outcomes)


def write(outcomes: Outcomes) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    before, begin, rest = text.partition(_BEGIN)
    DOCUMENT.write_text(before + begin + table(outcomes) + _END + rest.partition(_END)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
