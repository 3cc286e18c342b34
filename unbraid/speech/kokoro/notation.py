"""What Kokoro reads: phonemes and punctuation, one token for each character.

Kokoro was trained on the phonemes of `misaki`, its makers' own library, which uses spaCy for English. espeak-ng gives
nearly the same ones in another notation: diphthongs and affricates are one letter in Kokoro's alphabet. The tables here
translate; what the alphabet does not have is left out. Punctuation stays where it is: it makes the pauses and the tone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..synthesis.espeak import TIE, phonemes

LONGEST = 510
"""Tokens that the model takes at once, without those at both ends."""

_MARKS = ';:,.!?—…"“”()'
_SPELLED = str.maketrans({
    "«": "“", "»": "”", "„": "“", "‟": "“", "–": "—", "‘": "'", "’": "'", "¿": "", "¡": "", "[": "(", "]": ")",
    "{": "(", "}": ")", "、": ",", "，": ",", "。": ".", "！": "!", "？": "?", "：": ":", "；": ";", "।": ".",
})  # fmt: skip
_PUNCTUATION = re.compile(rf"\s*[{re.escape(_MARKS)}]+(?=\s|$|[{re.escape(_MARKS)}\w])\s*")
_BETWEEN_DIGITS = re.compile(r"(?<=\d)[.,:](?=\d)|(?<=\w)[.:](?=\w)")
_KEPT = "\ue000"  # stands for a mark inside a number or an address, which espeak-ng reads itself


@dataclass(frozen=True)
class Language:
    """A language that Kokoro speaks."""

    code: str
    """What espeak-ng calls it."""
    translation: tuple[tuple[str, str], ...]
    """Phonemes of espeak-ng, and what Kokoro calls them; applied in order."""


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
    "a": Language("en-us", _AMERICAN),
    "b": Language("en", _BRITISH),
    "e": Language("es", _ANY),
    "f": Language("fr", _ANY),
    "h": Language("hi", _ANY),
    "i": Language("it", _ANY),
    "p": Language("pt-br", _ANY),
}
"""By the first letter of a voice. Japanese and Chinese are missing: espeak-ng cannot read their scripts well enough."""


def phonetic(text: str, language: Language) -> str:
    """A text as Kokoro reads it."""
    text = _BETWEEN_DIGITS.sub(lambda mark: _KEPT + mark[0], text.translate(_SPELLED))
    found: list[str] = []
    begun = 0
    for mark in _PUNCTUATION.finditer(text):
        if _KEPT in text[mark.start() - 1 : mark.end()]:
            continue
        found += [_words(text[begun : mark.start()], language), mark[0]]
        begun = mark.end()
    found.append(_words(text[begun:], language))
    return " ".join("".join(found).split())


def _words(text: str, language: Language) -> str:
    if not text.strip():
        return ""
    read = phonemes(text.replace(_KEPT, ""), language.code)
    for theirs, ours in language.translation:
        read = read.replace(theirs, ours)
    return " ".join(read.replace(TIE, "").replace("-", "").split())


def tokens(written: str, vocabulary: Mapping[str, int]) -> list[list[int]]:
    """The tokens of a text, in as many parts as the model needs: divided between words where that is possible."""
    known = "".join(letter for letter in written if letter in vocabulary)
    parts = []
    while known := known.strip():
        cut = len(known)
        if cut > LONGEST:
            cut = known.rfind(" ", 1, LONGEST + 1)
            cut = LONGEST if cut < 0 else cut
        parts.append([vocabulary[letter] for letter in known[:cut]])
        known = known[cut:]
    return parts
