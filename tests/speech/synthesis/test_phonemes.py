"""What Kokoro reads: the phonemes of espeak-ng in its alphabet, with the punctuation of the text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.speech.synthesis.phonemes import LANGUAGES, LONGEST, phonetic, tokens

from ...support.examples import examples

pytest.importorskip("espeakng_loader", reason="espeakng-loader is not installed: pip install 'unbraid[voice]'")


@pytest.mark.parametrize(
    ("voice", "text", "read"),
    [
        ("a", "Hello, world!", "həlˈO, wˈɜɹld!"),
        ("a", 'He said "yes" (twice) — well…', 'hi sˈɛd "jˈɛs" (twˈIs) — wˈɛl…'),
        ("a", "my  dog\n\nbarks.", "mI dˈɑɡ bˈɑɹks."),
        ("b", "The old house.", "ðɪ ˈQld hˈWs."),
        ("e", "¿Cómo estás?", "kˈomo estˈas?"),
        ("f", "«Oui», dit-il.", "“wˈi”, dˈitˈil."),
        ("i", "Ciao ragazzi.", "ʧˈao raɡˈaʦːɪ."),
        ("a", "", ""),
        ("a", "?!", "?!"),
    ],
)
def test_texts(voice: str, text: str, read: str) -> None:
    assert phonetic(text, LANGUAGES[voice]) == read


def test_numbers_and_addresses_are_read_whole() -> None:
    american = LANGUAGES["a"]
    assert "pYnt" in phonetic("It is 3.14 metres.", american)
    assert "dˈɑt kˈɑm" in phonetic("See example.com today.", american)
    assert phonetic("1,000", american) == phonetic("one thousand", american)


@examples(4)
@given(st.text(max_size=40))
def test_any_text_can_be_read(text: str) -> None:
    """Also with control characters, halves of emoji and unknown scripts; and nothing but the alphabet comes out."""
    vocabulary = {letter: at for at, letter in enumerate("abdefhijklmnoprstuvwz ,.!?ˈəɪ")}
    for part in tokens(phonetic(text, LANGUAGES["a"]), vocabulary):
        assert 1 <= len(part) <= LONGEST
        assert set(part) <= set(vocabulary.values())


@given(st.lists(st.integers(1, 700), max_size=6))
def test_long_texts_are_divided_between_words(sizes: list[int]) -> None:
    written = " ".join("a" * size for size in sizes)
    parts = tokens(written, {"a": 1, " ": 2})
    assert sum(part.count(1) for part in parts) == sum(sizes)
    assert all(1 <= len(part) <= LONGEST for part in parts)
    if all(size <= LONGEST for size in sizes):
        runs = [len(run) for part in parts for run in re.findall("1+", "".join(map(str, part)))]
        assert runs == sizes
