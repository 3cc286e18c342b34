"""Moonshine's adapter. A model knows one language, and writes plain text: no timestamps, no translation."""

from __future__ import annotations

from ...core.grammar import Format
from ...core.vocabulary import Vocabulary, WholeVocabulary
from ...errors import UnbraidError
from ..audio.decode import Samples
from ..languages import LANGUAGES, known_code
from ..listening import ListenRequest
from ..options import TranscriptionOptions

START, END = "<s>", "</s>"
_OWN = "<<ST_0>>"  # Llama's vocabulary has the other two as well

MOONSHINE = Format("moonshine", ends=(END,))


class MoonshineVocabulary:
    """The tokens of one Moonshine, and its language: all Moonshines have the same tokens.

    `dummy_prefix` is False, although the tokenizer adds a space at the start. It is kept, because chunks are joined to
    one text. Whisper's chunks begin with a space, too.
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

    language: the language code of the model; by default that of `MoonshineVocabulary`. If it is unknown, any language
        that users name is accepted.
    """

    format = MOONSHINE
    max_seconds = 30.0  # its makers recommend no more, and refuse 64
    supports_language_detection = False
    supports_timestamps = False
    supports_translation = False

    def __init__(self, vocabulary: Vocabulary | None, language: str | None = None) -> None:
        if vocabulary is None:
            raise UnbraidError("Moonshine is read by its tokens: its listener has a vocabulary")
        start, end = vocabulary.token_id(START), vocabulary.token_id(END)
        if start is None or end is None or vocabulary.token_id(_OWN) is None:
            raise UnbraidError(f"this is not Moonshine's vocabulary: it has no {START}, {END} or {_OWN}")
        self.language: str | None = language or getattr(vocabulary, "language", None)
        self._start = start

    def check(self, options: TranscriptionOptions) -> None:
        if options.task == "translate":
            raise UnbraidError("Moonshine cannot translate: transcribe, or take a multilingual Whisper")
        if options.timestamps:
            raise UnbraidError("Moonshine writes no timestamps: leave them out, or take a Whisper")
        if options.prompt.strip():
            raise UnbraidError("prompt: Moonshine takes none; leave it out")
        asked = options.languages if options.language is None else (options.language,)
        if self.language is not None and asked and self.language not in map(known_code, asked):
            known = LANGUAGES.get(self.language, self.language).capitalize()
            raise UnbraidError(f"language: this Moonshine knows {known} only, not {', '.join(map(repr, asked))}")

    def request(self, samples: Samples, options: TranscriptionOptions, temperature: float) -> ListenRequest:
        return ListenRequest(samples=samples, prompt=(self._start,), temperature=temperature, seed=options.seed)

    def language_of(self, token: int) -> str | None:
        return None
