"""Text to speech: what all models that speak have in common.

speaker      the protocol of models that speak
sentences    a text of any length in pieces that are spoken one after the other
espeak       the phonemes of a text, by espeak-ng
turns        requests to one model, a sentence each in turn
formats      wav, mp3, opus, aac, flac, pcm; encoding writes samples as one of them, as they come
loading      from a name to a speaker
"""

from __future__ import annotations

from typing import Literal, get_args

SoundFormat = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]
SOUND_FORMATS: tuple[SoundFormat, ...] = get_args(SoundFormat)
MEDIA_TYPES: dict[SoundFormat, str] = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
