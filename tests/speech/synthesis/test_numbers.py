"""Numbers as they are said."""

from __future__ import annotations

import pytest

from unbraid.speech.synthesis.numbers import read_numbers


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("In 2026, and 1984.", "In 20 26, and 19 84."),
        ("1905, 1900 and 2005", "19 oh 5, 19 hundred and 2005"),
        ("the 1990s, 1800s and 2020s", "the 19 nineties, 18 hundreds and 20 twenties"),
        ("2026-11-18", "November 18th, 20 26"),
        ("due 11/18/2026, or 18/11/2026", "due November 18th, 20 26, or November 18th, 20 26"),
        ("1/2/2003 and 3/13/2001", "January 2nd, 2003 and March 13th, 2001"),
        ("at 10:20, 9:05 and 10:00", "at 10 20, 9 oh 5 and 10 o'clock"),
        (
            "$5, $1, $5.20, €1,200.00 and £3 million",
            "5 dollars, 1 dollar, 5 dollars 20, 1,200 euros and 3 million pounds",
        ),
        ("2026-13-40 12:34:56 1,984 19.84 v1984 1984% 1:1984", "2026-13-40 12:34:56 1,984 19.84 v1984 1984% 1:1984"),
        ("0.2026, 12026, 555-2026, 2026/27, #1984", "0.2026, 12026, 555-2026, 2026/27, #1984"),
    ],
)
def test_english(text: str, said: str) -> None:
    assert read_numbers(text, "en-us") == said


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("en", "18th of November 20 26, 5 pounds"),
        ("es", "18 de noviembre de 2026, 5 libras"),
        ("fr", "18 novembre 2026, 5 livres"),
        ("hi", "18 नवंबर 2026, 5 पाउंड"),
        ("it", "18 novembre 2026, 5 sterline"),
        ("pt-br", "18 de novembro de 2026, 5 libras"),
    ],
)
def test_dates_and_money_in_each_language_of_kokoro(language: str, said: str) -> None:
    """The day comes first outside of America, and only English says years in halves."""
    assert read_numbers("18/11/2026, £5", language) == said
    assert read_numbers("2026-11-18, £5", language) == said
