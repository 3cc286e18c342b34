"""espeak-ng: the phonemes of a text, in the International Phonetic Alphabet.

The library is loaded from the package `espeakng-loader`, which has it for Linux (x86 and ARM), macOS and Windows, with
its data. espeak-ng is licensed under the GPL, version 3 or later, and is used through its C interface; it is part of no
other extra than the one for speech that is made.

espeak-ng has one state for the whole process: one call at a time, and the language is set before each.
"""

from __future__ import annotations

import ctypes
import importlib
import re
import threading
from functools import cache
from typing import Any

from ...engines.base import EngineDown, EngineFailed

TIE = "^"
"""Stands between the letters of one sound: `a^ɪ`."""

_RETRIEVAL, _NO_EXIT = 1, 0x8000  # AUDIO_OUTPUT_RETRIEVAL: no sound device; espeakINITIALIZE_DONT_EXIT
_UTF8 = 1
_MODE = 0x02 | 0x80 | ord(TIE) << 8  # IPA, with a tie
_LANGUAGE_SWITCH = re.compile(r"\(\^?[a-z](?:\^?[a-z-])*\)")  # `(en)` where it reads a word of another language
_lock = threading.Lock()


def phonemes(text: str, language: str) -> str:
    """The phonemes of a text without punctuation, with marks of stress. Raises `EngineDown` without espeak-ng.

    language: what espeak-ng calls it: `en-us`, `en` (British), `es`, `fr`, `pt-br` …
    """
    given = text.replace("\0", " ").encode("utf-8", "replace")
    with _lock:
        library = _library()
        if library.espeak_SetVoiceByName(language.encode()):
            raise EngineFailed(f"espeak-ng has no language {language!r}")
        rest = ctypes.c_char_p(given)
        found = []
        while rest.value is not None:  # one clause at a time
            found.append((library.espeak_TextToPhonemes(ctypes.byref(rest), _UTF8, _MODE) or b"").decode())
    return _LANGUAGE_SWITCH.sub("", " ".join(filter(None, found)))


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
