"""Talking on the page: words into a microphone, and what both say."""

from __future__ import annotations

import re
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

from unbraid.engines.replay import script
from unbraid.speech.audio.decode import RATE

from ...speech.live.talking import say, silence
from ...support.browser import chromium, page_of
from ...support.running_server import RunningServer
from ..realtime.support import engine_of, listener, service

pytestmark = pytest.mark.system


@pytest.fixture
def server() -> Iterator[RunningServer]:
    reply = script("<tts_start>It<audio_1200><audio_1300> rains<audio_1400>.<tts_end><|EOT|>")
    running = RunningServer(service([reply], of=listener()))
    running.start()
    yield running
    running.stop()


@pytest.fixture
def spoken(tmp_path: Path) -> Path:
    """What the microphone hears, over and over."""
    sound = np.concatenate([silence(1), say(["four", "six"]), silence(3)])
    with wave.open(str(tmp_path / "spoken.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((sound * 32767).astype("<i2").tobytes())
    return tmp_path / "spoken.wav"


def test_both_texts_of_a_talk_are_shown(server: RunningServer, spoken: Path) -> None:
    flags = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
    file = f"--use-file-for-fake-audio-capture={spoken}"
    with chromium(*flags, file) as browser, page_of(browser, permissions=["microphone"]) as page:
        page.goto(server.url)
        page.locator("#view-talk").click()
        page.get_by_role("button", name="Start talking").click()
        # How loud the microphone is, and so which words are heard, the browser decides.
        expect(page.locator(".turn.user .said").first).to_have_text(re.compile(r"[a-z]"))
        expect(page.locator(".turn.assistant .said").first).to_contain_text("It rains.")
        page.get_by_role("button", name="End the talk").click()
        expect(page.get_by_role("button", name="Start talking")).to_be_visible()
    assert engine_of(server.service).requests, "the model was asked"
