"""Debian's Chromium, or another one on this machine, driven by Playwright. Without one, the tests are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from .system import system_only
from .waiting import PATIENCE

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE_MS = 1000 * PATIENCE
expect.set_options(timeout=PATIENCE_MS)


@contextmanager
def chromium(*arguments: str) -> Iterator[Browser]:
    """A browser that runs."""
    system_only("a browser")
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.skip("no browser was found: apt install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(arguments), timeout=PATIENCE_MS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def page_of(browser: Browser, **settings: Any) -> Iterator[Page]:
    """A page in a session of its own. Nothing may go wrong in it: no script fails, nothing is refused by the page's
    policy, nothing is loaded from another host."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    wrong: list[str] = []
    hosts: set[str] = set()
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if _matters(said.type, said.text) else None)
    context.on("request", lambda request: hosts.add(request.url.split("/")[2]) if "://" in request.url else None)
    try:
        yield page
        assert not wrong, wrong
        assert len(hosts) <= 1, hosts
    finally:
        context.close()


def _matters(kind: str, text: str) -> bool:
    """Whether a line of the console tells of a fault. A reply that is an error is told there too, and may be meant."""
    return kind == "error" and "the server responded with a status of" not in text
