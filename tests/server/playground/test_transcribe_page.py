"""Transcription on the page: a file with a real Whisper, and the microphone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from unbraid.speech.transcriber import Transcriber

from ...support.browser import chromium, page_of
from ..transcriptions.support import PREFIX, ScriptedListener, SpeechServer, jfk

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def speech() -> Iterator[SpeechServer]:
    found = SpeechServer()
    found.server.start()
    yield found
    found.server.stop()


@pytest.fixture
def page(speech: SpeechServer) -> Iterator[Page]:
    flags = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
    with (
        chromium(*flags) as browser,
        page_of(
            browser, permissions=["microphone", "clipboard-read", "clipboard-write"], accept_downloads=True
        ) as found,
    ):
        found.goto(speech.server.url)
        found.locator("#view-transcribe").click()
        yield found


def test_words_of_a_file_can_be_heard_and_saved(page: Page, tmp_path: Path) -> None:
    page.get_by_label("or choose a file").set_input_files({"name": "jfk.wav", "mimeType": "audio/wav", "buffer": jfk()})
    expect(page.get_by_text("Language: en")).to_be_visible()
    word = page.get_by_role("button", name=re.compile("country")).first
    start = float(word.get_attribute("data-start") or 0)
    assert start > 0
    word.click()
    page.wait_for_function(f"() => document.querySelector('audio').currentTime >= {start - 0.05}")
    page.get_by_role("button", name="Copy the transcript").click()
    read = "() => navigator.clipboard.readText().then(text => text.includes('fellow Americans') && text)"
    assert "what your country can do for you" in page.wait_for_function(read).json_value()
    page.evaluate("getSelection().selectAllChildren(document.querySelector('.segments'))")
    assert "what your country can do for you" in page.evaluate("String(getSelection())")
    for kind, told in {"txt": "country", "srt": "-->", "vtt": "WEBVTT", "json": '"words"'}.items():
        with page.expect_download() as saved:
            page.get_by_role("button", name=f"Save as {kind}").click()
        saved.value.save_as(tmp_path / kind)
        assert saved.value.suggested_filename == f"jfk.{kind}"
        assert told in (tmp_path / kind).read_text(encoding="utf-8")


def test_the_microphone_is_heard(page: Page, speech: SpeechServer) -> None:
    listener = ScriptedListener(speech.engine.vocabulary)
    listener.say(*PREFIX, "<|0.00|>", " It rains.", "<|1.00|>")
    speech.server.service.transcriber = Transcriber(listener)
    try:
        page.goto(speech.server.url)  # it learns anew that this model cannot time words
        page.reload()
        page.locator("#view-transcribe").click()
        page.get_by_role("button", name="Record from the microphone").click()
        expect(page.get_by_role("button", name=re.compile(r"End the recording \([1-9]"))).to_be_visible()
        page.get_by_role("button", name="End the recording").click()
        expect(page.get_by_role("button", name=re.compile("rains"))).to_be_visible()
    finally:
        speech.server.service.transcriber = speech.real
