"""CAM++: the graph that is written, on made weights."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from unbraid.models import ModelError
from unbraid.speech.audio.decode import RATE
from unbraid.speech.speakers.campplus import BANDS, VoiceModel, _columns, resolve_voices, voice_graph
from unbraid.speech.speakers.torch_files import read_weights

from .voice_models import SIZE, made_weights, write_weights

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install onnxruntime")

EVIL = b"cos\nsystem\n(S'false'\ntR."
NOISE = [np.random.default_rng(seed).normal(0, 0.1, RATE * 2).astype(np.float32) for seed in range(18)]


def test_a_file_of_weights_is_read_without_pytorch(tmp_path: Path) -> None:
    weights = made_weights()
    weights["turned"] = np.arange(6, dtype=np.float32).reshape(2, 3)
    read = read_weights(write_weights(tmp_path / "model.pt", weights))
    assert read.keys() == weights.keys()
    for name, value in weights.items():
        np.testing.assert_array_equal(read[name], value)


@pytest.mark.parametrize(
    ("pickled", "message"),
    [
        (EVIL, "os.system, which is no weight"),
        (pickle.dumps([1]), "more than weights"),
        (b"", "no file"),
    ],
    ids=["code", "no weights", "empty"],
)
def test_what_is_no_weight_is_refused(pickled: bytes, message: str, tmp_path: Path) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
    (tmp_path / "model.pt").write_bytes(file.getvalue())
    with pytest.raises(ModelError, match=message):
        read_weights(tmp_path / "model.pt")


def test_vectors_of_a_graph_that_was_written(tmp_path: Path) -> None:
    """Each has length one, and is the same in whatever company."""
    (tmp_path / "voices.onnx").write_bytes(voice_graph(made_weights()))
    model = VoiceModel(resolve_voices(tmp_path), threads=1)
    together = model.vectors(NOISE)
    assert together.shape == (len(NOISE), SIZE)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(model.vectors(NOISE[17:]), together[17:], atol=1e-4)
    assert np.ptp(together, axis=0).max() > 1e-3
    assert model.vectors([]).shape[0] == 0


def test_columns_have_no_mean_and_follow_the_pitch() -> None:
    """A short sound is repeated; a higher one has its energy in a higher band. How loud it is makes no difference."""
    low, high = (0.1 * np.sin(2 * np.pi * hertz * np.arange(RATE) / RATE).astype(np.float32) for hertz in (300, 3000))
    swell = np.linspace(0.01, 1, RATE, dtype=np.float32)
    columns = [_columns(sound * swell) for sound in (low, high)]
    assert columns[0].shape == (148, BANDS)
    np.testing.assert_allclose(columns[0].mean(axis=0), 0.0, atol=1e-4)
    np.testing.assert_allclose(_columns(NOISE[0] * 0.5), _columns(NOISE[0]), atol=0.01)
    assert np.ptp(columns[0], axis=0).argmax() < np.ptp(columns[1], axis=0).argmax()


def test_weights_of_another_model_are_named() -> None:
    weights = made_weights()
    del weights["xvector.transit2.linear.weight"]
    with pytest.raises(ModelError, match=r"not CAM\+\+'s: 'xvector.transit2.linear.weight' is missing"):
        voice_graph(weights)


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no ONNX file"):
        resolve_voices(tmp_path)
