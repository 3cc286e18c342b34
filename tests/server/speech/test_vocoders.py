"""Vocoders: the example makes the tones that it says, and what is no vocoder is refused when the server starts."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from unbraid import UnbraidError
from unbraid.server.vocoder import load_vocoder, sound_fields

from ...support.places import ROOT


def test_the_example_makes_tones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    vocoder = load_vocoder("examples.tones:make_vocoder")
    assert sound_fields(vocoder) == {"format": "pcm16", "sample_rate": 24_000}
    voice = vocoder.voice()
    sound = voice.feed([0]) + voice.feed([]) + voice.feed([3280, 6560]) + voice.finish()
    tones = np.frombuffer(sound, "<i2").reshape(3, -1).astype(np.float64)
    assert tones.shape[1] == vocoder.rate // 10
    pitches = [int(np.abs(np.fft.rfft(tone * np.hanning(len(tone)))).argmax()) * 10 for tone in tones]
    assert pitches == pytest.approx([110, 440, 1760], abs=10)
    steps = np.abs(np.diff(tones.ravel()))
    assert steps.max() < 12_000 * 2 * np.pi * 1760 / vocoder.rate * 1.01, "nothing clicks"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("make = dict", "it has no method voice"),
        ("class make:\n    voice = print", "whose rate is None"),
        ("class make:\n    voice, rate = print, 0", "whose rate is 0"),
        ("class make:\n    voice, rate = print, 8000", "whose format is None: it must be one of pcm16, "),
        ("", "is not there"),
    ],
)
def test_what_is_no_vocoder(code: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "my_vocoder", raising=False)
    (tmp_path / "my_vocoder.py").write_text(code)
    with pytest.raises(UnbraidError, match=message):
        load_vocoder("my_vocoder:make")
