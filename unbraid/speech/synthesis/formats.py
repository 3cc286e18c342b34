"""The formats of sound that a reply can have, by the names of OpenAI's API. Needs only the standard library."""

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
