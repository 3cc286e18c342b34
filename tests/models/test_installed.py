"""Models that other programs have downloaded: found, named, offered and taken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unbraid.models import ModelError, installed_models, offer, resolve

from .packages import SMALL

DIGEST = "a" * 64


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with nothing in it."""
    for name in ("OLLAMA_MODELS", "LLAMA_CACHE", "HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    return tmp_path


def put(path: Path, data: bytes = SMALL) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def ollama(home: Path, name: str, digest: str = DIGEST, data: bytes | None = SMALL) -> None:
    layers = [
        {"mediaType": "application/vnd.ollama.image.template", "digest": f"sha256:{'b' * 64}"},
        {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}"},
    ]
    put(home / ".ollama/models/manifests" / name, json.dumps({"schemaVersion": 2, "layers": layers}).encode())
    if data is not None:
        put(home / f".ollama/models/blobs/sha256-{digest}", data)


def specs() -> list[str]:
    return [each.spec for each in installed_models()]


def test_ollama(home: Path) -> None:
    ollama(home, "registry.ollama.ai/library/qwen3/8b")
    ollama(home, "registry.ollama.ai/library/llama3.2/latest", "c" * 64)
    ollama(home, "registry.ollama.ai/mia/own/v1")
    ollama(home, "hf.co/o/r/Q4_K_M")
    ollama(home, "registry.ollama.ai/library/nomic-embed-text/latest")
    assert specs() == ["ollama:hf.co/o/r:Q4_K_M", "ollama:llama3.2:latest", "ollama:mia/own:v1", "ollama:qwen3:8b"]
    found = resolve("ollama:qwen3:8b")
    assert found.gguf == home / f".ollama/models/blobs/sha256-{DIGEST}"
    assert found.name == "qwen3:8b"
    assert resolve("ollama:llama3.2").name == "llama3.2:latest"


@pytest.mark.parametrize("manifest", [b"", b"{", b"[]", b'{"layers": 3}', b'{"layers": [{}]}', b'{"layers": ["x"]}'])
def test_manifests_that_say_nothing(home: Path, manifest: bytes) -> None:
    put(home / ".ollama/models/manifests/registry.ollama.ai/library/a/b", manifest)
    put(home / ".ollama/models/manifests/registry.ollama.ai/stray", manifest)
    assert specs() == []


def test_a_manifest_cannot_lead_elsewhere(home: Path) -> None:
    put(home / ".ollama/secret")
    ollama(home, "registry.ollama.ai/library/evil/1", "../../secret", None)
    assert specs() == []


def test_a_blob_that_is_gone(home: Path) -> None:
    ollama(home, "registry.ollama.ai/library/gone/1", data=None)
    assert specs() == []


def test_a_blob_that_is_no_gguf(home: Path) -> None:
    ollama(home, "registry.ollama.ai/library/mlx/1", data=b"safetensors")
    with pytest.raises(ModelError, match="ollama:mlx:1 is no GGUF file"):
        resolve("ollama:mlx:1")


def test_lm_studio_llama_cpp_and_the_hub(home: Path) -> None:
    put(home / ".lmstudio/models/p/r/x-Q4_K_M.gguf")
    put(home / ".lmstudio/models/p/r/mmproj-x.gguf")
    put(home / ".cache/llama.cpp/o_r_y.gguf")
    put(home / ".cache/llama.cpp/o_r_y.gguf.etag")
    put(home / ".cache/huggingface/hub/models--o--r/snapshots/abc/z-00001-of-00002.gguf")
    put(home / ".cache/huggingface/hub/models--o--r/snapshots/abc/z-00002-of-00002.gguf")
    put(home / ".cache/huggingface/hub/models--o--t/snapshots/abc/model.safetensors")
    assert sorted(specs()) == ["llama.cpp:o_r_y.gguf", "lmstudio:p/r/x-Q4_K_M.gguf", "o/r:z-00001-of-00002.gguf"]
    for spec in specs()[:2]:
        assert resolve(spec).gguf.read_bytes() == SMALL


def test_larger_ones_are_offered(home: Path) -> None:
    assert offer(0) is None
    for at in range(6):
        ollama(home, f"registry.ollama.ai/library/m{at}/1b", f"{at}" * 64, SMALL + b"\0" * at)
    assert offer(len(SMALL) + 5) is None
    offered = offer(len(SMALL))
    assert offered is not None
    assert offered.startswith(
        "larger models are on this machine: --model ollama:m5:1b (0 MB, Ollama), --model ollama:m4"
    )
    assert offered.endswith("and 1 more")


def test_a_name_that_nobody_has(home: Path) -> None:
    with pytest.raises(ModelError, match="ollama:qwen3 is not on this machine: no other program has a model here"):
        resolve("ollama:qwen3")
    ollama(home, "registry.ollama.ai/library/qwen3/8b")
    for spec in ("ollama:qwen", "qwen3:8b"):
        with pytest.raises(ModelError, match="on this machine are ollama:qwen3:8b"):
            resolve(spec)
