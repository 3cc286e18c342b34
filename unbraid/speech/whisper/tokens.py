"""Whisper's special tokens, found in its vocabulary.

Their ids differ between the models in English only, the multilingual ones, and large-v3 with its successors; and
fine-tuned models have others again. So nothing here is a table of ids.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Literal

from ...core.vocabulary import Vocabulary
from ...errors import MissingTokens, UnbraidError
from ..languages import LANGUAGES, language_code

__all__ = ["LANGUAGES", "STEP", "Task", "Version", "WhisperTokens", "language_code"]

Task = Literal["transcribe", "translate"]
Version = Literal["en", "v1", "v3"]

STEP = 0.02
"""Seconds from one timestamp to the next."""

_TIMESTAMPS = 1501  # 0.00 … 30.00
_ENGLISH_EOT = 50256  # GPT-2's vocabulary, which the models in English only have, ends here
_TAG = re.compile(rb"<\|([a-z]{2,4})\|>")


class WhisperTokens:
    """The special tokens of one vocabulary. Raises `MissingTokens` where it is not a Whisper's."""

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
        """Begins the text before the one that is to be transcribed."""
        self.startoflm = self._find("<|startoflm|>")
        if self._missing:
            raise MissingTokens(f"this is not the vocabulary of a Whisper: it has no {', no '.join(self._missing)}")
        zero = vocabulary.token_id("<|0.00|>")
        self.first_timestamp = self.no_timestamps + 1 if zero is None else zero
        """`<|0.00|>`. Many tokenizers do not list the timestamps; they follow `<|notimestamps|>` all the same."""

    def _find(self, *names: str) -> int:
        for name in names:
            token = self._vocabulary.token_id(name)
            if token is not None:
                return token
        self._missing.append(" or ".join(names))
        return -1

    @cached_property
    def languages(self) -> dict[str, int]:
        """The token of each language that the vocabulary has, by its code, in the order of the ids. Models in English
        only have them too, out of use."""
        found: dict[str, int] = {}
        token, tasks = self.sot + 1, min(self.translate, self.transcribe)
        while (text := self._vocabulary.token_bytes(token)) is not None:
            tag = _TAG.fullmatch(text)
            # Up to the tasks, all of them are languages; those that were added later are if they are known.
            if tag and (token < tasks or tag[1].decode() in LANGUAGES):
                found.setdefault(tag[1].decode(), token)
            token += 1
        return found

    @cached_property
    def codes(self) -> dict[int, str]:
        """The code of each language's token."""
        return {token: code for code, token in self.languages.items()}

    @property
    def multilingual(self) -> bool:
        """Whether there are languages and tasks to choose from; models in English only are prompted without."""
        return self.eot != _ENGLISH_EOT

    @property
    def version(self) -> Version:
        """`en` for models in English only, `v3` for large-v3 and what came of it, `v1` for all others, large-v2 among
        them."""
        if not self.multilingual:
            return "en"
        return "v3" if "yue" in self.languages else "v1"

    @property
    def size(self) -> int:
        """How many tokens the model has logits for, up to the last timestamp."""
        return self.first_timestamp + _TIMESTAMPS

    @property
    def last_timestamp(self) -> int:
        """`<|30.00|>`"""
        return self.first_timestamp + _TIMESTAMPS - 1

    def seconds(self, token: int) -> float | None:
        """The time that a timestamp says; None for any other token."""
        if not self.first_timestamp <= token <= self.last_timestamp:
            return None
        return round((token - self.first_timestamp) * STEP, 2)

    def timestamp(self, seconds: float) -> int:
        """The timestamp nearest to a time, of those that there are."""
        return self.first_timestamp + min(max(round(seconds / STEP), 0), _TIMESTAMPS - 1)

    def language(self, text: str) -> int:
        """The token of a language, by its name or its code. Raises `UnbraidError` where there is none."""
        code = text if text in self.languages else language_code(text)
        if code not in self.languages:
            raise UnbraidError(f"this Whisper does not know {LANGUAGES[code]} ({code})")
        return self.languages[code]

    def prefix(self, language: str | None = None, task: Task = "transcribe", *, timestamps: bool = False) -> list[int]:
        """What the output is made to begin with: up to the first token that is the model's own to choose.

        language: a name or a code. Without one, a multilingual model gets `<|startoftranscript|>` alone: the language
            comes next.
        """
        end = [] if timestamps else [self.no_timestamps]
        if not self.multilingual:
            return [self.sot, *end]
        if language is None:
            return [self.sot]
        return [self.sot, self.language(language), self.transcribe if task == "transcribe" else self.translate, *end]
