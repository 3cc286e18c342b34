"""Outputs taken apart on the page: strands, boundaries, samples, templates, links."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

import unbraid
from unbraid.format_cases import cases
from unbraid.templates.detection.response_template_export import response_template

from ...support.browser import page_of
from ...support.real_tokenizers import encode
from ...support.scripted_server import Scripted
from .pages import (
    CALL,
    TOOLS,
    copied,
    linked,
    middle,
    put,
    settled,
    show,
    spelled,
    unpacked,
)

pytestmark = pytest.mark.system


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
