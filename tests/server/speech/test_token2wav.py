"""Step-Audio 2's vocoder, with a model of its makers' shape that is made up: their weights are in no registry."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from unbraid import UnbraidError
from unbraid.server.vocoder import AHEAD, CHUNK, load_vocoder


class Token2wav:
    """Makes a byte of each code, and marks the first of a stream and the last. Like the real one it has the state of
    one stream, and refuses a chunk that lacks what it looks ahead to."""

    def __init__(self, folder: str) -> None:
        self.files = sorted(path.name for path in Path(folder).iterdir())
        if "flow.pt" not in self.files:
            raise FileNotFoundError("flow.pt")

    def set_stream_cache(self, prompt: str) -> None:
        self.prompt, self.stream_cache, self.hift_cache_dict = prompt, 0, {"heard": ()}

    def stream(self, codes: list[int], prompt: str, last_chunk: bool) -> bytes:
        assert prompt == self.prompt
        assert last_chunk or len(codes) == CHUNK + AHEAD
        new = codes if last_chunk else codes[:CHUNK]
        heard: Any = self.hift_cache_dict["heard"]
        assert len(heard) == self.stream_cache
        self.stream_cache += len(new)
        self.hift_cache_dict = {"heard": (*heard, *new)}
        return bytes(new) + (b"." if last_chunk else b"")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(sys.modules, "stepaudio2", SimpleNamespace(Token2wav=Token2wav))
    (tmp_path / "flow.pt").touch()
    (tmp_path / "default_female.wav").touch()
    return tmp_path


@pytest.mark.parametrize("step", [1, 7, 25, 100])
def test_every_code_is_heard_once_and_in_order(folder: Path, step: int) -> None:
    """However they come, and while another voice speaks."""
    vocoder = load_vocoder(f"step-audio-2:{folder}")
    assert (vocoder.rate, vocoder.format) == (24_000, "pcm16")
    codes, others = list(range(100)), list(range(200, 100, -1))
    one, other = vocoder.voice(), vocoder.voice()
    said = heard = b""
    for at in range(0, 100, step):
        said += one.feed(codes[at : at + step])
        heard += other.feed(others[at : at + step])
    assert len(said) >= 50, "it speaks before all codes have come"
    assert said + one.finish() == bytes(codes) + b"."
    assert heard + other.finish() == bytes(others) + b"."
    assert vocoder.voice().finish() == b""


def test_what_is_missing_is_said_with_where_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "flow.pt").unlink()
    with pytest.raises(UnbraidError, match=r"flow\.pt.*stepfun-ai/Step-Audio-2-mini"):
        load_vocoder(f"step-audio-2:{folder}")
    monkeypatch.setitem(sys.modules, "stepaudio2", None)
    with pytest.raises(UnbraidError, match="pip install minicpmo-utils"):
        load_vocoder(f"step-audio-2:{folder}")
    (folder / "default_female.wav").unlink()
    with pytest.raises(UnbraidError, match=r"prompt\.wav"):
        load_vocoder(f"step-audio-2:{folder}")
    for name in (folder / "nowhere", ""):
        with pytest.raises(UnbraidError, match=r"no folder .*hf download stepfun-ai/Step-Audio-2-mini"):
            load_vocoder(f"step-audio-2:{name}")
