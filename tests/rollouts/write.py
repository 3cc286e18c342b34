"""Writes the table in docs/rollouts.md: from which turns each vendor's template goes on, and why not from others.

python -m tests.rollouts.write           write it
python -m tests.rollouts.write --check   only say whether it is up to date
"""

from __future__ import annotations

import sys

from ..support.generated import main
from ..support.places import ROOT
from .cases import TEMPLATES, UNSAFE, renderer

DOCUMENT = ROOT / "docs" / "rollouts.md"
_HEADING = "## The vendors' templates\n"
_NOTE = """
Each template was rendered with short conversations, as it comes, without options. **yes**: it goes on from such a turn
as it stands, so `extend` returns the next prompt. **no**: it would rewrite the past, and `extend` returns None unless
you ask for `past="sampled"` or `past="anew"`; the last column says where in the template. **–**: its models write no
such turn, or the prompt does not let them. {proven} of {count} templates go on from every turn, and {loop} from every
call to its result.

Written by `python -m tests.rollouts.write`; do not edit below this line.
"""
_COLUMNS = {
    "answer": "a message of the user after an answer",
    "reasoned answer": "a message of the user after an answer after reasoning",
    "call": "a result after a call",
    "several calls": "a result after several calls",
    "reasoned call": "a result after a call after reasoning",
    "reasoned calls": "a result after several calls after reasoning",
}


def document() -> str:
    rows, proven, loop = [], 0, 0
    for name in sorted([*TEMPLATES, *UNSAFE], key=str.lower):
        if name in UNSAFE:
            rows.append(_row(name, "–", *["–"] * len(_COLUMNS), "It does what Hugging Face's sandbox forbids."))
            continue
        made = renderer(name, "bytes")
        cases = made.proof
        proven += made.is_prefix_stable
        results = [reason for case, reason in cases.items() if case.startswith("a result after a call")]
        loop += bool(results) and not any(results)
        cells = ["–" if case not in cases else "no" if cases[case] else "yes" for case in _COLUMNS.values()]
        rows.append(_row(name, f"`{made.format.name}`", *cells, _places(name, made.reasons)))
    head = [
        _row("template", "format", *_COLUMNS, "where it rewrites the past"),
        "| --- |" + " --- |" * (len(_COLUMNS) + 2),
    ]
    note = _NOTE.format(proven=proven, count=len(rows), loop=loop)
    before = DOCUMENT.read_text(encoding="utf-8").partition(_HEADING)[0]
    return "\n".join([before + _HEADING + note, *head, *rows, ""])


def _places(name: str, reasons: tuple[str, ...]) -> str:
    """The reasons without what the row says already: what the same place does is told once."""
    told: dict[str, str] = {}
    for reason in reasons:
        case, _, place = reason.partition(": ")
        told.setdefault(place.replace(f"{name}, ", ""), case)
    return " ".join(f"{case}: {place.rstrip('.!')}." for place, case in told.items())


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", DOCUMENT, document, sys.argv[1:]))
