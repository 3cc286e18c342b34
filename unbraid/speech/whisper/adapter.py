"""Whisper: the language, the task and the times are tokens, and forced in the same request that transcribes."""

from __future__ import annotations

from ...constraints.constraint import forced_prefix
from ...core.vocabulary import Vocabulary
from ...errors import UnbraidError
from ...formats import find
from ..adapters import TranscriptionOptions, register
from ..audio.decode import Samples
from ..listening import ListenRequest, TextVocabulary
from .tokens import WhisperTokens

_LONGEST_PROMPT = 223  # half of the context, less one: what Whisper was trained with


class WhisperAdapter:
    """All Whispers, multilingual or English only; which one it is, the vocabulary says."""

    longest = 30.0
    supports_timestamps = True

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.format = find("whisper")
        self._vocabulary = vocabulary
        self._tokens = WhisperTokens(vocabulary)

    @property
    def supports_language_detection(self) -> bool:
        return self._tokens.multilingual

    @property
    def language(self) -> str | None:
        return None if self._tokens.multilingual else "en"

    @property
    def supports_translation(self) -> bool:
        return self._tokens.multilingual

    def check(self, wish: TranscriptionOptions) -> None:
        for language in (*wish.languages, *([] if wish.language is None else [wish.language])):
            token = self._tokens.language(language)
            if not self._tokens.multilingual and self._tokens.codes[token] != "en":
                raise UnbraidError(f"language: this Whisper knows English only, not {language!r}")
        if wish.task == "translate" and not self._tokens.multilingual:
            raise UnbraidError("this Whisper knows English only: it cannot translate")
        self._before(wish.prompt)

    def hearing(self, samples: Samples, wish: TranscriptionOptions, temperature: float) -> ListenRequest:
        return ListenRequest(
            samples=samples,
            prompt=(*self._before(wish.prompt), self._tokens.sot),
            prefix=forced_prefix(self._prefix(wish), self._vocabulary).to_token_sets(),
            timestamps=wish.timestamps,
            temperature=temperature,
            seed=wish.seed,
            words=wish.words,
            beams=wish.beams if temperature == 0 else 1,
        )

    def language_of(self, token: int) -> str | None:
        return self._tokens.codes.get(token)

    def _prefix(self, wish: TranscriptionOptions) -> list[list[str]]:
        """What the output is made to begin with. Only the language is a choice, and only where none is given."""
        prefix: list[list[str]] = []
        if self._tokens.multilingual:
            wanted = [wish.language] if wish.language is not None else wish.languages
            codes = [self._tokens.codes[self._tokens.language(each)] for each in wanted] or list(self._tokens.languages)
            prefix = [[f"<|{code}|>" for code in codes], [f"<|{wish.task}|>"]]
        return prefix if wish.timestamps else [*prefix, ["<|notimestamps|>"]]

    def _before(self, prompt: str) -> tuple[int, ...]:
        if not prompt.strip():
            return ()
        if not isinstance(self._vocabulary, TextVocabulary):
            raise UnbraidError("prompt: only the engine knows how this model cuts text into tokens; leave it out")
        ids = self._vocabulary.encode(" " + prompt.strip())
        return (self._tokens.startofprev, *ids[-_LONGEST_PROMPT:])


register("whisper", WhisperAdapter)
