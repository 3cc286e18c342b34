"""The page in a real browser, on a server whose engine plays what a test tells it."""

from __future__ import annotations

import base64
import builtins
import json
import re
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from playwright.sync_api import TimeoutError as TooLate

import unbraid
from unbraid.engines.replay import script
from unbraid.format_cases import cases
from unbraid.templates.detection.response_template_export import response_template

from ...formats.conformance.cases import FOLDER
from ...support.browser import page_of
from ...support.places import ROOT, absent
from ...support.real_tokenizers import encode
from ...support.scripted_server import Scripted
from .accessibility import faults, is_too_wide

pytestmark = pytest.mark.system

PAGE = Path(unbraid.__file__).parent / "server" / "playground" / "page"
VIEWS = ["apart", "constrain", "chat", "talk", "transcribe", "compare"]
CALL = (
    '<think>\nThey ask.\n</think>\n\nOne moment.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}'
)
CALL += "\n</tool_call>"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_WITHOUT_CODE = """place => {
  const copy = place.cloneNode(true);
  copy.querySelectorAll("pre, code").forEach((one) => one.remove());
  return copy.textContent;
}"""
TOOLS: list[dict[str, Any]] = [{"type": "function", "function": {"name": "get_weather", "parameters": CITY}}]


@pytest.fixture(scope="module")
def running() -> Iterator[Scripted]:
    scripted = Scripted()
    scripted.server.start()
    yield scripted
    scripted.server.stop()


@pytest.fixture
def page(browser: Browser, running: Scripted) -> Iterator[Page]:
    with page_of(browser) as found:
        found.goto(running.server.url)
        yield found


def show(page: Page, view: str) -> None:
    """Go to a view, and wait until it is there."""
    page.locator(f"#view-{view}").click()
    expect(page.locator(f".view.{view} h1")).to_be_attached()
    if view == "apart":
        expect(page.locator(".badge")).to_contain_text("Same result")
    elif view == "constrain":
        expect(page.locator(".grammar")).to_contain_text("root ::=")
        expect(page.locator(".chips li").first).to_be_visible()
    elif view == "compare":
        expect(page.locator("tbody tr").first).to_be_visible()
    settled(page)


def settled(page: Page) -> None:
    """Wait until every question of the page is answered: nothing is redrawn until the next one."""
    expect(page.locator("#main")).to_have_attribute("aria-busy", "false")


def put(page: Page, text: str) -> None:
    """Have a text taken apart."""
    page.get_by_label("Raw output", exact=True).fill(text)
    spelled(page, ".raw .seg", text)
    settled(page)


def spelled(page: Page, selector: str, text: str) -> None:
    """Wait until these elements, one after the other, spell exactly this text."""
    joined = "selector => [...document.querySelectorAll(selector)].map(one => one.textContent).join('')"
    joined += ".replaceAll('\u23ce', '')"
    try:
        page.wait_for_function(f"([selector, text]) => ({joined})(selector) === text", arg=[selector, text])
    except TooLate:
        assert page.evaluate(joined, selector) == text


def linked(page: Page, holds: Callable[[dict[str, Any]], bool]) -> str:
    """The address, once what it holds is this."""
    page.wait_for_url(lambda url: "#s=" in url and holds(unpacked(url)))
    return page.url


def unpacked(url: str) -> dict[str, Any]:
    """What a link holds."""
    held = url.partition("#s=")[2]
    return dict(json.loads(zlib.decompress(base64.urlsafe_b64decode(held + "=" * (-len(held) % 4)), wbits=-15)))


def copied(page: Page, part: str) -> str:
    """What is in the clipboard, once it has this part."""
    read = "part => navigator.clipboard.readText().then(text => text.includes(part) && text)"
    return str(page.wait_for_function(read, arg=part).json_value())


def middle(page: Page, selector: str, across: float = 0.5) -> tuple[float, float]:
    """A point of an element that may be drawn anew: found and measured in one go."""
    measure = "selector => { const box = document.querySelector(selector)?.getBoundingClientRect();"
    measure += " return box && box.height ? [box.x, box.y, box.width, box.height] : null; }"
    x, y, width, height = page.wait_for_function(measure, arg=selector).json_value()
    return x + width * across, y + height / 2


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


# Take apart


