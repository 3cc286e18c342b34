"""Numbers as they are said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.speech.synthesis.numbers import read_numbers

LANGUAGES = ("en-us", "en", "es", "fr", "hi", "it", "pt-br")


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
        ("0.2026, 12026, 2026/27, #1984, 24/7, 9/11, 16:9", "0.2026, 12026, 2026/27, #1984, 24/7, 9/11, 16:9"),
        ("$0.99, £0.01, 5 €, 1.234,56 €, $1984", "99 cents, 1 penny, 5 euros, 1,234 euros 56, 1,984 dollars"),
        (
            "$5M, $5.5bn and €2.5 million, $5 more",
            "5 million dollars, 5.5 billion dollars and 2.5 million euros, 5 dollars more",
        ),
        ("1,5 %, 2,5 kg; 1,2 and 3", "1.5 %, 2.5 kilograms; 1,2 and 3"),
        ("1 kg, 12km at 100 km/h, 1984 m", "1 kilogram, 12 kilometers at 100 kilometers per hour, 1,984 meters"),
        ("5 men in 10 minutes, 5 mm", "5 men in 10 minutes, 5 millimeters"),
        ("-5 °C, x-5, 5 - 3", "minus 5 ° Celsius, x-5, 5 - 3"),
        ("5-10, 1984-1990, 3-2, F-16", "5 to 10, 19 84 to 19 90, 3-2, F-16"),
        ("1/2, 2 3/4 cups", "1 half, 2 and 3 quarters cups"),
        ("555-2026, (212) 555-1234", "5 5 5, 2 0 2 6, 2 1 2, 5 5 5, 1 2 3 4"),
        ("+49 30 1234567", "+4 9, 3 0, 1 2 3 4 5 6 7"),
        ("CO2, A4, H2O, COVID19", "C O 2, A4, H2O, COVID19"),
        ("No. 5, ~5, <$5", "number 5, about 5, less than 5 dollars"),
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


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("es", "menos 5 ° Celsius, 5 a 10 kilómetros, 12 euros 50"),
        ("fr", "moins 5 ° Celsius, 5 à 10 kilomètres, 12 euros 50"),
        ("hi", "माइनस 5 ° Celsius, 5 से 10 किलोमीटर, 12 यूरो 50"),
        ("it", "meno 5 ° Celsius, 5 a 10 chilometri, 12 euro 50"),
        ("pt-br", "menos 5 ° Celsius, 5 a 10 quilômetros, 12 euros 50"),
    ],
)
def test_signs_and_units_in_each_language_of_kokoro(language: str, said: str) -> None:
    assert read_numbers("-5 °C, 5-10 km, 12,50 €", language) == said


@given(text=st.text(alphabet="123456789 .,%$€£°Ckmgh+()~-", max_size=24), language=st.sampled_from(LANGUAGES))
def test_no_digit_is_lost(text: str, language: str) -> None:
    """What is rewritten keeps its digits; only units of money change their places."""

    def digits(of: str) -> str:
        return "".join(filter(str.isdigit, of))

    assert digits(read_numbers(text, language)) == digits(text)
