"""Coding agents on vendors' templates: every normal run ends with exact edits, every damaged one recovers or says so.

python -m tests.clients.agents.test_vendors         play the scenes that the table in docs/agents.md lacks
python -m tests.clients.agents.test_vendors --all   play all scenes

The table says what came out of each scene, and is written after each; a scene that comes out otherwise fails here. A
scene takes a minute. So `make test-system` plays 55 of the 275, in which each agent meets each template and each
damage, and each template each damage; `make test-long` plays all.
"""

from __future__ import annotations

import re
import sys
from itertools import product

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
Scene = tuple[str, str, str]
_UNPLAYED = "not played"
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
    unplayed = [damage for damage, each in by_damage.items() if each is None]
    return "; ".join([*said, *([f"{_UNPLAYED}: {', '.join(unplayed)}"] if unplayed else [])])


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
                if outcome != _UNPLAYED:
                    outcomes |= {(template, agent, damage): outcome for damage in damages.split(", ")}
    return {scene: outcome for scene, outcome in outcomes.items() if outcome != "–"}


SCENES: list[Scene] = list(product(TEMPLATES, AGENTS, DAMAGES))


def in_cover(scene: Scene) -> bool:
    """Whether a scene is one of those that show each pair once."""
    template, agent, damage = scene
    number = list(TEMPLATES).index(template) + list(AGENTS).index(agent) + list(DAMAGES).index(damage)
    return number % len(DAMAGES) == 0


def test_each_pair_is_played() -> None:
    cover = [scene for scene in SCENES if in_cover(scene)]
    assert len(cover) == len(TEMPLATES) * len(AGENTS)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert {(scene[one], scene[other]) for scene in cover} == {(scene[one], scene[other]) for scene in SCENES}


def test_the_table_is_of_all_scenes() -> None:
    outcomes = listed()
    assert set(outcomes) == set(SCENES)
    assert "wrong" not in outcomes.values()
    assert re.search(re.escape(_BEGIN) + r"\| template", DOCUMENT.read_text(encoding="utf-8"))


@pytest.mark.system
@pytest.mark.parametrize(
    ("template", "agent", "damage"),
    [pytest.param(*scene, marks=[] if in_cover(scene) else [pytest.mark.slow]) for scene in SCENES],
)
def test_an_agent_on_a_template(template: str, agent: str, damage: str) -> None:
    outcome, said = played(AGENTS[agent], template, damage)
    assert outcome == listed().get((template, agent, damage), outcome), said
    assert outcome in (("edits",) if damage == "none" else ("recovers", "says so")), said


def main(every: bool) -> None:
    outcomes = {} if every else listed()
    for template, agent, damage in sorted(set(SCENES) - set(outcomes)):
        outcomes[template, agent, damage] = played(AGENTS[agent], template, damage)[0]
        write(outcomes)


def write(outcomes: Outcomes) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    before, begin, rest = text.partition(_BEGIN)
    DOCUMENT.write_text(before + begin + table(outcomes) + _END + rest.partition(_END)[2], encoding="utf-8")


if __name__ == "__main__":
    main("--all" in sys.argv)
