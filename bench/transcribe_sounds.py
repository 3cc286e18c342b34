"""What `transcribe.py` lets be transcribed: people's recordings, with what is said in them and, where they were put
together here, when.

- sentences: recordings of some ten seconds in five languages.
- clips: of two to six seconds, in the same languages.
- pauses: phrases with long and short pauses; silence, hiss, hum, and music (made here, and real) under all of it. When
  each phrase begins and ends is known to the sample.
- joints: more than a model takes at once, without pauses, so that it is cut in or near sentences.
- abroad: the same in Spanish, French and Italian.
- nothing: silence, noise and music in which nobody says a word.

All of it takes hours with all systems; without `everything` there is one recording with pauses for each kind of noise,
two long ones, and none abroad.
"""

from __future__ import annotations

import hashlib
import io
import wave
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from transcribe_alignment import aligned

from tests.speech.noises import Said, collage, noise
from tests.support.real_speech import ASTERISK, PHRASES, RATE, TUNES, Recording, menus, music, phrase, recording
from unbraid.speech.audio.decode import Samples

SENTENCES, CLIPS, PAUSES, JOINTS, ABROAD = "sentences", "clips", "pauses", "joints", "abroad"
NOTHING = "nothing"
SPOKEN = (SENTENCES, CLIPS, PAUSES, JOINTS, ABROAD)
GROUPS = (*SPOKEN, NOTHING)
TIMED = (PAUSES, JOINTS)
"""Groups whose words are asked for with their times."""

_UNDER = ("silence", "hiss", "hum", "music", TUNES[0])
_TURNS = 3  # in how many kinds of noise each phrase is heard
_PAUSES = (1.0, 9.0, 0.5, 14.0, 3.0, 2.0)  # seconds before each phrase, and after the last
_CLIPS = ("demo-thanks", "tt-weasels")  # in each language
_ENGLISH_CLIPS = 12
_JOINED = (("demo-nogo", "demo-instruct"), ("demo-thanks", "demo-congrats", "demo-abouttotry"))
_ABROAD = ("es", "fr", "it")
_JOINED_ABROAD = ("demo-nogo", "demo-congrats", "demo-instruct")
_MENUS = 4  # recordings that the menus are joined to
_FEW_JOINTS = slice(2, 4)  # two of them
_BETWEEN = 0.3  # seconds
_NOTHING = 20.0  # seconds


@dataclass(frozen=True)
class Sound:
    """A wav file, and what is true of it."""

    group: str
    name: str
    path: Path
    seconds: float
    language: str
    text: str
    phrases: tuple[Said, ...] = ()
    """Where it is known when something is said."""
    starts: tuple[tuple[str, float | None], ...] = ()
    """The words, with their starts by `transcribe_alignment`, where it could align them."""

    @property
    def samples(self) -> Samples:
        return Recording(self.path, self.language, self.text).samples

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.path.read_bytes()).hexdigest()


def sounds(
    folder: Path, *, quick: bool = False, everything: bool = False, groups: Collection[str] = GROUPS
) -> Iterator[Sound]:
    """Those of some groups; files that are made here go into `folder`. quick: two of each group."""
    return (sound for sound in _sounds(folder, quick=quick, everything=everything) if sound.group in groups)


def _sounds(folder: Path, *, quick: bool, everything: bool) -> Iterator[Sound]:
    some = slice(None, 2 if quick else None)
    folder.mkdir(parents=True, exist_ok=True)
    for one in [recording("en", "jfk"), *(recording(language, "demo-nogo") for language in ASTERISK)][some]:
        name = f"{one.language} {one.path.stem}"
        yield Sound(SENTENCES, name, one.path, one.seconds, one.language, one.transcript or "")
    abroad = [recording(language, name) for name in _CLIPS for language in ASTERISK]
    for one in [*abroad, *map(phrase, PHRASES[-_ENGLISH_CLIPS:])][some]:
        yield Sound(CLIPS, f"{one.language} {one.path.stem}", one.path, one.seconds, one.language, one.transcript or "")
    for turn in range(_TURNS if everything else 1):
        for number, under in list(enumerate(_UNDER))[some]:
            first = (number + turn) % len(_UNDER)
            yield _with_pauses(folder, f"{under} {turn}", under, PHRASES[first :: len(_UNDER)])
    demos = [[recording("en", name) for name in names] for names in _JOINED]
    joints = [*demos, *(menus()[number::_MENUS] for number in range(_MENUS))]
    for parts in joints[slice(None) if everything else _FEW_JOINTS][some]:
        yield _joined(folder, JOINTS, parts)
    for language in _ABROAD[some] if everything else ():
        yield _joined(folder, ABROAD, [recording(language, name) for name in _JOINED_ABROAD])
    for name, samples in list(_nobody())[some]:
        yield _made(folder, NOTHING, name, samples, "en", "")


def _with_pauses(folder: Path, name: str, under: str, phrases: Sequence[str]) -> Sound:
    pauses = [*_PAUSES[: len(phrases)], _PAUSES[-1]]
    made = collage([phrase(one) for one in phrases], pauses, "silence" if under in TUNES else under)
    samples = made.samples
    if under in TUNES:
        samples = np.clip(samples + 0.15 * music(under).samples[: len(samples)], -1, 1)
    return _made(folder, PAUSES, name, samples, "en", made.text, made.sentences)


def _joined(folder: Path, group: str, parts: Sequence[Recording]) -> Sound:
    pause = np.zeros(round(_BETWEEN * RATE), np.float32)
    samples = np.concatenate([piece for part in parts for piece in (part.samples, pause)])
    names = [part.path.stem for part in parts]
    name, text = " ".join(names[:3]), " ".join(part.transcript or "" for part in parts)
    language = parts[0].language
    made = _made(folder, group, name if group == JOINTS else f"{language} {name}", samples, language, text)
    return replace(made, starts=tuple(_starts(parts))) if group == JOINTS else made


def _starts(parts: Sequence[Recording]) -> Iterator[tuple[str, float | None]]:
    begins = 0.0
    for part, found in zip(parts, aligned([(part.path, part.transcript or "") for part in parts]), strict=True):
        yield from ((word, None if start is None else begins + start) for word, start in found)
        begins += part.seconds + _BETWEEN


def _nobody() -> Iterator[tuple[str, Samples]]:
    for kind in ("hiss", "hum", "music", "silence"):
        yield kind, noise(kind, _NOTHING, 0.05)
    for tune in TUNES[1:]:
        samples = music(tune).samples
        middle = len(samples) // 2
        yield tune, samples[middle : middle + round(_NOTHING * RATE)]


def _made(
    folder: Path, group: str, name: str, samples: Samples, language: str, text: str, phrases: Sequence[Said] = ()
) -> Sound:
    path = folder / f"{group} {name}.wav"
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(np.rint(np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
    if not path.exists() or path.read_bytes() != made.getvalue():  # another run may be reading it
        path.write_bytes(made.getvalue())
    return Sound(group, name, path, len(samples) / RATE, language, text, tuple(phrases))