def test_every_character_has_the_colour_of_its_strand(page: Page) -> None:
    show(page, "apart")
    put(page, CALL)
    expect(page.locator(".raw .seg.reasoning")).to_have_text(["They", " ask", "."])
    spelled(page, ".raw .seg.content", "One moment.")
    expect(page.locator(".raw .seg.call").filter(has_text="Paris")).to_have_count(1)
    spelled(page, ".part.call .arguments", '{\n  "city": "Paris"\n}')
    expect(page.locator("details.reasoning")).not_to_have_attribute("open", "")


def test_the_message_grows_step_by_step_and_can_be_played(page: Page) -> None:
    show(page, "apart")
    put(page, CALL)
    page.get_by_role("button", name="To the beginning").click()
    expect(page.locator("#panel")).to_contain_text("Nothing has come yet")
    expect(page.locator(".raw .seg.coming").first).to_be_visible()
    page.get_by_role("button", name="One chunk on").click()
    expect(page.locator(".count")).to_contain_text("1 of")
    expect(page.locator("#panel")).to_contain_text("Nothing is certain yet")
    page.get_by_label("Speed").select_option("60")
    page.get_by_role("button", name="Play").click()
    expect(page.locator(".count")).to_contain_text("and the end")
    expect(page.locator(".part.call .pill")).to_have_text("complete")
    expect(page.get_by_role("button", name="Play")).to_be_visible()


def test_boundaries_are_moved_by_keyboard_and_mouse_and_change_nothing(page: Page) -> None:
    show(page, "apart")
    put(page, "Hello world")
    page.get_by_label("Cut into").select_option("whole")
    expect(page.locator(".raw .cut")).to_have_count(0)
    page.get_by_role("button", name="Add a boundary").click()
    handle = page.get_by_role("slider", name="End of chunk 1")
    expect(handle).to_have_attribute("aria-valuenow", "5")
    handle.focus()
    page.keyboard.press("ArrowRight")
    expect(handle).to_have_attribute("aria-valuenow", "6")
    expect(handle).to_be_focused()
    settled(page)
    target = middle(page, ".raw .seg", across=1 / 3)
    page.mouse.move(*middle(page, ".raw .cut"))
    page.mouse.down()
    page.mouse.move(*target, steps=4)
    page.mouse.up()
    expect(handle).to_have_attribute("aria-valuenow", "2")
    expect(page.locator(".badge")).to_contain_text("in these 2 chunks")
    page.keyboard.press("Delete")
    expect(page.locator(".raw .cut")).to_have_count(0)
    page.get_by_role("button", name="Shuffle").click()
    expect(page.locator(".raw .cut").first).to_be_attached()
    expect(page.locator(".badge.good")).to_be_visible()


