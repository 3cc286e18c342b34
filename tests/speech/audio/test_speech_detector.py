"""Silero's detector with real speech, and with sounds that are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from unbraid.models import ModelError, pinned
from unbraid.models.packages import Package
from unbraid.speech.audio.decode import RATE
from unbraid.speech.audio.vad import FRAME, resolve_vad

from ...support.real_speech import recording
from ..noises import KINDS, noise
from .detectors import detector


def padded(samples: np.ndarray) -> np.ndarray:
    return np.pad(samples, (0, -len(samples) % FRAME))


@pytest.mark.system
@pytest.mark.parametrize("language", ["en", "de", "el", "ru"])
def test_speech_is_speech(language: str) -> None:
    samples = padded(recording(language, "words").samples)
    probabilities = detector().listen().feed(samples)
    assert 0.3 < (probabilities > 0.5).mean() < 0.8  # words, and pauses between them


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", [0.003, 0.1])
def test_noise_is_none(kind: str, level: float) -> None:
    probabilities = detector().listen().feed(padded(noise(kind, 10.0, level)))
    assert probabilities.max() < 0.5


@pytest.mark.system
def test_blocks_do_not_matter() -> None:
    samples = padded(recording("en", "jfk").samples)
    whole = detector().listen().feed(samples)
    voice = detector().listen()
    parts = [voice.feed(samples[at : at + 7 * FRAME]) for at in range(0, len(samples), 7 * FRAME)]
    assert np.allclose(np.concatenate(parts), whole, atol=1e-4)
    assert len(whole) == len(samples) // FRAME == -(-11 * RATE // FRAME)
    assert len(voice.feed(samples[:0])) == 0


def test_another_file_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(package: Package, folder: Path, report: object, **options: object) -> None:
        (folder / "silero_vad" / "data").mkdir(parents=True)
        (folder / "silero_vad" / "data" / "silero_vad_16k_sequence.onnx").write_bytes(b"others")

    monkeypatch.setattr(pinned, "download", download)
    with pytest.raises(ModelError, match="SHA-256"):
        resolve_vad(cache=tmp_path)
    assert [path for path in (tmp_path / "models").iterdir() if path.suffix != ".lock"] == []
