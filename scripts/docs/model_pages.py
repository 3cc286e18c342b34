"""The page "Which format is my model?": models by their names on the hub, with the format that they write and the
vendor's template that shows it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from unbraid import Format, all_formats
from unbraid.formats.hub_names import HUB_NAMES

from .format_pages import path_of
from .markdown import code, table

PATH = "which-format.md"
_TEMPLATES = Path(__file__).resolve().parents[2] / "docs" / "templates.md"
_ROW = re.compile(r"^\| ([^|]+?) \| ((?:`[^`]+`(?:, )?)+) \|", re.MULTILINE)
_ABOUT = """\
# Which format is my model?

Look for the name of your model on the Hugging Face hub. The organisation, the size and the quantisation do not matter:
`unsloth/Qwen3-0.6B-GGUF` is `Qwen/Qwen3-8B`. Every command and every function that takes the name of a format takes
these names too: `unbraid parse --format Qwen/Qwen3-8B`, `unbraid.Parser("Qwen/Qwen3-8B")`.

If it is not here, ask its chat template (`unbraid detect MODEL`), or what it has written
(`unbraid detect --output FILE`): [detecting a format](detect.md). A near name is not enough: models of one family
often write calls in several ways.
"""
_OTHERS = """\
## Formats by other names

Formats also have the names of their parsers in vLLM and SGLang, and of further models.
"""


def page() -> str:
    """The page, as Markdown."""
    formats = {format.name: format for format in all_formats()}
    templates = vendor_templates()
    rows = [
        (code(model), _link(formats[name]), ", ".join(templates.get(name, ())) or "–")
        for name, models in HUB_NAMES.items()
        for model in models
    ]
    names = [(_link(format), ", ".join(map(code, others))) for format, others in all_formats().items() if others]
    return "\n".join(
        [
            _ABOUT,
            table(("model", "format", "[vendor's template](templates.md) that shows it"), sorted(rows, key=_order)),
            "",
            _OTHERS,
            table(("format", "other names"), sorted(names)),
        ]
    )


def _order(row: Sequence[str]) -> str:
    return row[0].lower()


def _link(format: Format) -> str:
    return f"[{code(format.name)}]({path_of(format)})"


def vendor_templates() -> dict[str, list[str]]:
    """The templates that were tried, by format: `docs/templates.md` has them."""
    templates: dict[str, list[str]] = {}
    for template, formats in _ROW.findall(_TEMPLATES.read_text(encoding="utf-8")):
        name = template.partition(" (")[0]
        for format in re.findall(r"`([^`]+)`", formats):
            if name not in templates.setdefault(format, []):
                templates[format].append(name)
    return templates
