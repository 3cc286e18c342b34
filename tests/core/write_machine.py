"""Writes docs/machine.md: the states of the parser and how they follow each other.

python -m tests.core.write_machine           write it
python -m tests.core.write_machine --check   only say whether it is up to date
"""

from __future__ import annotations

import sys

from unbraid.core.machine import states

from ..support.generated import main
from ..support.places import ROOT

DOCUMENT = ROOT / "docs" / "machine.md"


def document() -> str:
    theory = (states.__doc__ or "").split("\n\n", 1)[1].strip()
    lines = ["# The machine", "", theory, "", "## Diagram", "", *_diagram(), "", "## States", ""]
    lines += ["| state | reads | ends with | malformed input |", "| --- | --- | --- | --- |"]
    for kind, state in states.STATES.items():
        lines.append(f"| `{kind}` | {state.reads} | {state.ends} | {state.malformed} |")
    lines += ["", "Written by `python -m tests.core.write_machine`; do not edit.", ""]
    return "\n".join(lines)


def _diagram() -> list[str]:
    """An arrow for each frame that can put another one on top of itself, or in its own place."""
    arrows = [f"    start(( )) --> {kind}" for kind in states.START]
    arrows += [f"    {kind} --> {opened}" for kind, state in states.STATES.items() for opened in state.opens]
    return ["```mermaid", "flowchart LR", *arrows, "```"]


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", DOCUMENT, document, sys.argv[1:]))
