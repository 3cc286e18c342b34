"""Chinese and Japanese as Kokoro reads them: their scripts to pinyin and kana, and those to phonemes.

    chinese("你好")  # ni↓xau↓
    japanese("お元気ですか")  # o ɡeŋkʲi desɨ ka

`pypinyin` has the readings and the words of Chinese; `fugashi`, with the dictionary of `unidic-lite`, those of
Japanese. Both are optional. The notation is the one that Kokoro was trained on: a Chinese syllable has an arrow for its
tone after its vowel, and Japanese kana are written by their sounds. Numbers are written out before they are read.
"""

from __future__ import annotations

import importlib
import re
import threading
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from ...engines.base import EngineDown
from .numbers import ISO_DATE, TIME

HAN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]+")
"""Chinese characters."""
JAPANESE = re.compile(r"[々-〇\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\uf900-\ufaff]+")
"""Kana, and the same characters."""

_NUMERALS = "零一二三四五六七八九"
_PLACES = ("", "十", "百", "千")
_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_YEAR = re.compile(r"(?<!\d)(\d{4})(?=年)")
_PERCENT = re.compile(r"(\d[\d,.]*)\s?%")
_AMOUNT = re.compile(r"([$€£¥])\s?(\d[\d,]*(?:\.\d+)?)")
_AMOUNT_BEFORE = re.compile(r"(\d[\d,]*(?:\.\d+)?)\s?([$€£¥])")
_MEASURED = re.compile(r"(?<=\d)\s?(km/h|km|kg|cm|mm|°C)(?![A-Za-z/])")
_MINUS = re.compile(r"(?<![\w)-])-(?=\d)")
_CHINESE = {
    "$": "美元", "€": "欧元", "£": "英镑", "¥": "元", "km/h": "公里每小时", "km": "公里", "kg": "公斤",
    "cm": "厘米", "mm": "毫米", "°C": "摄氏度", "-": "负", ":": "点",
}  # fmt: skip
_JAPANESE = {
    "$": "ドル", "€": "ユーロ", "£": "ポンド", "¥": "円", "km/h": "キロメートル毎時", "km": "キロメートル",
    "kg": "キログラム", "cm": "センチメートル", "mm": "ミリメートル", "°C": "度", "-": "マイナス", ":": "時",
}  # fmt: skip
"""What signs and units are called; a colon stands between hours and minutes."""

_lock = threading.Lock()


# Numbers


def chinese_numbers(text: str) -> str:
    """Numbers as Chinese says them, and years digit by digit."""
    text = _YEAR.sub(lambda match: _digits(match[1]), _signs_read(text, _CHINESE))
    text = _PERCENT.sub(lambda match: f"百分之{match[1]}", text)
    return _NUMBER.sub(lambda match: _number(match[0], chinese=True), text)


def japanese_numbers(text: str) -> str:
    """Numbers as Japanese says them: no one before hundred, and nothing for a zero between other digits."""
    text = _PERCENT.sub(lambda match: f"{match[1]}パーセント", _signs_read(text, _JAPANESE))
    return _NUMBER.sub(lambda match: _number(match[0], chinese=False), text)


def _signs_read(text: str, names: Mapping[str, str]) -> str:
    """A text with its dates, times, amounts of money and units in words, and the numbers of these in digits."""
    text = ISO_DATE.sub(
        lambda match: f"{match[1]}年{int(match[2])}月{int(match[3])}日", unicodedata.normalize("NFKC", text)
    )
    text = TIME.sub(
        lambda match: f"{int(match[1])}{names[':']}" + (f"{int(match[2])}分" if int(match[2]) else ""), text
    )
    text = _AMOUNT.sub(lambda match: match[2] + names[match[1]], text)
    text = _AMOUNT_BEFORE.sub(lambda match: match[1] + names[match[2]], text)
    return _MINUS.sub(names["-"], _MEASURED.sub(lambda match: names[match[1]], text))


def _digits(text: str) -> str:
    return "".join(_NUMERALS[int(digit)] for digit in text)


def _number(text: str, *, chinese: bool) -> str:
    whole, _, part = text.replace(",", "").partition(".")
    is_count = len(whole) <= 16 and (whole == "0" or whole[0] != "0")
    return (_whole(whole, chinese=chinese) if is_count else _digits(whole)) + ("点" + _digits(part) if part else "")


