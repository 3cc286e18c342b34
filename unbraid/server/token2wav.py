"""Step-Audio 2's own vocoder: `--vocoder step-audio-2:FOLDER`.

    pip install minicpmo-utils    # the makers' code, as the package stepaudio2; with PyTorch, for NVIDIA GPUs
    hf download stepfun-ai/Step-Audio-2-mini --include 'token2wav/*'

FOLDER is `token2wav` of that repository, with a recording of the voice (`prompt.wav`, or any one `.wav`). No registry
of packages has these weights. The model makes sound of 25 codes at a time and looks at three more. It has the state of
one stream: each voice has its own, and puts it in place while it speaks.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from ..errors import UnbraidError

CHUNK, AHEAD = 25, 3
"""Codes that are made into sound at once, and those after them that are looked at."""
_STATE = ("stream_cache", "hift_cache_dict")


class Token2WavVocoder:
    """See `unbraid.server.vocoder.Vocoder`. Raises `UnbraidError` where the package or a file is missing."""

    rate = 24_000
    format = "pcm16"

    def __init__(self, folder: str) -> None:
        place = Path(folder).expanduser()
        prompts = [place / "prompt.wav", *sorted(place.glob("*.wav"))]
        self.prompt = next((path for path in prompts if path.is_file()), None)
        if self.prompt is None:
            raise UnbraidError(f"{place} has no recording of the voice: put a prompt.wav of a few seconds there")
        try:
            package: Any = importlib.import_module("stepaudio2")
            self.model = package.Token2wav(str(place))
        except ImportError as error:
            advice = "pip install minicpmo-utils, with PyTorch for your GPU"
            raise UnbraidError(f"Step-Audio 2's vocoder needs stepaudio2 ({error}): {advice}") from error
        except Exception as error:  # PyTorch's errors have no common base
            wanted = "it is the folder token2wav of stepfun-ai/Step-Audio-2-mini, and needs an NVIDIA GPU"
            raise UnbraidError(f"Step-Audio 2's vocoder cannot be loaded from {place} ({error}): {wanted}") from error
        self.lock = Lock()

    def voice(self) -> Token2WavVoice:
        return Token2WavVoice(self)


class Token2WavVoice:
    """See `unbraid.server.vocoder.Voice`."""

    def __init__(self, vocoder: Token2WavVocoder) -> None:
        self._vocoder = vocoder
        self._codes: list[int] = []
        self._state: list[Any] | None = None

    def feed(self, codes: Sequence[int]) -> bytes:
        self._codes += codes
        sound = b""
        while len(self._codes) >= CHUNK + AHEAD:
            sound += self._sound(self._codes[: CHUNK + AHEAD], last=False)
            del self._codes[:CHUNK]
        return sound

    def finish(self) -> bytes:
        codes, self._codes = self._codes, []
        return self._sound(codes, last=True) if codes else b""

    def _sound(self, codes: list[int], *, last: bool) -> bytes:
        model, prompt = self._vocoder.model, str(self._vocoder.prompt)
        with self._vocoder.lock:
            if self._state is None:
                model.set_stream_cache(prompt)
            else:
                for name, value in zip(_STATE, self._state, strict=True):
                    setattr(model, name, value)
            sound = bytes(model.stream(codes, prompt, last_chunk=last))
            self._state = [getattr(model, name) for name in _STATE]
        return sound
