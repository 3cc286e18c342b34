"""How long a browser takes from an empty cache to the first parsed output: the static site, and the server's page.

python bench/playground.py
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.browser import PATIENCE_MS, chromium
from tests.support.running_server import service_of, serving
from tests.support.static_host import hosted
from unbraid.engines.replay import ReplayEngine, script
from unbraid.server.playground.site import build

TURNS = 5


@contextmanager
def pages() -> Iterator[dict[str, str]]:
    """The addresses of both."""
    service = service_of(ReplayEngine([script("Hi.")], repeat=True), "qwen3")
    with tempfile.TemporaryDirectory() as folder, serving(service) as server:
        build(Path(folder) / "site")
        with hosted(Path(folder) / "site") as site:
            yield {"static site (Pyodide)": site, "page of the server": server.url}


def first_parse(browser: Browser, url: str) -> float:
    """Seconds from the start of the navigation until the result is on the page, as the page's own clock has it."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector(".badge.good", timeout=PATIENCE_MS)
    milliseconds: float = page.evaluate("performance.now()")
    context.close()
    return milliseconds / 1000


def main() -> None:
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with pages() as urls, chromium() as browser:
        for name, url in urls.items():
            times = [first_parse(browser, url) for _ in range(TURNS)]
            print(f"{name}: {statistics.median(times):.2f} s to the first parse (best {min(times):.2f})")


if __name__ == "__main__":
    main()