def _whole(digits: str, *, chinese: bool) -> str:
    if digits == "0":
        return "零" if chinese else "ゼロ"
    scales = ("", "万", "亿" if chinese else "億", "兆")
    groups = [digits[max(0, end - 4) : end] for end in range(len(digits), 0, -4)]
    said = ""
    for group, scale in reversed([*zip(groups, scales, strict=False)]):
        if int(group):
            said += "零" if chinese and said and group[0] == "0" else ""
            said += _group(group, chinese=chinese) + scale
    return said.removeprefix("一") if said.startswith("一十") else said


def _group(group: str, *, chinese: bool) -> str:
    """Four digits or fewer, not all of them zero."""
    said, after_zero = "", False
    for place, digit in zip(range(len(group) - 1, -1, -1), group, strict=True):
        if digit != "0":
            said += "零" if chinese and after_zero and said else ""
            said += ("" if digit == "1" and place and not chinese else _NUMERALS[int(digit)]) + _PLACES[place]
        after_zero = digit == "0"
    return said


# Chinese

_INITIALS = {
    "b": "p", "p": "pʰ", "m": "m", "f": "f", "d": "t", "t": "tʰ", "n": "n", "l": "l", "g": "k", "k": "kʰ", "h": "x",
    "j": "ʨ", "q": "ʨʰ", "x": "ɕ", "zh": "ꭧ", "ch": "ꭧʰ", "sh": "ʂ", "r": "ɻ", "z": "ʦ", "c": "ʦʰ", "s": "s", "": "",
}  # fmt: skip
_GLIDES = {"i": "j", "u": "w", "v": "ɥ"}
_VOWELS = {
    "a": "a", "o": "o", "e": "ɤ", "i": "i", "u": "u", "v": "y", "ai": "ai", "ei": "ei", "ao": "au", "ou": "ou",
    "an": "a|n", "en": "ə|n", "ang": "a|ŋ", "eng": "ə|ŋ", "ong": "ʊ|ŋ", "in": "i|n", "ing": "i|ŋ", "vn": "y|n",
    "er": "ɚ", "m": "m", "n": "n", "ng": "ŋ", "ê": "ɛ", "uo": "wo", "ie": "je", "ve": "ɥe", "ian": "jɛ|n",
    "van": "ɥɛ|n", "iong": "jʊ|ŋ", "io": "jɔ",
}  # fmt: skip
"""Finals; a tone stands where the bar is, or at the end."""
_BUZZED = ("zh", "ch", "sh", "r", "z", "c", "s")  # before `i` of another sound
_TONES = {"1": "→", "2": "↗", "3": "↓", "4": "↘", "5": ""}


def chinese(text: str) -> str:
    """A run of Chinese characters in phonemes, with spaces between words."""
    library, cut = _pinyin()
    return " ".join("".join(_syllables(library, word)) for word in cut(text))


def _syllables(library: Any, word: str) -> Iterator[str]:
    def read(style: Any) -> list[str]:
        parts: list[str] = library.lazy_pinyin(
            word, style=style, strict=True, neutral_tone_with_five=True, errors="ignore"
        )
        return parts

    for initial, final in zip(read(library.Style.INITIALS), read(library.Style.FINALS_TONE3), strict=True):
        yield syllable(initial, final.rstrip("12345"), final[-1:])


def syllable(initial: str, final: str, tone: str) -> str:
    """The phonemes of a syllable, which pinyin writes as `initial` and `final` (`v` for ü)."""
    final = final.replace("ü", "v")
    if final == "i" and initial in _BUZZED:
        vowel = "ɨ"
    elif final in _VOWELS:
        vowel = _VOWELS[final]
    else:
        vowel = _GLIDES.get(final[:1], "") + _VOWELS.get(final[1:], "")
    open_, _, closed = vowel.partition("|")
    return _INITIALS.get(initial, "") + open_ + _TONES.get(tone, "") + closed


@cache
def _pinyin() -> tuple[Any, Callable[[str], Iterator[str]]]:
    try:
        library: Any = importlib.import_module("pypinyin")
        words: Any = importlib.import_module("pypinyin.contrib.mmseg").seg
    except ImportError as error:
        raise EngineDown(f"Chinese needs pypinyin ({error}): pip install 'unbraid[voice-chinese]'") from error
    return library, words.cut


