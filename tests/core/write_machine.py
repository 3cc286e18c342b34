"""Writes docs/machine.md: the states of the parser and how they follow each other, as the frames declare it.

python -m tests.core.write_machine           write it
python -m tests.core.write_machine --check   only say whether it is up to date
"""

from __future__ import annotations

import re
import sys

from unbraid.core import machine, notations
from unbraid.core.machine import driver  # noqa: F401  # loads all frames
from unbraid.core.machine.machine import START, Frame

from ..support.generated import main
from ..support.places import ROOT

DOCUMENT = ROOT / "docs" / "machine.md"

OWN = (f"{machine.__name__}.", f"{notations.__name__}.")


def frames() -> dict[str, type[Frame]]:
    """The frames of unbraid, content first, each after one that opens it. (Tests have frames of their own.)"""
    kinds = sorted(Frame.registry, key=lambda kind: (kind != "scope", kind))
    left = {kind: Frame.registry[kind] for kind in kinds if Frame.registry[kind].__module__.startswith(OWN)}
    ordered: dict[str, type[Frame]] = {}

    def add(opener: str) -> None:
        for kind in [kind for kind, frame in left.items() if opener in frame.opened_by]:
            if kind in left:
                ordered[kind] = left.pop(kind)
                add(kind)

    add(START)
    assert not left, f"nothing opens these: {', '.join(left)}"
    return ordered


def document() -> str:
    _, begin, theory = (machine.__doc__ or "").partition("**The machine.**")
    theory = re.sub(r"(law \d+)\s\(docs/(laws\.md#law-\d+)\)", r"[\1](\2)", (begin + theory).strip())
    lines = ["# The machine", "", theory, "", "## Diagram", "", *_diagram(), "", "## States", ""]
    lines += ["| state | reads | ends with | malformed input |", "| --- | --- | --- | --- |"]
    for kind, frame in frames().items():
        lines.append(f"| `{kind}` | {frame.about.reads} | {frame.about.ends} | {frame.about.malformed} |")
    lines += ["", "Written by `python -m tests.core.write_machine`; do not edit.", ""]
    return "\n".join(lines)


def _diagram() -> list[str]:
    """An arrow for each frame that can put another one on top of itself, or in its own place."""
    arrows = [
        (opener, kind) for opener in (START, *frames()) for kind, one in frames().items() if opener in one.opened_by
    ]
    lines = [f"    {'start(( ))' if opener == START else opener} --> {kind}" for opener, kind in arrows]
    return ["```mermaid", "flowchart LR", *lines, "```"]


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", DOCUMENT, document, sys.argv[1:]))
