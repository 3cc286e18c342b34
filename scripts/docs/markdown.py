"""Markdown, written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def code(text: str) -> str:
    """Text as code in a line. Line breaks are shown as they are written in a string."""
    text = text.replace("\n", "\\n")
    ticks = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if len(ticks) > 1 else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def fence(language: str, text: str) -> str:
    """Text as a block of code."""
    ticks = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{ticks}{language}\n{text.rstrip()}\n{ticks}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table. A `|` in a cell does not end it."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines
    )


def indented(text: str) -> str:
    """Text inside of what stands before it."""
    return "\n".join("    " + line if line else "" for line in text.split("\n"))
