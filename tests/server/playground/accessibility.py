"""axe-core's verdict on a page."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page


def faults(page: Page, checks: Path) -> list[str]:
    """What is wrong with the page for those who cannot see it, or not well."""
    if not page.evaluate("'axe' in window"):
        page.evaluate((checks / "axe-core" / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{fault['id']}: {fault['help']} {[node['target'] for node in fault['nodes'][:3]]}"
        for fault in found["violations"]
    ]


def is_too_wide(page: Page) -> bool:
    """Whether one has to scroll sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))
