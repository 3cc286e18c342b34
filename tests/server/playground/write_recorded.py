"""Writes the playground's recorded outputs: what vendors' templates write, and the examples of the repository.

python -m tests.server.playground.write_recorded           write it
python -m tests.server.playground.write_recorded --check   only say whether it is up to date
"""

from __future__ import annotations

import json
import sys
from typing import Any

from unbraid import find

from ...formats.vendors.rendering import Template, written
from ...formats.vendors.templates import TEMPLATES
from ...formats.vendors.turns import PLAIN_TOOLS, TURNS
from ...support.generated import main
from ...support.places import ROOT

DOCUMENT = ROOT / "unbraid" / "server" / "playground" / "recorded.json"
EXAMPLES = ("hermes", "qwen3", "mistral", "step-audio-2", "glm-4-voice")
_RICHEST = ("reasoning, content and calls", "lines of content and calls", "several calls", "a call", "content")
"""The turns that say most, in this order: of each template the first that it can be given."""

_END = 40
"""Characters of the prompt that are kept: its end says where the output begins."""


def document() -> str:
    found: dict[str, list[dict[str, Any]]] = {}
    tools = json.loads((ROOT / "examples" / "tools.json").read_text(encoding="utf-8"))
    for name in EXAMPLES:
        text = (ROOT / "examples" / f"{name}.txt").read_text(encoding="utf-8")
        sample = {"title": f"examples/{name}.txt", "source": "recorded", "text": text, "tools": tools}
        found.setdefault(find(name).name, []).append(sample)
    for template in TEMPLATES.values():
        for name, sample in _rendered(template):
            samples = found.setdefault(name, [])
            if sample["text"] not in [other["text"] for other in samples]:
                samples.append(sample)
    return json.dumps(dict(sorted(found.items())), ensure_ascii=False, indent=1) + "\n"


def _rendered(template: Template) -> list[tuple[str, dict[str, Any]]]:
    """What a template writes for the turn that says most, once for each of its formats."""
    can = dict(reversed(list(template.turns())))
    name = next((name for name in _RICHEST if name in can), None)
    if name is None:
        return []
    prompt, text = written(template, TURNS[name], can[name])
    sample = {"title": f"{template.file}: {name}", "source": "template", "text": text, "tools": PLAIN_TOOLS}
    return [(find(format).name, {**sample, "prompt": prompt[-_END:]}) for format in template.formats]


if __name__ == "__main__":
    sys.exit(main(__doc__, DOCUMENT, document, sys.argv[1:]))
