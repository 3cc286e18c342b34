"""The text of replies: special tokens never reach a client, and cues cannot be broken."""

from __future__ import annotations

import html
import re

import pytest

from .support import (
    FORMATS,
    PREFIX,
    ScriptedListener,
    SpeechServer,
    frames,
    weasels,
)

pytestmark = pytest.mark.system


@pytest.mark.parametrize(
    ("shape", "stream"),
    [(shape, "false") for shape in FORMATS] + [(shape, "true") for shape in FORMATS if shape not in ("srt", "vtt")],
)
def test_special_tokens_reach_nobody(speech: SpeechServer, listener: ScriptedListener, shape: str, stream: str) -> None:
    """And what only looks like one does."""
    timed = shape in ("verbose_json", "srt", "vtt")
    listener.say(*(PREFIX[:2] if timed else PREFIX), *(["<|0.00|>"] if timed else []))
    listener.say(" I", " say", "<|hello|>", "<|de|>", "<|startofprev|>", "<|nocaptions|>", " to", "<|transcribe|>")
    listener.say("<|en|> you"[:1], "|en|> you.", "<|2.00|>", "<|endoftext|>")
    response = speech.post(weasels(), response_format=shape, stream=stream)
    text = response.text
    if stream == "true":
        text = "".join(event.get("delta", "") for event in frames(response))
    assert response.status_code == 200
    if shape == "vtt" and stream == "false":
        assert "<" not in text
        text = html.unescape(text)
    assert set(re.findall(r"<\|[^|]*\|>", text)) == {"<|hello|>", "<|en|>"}
    assert "I say<|hello|> to<|en|> you." in text
    assert "\ufffd" not in text


def test_cues_cannot_be_cut_short(speech: SpeechServer, listener: ScriptedListener) -> None:
    """A text with an empty line, or with what looks like a time, stays one cue."""
    listener.say(*PREFIX[:2], "<|0.00|>", " a\n\n00:01 --> 00:02\nb", "<|2.00|>", "<|endoftext|>")
    assert speech.post(weasels(), response_format="srt").text == (
        "1\n00:00:00,000 --> 00:00:02,000\na 00:01 -> 00:02 b\n"
    )
    assert speech.post(weasels(), response_format="vtt").text == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:02.000\na 00:01 --&gt; 00:02 b\n"
    )


def test_cues_have_no_markup(speech: SpeechServer, listener: ScriptedListener) -> None:
    """In a .vtt file signs of it are written as what they stand for."""
    listener.say(*PREFIX[:2], "<|0.00|>", ' R&D <b>is</b> "fun"', "<|2.00|>", "<|endoftext|>")
    assert '\nR&amp;D &lt;b&gt;is&lt;/b&gt; "fun"\n' in speech.post(weasels(), response_format="vtt").text
    assert '\nR&D <b>is</b> "fun"\n' in speech.post(weasels(), response_format="srt").text
