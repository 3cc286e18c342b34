"""Detection on all templates that can be had: those of other projects' packages, and those of a folder of one's own.

`UNBRAID_TEMPLATES` names a folder with further templates (`*.jinja`), such as what engines, trainers and models carry.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import unbraid
from unbraid.templates.errors import DetectionError

from ...rollouts.further import further_templates
from ...support.places import ROOT

pytestmark = pytest.mark.system

FOLDER = Path(os.environ.get("UNBRAID_TEMPLATES") or ROOT.parent / "corpus" / "templates")


def check_template(source: str) -> str:
    """What is wrong with the detection of a template; nothing if it writes no calls and no reasoning."""
    try:
        found = unbraid.detect(source)
    except DetectionError as error:
        return "" if "no chat template" in str(error) or "takes no message" in str(error) else str(error)
    if not {"calls", "reasoning"} & {*found.strands}:
        return ""
    return "" if found.verified else found.problem


FAMILIES = {
    "Bielik-11B-v3.0-Instruct": ("qwen3", "content"),
    "inclusionai-ling-3.0-flash": ("ling-3", "reasoning"),
    "Kimi-K2-Thinking": ("kimi-k2", "content"),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": ("nemotron-3", "reasoning"),
    "poolside-Laguna-S-2.1": ("poolside-v1", "reasoning"),
    "Qwen3.5-4B": ("qwen3.5", "reasoning"),
    "Spark2.5": ("spark-2.5", "reasoning"),
    "StepFun3.5-Flash": ("step-3.5", "reasoning"),
}
"""The model's own family, and where its outputs start by default."""


def test_templates_of_packages() -> None:
    wrong = {name: why for name, source in further_templates().items() if (why := check_template(source))}
    assert wrong == {}


@pytest.mark.parametrize("name", FAMILIES)
def test_families_of_packages(name: str) -> None:
    format = unbraid.detect(further_templates()[f"llama.cpp: {name}"]).required()
    assert (format.name, unbraid.Parser(format).strand) == FAMILIES[name]


def test_templates_of_a_folder() -> None:
    if not FOLDER.is_dir():
        pytest.skip("no folder of further templates: set UNBRAID_TEMPLATES to one")
    wrong = {
        path.name: why for path in sorted(FOLDER.glob("*.jinja")) if (why := check_template(path.read_text("utf-8")))
    }
    assert wrong == {}
