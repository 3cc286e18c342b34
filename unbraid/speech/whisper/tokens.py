"""Whisper's tokens: the vocabulary of a model, and the special tokens in it.

Their ids differ between English-only models, multilingual ones, and large-v3 and its successors; fine-tuned models add
more. So there is no table of ids here.
"""

from __future__ import annotations

import re
from functools import cached_property

from ...core.vocabulary import Vocabulary
from ...errors import MissingTokens, UnbraidError
from ...templates import encoder
from ..languages import LANGUAGES, language_code

STEP = 0.02
"""Seconds from one timestamp to the next."""

_TIMESTAMPS = 1501  # 0.00 … 30.00
_ENGLISH_EOT = 50256  # the last id of GPT-2's vocabulary, which English-only models have
_TAG = re.compile(rb"<\|([a-z]{2,4})\|>")


class WhisperTokens:
    """The special tokens of one vocabulary. Raises `MissingTokens` if it is not a Whisper's."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._missing: list[str] = []
        self.eot = self._find("<|endoftext|>")
        """Ends the output."""
        self.sot = self._find("<|startoftranscript|>")
        self.transcribe = self._find("<|transcribe|>")
        self.translate = self._find("<|translate|>")
        self.no_timestamps = self._find("<|notimestamps|>")
        self.no_speech = self._find("<|nospeech|>", "<|nocaptions|>")
        self.startofprev = self._find("<|startofprev|>")
        """Begins the prompt."""
        self.startoflm = self._find("<|startoflm|>")
        if self._missing:
            raise MissingTokens(f"this is not the vocabulary of a Whisper: it has no {', no '.join(self._missing)}")
        zero = vocabulary.token_id("<|0.00|>")
        self.first_timestamp = self.no_timestamps + 1 if zero is None else zero
        """`<|0.00|>`. Many tokenizers leave the timestamps out; their ids follow `<|notimestamps|>` all the same."""

    def _find(self, *names: str) -> int:
        for name in names:
            token = self._vocabulary.token_id(name)
            if token is not None:
                return token
        self._missing.append(" or ".join(names))
        return -1

    @cached_property
    def languages(self) -> dict[str, int]:
        """The language tokens by code, in the order of the ids. English-only models have them too, but unused."""
        languages: dict[str, int] = {}
        token, tasks = self.sot + 1, min(self.translate, self.transcribe)
        while (text := self._vocabulary.token_bytes(token)) is not None:
            tag = _TAG.fullmatch(text)
            # Before the task tokens, all tags are languages; later ones are languages only if their code is known.
            if tag and (token < tasks or tag[1].decode() in LANGUAGES):
                languages.setdefault(tag[1].decode(), token)
            token += 1
        return languages

    @cached_property
    def codes(self) -> dict[int, str]:
        """The code of each language's token."""
        return {token: code for code, token in self.languages.items()}

    @property
    def multilingual(self) -> bool:
        """Whether the model has languages and tasks; English-only models are prompted without them."""
        return self.eot != _ENGLISH_EOT

    @property
    def size(self) -> int:
        """How many tokens there are, up to the last timestamp."""
        return self.first_timestamp + _TIMESTAMPS

    @property
    def last_timestamp(self) -> int:
        """`<|30.00|>`"""
        return self.first_timestamp + _TIMESTAMPS - 1

    def timestamp(self, seconds: float) -> int:
        """The timestamp nearest to a time."""
        return self.first_timestamp + min(max(round(seconds / STEP), 0), _TIMESTAMPS - 1)

    def language(self, text: str) -> int:
        """The token of a language, by its name or code. Raises `UnbraidError` if there is none."""
        code = text if text in self.languages else language_code(text)
        if code not in self.languages:
            raise UnbraidError(f"this Whisper does not know {LANGUAGES[code]} ({code})")
        return self.languages[code]


class WhisperVocabulary:
    """A `TextVocabulary` over a tokenizer of any supported library."""

    def __init__(self, tokenizer: object) -> None:
        self._encoder = encoder(tokenizer)
        tokens: Vocabulary = self._encoder.vocabulary
        self.version = tokens.version
        self.dummy_prefix = tokens.dummy_prefix
        self.token_id = tokens.token_id
        self.token_bytes = tokens.token_bytes

    def encode(self, text: str) -> list[int]:
        return self._encoder.encode(text)
