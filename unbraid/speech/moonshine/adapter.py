"""Moonshine: plain text and an end. A model knows one language, tells no times and translates nothing."""

from __future__ import annotations

from ...core.grammar import Format
from ...core.vocabulary import Vocabulary, WholeVocabulary
from ...errors import UnbraidError
from ..adapters import TranscriptionOptions, register
from ..audio.decode import Samples
from ..languages import LANGUAGES, language_code
from ..listening import ListenRequest

START, END = "<s>", "</s>"
_OWN = "<<ST_0>>"  # Llama's vocabulary has the others too

MOONSHINE = Format("moonshine", ends=(END,))


class MoonshineVocabulary:
    """The tokens of one Moonshine, and what else is to be known of it: all have the same tokens, whatever they speak.

    The first space of an output is kept, although it is the tokenizer's: chunks are joined to one text, and Whisper's
    begin with a space as well.
    """

    version: int | None = None
    dummy_prefix = False

    def __init__(self, tokens: WholeVocabulary, language: str) -> None:
        self.language = language
        self._tokens = tokens

    @property
    def size(self) -> int:
        return self._tokens.size

    @property
    def special(self) -> frozenset[int]:
        return self._tokens.special

    def token_id(self, text: str) -> int | None:
        return self._tokens.token_id(text)

    def token_bytes(self, token: int) -> bytes | None:
        return self._tokens.token_bytes(token)


class MoonshineAdapter:
    """All Moonshines.

    language: the code of the one that the model knows; by default what `MoonshineVocabulary` says. Where it is not
        known, users are believed.
    """

    format = MOONSHINE
    longest = 30.0  # its makers recommend no more, and refuse 64
    supports_language_detection = False
    supports_timestamps = False
    supports_translation = False

    def __init__(self, vocabulary: Vocabulary, language: str | None = None) -> None:
        start, end = vocabulary.token_id(START), vocabulary.token_id(END)
        if start is None or end is None or vocabulary.token_id(_OWN) is None:
            raise UnbraidError(f"this is not Moonshine's vocabulary: it has no {START}, {END} or {_OWN}")
        self.language: str | None = language or getattr(vocabulary, "language", None)
        self._start = start

    def check(self, wish: TranscriptionOptions) -> None:
        if wish.task == "translate":
            raise UnbraidError("Moonshine cannot translate: transcribe, or take a multilingual Whisper")
        if wish.timestamps:
            raise UnbraidError("Moonshine tells no times: leave timestamps out, or take a Whisper")
        if wish.prompt.strip():
            raise UnbraidError("prompt: Moonshine takes none; leave it out")
        asked = wish.languages if wish.language is None else (wish.language,)
        if self.language is not None and asked and self.language not in map(_code, asked):
            known = LANGUAGES.get(self.language, self.language).capitalize()
            raise UnbraidError(f"language: this Moonshine knows {known} only, not {', '.join(map(repr, asked))}")

    def hearing(self, samples: Samples, wish: TranscriptionOptions, temperature: float) -> ListenRequest:
        return ListenRequest(samples=samples, prompt=(self._start,), temperature=temperature, seed=wish.seed)

    def language_of(self, token: int) -> str | None:
        return None


def _code(language: str) -> str:
    """A language's code, or what was given for one where there is none: that is no language of the model either."""
    try:
        return language_code(language)
    except UnbraidError:
        return language


register("moonshine", MoonshineAdapter)
