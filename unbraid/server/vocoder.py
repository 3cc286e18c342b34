"""Vocoders: the interface for plug-ins that turn audio codes into sound, such as Step-Audio 2's `token2wav`.

    unbraid serve … --vocoder mymodule:make_vocoder

`make_vocoder()` is called once, when the server starts, and returns a `Vocoder`. The module is looked for in the
current folder, too. `examples/tones.py` is a small one. Step-Audio 2's own is `--vocoder step-audio-2:FOLDER`:

    pip install minicpmo-utils    # the makers' code, as the package stepaudio2; with PyTorch, for NVIDIA GPUs
    hf download stepfun-ai/Step-Audio-2-mini --include 'token2wav/*'

FOLDER is `token2wav` of that repository, with a recording of the voice (`prompt.wav`, or any one `.wav`). No registry
of packages has these weights. The model makes sound of 25 codes at a time and looks at three more. It has the state of
one stream: each voice has its own, and puts it in place while it speaks.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, cast

from ..errors import UnbraidError

STEP_AUDIO_2 = "step-audio-2"
_REPOSITORY = "stepfun-ai/Step-Audio-2-mini"
CHUNK, AHEAD = 25, 3
"""Codes that are made into sound at once, and those after them that are looked at."""
_STATE = ("stream_cache", "hift_cache_dict")


class Voice(Protocol):
    """The sound of one reply, as it comes. Its methods are called in a thread, never two at once."""

    def feed(self, codes: Sequence[int]) -> bytes:
        """The sound that these codes complete, which may be none."""
        ...

    def finish(self) -> bytes:
        """The rest of it."""
        ...


class Vocoder(Protocol):
    """Turns audio codes into sound."""

    @property
    def rate(self) -> int:
        """Samples a second."""
        ...

    @property
    def format(self) -> str:
        """What the bytes are, in the words of OpenAI's API: `pcm16` (mono samples of 16 bits, little-endian), or a
        format of files that can be joined, such as `mp3`. Realtime sessions need `pcm16`."""
        ...

    def voice(self) -> Voice:
        """For one reply. Several may speak at the same time."""
        ...


FORMATS = ("pcm16", "wav", "mp3", "opus", "aac", "flac")
"""The formats of the sound."""


def sound_fields(vocoder: Vocoder | None) -> dict[str, Any]:
    """The format and the rate of a vocoder's sound, for clients."""
    return {} if vocoder is None else {"format": vocoder.format, "sample_rate": vocoder.rate}


def load_vocoder(name: str) -> Vocoder:
    """The vocoder that `MODULE:NAME` makes, or Step-Audio 2's own in `step-audio-2:FOLDER`."""
    module, _, attribute = name.partition(":")
    if module == STEP_AUDIO_2:
        return Token2WavVocoder(attribute)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        make = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnbraidError(f"the vocoder {name!r} is not there: {error}. It is named MODULE:NAME") from error
    vocoder = make()
    if not callable(getattr(vocoder, "voice", None)):
        raise UnbraidError(f"{name} made {type(vocoder).__name__}, which is no vocoder: it has no method voice()")
    rate, format = getattr(vocoder, "rate", None), getattr(vocoder, "format", None)
    if not isinstance(rate, int) or rate < 1:
        raise UnbraidError(
            f"{name} made a vocoder whose rate is {rate!r}: it must say how many samples a second it makes"
        )
    if format not in FORMATS:
        raise UnbraidError(f"{name} made a vocoder whose format is {format!r}: it must be one of {', '.join(FORMATS)}")
    return cast(Vocoder, vocoder)


class Token2WavVocoder:
    """Step-Audio 2's own vocoder. Raises `UnbraidError` where the package or a file is missing."""

    rate = 24_000
    format = "pcm16"

    def __init__(self, folder: str) -> None:
        place = Path(folder).expanduser()
        if not folder or not place.is_dir():
            advice = f"hf download {_REPOSITORY} --include 'token2wav/*'"
            raise UnbraidError(
                f"there is no folder {folder!r} with Step-Audio 2's vocoder: {advice}, and give token2wav"
            )
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
            advice = f"it is the folder token2wav of {_REPOSITORY}, and needs an NVIDIA GPU"
            raise UnbraidError(f"Step-Audio 2's vocoder cannot be loaded from {place} ({error}): {advice}") from error
        self.lock = Lock()

    def voice(self) -> Token2WavVoice:
        return Token2WavVoice(self)


class Token2WavVoice:
    """The sound of one reply, by Step-Audio 2's vocoder."""

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
