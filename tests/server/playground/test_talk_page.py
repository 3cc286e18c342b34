"""Talking on the page: words into a microphone, and what both say."""

from __future__ import annotations

import re
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from unbraid.engines.replay import script
from unbraid.speech.audio.decode import RATE

from ...speech.live.talking import say, silence
from ...support.browser import chromium, page_of
from ...support.running_server import RunningServer
from ..realtime.support import engine_of, listener, service

pytestmark = pytest.mark.system
_WORDS = [f"word{number}" for number in range(40)]
_LONG = script("<tts_start>" + "".join(f"{word} " + "<audio_1200>" * 12 for word in _WORDS) + "<tts_end>")
"""Nineteen seconds of speech: longer than the microphone is silent."""
_WATCH = """
window.stopped = [];
const made = AudioContext.prototype.createBufferSource;
AudioContext.prototype.createBufferSource = function () {
  const source = made.call(this);
  const [start, stop] = [source.start, source.stop];
  source.start = (at) => { source.until = at + source.buffer.duration; start.call(source, at); };
  source.stop = () => { window.stopped.push(source.until - this.currentTime); stop.call(source); };
  return source;
};
"""
"""Notes, of all sound that is stopped, the seconds that were left of it."""


@pytest.fixture
def server() -> Iterator[RunningServer]:
    reply = script("<tts_start>It<audio_1200><audio_1300> rains<audio_1400>.<tts_end>")
    running = RunningServer(service([reply], of=listener()))
    running.start()
    yield running
    running.stop()


@contextmanager
def talking(server: RunningServer, spoken: Path) -> Iterator[Page]:
    """The page, once the talk has begun. What is spoken is heard over and over."""
    flags = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
    file = f"--use-file-for-fake-audio-capture={spoken}"
    with chromium(*flags, file) as browser, page_of(browser, permissions=["microphone"]) as page:
        page.add_init_script(_WATCH)
        page.goto(server.url)
        page.locator("#view-talk").click()
        page.get_by_role("button", name="Start talking").click()
        yield page
        page.get_by_role("button", name="End the talk").click()
        expect(page.get_by_role("button", name="Start talking")).to_be_visible()


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
    with talking(server, spoken) as page:
        # How loud the microphone is, and so which words are heard, the browser decides.
        expect(page.locator(".turn.user .said").first).to_have_text(re.compile(r"[a-z]"))
        expect(page.locator(".turn.assistant .said").first).to_contain_text("It rains.")
    assert engine_of(server.service).requests, "the model was asked"


def test_who_speaks_interrupts_the_answer(server: RunningServer, spoken: Path) -> None:
    engine = engine_of(server.service)
    engine._scripts = [_LONG]
    with talking(server, spoken) as page:
        answer = page.locator(".turn.assistant .said").first
        expect(answer).to_contain_text(_WORDS[-1])  # all was sent, and plays for a while
        expect(answer).to_contain_text("(interrupted)")
        expect(page.locator(".turn.assistant .said")).to_have_count(2)  # the next answer
        shown = answer.inner_text().removesuffix(" … (interrupted)")
        left = page.evaluate("window.stopped")
    assert max(left) > 1, "seconds of sound were left, and were not played"
    assert 0 < len(shown) < len(" ".join(_WORDS))
    assert " ".join(_WORDS).startswith(shown)
    following = engine.requests[1].prompt
    assert shown in following, "the model is shown what was heard"
    assert _WORDS[-1] not in following
