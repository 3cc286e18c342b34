"""Whisper's adapter: language, task and timestamps are tokens at the start of the output.

They are forced as the prefix of the request that transcribes. Where the language is to be detected, its place in the
prefix allows all candidates, so detection needs no request of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...constraints.constraint import forced_prefix
from ...core.vocabulary import Vocabulary
from ...errors import UnbraidError
from ...formats import find
from ..audio.decode import RATE, Samples
from ..listening import Adapter, ListenRequest, TextVocabulary
from ..options import TranscriptionOptions
from .tokens import WhisperTokens

_LONGEST_PROMPT = 223  # half of the context less one, as in training
_MOST_HOTWORDS = 111  # half of that
_MOST_TOKENS = 224  # of an output, as in OpenAI's code
_TOKENS_PER_SECOND = 16  # more than anybody says; an output that is broken off goes on where it ended
_FEWEST = 32


class WhisperAdapter(Adapter):
    """All Whispers. The vocabulary tells multilingual models from those for English."""

    format = find("whisper")
    supports_timestamps = True

    def __init__(self, vocabulary: Vocabulary | None) -> None:
        if vocabulary is None:
            raise UnbraidError("Whisper is read by its tokens: its listener has a vocabulary")
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

    def languages(self, options: TranscriptionOptions) -> Mapping[int, str]:
        if not self._tokens.multilingual:
            return {}
        wanted = [self._tokens.language(each) for each in options.languages] or self._tokens.codes
        return {token: self._tokens.codes[token] for token in wanted}

    def check(self, options: TranscriptionOptions) -> None:
        for language in (*options.languages, *([] if options.language is None else [options.language])):
            token = self._tokens.language(language)
            if not self._tokens.multilingual and self._tokens.codes[token] != "en":
                raise UnbraidError(f"language: this Whisper knows English only, not {language!r}")
        if options.task == "translate" and not self._tokens.multilingual:
            raise UnbraidError("this Whisper knows English only: it cannot translate")
        self._before(options)

    def request(self, samples: Samples, options: TranscriptionOptions, temperature: float) -> ListenRequest:
        return ListenRequest(
            samples=samples,
            prompt=(*self._before(options), self._tokens.sot),
            prefix=forced_prefix(self._prefix(options), self._vocabulary).to_token_sets(),
            timestamps=options.timestamps,
            temperature=temperature,
            seed=options.seed,
            max_tokens=_most_tokens(len(samples) / RATE),
            words=options.words,
            beams=(options.beams or 1) if temperature == 0 else 1,
        )

    def _prefix(self, options: TranscriptionOptions) -> list[list[str]]:
        """What the output must begin with. Only the language is a choice, and only where none is given."""
        prefix: list[list[str]] = []
        if self._tokens.multilingual:
            wanted = [options.language] if options.language is not None else options.languages
            codes = [self._tokens.codes[self._tokens.language(each)] for each in wanted] or list(self._tokens.languages)
            prefix = [[f"<|{code}|>" for code in codes], [f"<|{options.task}|>"]]
        return prefix if options.timestamps else [*prefix, ["<|notimestamps|>"]]

    def _before(self, options: TranscriptionOptions) -> tuple[int, ...]:
        """The text before the recording: the hotwords, then the end of the prompt."""
        if not options.context:
            return ()
        if not isinstance(self._vocabulary, TextVocabulary):
            name = "prompt" if options.prompt.strip() else "hotwords"
            raise UnbraidError(f"{name}: this engine does not give access to the tokenizer; leave the {name} out")
        words, prompt = (
            self._vocabulary.encode(" " + text.strip()) if text.strip() else []
            for text in (options.hotwords, options.prompt)
        )
        words = words[:_MOST_HOTWORDS]
        return (self._tokens.startofprev, *words, *prompt[-(_LONGEST_PROMPT - len(words)) :])


def _most_tokens(seconds: float) -> int:
    """How many tokens an output may have. It bounds what noise can cost."""
    return min(_MOST_TOKENS, _FEWEST + round(seconds * _TOKENS_PER_SECOND))
