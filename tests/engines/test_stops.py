"""Tokens spelled, and stop texts found in them, with small vocabularies and no engine."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid.core.vocabulary import is_whole
from unbraid.engines import Piece, TokenLogprob
from unbraid.engines.reader import StopTexts
from unbraid.errors import UnbraidError
from unbraid.tokens.retokenize import missing_tokens, spell, spell_most

from ..support.byte_vocabulary import END, VOCABULARY, Opaque, WordVocabulary

WORDS = WordVocabulary(b"a", b"ab", b"abc", b"bc", b"cc", "é".encode()[:1], "é".encode()[1:], b"<end>", special=1)


def bytes_of(vocabulary: WordVocabulary, ids: tuple[int, ...] | list[int]) -> bytes:
    return b"".join(vocabulary.token_bytes(token) or b"" for token in ids)


# Spelling


def test_spelling() -> None:
    assert spell(WORDS, b"") == spell(WORDS, b"", 0) == ()
    assert spell(WORDS, b"abccc") == (2, 4)
    assert spell(WORDS, b"abcc") == (1, 4)  # the longest first would lead nowhere
    assert spell(WORDS, b"abcabc", 3) == (2, 0, 3)
    assert spell(WORDS, "é".encode(), 2) == (5, 6)
    assert spell(WORDS, b"abc", 3) is spell(WORDS, b"", 1) is spell(WORDS, b"c") is None
    assert spell(WORDS, b"<end>") is None  # never a special token
    assert spell(VOCABULARY, b"x" * 5000) == (120,) * 5000
    assert spell_most(WORDS, b"abcac") == (2, 0)
    assert spell_most(WORDS, b"x") == ()


@given(st.text("abc", max_size=7), st.integers(0, 7) | st.none())
def test_what_can_be_spelled_is(text: str, count: int | None) -> None:
    data, counts = text.encode(), range(8) if count is None else [count]
    ways = [way for size in counts for way in product(range(5), repeat=size) if bytes_of(WORDS, way) == data]
    found = spell(WORDS, data, count)
    assert found in ways or (found is None and not ways)


def test_which_vocabularies_can_be_gone_through() -> None:
    assert is_whole(VOCABULARY)
    assert not is_whole(Opaque())
    assert not is_whole(None)


def test_tokens_that_llama_cpp_does_not_tell() -> None:
    bird = "🦜".encode()
    halves = WordVocabulary(bird[:2], bird[2:], bird[:1], bird[1:2], b"a")
    assert missing_tokens(halves, "🦜", bird[2:], 1) == (0,)
    assert missing_tokens(halves, "🦜", bird[2:], 2) == (2, 3)
    assert missing_tokens(halves, "🦜", bird[2:], 3) == (0,)  # the same text, if not the same tokens
    assert missing_tokens(halves, "\ufffda", b"a", 2) == ()
    assert missing_tokens(VOCABULARY, "\ufffda", b"a", 2) == tuple("\ufffd".encode())


# Stop texts


@given(st.text("abc<", max_size=12), st.lists(st.text("abc<", min_size=1, max_size=4), max_size=3), st.data())
def test_stop_texts_cut_exactly(text: str, stops: list[str], data: st.DataObject) -> None:
    """Tokens are cut anywhere, and come several at once."""
    size = st.integers(1, 4)
    words: list[str] = []
    starts: list[tuple[int, str]] = []
    while (at := len("".join(words))) < len(text):
        words.append(text[at : at + data.draw(size)])
        starts.append((at, words[-1]))
    vocabulary = WordVocabulary(*(word.encode() for word in words), *(bytes([byte]) for byte in b"abc<"))
    watch = StopTexts(stops, vocabulary)
    ids, read, given_out = list(range(len(words))), "", b""
    while ids:
        some = data.draw(size)
        given_out += bytes_of(vocabulary, watch.feed(Piece(tuple(ids[:some]))).ids)
        for token in ids[:some]:
            read += "" if any(stop in read for stop in stops) else words[token]
        ids = ids[some:]
        if watch.found is None:
            held = read[len(given_out) :]
            first = next((word for at, word in starts if at == len(given_out)), "")
            assert not held or any(stop.startswith(held[at:]) for stop in stops for at in range(len(first)))
    given_out += b"".join(token.data for token in watch.flush())
    places = [(read.index(stop), -len(stop), stop) for stop in stops if stop in read]
    at, _, found = min(places, default=(len(text), 0, None))
    assert (given_out.decode(), watch.found) == (text[:at], found)


def test_a_stop_text_inside_of_a_token() -> None:
    """What stands before it is ids too: a parser that was fed ids takes no text."""
    words = WordVocabulary(b"one ", b"two STOP three", b"two", b" ", b"STOP", b"more")
    for pieces in ([(0,), (1,), (5,)], [(0, 1, 5)]):
        parser = unbraid.parser("hermes", tokenizer=words)
        watch = StopTexts(["STOP"], words)
        for piece in pieces:
            parser.feed_tokens(watch.feed(Piece(piece)).ids)
        assert not watch.flush()
        with pytest.raises(UnbraidError, match="cannot go on with text"):
            parser.feed("two ")
        parser.finish()
        assert (parser.message.content, watch.found) == ("one two ", "STOP")
    lacking = StopTexts(["STOP"], WordVocabulary(b"two STOP three", b"two"))
    assert lacking.feed(Piece((0,))).ids == (1,)  # there is no space; but never what follows


def test_logprobs_stay_with_their_tokens() -> None:
    watch = StopTexts(["cd"], VOCABULARY)
    some = {token: TokenLogprob(token, bytes([token]), -1.0) for token in b"bce"}
    assert watch.feed(Piece(tuple(b"abc"), logprobs=(some[98], some[99]))) == Piece(tuple(b"ab"), logprobs=(some[98],))
    assert watch.feed(Piece((101,), logprobs=(some[101],))) == Piece(tuple(b"ce"), logprobs=(some[99], some[101]))
    assert watch.feed(Piece((END, 99))) == Piece((END,))
    assert [token.id for token in watch.flush()] == [99]
