"""The browser, and the checks of accessibility and types, that the tests of the page share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from ...formats.conformance.cases import FOLDER
from ...support.browser import chromium
from ...support.npm_packages import npm_packages
from . import write_cases


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if FOLDER.exists():
        write_cases.write()
    with chromium() as found:
        yield found


@pytest.fixture(scope="session")
def checks() -> Path:
    """axe-core and TypeScript, from npm."""
    return npm_packages(Path(__file__).parent / "checks") / "node_modules"
