"""Whisper's special tokens, in its own vocabulary and in those of the other versions; and the names of languages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tokenizers

from unbraid.core.vocabulary import Vocabulary
from unbraid.errors import MissingTokens, UnbraidError
from unbraid.speech.languages import ALIASES, LANGUAGES, language_code
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.whisper.adapter import WhisperAdapter
from unbraid.speech.whisper.tokens import WhisperTokens
from unbraid.tokens import vocabulary

from ...support import real_tokenizers

AFTER_V1 = ("translate", "transcribe", "startoflm", "startofprev")


class Listed:
    """A vocabulary with Whisper's special tokens alone."""

    version = None
    dummy_prefix = False

    def __init__(self, first: int, special: list[str]) -> None:
        self.ids = {f"<|{name}|>": first + at for at, name in enumerate(special)}
        self.texts = {token: text.encode() for text, token in self.ids.items()}

    def token_id(self, text: str) -> int | None:
        return self.ids.get(text)

    def token_bytes(self, token: int) -> bytes | None:
        return self.texts.get(token)


def codes_of(languages: int) -> list[str]:
    """As many languages, with Cantonese as the last one of a hundred."""
    others = [code for code in LANGUAGES if code != "yue"]
    return others + ["yue"] * (languages - len(others))


def released(first: int, languages: int, no_speech: str, *, timestamps: bool = True) -> Listed:
    """The special tokens as a released model has them."""
    times = [f"{at * 0.02:.2f}" for at in range(1501)] if timestamps else []
    return Listed(
        first,
        ["endoftext", "startoftranscript", *codes_of(languages), *AFTER_V1, no_speech, "notimestamps", *times],
    )


def begins(tokens: Vocabulary, **options: Any) -> list[list[int]]:
    """What a model is given, and then what its output must begin with."""
    request = WhisperAdapter(tokens).request(np.zeros(0, np.float32), TranscriptionOptions(**options), 0.0)
    return [list(request.prompt), *map(sorted, request.prefix.sets)]


@pytest.mark.system
def test_the_real_vocabulary() -> None:
    tokenizer = vocabulary(real_tokenizers.whisper())
    tokens = WhisperTokens(tokenizer)
    assert (tokens.eot, tokens.sot, tokens.translate, tokens.transcribe) == (50257, 50258, 50358, 50359)
    assert (tokens.startoflm, tokens.startofprev, tokens.no_speech) == (50360, 50361, 50362)
    assert (tokens.no_timestamps, tokens.first_timestamp) == (50363, 50364)
    assert (tokens.multilingual, tokens.size) == (True, 51865)
    assert len(tokens.languages) == 99
    assert list(tokens.languages)[:3] == ["en", "zh", "de"]
    assert tokens.codes[50261] == "de"
    assert set(tokens.languages) == set(LANGUAGES) - {"yue"}
    assert begins(tokenizer) == [[50258], sorted(tokens.codes), [50359], [50363]]
    assert begins(tokenizer, language="German") == [[50258], [50261], [50359], [50363]]
    assert begins(tokenizer, language="de", task="translate", timestamps=True) == [[50258], [50261], [50358]]


@pytest.mark.system
def test_timestamps() -> None:
    tokens = WhisperTokens(vocabulary(real_tokenizers.whisper()))
    assert (tokens.first_timestamp, tokens.last_timestamp) == (50364, 51864)
    for at in range(1501):
        assert tokens.timestamp(at * 0.02) == 50364 + at
    assert (tokens.timestamp(-1), tokens.timestamp(31), tokens.timestamp(0.031)) == (50364, 51864, 50366)


@pytest.mark.parametrize(
    ("listed", "version", "size", "languages"),
    [
        (released(50256, 99, "nocaptions"), "en", 51864, 99),
        (released(50257, 99, "nocaptions"), "v1", 51865, 99),
        (released(50257, 99, "nospeech", timestamps=False), "v1", 51865, 99),
        (released(50257, 100, "nospeech"), "v3", 51866, 100),
    ],
)
def test_the_version_shows_in_the_vocabulary(listed: Listed, version: str, size: int, languages: int) -> None:
    tokens = WhisperTokens(listed)
    assert (tokens.multilingual, tokens.size, len(tokens.languages)) == (version != "en", size, languages)
    assert tokens.no_speech == tokens.no_timestamps - 1
    assert tokens.last_timestamp == tokens.timestamp(30.0) == size - 1
    if version == "en":
        assert begins(listed) == [[tokens.sot], [tokens.no_timestamps]]
    if version == "v3":
        assert tokens.languages["yue"] == 50358
        assert tokens.first_timestamp == 50365
    else:
        with pytest.raises(UnbraidError, match="does not know cantonese"):
            tokens.language("Cantonese")


def test_languages_that_were_added_later() -> None:
    listed = released(50257, 99, "nospeech")
    for text in ("<|yue|>", "<|bot|>", "<|0.x|>"):
        listed.texts[len(listed.ids) + 50257] = text.encode()
        listed.ids[text] = len(listed.ids) + 50257
    assert WhisperTokens(listed).languages.keys() == LANGUAGES.keys()


def test_other_vocabularies() -> None:
    with pytest.raises(MissingTokens, match=r"no <\|startoftranscript\|>.*<\|nospeech\|> or <\|nocaptions\|>"):
        WhisperTokens(vocabulary(tokenizers.Tokenizer(tokenizers.models.BPE())))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("de", "de"),
        ("DE", "de"),
        ("  German ", "de"),
        ("de-AT", "de"),
        ("pt_BR", "pt"),
        ("zh-Hans", "zh"),
        ("Castilian", "es"),
        ("MANDARIN", "zh"),
        ("haitian  Creole", "ht"),
        ("jv", "jw"),
        ("nb", "no"),
    ],
)
def test_language_codes(text: str, code: str) -> None:
    assert language_code(text) == code


def test_every_name_and_code() -> None:
    assert len(LANGUAGES) == 100
    for code, name in LANGUAGES.items():
        assert language_code(code) == language_code(name.title()) == code
    for name, code in ALIASES.items():
        assert language_code(name) == code


def test_unknown_languages() -> None:
    with pytest.raises(UnbraidError, match=r"no language 'Germn'; near it are german"):
        language_code("Germn")
    with pytest.raises(UnbraidError, match=r"no language 'klingon': give a name or a code"):
        language_code("klingon")
    with pytest.raises(UnbraidError, match="no language ''"):
        language_code("")
