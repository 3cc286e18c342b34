"""Sound as files, written as it comes: every stretch of samples gives the bytes that are complete.

`pcm` and `wav` are written here; the others by FFmpeg (`av`). No file is gone back to: what a header says about the
length is left open, as players of streams expect. `pcm` is 16 bits, little-endian, mono, as in OpenAI's API.
"""

from __future__ import annotations

import importlib
import struct
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np

from . import SoundFormat
from .speaker import Sound

_OPEN = 0xFFFFFFFF  # a length that is not known


@dataclass(frozen=True)
class _Codec:
    """How FFmpeg writes a format."""

    container: str
    encoder: str
    samples: str
    """FFmpeg's name for the type of samples that the encoder takes."""
    options: dict[str, str] = field(default_factory=dict)
    """Of the container."""
    bit_rate: int | None = None


_CODECS: dict[SoundFormat, _Codec] = {
    "mp3": _Codec("mp3", "libmp3lame", "fltp", {"write_xing": "0", "id3v2_version": "0"}, 64_000),
    "opus": _Codec("ogg", "libopus", "flt", {"page_duration": "200000"}, 32_000),
    "aac": _Codec("adts", "aac", "fltp", {}, 64_000),
    "flac": _Codec("flac", "flac", "s16"),
}


class SoundWriter:
    """One reply in one format. `finish` is called once, also to give up. It may be called while another thread writes:
    it waits for that."""

    def __init__(self, format: SoundFormat, rate: int) -> None:
        self._lock = Lock()
        self._rate = rate
        self._begun = False
        self._format = format
        self._encoder = _Encoder(_CODECS[format], rate) if format in _CODECS else None

    def write(self, sound: Sound) -> bytes:
        """The bytes that these samples complete, which may be none."""
        if self._encoder is not None:
            with self._lock:
                return self._encoder.write(sound)
        head = b"" if self._begun or self._format == "pcm" else _wav_header(self._rate)
        self._begun = True
        return head + _pcm(sound).astype("<i2").tobytes()

    def finish(self) -> bytes:
        """The rest."""
        with self._lock:
            return b"" if self._encoder is None else self._encoder.finish()


class _Encoder:
    def __init__(self, codec: _Codec, rate: int) -> None:
        self._av: Any = importlib.import_module("av")
        self._codec = codec
        self._rate = rate
        self._written = _Written()
        self._samples = 0
        self._container = self._av.open(self._written, "w", format=codec.container, container_options=codec.options)
        self._stream = self._container.add_stream(codec.encoder, rate=rate, layout="mono", format=codec.samples)
        if codec.bit_rate is not None:
            self._stream.bit_rate = codec.bit_rate

    def write(self, sound: Sound) -> bytes:
        planar = self._codec.samples != "s16"
        values = np.clip(sound, -1.0, 1.0).astype(np.float32) if planar else _pcm(sound)
        frame = self._av.AudioFrame.from_ndarray(values[None], format=self._codec.samples, layout="mono")
        frame.sample_rate, frame.pts = self._rate, self._samples
        self._samples += len(values)
        for packet in self._stream.encode(frame):
            self._container.mux(packet)
        return self._written.take()

    def finish(self) -> bytes:
        if self._samples:
            for packet in self._stream.encode(None):
                self._container.mux(packet)
        self._container.close()
        return self._written.take()


class _Written:
    """A file that cannot be gone back in, and whose bytes are taken away."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def take(self) -> bytes:
        taken, self._parts = b"".join(self._parts), []
        return taken


def _pcm(sound: Sound) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    values: np.ndarray[tuple[int], np.dtype[np.int16]] = np.round(np.clip(sound, -1.0, 1.0) * 32767.0).astype(np.int16)
    return values


def _wav_header(rate: int) -> bytes:
    """The header of a WAV file of mono samples of 16 bits, whose length is not known."""
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16)
    return struct.pack("<4sI4s", b"RIFF", _OPEN, b"WAVE") + form + struct.pack("<4sI", b"data", _OPEN)
