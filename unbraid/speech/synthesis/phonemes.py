"""What Kokoro reads: phonemes and punctuation, one token for each character.

    phonetic("Hello, world.", LANGUAGES["a"])  # həlˈO, wˈɜɹld.

espeak-ng gives the phonemes, in the International Phonetic Alphabet. Its library is loaded from the package
`espeakng-loader`, which has it for Linux (x86 and ARM), macOS and Windows, with its data. espeak-ng is licensed under
the GPL, version 3 or later, and is used through its C interface; it is part of no other extra than `voice`. It has one
state for the whole process: one call at a time, and the language is set before each.

Kokoro was trained on the phonemes of `misaki`, its makers' own library, which uses spaCy for English. espeak-ng gives
nearly the same ones in another notation: diphthongs and affricates are one letter in Kokoro's alphabet. The tables here
translate; what the alphabet does not have is left out. Punctuation stays where it is: it makes the pauses and the tone.
Chinese and Japanese have readers of their own (`east_asian`).
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...engines.base import EngineDown, EngineFailed
from .east_asian import HAN, JAPANESE, chinese, chinese_numbers, japanese, japanese_numbers
from .numbers import read_numbers

TIE = "^"
"""Stands between the letters of one sound: `a^ɪ`."""

_RETRIEVAL, _NO_EXIT = 1, 0x8000  # AUDIO_OUTPUT_RETRIEVAL: no sound device; espeakINITIALIZE_DONT_EXIT
_UTF8 = 1
_MODE = 0x02 | 0x80 | ord(TIE) << 8  # IPA, with a tie
_LANGUAGE_SWITCH = re.compile(r"\(\^?[a-z](?:\^?[a-z-])*\)")  # `(en)` where it reads a word of another language
_lock = threading.Lock()


LONGEST = 510
"""Tokens that the model takes at once, without those at both ends."""

_MARKS = ';:,.!?—…"“”()'
_SPELLED = str.maketrans({
    "«": "“", "»": "”", "„": "“", "‟": "“", "–": "—", "‘": "'", "’": "'", "¿": "", "¡": "", "[": "(", "]": ")",
    "{": "(", "}": ")", "、": ", ", "，": ", ", "。": ". ", "！": "! ", "？": "? ", "：": ": ", "；": "; ", "।": ".",
    "「": " “", "」": "” ", "『": " “", "』": "” ", "《": " “", "》": "” ", "（": " (", "）": ") ", "・": " ",
})  # fmt: skip
_PUNCTUATION = re.compile(rf"\s*[{re.escape(_MARKS)}]+(?=\s|$|[{re.escape(_MARKS)}\w])\s*")
_BETWEEN_DIGITS = re.compile(r"(?<=\d)[.,:](?=\d)|(?<=\w)[.:](?=\w)")
_KEPT = "\ue000"  # stands for a mark inside a number or an address, which espeak-ng reads itself


def phonemes(text: str, language: str) -> str:
    """The phonemes of a text without punctuation, with marks of stress. Raises `EngineDown` without espeak-ng.

    language: what espeak-ng calls it: `en-us`, `en` (British), `es`, `fr`, `pt-br` …
    """
    data = text.replace("\0", " ").encode("utf-8", "replace")
    with _lock:
        library = _library()
        if library.espeak_SetVoiceByName(language.encode()):
            raise EngineFailed(f"espeak-ng has no language {language!r}")
        rest = ctypes.c_char_p(data)
        clauses = []
        while rest.value is not None:  # one clause at a time
            clauses.append((library.espeak_TextToPhonemes(ctypes.byref(rest), _UTF8, _MODE) or b"").decode())
    return _LANGUAGE_SWITCH.sub("", " ".join(filter(None, clauses)))


@cache
def _library() -> Any:
    try:
        loader: Any = importlib.import_module("espeakng_loader")
        library = ctypes.CDLL(loader.get_library_path())
    except (ImportError, OSError) as error:
        raise EngineDown(f"speech needs espeak-ng ({error}): pip install 'unbraid[voice]'") from error
    library.espeak_TextToPhonemes.restype = ctypes.c_char_p
    library.espeak_TextToPhonemes.argtypes = [ctypes.POINTER(ctypes.c_char_p), ctypes.c_int, ctypes.c_int]
    if library.espeak_Initialize(_RETRIEVAL, 0, loader.get_data_path().encode(), _NO_EXIT) < 0:
        raise EngineDown("espeak-ng cannot be started: its data is not where its package should have it")
    return library


@dataclass(frozen=True)
class KokoroScript:
    """How a language is read that espeak-ng cannot read."""

    language: str
    """Its English name."""
    extra: str
    """The extra of this package with what reads it."""
    modules: tuple[str, ...]
    """What that installs."""
    characters: re.Pattern[str]
    """What it is written in; all else in a text is read as American English."""
    numbers: Callable[[str], str]
    """Writes out the numbers of a text."""
    read: Callable[[str], str]
    """The phonemes of a run of its characters."""

    @property
    def is_installed(self) -> bool:
        return all(importlib.util.find_spec(module) for module in self.modules)


@dataclass(frozen=True)
class KokoroLanguage:
    """A language that Kokoro speaks."""

    code: str
    """What espeak-ng calls it."""
    translation: tuple[tuple[str, str], ...] = ()
    """Phonemes of espeak-ng, and what Kokoro calls them; applied in order."""
    script: KokoroScript | None = None
    """What reads it in place of espeak-ng."""


_ANY = (
    ("a^ɪ", "I"), ("a^ʊ", "W"), ("e^ɪ", "A"), ("o^ʊ", "O"), ("ə^ʊ", "Q"), ("ɔ^ɪ", "Y"),
    ("d^ʒ", "ʤ"), ("t^ʃ", "ʧ"), ("d^z", "ʣ"), ("t^s", "ʦ"),
)  # fmt: skip
_ENGLISH = (
    *_ANY, ("ə^l", "ᵊl"), ("r", "ɹ"), ("ɚ", "əɹ"), ("ɐ", "ə"), ("x", "k"), ("ç", "k"), ("ɬ", "l"), ("ʲ", ""),
    ("\u0303", ""), ("\u0329", ""), ("e", "A"), ("ʔ", "t"),
)  # fmt: skip
_AMERICAN = (*_ENGLISH, ("ɜːɹ", "ɜɹ"), ("ɜː", "ɜɹ"), ("ɪ^ə", "iə"), ("ː", ""), ("o", "ɔ"), ("ɾ", "T"))
_BRITISH = (("e^ə", "ɛː"), ("i^ə", "ɪə"), *_ENGLISH, ("o", "ɔ"), ("ɾ", "t"))

LANGUAGES = {
    "a": KokoroLanguage("en-us", _AMERICAN),
    "b": KokoroLanguage("en", _BRITISH),
    "e": KokoroLanguage("es", _ANY),
    "f": KokoroLanguage("fr", _ANY),
    "h": KokoroLanguage("hi", _ANY),
    "i": KokoroLanguage("it", _ANY),
    "j": KokoroLanguage(
        "ja",
        script=KokoroScript(
            *("Japanese", "voice-japanese", ("fugashi", "unidic_lite")), JAPANESE, japanese_numbers, japanese
        ),
    ),
    "p": KokoroLanguage("pt-br", _ANY),
    "z": KokoroLanguage(
        "cmn", script=KokoroScript("Chinese", "voice-chinese", ("pypinyin",), HAN, chinese_numbers, chinese)
    ),
}
"""By the first letter of a voice."""


def readable(voice: str) -> bool:
    """Whether all is installed that reads the language of a voice."""
    language = LANGUAGES.get(voice[:1])
    return language is not None and (language.script is None or language.script.is_installed)


def phonetic(text: str, language: KokoroLanguage) -> str:
    """A text as Kokoro reads it."""
    text = text.translate(_SPELLED)
    text = language.script.numbers(text) if language.script else read_numbers(text, language.code)
    text = _BETWEEN_DIGITS.sub(lambda mark: _KEPT + mark[0], text)
    parts: list[str] = []
    begun = 0
    for mark in _PUNCTUATION.finditer(text):
        if _KEPT in text[mark.start() - 1 : mark.end()]:
            continue
        parts += [_words(text[begun : mark.start()], language), mark[0]]
        begun = mark.end()
    parts.append(_words(text[begun:], language))
    return " ".join("".join(parts).split())


def _words(text: str, language: KokoroLanguage) -> str:
    if not text.strip():
        return ""
    if language.script is not None:
        return _mixed(text, language.script)
    read = phonemes(text.replace(_KEPT, ""), language.code)
    for theirs, ours in language.translation:
        read = read.replace(theirs, ours)
    return " ".join(read.replace(TIE, "").replace("-", "").split())


def _mixed(text: str, script: KokoroScript) -> str:
    """A text in a script, with words of others in it."""
    parts: list[str] = []
    begun = 0
    for run in script.characters.finditer(text):
        parts += [_words(text[begun : run.start()], LANGUAGES["a"]), script.read(run[0])]
        begun = run.end()
    parts.append(_words(text[begun:], LANGUAGES["a"]))
    return " ".join(filter(None, parts))


def tokens(spelling: str, vocabulary: Mapping[str, int]) -> list[list[int]]:
    """The tokens of a text, in as many parts as the model needs: divided between words where that is possible."""
    letters = "".join(letter for letter in spelling if letter in vocabulary)
    parts = []
    while letters := letters.strip():
        cut = len(letters)
        if cut > LONGEST:
            cut = letters.rfind(" ", 1, LONGEST + 1)
            cut = LONGEST if cut < 0 else cut
        parts.append([vocabulary[letter] for letter in letters[:cut]])
        letters = letters[cut:]
    return parts
