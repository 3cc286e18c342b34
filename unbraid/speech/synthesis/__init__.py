"""Text to speech, and the formats that a reply can have, by the names of OpenAI's API.

    speaker.py    the protocol of models that speak
    kokoro.py     Kokoro, which speaks in this process
    phonemes.py   texts as Kokoro reads them, by espeak-ng
    east_asian.py Chinese and Japanese likewise, by their own readers
    numbers.py    years, dates, times and money as they are said
    sentences.py  texts in sentences, and requests to one model that take turns with theirs
    windows.py    the sound of a sentence in parts, so that the first is heard soon
    encoding.py   samples as files of these formats, written as they come

Importing this package needs only the standard library.
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
