"""The list of formats in `docs/formats.md`, with a link from each name to the format's own page."""

from __future__ import annotations

import re

from unbraid import all_formats

from .format_pages import path_of

_CODE = re.compile(r"(?<!\[)`([^`]+)`")


def linked(markdown: str) -> str:
    """The document; names in its tables link to their pages."""
    pages = {format.name: path_of(format) for format in all_formats()}

    def link(found: re.Match[str]) -> str:
        page = pages.get(found[1])
        return found[0] if page is None else f"[`{found[1]}`]({page})"

    lines = (_CODE.sub(link, line) if line.startswith("| ") else line for line in markdown.split("\n"))
    return "\n".join(lines)
