"""Documents that are written by a script, and checked by a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def main(usage: str, document: Path, text: Callable[[], str], arguments: list[str]) -> int:
    """Write the document, or with `--check` only say whether it is up to date."""
    if arguments == ["--check"]:
        current = document.exists() and document.read_text(encoding="utf-8") == text()
        print("up to date" if current else f"{document.name} is out of date")
        return 0 if current else 1
    if arguments:
        print(usage)
        return 2
    document.parent.mkdir(exist_ok=True)
    document.write_text(text(), encoding="utf-8")
    return 0
