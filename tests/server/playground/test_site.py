"""The static site: the same views, answered by Pyodide in the browser, from this host alone and offline."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from unbraid import UnbraidError
from unbraid.models.errors import ModelError
from unbraid.server.playground.site import build
from unbraid.server.playground.views import answer_in_browser

from ...support.browser import page_of
from ...support.places import CACHE
from ...support.static_host import hosted

pytestmark = pytest.mark.system

TEXT = "<think>\nHm 🦙.\n</think>\n\nHello.\n<tool_call>\n"
TEXT += '{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("formats", {}),
    ("samples", {"format": "harmony"}),
    ("cut", {"text": TEXT}),
    ("guess", {"text": TEXT}),
    ("reference", {"format": "harmony"}),
    ("apart", {"format": "qwen3", "text": TEXT, "cuts": [3, 9, 14, 60]}),
    ("apart", {"format": "no-such", "text": TEXT}),
    ("grammars", {"format": "qwen3", "tools": [{"name": "f", "strict": True}], "tool_choice": "required"}),
    ("walk", {"format": "glm-4.7", "tools": [{"name": "f"}], "tool_choice": "required", "text": "<tool"}),
    ("detect", {"template": (Path(__file__).parents[3] / "examples" / "ponder.jinja").read_text(encoding="utf-8")}),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if shutil.which("npm") is None:
        pytest.skip("Pyodide comes from npm, and npm is not installed")
    folder = tmp_path_factory.mktemp("site") / "site"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNBRAID_CACHE", str(CACHE))
        try:
            build(folder)
        except ModelError as error:
            pytest.skip(f"Pyodide cannot be had: {error}")
    with hosted(folder) as url:
        yield url


@pytest.fixture(scope="module")
def page(browser: Browser, site: str) -> Iterator[Page]:
    with page_of(browser) as found:
        found.goto(site)
        expect(found.locator(".badge.good")).to_be_visible()
        yield found


def test_the_browser_says_what_python_says(page: Page) -> None:
    """The views in the browser and here, on the same requests."""
    page.evaluate("import('/playground/api.js').then(api => { window.api = api; })")
    page.wait_for_function("() => 'api' in window")
    for view, body in ASKED:
        ask = "([view, body]) => window.api.ask(view, body).catch(error => ({error: error.message}))"
        here = json.loads(answer_in_browser(view, json.dumps(body)))
        assert comparable(page.evaluate(ask, [view, body])) == comparable(here), view


def comparable(found: dict[str, Any]) -> Any:
    """What a view says; of grammars only which there are: alternatives come in any order."""
    syntaxes = found.get("syntaxes")
    return found if syntaxes is None else [(one["name"], "error" in one, bool(one.get("grammar"))) for one in syntaxes]


@pytest.mark.parametrize(
    ("panel", "told"),
    [("OpenAI", "chat.completion.chunk"), ("Responses", "response.created"), ("Anthropic", "message_start")],
)
def test_chunks_are_written_in_the_browser(page: Page, panel: str, told: str) -> None:
    page.get_by_role("tab", name=panel).click()
    expect(page.locator("#panel .chunk").filter(has_text=told).first).to_be_visible()


def test_what_needs_a_server_says_so(page: Page) -> None:
    for view in ("chat", "talk", "transcribe"):
        page.locator(f"#view-{view}").click()
        expect(page.locator(f".view.{view}")).to_contain_text("needs a server")
    page.locator("#view-apart").click()


def test_it_works_offline_once_it_was_open(page: Page, site: str) -> None:
    page.goto(site)
    expect(page.locator(".badge.good")).to_be_visible()
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    page.context.set_offline(True)
    try:
        page.reload()
        expect(page.locator(".badge.good")).to_be_visible()
    finally:
        page.context.set_offline(False)


def test_every_format_goes_on_from_the_memory(page: Page) -> None:
    """Modules that were not imported when the memory was kept are found."""
    page.evaluate("import('/playground/api.js').then(api => { window.api = api; })")
    page.wait_for_function("() => 'api' in window")
    ask = "([view, body]) => window.api.ask(view, body)"
    for listed in page.evaluate(ask, ["formats", {}])["formats"]:
        sample = page.evaluate(ask, ["samples", {"format": listed["name"]}])["samples"][0]
        body = {"format": listed["name"], "text": sample["text"], "tools": sample["tools"], "cuts": []}
        assert page.evaluate(ask, ["apart", body]) == json.loads(answer_in_browser("apart", json.dumps(body)))


def test_without_node_the_build_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: str) -> None:
    monkeypatch.setenv("UNBRAID_CACHE", str(CACHE))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnbraidError, match="needs Node"):
        build(tmp_path / "site")


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UnbraidError, match="something else"):
        build(tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def test_the_documentation_comes_with_the_site(browser: Browser, site: str) -> None:
    with page_of(browser) as page:
        page.goto(site)
        page.get_by_role("link", name="Documentation").click()
        page.get_by_role("link", name="Quick start").click()
        expect(page.get_by_role("heading", name="Serve a model")).to_be_visible()
