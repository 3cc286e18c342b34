"""WAV: samples as a file for servers."""

from __future__ import annotations

import io
import wave

import numpy as np

from .decode import RATE, Samples


def as_wav(samples: Samples) -> bytes:
    """Mono, 16 bits."""
    return wav_of_pcm((samples * 32768.0).round().clip(-32768, 32767).astype(np.dtype("<i2")).tobytes())


def wav_of_pcm(data: bytes) -> bytes:
    """PCM of 16 bits, mono, as a file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(RATE)
        written.writeframes(data)
    return file.getvalue()