# Japanese

_ROWS = {
    "": "アイウエオ", "k": "カキクケコ", "ɡ": "ガギグゲゴ", "s": "サシスセソ", "ʣ": "ザジズゼゾ", "t": "タチツテト",
    "d": "ダヂヅデド", "n": "ナニヌネノ", "h": "ハヒフヘホ", "b": "バビブベボ", "p": "パピプペポ", "m": "マミムメモ",
    "ɾ": "ラリルレロ", "j": "ヤ ユ ヨ", "β": "ワヰ ヱ", "v": "ヷヸヴヹヺ",
}  # fmt: skip
_ONSETS = {
    "シ": "ɕ", "ジ": "ʥ", "ヂ": "ʥ", "チ": "ʨ", "ツ": "ʦ", "ズ": "z", "ヅ": "z", "ニ": "ɲ", "ヒ": "ç", "フ": "ɸ",
    "ヰ": "", "ヱ": "",
}  # fmt: skip
_PALATAL = "ɕʥʨɲç"
_SMALL = {"ァ": "a", "ィ": "i", "ゥ": "u", "ェ": "e", "ォ": "o", "ャ": "a", "ュ": "u", "ョ": "o", "ヮ": "a"}
_GLIDING = "ャュョ"
_MORA = re.compile(f"(.)([{''.join(_SMALL)}]?)")
_NASALS = (("mpb", "m"), ("kɡ", "ŋ"), ("ɲʨʥ", "ɲ"), ("ntdɾz", "n"))
_SIGNS = {"ッ": "ʔ", "ー": "ː", "ン": "ɴ"}
_KANA = {
    kana: (_ONSETS.get(kana, row), vowel)
    for row, letters in _ROWS.items()
    for kana, vowel in zip(letters, "aiueo", strict=False)
} | {"ヲ": ("", "o"), "ヵ": ("k", "a"), "ヶ": ("k", "e")}


def japanese(text: str) -> str:
    """A run of kana and Chinese characters in phonemes, with spaces between words."""
    tagger = _tagger()
    with _lock:  # it has one state
        words = [(str(word.surface), word.feature) for word in tagger(text)]
    read = (getattr(of, "pron", None) or getattr(of, "kana", None) or surface for surface, of in words)
    return " ".join(filter(None, map(sounds, read)))


def sounds(kana: str) -> str:
    """Kana in phonemes; what is none is left out."""
    kana = "".join(chr(ord(letter) + 0x60) if "ぁ" <= letter <= "ゖ" else letter for letter in kana)
    said = [_SIGNS.get(letter) or _mora(letter, small) for letter, small in _MORA.findall(kana)]
    for at, (one, following) in enumerate(pairwise(said)):
        if one == _SIGNS["ン"]:
            said[at] = next((nasal for starts, nasal in _NASALS if following[:1] in [*starts]), one)
    return "".join(said)


def _mora(letter: str, small: str) -> str:
    """The phonemes of one kana and the small one after it."""
    onset, vowel = _KANA.get(letter, ("", _SMALL.get(letter, "")))
    if small:
        if small in _GLIDING or vowel == "i":
            onset = onset if onset and onset in _PALATAL else onset + "ʲ" if onset else "j"
        elif letter == "ウ":
            onset = "β"
        elif onset and onset in "kɡ":
            onset += "ᵝ"
        vowel = _SMALL[small]
    last = onset[-1:]
    if vowel == "i" and last and last not in _PALATAL + "ʲβᵝ":
        onset += "ʲ"
    if vowel == "u":
        vowel = "ɨ" if last and last in "szʦʲ" + _PALATAL else "ɯ"
    return onset + vowel


@cache
def _tagger() -> Any:
    try:
        library: Any = importlib.import_module("fugashi")
        dictionary: Any = importlib.import_module("unidic_lite")
    except ImportError as error:
        raise EngineDown(
            f"Japanese needs fugashi and unidic-lite ({error}): pip install 'unbraid[voice-japanese]'"
        ) from error
    return library.Tagger(f'-d "{dictionary.DICDIR}"')
