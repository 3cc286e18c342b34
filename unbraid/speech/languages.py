"""Language codes and names: those of Whisper, and how users write them."""

from __future__ import annotations

import unicodedata
from difflib import get_close_matches

from ..errors import UnbraidError

LANGUAGES = {
    "af": "afrikaans",
    "am": "amharic",
    "ar": "arabic",
    "as": "assamese",
    "az": "azerbaijani",
    "ba": "bashkir",
    "be": "belarusian",
    "bg": "bulgarian",
    "bn": "bengali",
    "bo": "tibetan",
    "br": "breton",
    "bs": "bosnian",
    "ca": "catalan",
    "cs": "czech",
    "cy": "welsh",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "en": "english",
    "es": "spanish",
    "et": "estonian",
    "eu": "basque",
    "fa": "persian",
    "fi": "finnish",
    "fo": "faroese",
    "fr": "french",
    "gl": "galician",
    "gu": "gujarati",
    "ha": "hausa",
    "haw": "hawaiian",
    "he": "hebrew",
    "hi": "hindi",
    "hr": "croatian",
    "ht": "haitian creole",
    "hu": "hungarian",
    "hy": "armenian",
    "id": "indonesian",
    "is": "icelandic",
    "it": "italian",
    "ja": "japanese",
    "jw": "javanese",
    "ka": "georgian",
    "kk": "kazakh",
    "km": "khmer",
    "kn": "kannada",
    "ko": "korean",
    "la": "latin",
    "lb": "luxembourgish",
    "ln": "lingala",
    "lo": "lao",
    "lt": "lithuanian",
    "lv": "latvian",
    "mg": "malagasy",
    "mi": "maori",
    "mk": "macedonian",
    "ml": "malayalam",
    "mn": "mongolian",
    "mr": "marathi",
    "ms": "malay",
    "mt": "maltese",
    "my": "myanmar",
    "ne": "nepali",
    "nl": "dutch",
    "nn": "nynorsk",
    "no": "norwegian",
    "oc": "occitan",
    "pa": "punjabi",
    "pl": "polish",
    "ps": "pashto",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sa": "sanskrit",
    "sd": "sindhi",
    "si": "sinhala",
    "sk": "slovak",
    "sl": "slovenian",
    "sn": "shona",
    "so": "somali",
    "sq": "albanian",
    "sr": "serbian",
    "su": "sundanese",
    "sv": "swedish",
    "sw": "swahili",
    "ta": "tamil",
    "te": "telugu",
    "tg": "tajik",
    "th": "thai",
    "tk": "turkmen",
    "tl": "tagalog",
    "tr": "turkish",
    "tt": "tatar",
    "uk": "ukrainian",
    "ur": "urdu",
    "uz": "uzbek",
    "vi": "vietnamese",
    "yi": "yiddish",
    "yo": "yoruba",
    "yue": "cantonese",
    "zh": "chinese",
}
"""Names by code. A model's vocabulary says which of them it knows."""

ALIASES = {
    "burmese": "my",
    "castilian": "es",
    "filipino": "tl",
    "flemish": "nl",
    "haitian": "ht",
    "letzeburgesch": "lb",
    "mandarin": "zh",
    "moldavian": "ro",
    "moldovan": "ro",
    "panjabi": "pa",
    "pushto": "ps",
    "sinhalese": "si",
    "valencian": "ca",
}
"""Other names that Whisper accepts, and those of other models."""

_CODES = {"cmn": "zh", "fil": "tl", "in": "id", "iw": "he", "ji": "yi", "jv": "jw", "mo": "ro", "nb": "no"}
"""Codes of ISO 639 where Whisper has others."""

_WITHOUT_SPACES = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "MYANMAR", "KHMER")
"""Scripts without spaces between words, by the names of their characters. Tibetan has none between sentences."""

_KNOWN = {**{name: code for code, name in LANGUAGES.items()}, **ALIASES, **_CODES, **{code: code for code in LANGUAGES}}


def language_code(text: str) -> str:
    """Whisper's code for a language, by its name or code in any case: `German`, `DE`, `de-AT`.

    Raises `UnbraidError` for a language that Whisper does not know.
    """
    name = " ".join(text.replace("_", "-").casefold().split())
    code = _KNOWN.get(name) or _KNOWN.get(name.partition("-")[0])
    if code is not None:
        return code
    near = get_close_matches(name, _KNOWN, n=3, cutoff=0.6)
    hint = f"; near it are {', '.join(near)}" if near else ""
    raise UnbraidError(f"Whisper knows no language {text!r}{hint}: give a name or a code, such as german or de")


def known_code(language: str) -> str | None:
    """Whisper's code for a language, by its name or code; None if there is none."""
    try:
        return language_code(language)
    except UnbraidError:
        return None


def given_language(text: str | None) -> str | None:
    """The language that a user names; None for `auto` and for nothing: it is to be detected."""
    return None if text is None or text.strip().casefold() in ("", "auto") else text


def spaced(text: str) -> str:
    """Text with a space before it, if its script has spaces: what follows another text is joined to it."""
    if not text or text[0].isspace():
        return text
    return text if unicodedata.name(text[0], "").startswith((*_WITHOUT_SPACES, "TIBETAN")) else f" {text}"


def is_unspaced(text: str) -> bool:
    """Whether the text begins with a letter of a script without spaces, and not with a mark on the letter before."""
    kind = unicodedata.category(text[0])
    return kind[0] != "M" and kind != "Lm" and unicodedata.name(text[0], "").startswith(_WITHOUT_SPACES)
