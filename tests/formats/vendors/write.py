"""Writes docs/templates.md: the vendors' templates, and what of an assistant's turn comes back through them.

python -m tests.formats.vendors.write           write it
python -m tests.formats.vendors.write --check   only say whether it is up to date
"""

from __future__ import annotations

import sys

import unbraid

from ...support.generated import main
from ...support.places import ROOT
from .rendering import ArgumentsAs, Template, written
from .templates import TEMPLATES, WITHOUT_FORMAT
from .turns import TOOLS, TURNS

DOCUMENT = ROOT / "docs" / "templates.md"

_HEAD = """\
# Vendors' templates

A chat template writes an assistant's turn as the model itself would have written it. So it shows, better than any
description, what the model writes. Each template below was given turns, and what it wrote was parsed. By law 10
([laws.md](laws.md)) the turn comes back.

- **yes**: the turn comes back, byte for byte. Arguments were given as objects or as text, whichever the template takes.
- **less**: everything that the template wrote comes back. The last column says what it does not write.
- **no**: the turn does not come back; the last column says why.
- **–**: the template does not accept such a turn, or writes nothing for it.

Templates are rendered as Hugging Face renders them (`unbraid.templates`). `tests/formats/vendors/test_templates.py`
checks this table, with whole texts and one character at a time. It also checks that the constraints accept what the
templates write, and names those that do not.

Written by `python -m tests.formats.vendors.write`; do not edit.
"""

_COLUMNS = {
    "content": ("content", "content of many lines"),
    "reasoning": ("reasoning and content", "reasoning and a call"),
    "a call": ("a call",),
    "several calls": ("several calls",),
    "with content": ("content and a call",),
    "nested arguments": ("nested arguments",),
}


def document() -> str:
    rows = [_row("template", "format", *_COLUMNS, "what the template itself loses, and notes")]
    rows.append("| --- | --- |" + " --- |" * (len(_COLUMNS) + 1))
    rows += sorted([*map(_template, TEMPLATES.values()), *map(_without, WITHOUT_FORMAT)], key=str.lower)
    return "\n".join([_HEAD, *rows, ""])


def _template(template: Template) -> str:
    options = ", ".join(f"{key}={value}" for key, value in template.options.items() if isinstance(value, bool))
    return _row(
        template.file + (f" ({options})" if options else ""),
        ", ".join(f"`{format}`" for format in template.formats),
        *(_verdict(template, names) for names in _COLUMNS.values()),
        " ".join([*(loss.what for loss in template.losses), template.note]).strip(),
    )


def _without(file: str) -> str:
    return _row(file, "", *("–" for _ in _COLUMNS), f"It {WITHOUT_FORMAT[file]}.")


def _verdict(template: Template, names: tuple[str, ...]) -> str:
    """How the turns of these names come back, at worst."""
    verdicts = {_come_back(template, name, given_as) for name, given_as in template.turns() if name in names}
    return next((verdict for verdict in ("no", "less", "yes") if verdict in verdicts), "–")


def _come_back(template: Template, name: str, arguments_as: ArgumentsAs) -> str:
    prompt, output = written(template, TURNS[name], arguments_as)
    message = unbraid.parse(template.formats[0], output, tools=TOOLS, prompt=prompt)
    left = template.left_of(TURNS[name], arguments_as)
    if message != left.message():
        return "no"
    return "yes" if left == template.spelled(TURNS[name], arguments_as) else "less"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.exit(main(__doc__, DOCUMENT, document, sys.argv[1:]))
