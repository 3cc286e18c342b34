"""The page in a real browser, on a server whose engine plays what a test tells it: what all views share, and those
that need few tests."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from ...formats.conformance.cases import FOLDER
from ...support.browser import page_of
from ...support.places import ROOT, absent
from ...support.scripted_server import Scripted
from .accessibility import faults, is_too_wide
from .pages import (
    PAGE,
    VIEWS,
    linked,
    put,
    show,
)

pytestmark = pytest.mark.system

_WITHOUT_CODE = """place => {
  const copy = place.cloneNode(true);
  copy.querySelectorAll("pre, code").forEach((one) => one.remove());
  return copy.textContent;
}"""


# All views


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_view_has_a_fault_that_axe_finds(browser: Browser, running: Scripted, checks: Path, theme: str) -> None:
    # axe comes from outside, which the page's policy forbids; the policy is kept to in all other tests.
    with page_of(browser, color_scheme=theme, bypass_csp=True) as page:
        page.goto(running.server.url)
        for view in VIEWS:
            show(page, view)
            assert not faults(page, checks), view
        show(page, "apart")
        for panel in ("Events", "OpenAI"):
            page.get_by_role("tab", name=panel).click()
            expect(page.locator("#panel li").first).to_be_visible()
            assert not faults(page, checks), panel


def test_a_phone_shows_every_view_without_scrolling_sideways(browser: Browser, running: Scripted) -> None:
    with page_of(browser, viewport={"width": 360, "height": 740}, has_touch=True) as page:
        page.goto(running.server.url)
        for view in VIEWS:
            show(page, view)
            assert not is_too_wide(page), view


def test_views_are_reached_by_keyboard(page: Page) -> None:
    show(page, "apart")
    page.locator("#view-apart").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#view-constrain")).to_be_focused()
    expect(page.locator("#view-constrain")).to_have_attribute("aria-selected", "true")
    expect(page.locator(".view.constrain h1")).to_be_attached()
    page.keyboard.press("End")
    expect(page.locator(f".view.{VIEWS[-1]} h1")).to_be_attached()


def test_back_and_forward_go_between_views_and_keep_what_was_typed(page: Page) -> None:
    show(page, "apart")
    show(page, "constrain")
    page.get_by_label("Type what a model would write").fill("<tool")
    linked(page, lambda held: held["constrain"]["typed"] == "<tool")
    page.go_back()
    expect(page.locator(".view.apart h1")).to_be_attached()
    expect(page.locator("#view-apart")).to_have_attribute("aria-selected", "true")
    page.go_forward()
    expect(page.get_by_label("Type what a model would write")).to_have_value("<tool")
    expect(page.locator("#view-constrain")).to_have_attribute("aria-selected", "true")


def test_what_was_typed_is_there_again_without_the_link(page: Page, running: Scripted) -> None:
    show(page, "apart")
    put(page, "Mine, and no sample's.")
    linked(page, lambda held: held["apart"]["text"] == "Mine, and no sample's.")
    page.goto("about:blank")
    page.goto(running.server.url)
    expect(page.get_by_label("Raw output", exact=True)).to_have_value("Mine, and no sample's.")


def test_a_link_that_is_opened_does_not_take_away_what_was_typed(browser: Browser, running: Scripted) -> None:
    with page_of(browser) as other:
        other.goto(running.server.url)
        show(other, "apart")
        put(other, "Theirs.")
        link = linked(other, lambda held: held["apart"]["text"] == "Theirs.")
    with page_of(browser) as page:
        page.goto(running.server.url)
        show(page, "apart")
        expect(page.get_by_role("button", name="Back to what you typed")).to_be_hidden()
        put(page, "Mine.")
        linked(page, lambda held: held["apart"]["text"] == "Mine.")
        page.goto("about:blank")
        page.goto(link)
        box = page.get_by_label("Raw output", exact=True)
        expect(box).to_have_value("Theirs.")
        page.get_by_role("button", name="Back to what you typed").click()
        expect(box).to_have_value("Mine.")
        expect(page.get_by_role("button", name="Back to what you typed")).to_be_hidden()


def test_the_documentation_is_a_link_away(page: Page) -> None:
    show(page, "apart")
    page.get_by_role("link", name="Documentation").click()
    expect(page.get_by_role("heading", name="Views")).to_be_visible()
    page.get_by_role("link", name="FAQ").click()
    expect(page.get_by_role("heading", name="Questions")).to_be_visible()
    page.get_by_role("link", name="Back to the playground").click()
    expect(page.locator(".badge.good")).to_be_visible()


def test_every_page_of_the_documentation_is_shown_and_its_links_lead_somewhere(page: Page, checks: Path) -> None:
    base = f"{page.url.partition('#')[0]}playground/help.html"
    page.goto(base)
    pages = page.eval_on_selector_all("nav a[href^='#']", "links => links.map((one) => one.getAttribute('href'))")
    assert {name[1:] for name in pages} == {path.name for path in (ROOT / "docs").glob("*.md")}
    targets: set[str] = set()
    anchors: set[str] = set()
    for name in pages:
        page.evaluate("hash => { location.hash = hash }", name)
        expect(page.locator(f"#document[data-page='{name[1:]}']")).to_be_visible()
        shown = page.locator("#document")
        assert not re.search(r"\]\(|\*\*\w|```|<!--", shown.evaluate(_WITHOUT_CODE)), name
        links = "links => links.map((one) => one.getAttribute('href'))"
        targets |= set(page.eval_on_selector_all("#document a[href^='#']", links))
        anchors |= {name[1:], *page.eval_on_selector_all("#document [id]", "all => all.map((one) => one.id)")}
        assert not is_too_wide(page), name
    assert {target[1:] for target in targets} <= anchors
    assert not faults(page, checks)


def test_the_theme_can_be_chosen_and_stays(page: Page) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    expect(page.locator("#theme")).to_have_text("Theme: auto")
    light = page.evaluate(back)
    page.locator("#theme").click()
    page.locator("#theme").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.locator("body")).not_to_have_css("background-color", light)
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_the_modules_have_the_types_that_they_say(checks: Path) -> None:
    modules = sorted(
        str(path) for path in PAGE.glob("*.js") if path.name not in ("worker.js", "offline.js", "talk_worklet.js")
    )
    options = "--allowJs --checkJs --strict --noEmit --skipLibCheck --target ES2023 --module ES2022"
    libraries = ["--moduleResolution", "bundler", "--lib", "ES2023,DOM,DOM.Iterable,DOM.AsyncIterable"]
    command = ["node", str(checks / "typescript" / "bin" / "tsc"), *options.split(), *libraries, *modules]
    done = subprocess.run(command, capture_output=True, text=True, cwd=checks.parent)
    assert done.returncode == 0, done.stdout


# Constrain


def test_what_may_come_next_is_told_at_each_character(page: Page) -> None:
    show(page, "constrain")
    page.get_by_label("Type what a model would write").fill('<tool_call>{"name": "get')
    expect(page.locator(".chips")).to_have_text("_")
    page.get_by_role("button", name="Insert it").click()
    expect(page.get_by_label("Type what a model would write")).to_have_value(re.compile('get_weather","arguments"'))
    page.get_by_label("Type what a model would write").fill("<tool_call>{x")
    expect(page.locator(".echo .refused")).to_have_text("x")
    expect(page.get_by_text("Character 13")).to_be_visible()


def test_each_syntax_has_its_grammar_or_says_why_not(page: Page) -> None:
    show(page, "constrain")
    page.get_by_role("tab", name="Structural tag").click()
    expect(page.locator(".grammar")).to_contain_text('"structural_tag"')
    page.get_by_role("tab", name="Regex").click()
    expect(page.locator("#syntax")).to_contain_text("This syntax cannot say it")
    page.get_by_label("tool_choice").select_option("none")
    expect(page.locator("#syntax")).not_to_contain_text("cannot say it")


# Compare


def test_the_scoreboard_is_shown(page: Page) -> None:
    show(page, "compare")
    peers = page.get_by_label("Peers")
    expect(peers.get_by_role("row").filter(has_text="vLLM")).to_be_visible()
    expect(page.get_by_label("Formats").get_by_role("row", name="hermes")).to_be_visible()
    for table in ("The test suite", "Tool definitions"):
        expect(page.get_by_label(table).get_by_role("row").filter(has_text="unbraid, Lark")).to_be_visible()


@pytest.mark.skipif(not FOLDER.exists(), reason=absent(FOLDER))
def test_a_recorded_case_can_be_taken_apart(page: Page) -> None:
    show(page, "compare")
    page.get_by_label("Family").select_option("hermes")
    page.get_by_label("Show").select_option("all")
    expect(page.get_by_label("Cases").locator("tbody tr")).to_have_count(32)
    page.get_by_role("button", name="Take it apart").first.click()
    expect(page.get_by_label("Format")).to_have_value("hermes")
    expect(page.locator(".badge.good")).to_be_visible()
    expect(page.locator(".part.call").first).to_be_visible()
