"""Texts in pieces: nothing is lost, nothing is too long, and sentences stay whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.speech.synthesis.sentences import LONGEST, SentenceCutter, read_aloud, sentences

from ...support.examples import examples


@examples(4)
@given(st.text(st.sampled_from("ab .!?,;\n\t—。、’”)1-éß天"), max_size=900))
def test_nothing_is_lost(text: str) -> None:
    pieces = sentences(text)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(piece.strip() == piece != "" for piece in pieces)
    assert all(len(piece) <= LONGEST + 1 for piece in pieces)


@examples(4)
@given(st.text(st.sampled_from("ab .!?,;\n—。、”)1-天"), max_size=LONGEST), st.integers(1, 40))
def test_a_text_that_is_still_written_is_cut_the_same_way(text: str, size: int) -> None:
    """However it comes, and nothing of it is lost, not even its spaces."""
    cutter, whole = SentenceCutter(), SentenceCutter()
    pieces = [piece for at in range(0, len(text), size) for piece in cutter.feed(text[at : at + size])]
    pieces += cutter.finish()
    assert "".join(pieces) == text
    assert pieces == [*whole.feed(text), *whole.finish()]


def test_a_text_without_sentences_does_not_wait_for_its_end() -> None:
    cutter = SentenceCutter()
    pieces = [piece for _ in range(200) for piece in cutter.feed("word, ")]
    assert len(pieces) == 1200 // LONGEST
    assert all(len(piece) <= LONGEST for piece in pieces)
    assert "".join([*pieces, *cutter.finish()]) == "word, " * 200


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("The weather is fine in Paris today, so we could go. Yes.", "The weather is fine in Paris today, "),
        ("Yes, the weather is fine in Paris today. Let us go.", "Yes, the weather is fine in Paris today."),
        ("It is not far from here. If the weather is fine tomorrow, we go.", "It is not far from here."),
        (
            "There are 12,000,000 people, who live in or near Paris.",
            "There are 12,000,000 people, who live in or near Paris.",
        ),
    ],
)
def test_the_first_piece_ends_with_a_long_clause(text: str, first: str) -> None:
    cutter = SentenceCutter()
    assert [*cutter.feed(text), *cutter.finish()][0] == first


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("**Paris** is _very_ large.", "Paris is very large."),
        ("## Results\n- one\n- two", "Results\none\ntwo"),
        ("See [the page](https://example.com/a_b).", "See the page."),
        ("Run `make test` twice: 2 * 3 = 6.", "Run make test twice: 2 * 3 = 6."),
        ("***", ""),
    ],
)
def test_marks_of_markdown_are_not_said(text: str, said: str) -> None:
    assert read_aloud(text) == said


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        (" \n ", []),
        ("Yes.", ["Yes."]),
        ("Yes. I will do that at once.", ["Yes. I will do that at once."]),
        (
            "The house at No. 5 is Dr. Smith's house. It was built in 3.5 years!",
            ["The house at No. 5 is Dr. Smith's house.", "It was built in 3.5 years!"],
        ),
        (
            '"Have you seen this before?" he asked us. "Never," we said to him.',
            ['"Have you seen this before?"', 'he asked us. "Never," we said to him.'],
        ),
        ("天気がとてもいいので散歩に行きましょうか。はい、行きましょう。それはいい考えですね。", None),
    ],
)
def test_sentences(text: str, pieces: list[str] | None) -> None:
    found = sentences(text)
    assert found == pieces if pieces is not None else len(found) >= 1


def test_a_long_sentence_is_divided_where_a_speaker_would_pause() -> None:
    clause = "and then we went on for a while without saying anything at all"
    first, *_ = sentences(", ".join([clause] * 10))
    assert first.endswith("at all,")
    words = sentences("word " * 200)
    assert all(set(piece.split()) == {"word"} for piece in words)
    assert [len(piece) for piece in sentences("x" * 700)] == [LONGEST, LONGEST, 100]
