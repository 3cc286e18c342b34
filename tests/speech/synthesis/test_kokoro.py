"""Kokoro as it is: what it says is what our Whisper hears."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from unbraid.models import ModelError
from unbraid.speech.audio.decode import read
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.synthesis.encoding import SoundWriter
from unbraid.speech.synthesis.kokoro import KOKORO_VOICES, KokoroSpeaker, resolve_kokoro
from unbraid.speech.synthesis.phonemes import KokoroScript
from unbraid.speech.synthesis.speaker import CannotSpeak, Sound, SpeakRequest, Spoken
from unbraid.speech.transcriber import Transcriber

from ...support.waiting import PATIENCE
from ..whisper.whisper_models import whisper_engine
from ..word_errors import word_errors, words
from .kokoro_models import kokoro_files

pytestmark = pytest.mark.system

ENGLISH = "The old lighthouse keeper walked down to the harbour every morning. He was looking for a small blue boat."
SPANISH = "La biblioteca cierra los domingos."


@pytest.fixture(scope="module")
def speaker() -> Iterator[KokoroSpeaker]:
    speaker = KokoroSpeaker(kokoro_files(), threads=2)
    yield speaker
    asyncio.run(speaker.close())


def spoken(speaker: KokoroSpeaker, text: str, voice: str, speed: float = 1.0) -> list[Sound]:
    async def collected() -> list[Sound]:
        async with asyncio.timeout(5 * PATIENCE):
            return [one.sound async for one in speaker.speak(SpeakRequest(text=text, voice=voice, speed=speed))]

    return asyncio.run(collected())


def heard(sounds: list[Sound], path: Path) -> tuple[str | None, str]:
    """What Whisper makes of a file with that sound."""
    writer = SoundWriter("wav", KokoroSpeaker.rate)
    path.write_bytes(b"".join([*map(writer.write, sounds), writer.finish()]))

    async def transcribed() -> tuple[str | None, str]:
        engine = whisper_engine("whisper-base")
        try:
            found = await Transcriber(engine).transcribe(read(path), TranscriptionOptions())
        finally:
            await engine.close()
        return found.language, found.text

    return asyncio.run(transcribed())


def test_what_is_said_is_heard(speaker: KokoroSpeaker, tmp_path: Path) -> None:
    """In two languages, one after the other: the language is that of the voice."""
    english, spanish = spoken(speaker, ENGLISH, "heart"), spoken(speaker, SPANISH, "ef_dora")
    assert len(english) == 2, "a sentence at a time"
    for sounds, said, code in ((english, ENGLISH, "en"), (spanish, SPANISH, "es")):
        assert all(np.isfinite(sound).all() and 0.05 < np.abs(sound).max() <= 1.5 for sound in sounds)
        language, text = heard(sounds, tmp_path / "speech.wav")
        assert language == code
        assert word_errors(said, text) <= 0.3 * len(words(said)), text


def test_a_sentence_in_parts_says_the_same(speaker: KokoroSpeaker, tmp_path: Path) -> None:
    """Its first part is there before the rest is made, with how long all of it is."""
    said = "We are all well aware of your role in our early years, and nobody will ever forget it."

    async def collected() -> list[Spoken]:
        async with asyncio.timeout(5 * PATIENCE):
            return [one async for one in speaker.speak(SpeakRequest(text=said, voice="bm_george", soon=True))]

    first, *others = asyncio.run(collected())
    parts = [first.sound, *(other.sound for other in others)]
    samples = sum(map(len, parts))
    assert len(others) >= 2
    assert len(first.sound) <= KokoroSpeaker.rate
    assert abs(samples - first.total) <= 240 * len(others)
    assert first.read > 0
    assert not any(other.read or other.total for other in others)
    _, text = heard(parts, tmp_path / "speech.wav")
    assert word_errors(said, text) <= 0.2 * len(words(said)), text


def test_speed(speaker: KokoroSpeaker) -> None:
    slow, fast = (len(spoken(speaker, "Good morning.", "af_heart", speed)[0]) for speed in (1.0, 2.0))
    assert 0.35 < fast / slow < 0.75


def test_what_cannot_be_spoken(speaker: KokoroSpeaker) -> None:
    assert speaker.voices[0] == "af_heart"
    for text, voice, speed, field, message in (
        ("Hi.", "nobody", 1.0, "voice", "there is no 'nobody'; there are af_heart, "),
        ("Hi.", "santa", 1.0, "voice", "there is no 'santa'"),  # there are several
        ("你好。", "zf_nobody", 1.0, "voice", "there is no 'zf_nobody'"),
        ("Hi.", "zebra", 1.0, "voice", "there is no 'zebra'"),
        ("Hi.", "alloy", 9.0, "speed", "from 0.25 to 4, not 9"),
        ("  ", "alloy", 1.0, "input", "is empty"),
        ("…?!", "alloy", 1.0, "input", "nothing that can be spoken"),
    ):
        with pytest.raises(CannotSpeak, match=message) as error:
            spoken(speaker, text, voice, speed)
        assert error.value.field == field
    assert speaker.load.running == speaker.load.waiting == 0


@pytest.mark.parametrize(
    ("voice", "code", "said", "others"),
    [
        ("zf_xiaoxiao", "zh", "今天天气很好，我们一起去公园散步吧。", "今天天氣很好我們一起去公園散步吧"),
        ("zm_yunxi", "zh", "北京是中国的首都，有很多人。", "北京是中國的首都有很多人"),
        ("jf_alpha", "ja", "今日は天気がいいので、東京の公園を散歩しました。", ""),
        ("jm_kumo", "ja", "学校の先生は日本語を教えています。", ""),
    ],
)
def test_scripts_that_espeak_cannot_read(
    speaker: KokoroSpeaker, tmp_path: Path, voice: str, code: str, said: str, others: str
) -> None:
    """Letters are compared, in simplified or traditional characters, of which Whisper may write either."""
    if voice not in speaker.voices:
        pytest.skip(f"what reads {voice} is not installed: pip install 'unbraid[voice-chinese,voice-japanese]'")
    language, text = heard(spoken(speaker, said, voice), tmp_path / "speech.wav")
    assert language == code
    said, others, text = (" ".join(filter(str.isalnum, one)) for one in (said, others or said, text))
    assert min(word_errors(said, text), word_errors(others, text)) <= 0.3 * len(words(said)), text


def test_a_voice_whose_language_cannot_be_read(monkeypatch: pytest.MonkeyPatch, speaker: KokoroSpeaker) -> None:
    monkeypatch.setattr(speaker, "voices", ("af_heart",))
    monkeypatch.setattr(KokoroScript, "is_installed", False)
    for voice, message in (
        ("zf_xiaobei", r"'zf_xiaobei' speaks Chinese, which needs pip install 'unbraid\[voice-chinese\]'"),
        ("jf_alpha", "'jf_alpha' speaks Japanese"),
    ):
        with pytest.raises(CannotSpeak, match=message):
            spoken(speaker, "你好。", voice)


def test_a_folder_of_files(tmp_path: Path) -> None:
    """In the layout of the hub, and what is said of one that is not whole."""
    known = kokoro_files()
    folder = tmp_path / "my-kokoro"
    for missing in ("it is not a folder here", "has no model.onnx", "has no voices", "has no alphabet"):
        with pytest.raises(ModelError, match=missing):
            resolve_kokoro(folder)
        if missing == "it is not a folder here":
            (folder / "onnx").mkdir(parents=True)
        elif missing == "has no model.onnx":
            (folder / "onnx" / "model.onnx").symlink_to(known.model)
        elif missing == "has no voices":
            (folder / "voices").mkdir()
            (folder / "voices" / "bf_me.bin").write_bytes(known.voices["bf_emma"].tobytes())
            (folder / "voices" / "xf_other.bin").write_bytes(b"")  # a language that is not spoken here
    letters = dict(known.vocabulary)
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"$": 0, **letters}}}))
    found = resolve_kokoro(folder)
    assert (found.name, list(found.voices), found.vocabulary) == ("my-kokoro", ["bf_me"], letters)
    (folder / "voices" / "af_short.bin").write_bytes(b"abc")
    with pytest.raises(ModelError, match="has 3 bytes"):
        resolve_kokoro(folder)
    shutil.rmtree(folder)


def test_the_voices_are_all_there() -> None:
    voices = kokoro_files().voices
    assert tuple(voices) == KOKORO_VOICES
    assert len({style.tobytes()[:64] for style in voices.values()}) == len(voices) == 54