def test_boundaries_are_one_stop_and_arrow_keys_go_between_them(page: Page) -> None:
    show(page, "apart")
    put(page, "Hello wide world")
    page.get_by_label("Cut into").select_option("characters")
    expect(page.locator(".raw .cut")).to_have_count(15)
    expect(page.locator(".raw .cut[tabindex='0']")).to_have_count(1)
    page.locator(".raw .cut[tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("slider", name="End of chunk 2", exact=True)).to_be_focused()
    page.keyboard.press("End")
    last = page.get_by_role("slider", name="End of chunk 15", exact=True)
    expect(last).to_be_focused()
    expect(last).to_have_attribute("aria-valuetext", re.compile("after 15 of 16 characters"))
    page.keyboard.press("ArrowUp")
    expect(page.locator(".raw .cut[tabindex='0']")).to_have_attribute("aria-label", "End of chunk 14")


def test_choosing_a_format_keeps_what_was_typed(page: Page) -> None:
    show(page, "apart")
    flights = CALL.replace("get_weather", "search_flights")
    put(page, flights)
    expect(page.locator(".part.call")).to_contain_text("search_flights")  # without tools every name is a call
    page.get_by_label("Format").select_option("hermes")
    settled(page)
    expect(page.get_by_label("Raw output", exact=True)).to_have_value(flights)
    page.get_by_text("Tools and options").click()
    page.get_by_label("Tools, as JSON").fill(json.dumps(TOOLS))
    expect(page.locator(".options summary").first).to_contain_text("calls to get_weather")
    expect(page.locator(".part.diagnostics")).to_contain_text("unknown_tool")
    page.get_by_label("Format").select_option("qwen3")
    settled(page)
    expect(page.get_by_label("Tools, as JSON")).to_have_value(json.dumps(TOOLS))


def test_samples_come_where_nothing_was_typed(page: Page) -> None:
    show(page, "apart")
    box = page.get_by_label("Raw output", exact=True)
    expect(box).to_have_value(re.compile("<tool_call>"))
    page.get_by_label("Format").select_option("harmony")
    expect(box).to_have_value(re.compile(r"<\|channel\|>"))


def test_a_result_that_is_no_longer_true_is_not_shown(page: Page) -> None:
    show(page, "apart")
    put(page, CALL)
    page.get_by_label("Raw output", exact=True).fill("x" * 50_001)
    expect(page.locator("#status")).to_contain_text("the playground takes 50000")
    expect(page.locator(".badge")).to_be_empty()
    expect(page.locator("#panel")).to_have_text("No result: see the message above.")
    expect(page.locator(".raw .seg")).to_have_count(0)
    put(page, CALL)
    expect(page.locator(".badge.good")).to_be_visible()


def test_each_part_is_explained_where_one_points(page: Page) -> None:
    show(page, "apart")
    put(page, CALL)
    page.locator(".raw .seg.content", has_text="moment").first.hover()
    expect(page.locator(".explained")).to_contain_text("Part of the answer")
    expect(page.locator(".explained")).to_contain_text(re.compile(r"begins with token \d+"))
    page.get_by_text("Quick reference").click()
    expect(page.locator(".written .seg.markup").first).to_have_text("<think>")
    expect(page.locator(".terms").last).to_contain_text("A call to a tool that is not among the request's tools.")


def test_tokens_have_their_ids(page: Page, running: Scripted) -> None:
    show(page, "apart")
    put(page, "Hello world")
    page.get_by_role("tab", name="Tokens").click()
    expect(page.locator("#panel .tokens span")).to_have_text(["Hello", "world"])
    page.get_by_label("Ids").check()
    ids = encode(running.tokenizer, "Hello world")
    expect(page.locator("#panel .tokens span")).to_have_text([str(id) for id in ids])


def test_an_output_can_be_exported_as_a_bug_report(browser: Browser, running: Scripted) -> None:
    text = "```\n<think>\nHm."
    with page_of(browser, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.goto(running.server.url)
        show(page, "apart")
        put(page, text)
        page.get_by_label("Cut into").select_option("lines")
        expect(page.locator(".badge")).to_contain_text("in these 3 chunks")
        settled(page)
        page.get_by_role("button", name="Export as bug report").click()
        page.get_by_role("button", name="Copy as Markdown").click()
        report = copied(page, "What should have come")
        assert f"````text\n{text}\n````" in report
        assert "Chunks end at: 4, 12" in report
        assert unbraid.__version__ in report
        held = unpacked(report.rpartition("(")[2].removesuffix(")"))
        assert held["apart"]["text"] == text
        assert held["apart"]["cuts"] == [4, 12]


def test_a_format_can_be_saved_with_its_cases(page: Page, tmp_path: Path) -> None:
    show(page, "apart")
    put(page, CALL)

    def saved(title: str) -> tuple[str, str]:
        with page.expect_download() as download:
            page.get_by_role("button", name=title).click()
        download.value.save_as(tmp_path / "saved")
        return download.value.suggested_filename, (tmp_path / "saved").read_text(encoding="utf-8")

    name, document = saved("Save the format as JSON")
    format = unbraid.load(document)
    assert (name, format) == (f"{format.name}.json", unbraid.find(format.name))
    name, lines = saved("Save its conformance cases")
    assert name == f"{format.name}.jsonl"
    assert [json.loads(line) for line in lines.splitlines()] == list(cases(format))
    name, document = saved("Save as response_template")
    assert name == "response_template.json"
    assert json.loads(document) == response_template(format).document
    expect(page.get_by_text("does not read all that the format reads")).to_be_visible()


def test_text_event_and_message_point_at_each_other(page: Page) -> None:
    show(page, "apart")
    put(page, CALL)
    page.locator(".raw .seg.content", has_text="moment").first.hover()
    expect(page.locator("#panel .lit")).to_have_text(" moment")
    page.get_by_role("tab", name="Events").click()
    page.locator(".raw .seg.content", has_text="moment").first.hover()
    expect(page.locator("#panel .lit")).to_contain_text("Content")
    page.locator("#panel .event.reasoning").first.focus()
    expect(page.locator(".raw .lit")).to_have_text("They")


@pytest.mark.parametrize(
    ("panel", "told"),
    [("OpenAI", "chat.completion.chunk"), ("Responses", "response.output_item.added"), ("Anthropic", "message_start")],
)
def test_the_chunks_of_each_api(page: Page, panel: str, told: str) -> None:
    show(page, "apart")
    put(page, CALL)
    page.get_by_role("tab", name=panel).click()
    expect(page.locator("#panel .chunk").filter(has_text=told).first).to_be_visible()


def test_diagnostics_have_their_place(page: Page) -> None:
    show(page, "apart")
    page.get_by_label("Recorded outputs").select_option(label="A call to an unknown tool")
    expect(page.locator(".part.diagnostics")).to_contain_text("unknown_tool")
    expect(page.locator(".part.diagnostics")).to_contain_text("at ")


def test_a_pasted_template_is_detected_with_the_reasons(page: Page) -> None:
    show(page, "apart")
    page.get_by_label("Format").select_option(label="Detect it from a chat template …")
    template = (Path(__file__).parents[3] / "examples" / "ponder.jinja").read_text(encoding="utf-8")
    page.get_by_label("Chat template, or tokenizer_config.json").fill(template)
    expect(page.locator(".reasons")).to_contain_text("derived")
    expect(page.locator(".reasons li").first).to_be_visible()
    settled(page)
    put(page, "<ponder>\nHm.\n</ponder>\nWell.")
    spelled(page, ".raw .seg.reasoning", "Hm.")


def test_the_format_of_what_is_pasted_is_found(browser: Browser, running: Scripted) -> None:
    harmony = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi."
    with page_of(browser, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.goto(running.server.url)
        show(page, "apart")
        paste(page, harmony)
        expect(page.get_by_label("Format")).to_have_value("harmony")
        expect(page.locator(".guesses ol li").first).to_contain_text("certain")
        spelled(page, ".raw .seg.content", "Hi.")
        page.get_by_label("Format").select_option("hermes")  # a format that somebody chose stays
        settled(page)
        paste(page, CALL)
        spelled(page, ".raw .seg", CALL)
        settled(page)
        expect(page.get_by_label("Format")).to_have_value("hermes")
        page.get_by_role("button", name="Which format is it?").click()
        expect(page.get_by_label("Format")).not_to_have_value("hermes")
        spelled(page, ".raw .seg.reasoning", "They ask.")


def paste(page: Page, text: str) -> None:
    """Put a text in place of the raw output, by the clipboard."""
    page.evaluate("text => navigator.clipboard.writeText(text)", text)
    page.get_by_label("Raw output", exact=True).focus()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.press("ControlOrMeta+v")


def test_what_a_model_writes_is_text_and_nothing_else(page: Page) -> None:
    show(page, "apart")
    put(page, '<img src=x onerror="document.title=1"><script>alert(1)</script> \u202e🦙')
    expect(page.locator(".raw img, .raw script, #panel img, #panel script")).to_have_count(0)
    expect(page.locator(".part.content .said")).to_contain_text("<script>alert(1)</script>")
    expect(page).to_have_title("Take apart · unbraid playground")


def test_characters_beyond_the_first_plane_are_counted_as_python_counts(page: Page) -> None:
    show(page, "apart")
    put(page, "🦙🦙<think>\n🦙\n</think>")
    page.get_by_label("Cut into").select_option("characters")
    expect(page.locator(".badge.good")).to_contain_text("20 chunks")
    spelled(page, ".raw .seg", "🦙🦙<think>\n🦙\n</think>")


def test_a_mistake_is_told_and_can_be_mended(page: Page) -> None:
    show(page, "apart")
    page.get_by_text("Tools and options").click()
    page.get_by_label("Tools, as JSON").fill("[{")
    expect(page.locator("#status")).to_contain_text("tools is not JSON")
    page.get_by_label("Tools, as JSON").fill("")
    expect(page.locator("#status")).to_be_empty()


def test_a_link_holds_all_of_it(browser: Browser, page: Page) -> None:
    show(page, "apart")
    put(page, CALL)
    page.get_by_label("Cut into").select_option("characters")
    page.get_by_role("tab", name="Events").click()
    page.get_by_role("button", name="To the beginning").click()
    for _ in range(3):
        page.get_by_role("button", name="One chunk on").click()
    expect(page.locator(".count")).to_contain_text("3 of")
    link = linked(page, lambda held: held["apart"]["step"] == 3)
    with page_of(browser) as other:
        other.goto(link)
        expect(other.locator(".count")).to_contain_text("3 of")
        expect(other.get_by_label("Raw output", exact=True)).to_have_value(CALL)
        expect(other.get_by_role("tab", name="Events")).to_have_attribute("aria-selected", "true")
        expect(other.get_by_label("Cut into")).to_have_value("characters")


def test_a_link_that_is_damaged_is_as_none(browser: Browser, running: Scripted) -> None:
    with page_of(browser) as page:
        page.goto(f"{running.server.url}/#s=AAAA-not-a-link")
        expect(page.locator(".badge.good")).to_be_visible()


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


# Chat


def test_a_call_is_answered_by_hand_and_the_chat_goes_on(page: Page, running: Scripted) -> None:
    running.say(CALL, chunks=12)
    show(page, "chat")
    page.get_by_text("Settings").click()
    page.get_by_label("Tools, as JSON").fill(json.dumps(TOOLS))
    page.get_by_label("Your message").fill("What is the weather?")
    page.keyboard.press("Enter")
    turn = page.locator(".turn.assistant")
    expect(turn.locator(".pill").first).to_have_text("tool_calls")
    expect(turn.locator(".arguments")).to_have_text(re.compile(r'"city": "Paris"'))
    expect(turn.locator("details.reasoning")).to_contain_text("They ask.")
    ids = encode(running.tokenizer, CALL)
    turn.get_by_text("What the model wrote").click()
    expect(turn.locator(".tokens span")).to_have_count(len(ids))
    spelled(page, ".turn.assistant .raw .seg", CALL)
    spelled(page, ".turn.assistant .raw .seg.reasoning", "They ask.")
    turn.get_by_text("The prompt that the template made").click()
    spelled(page, ".turn.assistant .prompt", running.prompt())
    running.choose = lambda _: script(encode(running.tokenizer, "It rains."))
    page.get_by_label("Your answer to get_weather").fill('{"rain": true}')
    page.get_by_role("button", name="Answer the call").click()
    expect(page.locator(".turn").last).to_contain_text("It rains.")
    assert '{"rain": true}' in running.prompt()


def test_what_the_model_writes_is_shown_while_it_writes(page: Page, running: Scripted) -> None:
    begun = CALL[: CALL.index("Paris")]
    ids = encode(running.tokenizer, begun)
    running.choose = lambda _: script(ids, chunks=4, ending=None)
    show(page, "chat")
    page.get_by_label("Your message").fill("What is the weather?")
    page.get_by_role("button", name="Send").click()
    turn = page.locator(".turn.assistant")
    turn.get_by_text("What the model wrote").click()
    spelled(page, ".turn.assistant .raw .seg", begun)
    spelled(page, ".turn.assistant .raw .seg.content", "One moment.")
    expect(turn.locator(".pill")).to_have_text("writes")
    show(page, "constrain")
    show(page, "chat")  # it has gone on meanwhile
    expect(turn.locator(".pill")).to_have_text("writes")
    turn.get_by_text("What the model wrote").click()
    page.get_by_role("button", name="Stop").click()
    expect(turn.locator(".pill")).to_have_text("stopped")
    expect(turn.locator(".tokens span")).to_have_count(len(ids))


def test_a_result_is_a_form_by_its_schema(page: Page, running: Scripted) -> None:
    fields = {"rain": {"type": "boolean"}, "degrees": {"type": "number"}, "sky": {"enum": ["grey", "blue"]}}
    fields |= {"notes": {"type": "string"}, "hours": {"type": "array"}}
    tool = {**TOOLS[0]["function"], "returns": {"type": "object", "properties": fields, "required": ["rain"]}}
    running.say(CALL)
    show(page, "chat")
    page.get_by_text("Settings").click()
    page.get_by_label("Tools, as JSON").fill(json.dumps([{"type": "function", "function": tool}]))
    page.get_by_label("Your message").fill("What is the weather?")
    page.get_by_role("button", name="Send").click()
    page.get_by_label("rain", exact=True).select_option("true")
    page.get_by_label("degrees (optional)").fill("11.5")
    page.get_by_label("sky (optional)").select_option(label="grey")
    page.get_by_label("hours (optional)").fill("[1, 2]")
    running.say("It rains.")
    page.get_by_role("button", name="Answer the call").click()
    expect(page.locator(".turn").last).to_contain_text("It rains.")
    assert '{"rain":true,"degrees":11.5,"sky":"grey","hours":[1,2]}' in running.prompt()


def test_conversations_are_kept_and_can_be_deleted(page: Page, running: Scripted) -> None:
    running.say("Hello there.")
    show(page, "chat")
    page.get_by_text("Conversations").click()
    for text in ("First things first", "And now the second"):
        page.get_by_role("button", name="New conversation").click()
        page.get_by_label("Your message").fill(text)
        page.get_by_role("button", name="Send").click()
        expect(page.locator(".turn.assistant .pill")).to_have_text("stop")
    page.reload()
    page.get_by_role("button", name="First things first", exact=True).click()
    expect(page.locator(".turn.user")).to_have_text("YouFirst things first")
    expect(page.locator(".turn.assistant")).to_contain_text("Hello there.")
    page.get_by_role("button", name="Delete “First things first”").click()
    expect(page.locator(".conversations li")).to_have_count(1)
    expect(page.locator(".turn")).to_have_count(0)


def test_files_go_with_a_message(page: Page, running: Scripted) -> None:
    running.say("I see.")
    show(page, "chat")
    picker = page.get_by_label("Files to attach")
    picker.set_input_files({"name": "cat.png", "mimeType": "image/png", "buffer": b"\x89PNG\x00\xff"})
    expect(page.locator("#status")).to_contain_text("cat.png is no text")
    picker.set_input_files({"name": "notes.txt", "mimeType": "text/plain", "buffer": "Über 🦙".encode()})
    expect(page.locator(".composer .chips li")).to_contain_text("notes.txt")
    page.get_by_label("Your message").fill("What is it about?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".turn.assistant")).to_contain_text("I see.")
    assert "notes.txt:\n\nÜber 🦙\n\nWhat is it about?" in running.prompt()
    expect(page.locator(".turn.user .file")).to_contain_text("notes.txt")
    expect(page.locator(".composer .chips li")).to_have_count(0)


def test_a_turn_can_be_copied_as_a_command_and_as_a_program(browser: Browser, running: Scripted) -> None:
    running.say("It's fine.")
    permissions = ["clipboard-read", "clipboard-write"]
    with page_of(browser, permissions=permissions) as page:
        page.goto(running.server.url)
        show(page, "chat")
        page.get_by_label("Your message").fill('How\'s "it"?\n🦙')
        page.get_by_role("button", name="Send").click()
        expect(page.locator(".turn.assistant")).to_contain_text("It's fine.")
        page.get_by_role("button", name="This turn as curl").click()
        command = copied(page, "curl ")
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
        assert "data: [DONE]" in done.stdout, done.stderr
        assert "🦙" in running.prompt()
        page.get_by_role("button", name="This turn as Python").click()
        program = copied(page, "OpenAI(")
        calls: list[dict[str, Any]] = []
        client = SimpleNamespace(create=lambda **fields: [calls.append(fields)][1:])  # type: ignore[func-returns-value]
        openai = SimpleNamespace(OpenAI=lambda **_: SimpleNamespace(chat=SimpleNamespace(completions=client)))
        exec(program, {"__builtins__": {**vars(builtins), "__import__": lambda *_: openai}})
        assert calls[0]["messages"] == [{"role": "user", "content": 'How\'s "it"?\n🦙'}]
        assert calls[0]["stream"] is True


def test_a_server_with_a_key_is_asked_with_it(browser: Browser) -> None:
    scripted = Scripted()
    scripted.service.api_keys = ("secret",)
    scripted.server.start()
    try:
        with page_of(browser) as page:
            page.goto(scripted.server.url)
            dialog = page.get_by_role("dialog")
            expect(dialog).to_be_visible()
            page.get_by_label("API key", exact=True).fill("wrong")
            page.keyboard.press("Enter")
            expect(dialog).to_contain_text("not one of this server's")
            page.get_by_label("API key", exact=True).fill("secret")
            page.get_by_role("button", name="Use it").click()
            expect(page.locator(".badge.good")).to_be_visible()
            assert "secret" not in json.dumps(unpacked(linked(page, lambda held: held["apart"]["text"] != "")))
    finally:
        scripted.server.stop()


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
