"""Numbers as they are said, where espeak-ng reads them as they are written: years, dates, times and money.

    read_numbers("On 2026-11-18 it cost $5.20.", "en-us")  # On November 18th, 20 26 it cost 5 dollars 20.

Only what it gets wrong is rewritten; cardinals, ordinals, decimals and percent are its own. English says years in two
halves, as `num2words` and `misaki` have it. A date with slashes has the month first in American English, and the day
first elsewhere.
"""

from __future__ import annotations

import re
from functools import partial

_MONTHS = {
    "en": "January February March April May June July August September October November December",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "hi": "जनवरी फ़रवरी मार्च अप्रैल मई जून जुलाई अगस्त सितंबर अक्टूबर नवंबर दिसंबर",
    "it": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    "pt": "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
}
_DAYS = {"en-us": "{month} {nth}, {year}", "en": "{nth} of {month} {year}", "es": "{day} de {month} de {year}",
         "pt-br": "{day} de {month} de {year}"}  # fmt: skip
_MONEY = {
    "en": ("dollar dollars", "euro euros", "pound pounds"),
    "es": ("dólar dólares", "euro euros", "libra libras"),
    "fr": ("dollar dollars", "euro euros", "livre livres"),
    "hi": ("डॉलर डॉलर", "यूरो यूरो", "पाउंड पाउंड"),
    "it": ("dollaro dollari", "euro euro", "sterlina sterline"),
    "pt": ("dólar dólares", "euro euros", "libra libras"),
}
_DECADES = (
    "hundreds",
    "tens",
    "twenties",
    "thirties",
    "forties",
    "fifties",
    "sixties",
    "seventies",
    "eighties",
    "nineties",
)

_ISO = re.compile(r"(?<![\w-])(\d{4})-(\d\d)-(\d\d)(?![\w-])")
_SLASHES = re.compile(r"(?<![\w/])(\d\d?)/(\d\d?)/(\d{4})(?![\w/])")
_AMOUNT = re.compile(r"([$€£])\s?(\d+(?:,\d{3})*)(?:[.,](\d\d))?(?![\d.,]*\d)(?:\s(million|billion|trillion)\b)?")
_TIME = re.compile(r"(?<![\d:])([01]?\d|2[0-3]):([0-5]\d)(?![\d:])")
_YEAR = re.compile(r"(?<![\w.,:/$€£+#-])(1[1-9]|20)(\d\d)(s?)(?![\w%:/]|[.,]\d|-\d)")


def read_numbers(text: str, language: str) -> str:
    """A text with its numbers as they are said.

    language: what espeak-ng calls it.
    """
    text = _ISO.sub(lambda match: _date(match[0], match[1], match[2], match[3], language), text)
    text = _SLASHES.sub(partial(_slashed, language=language), text)
    text = _AMOUNT.sub(partial(_amount, language=language[:2]), text)
    if language.startswith("en"):
        text = _YEAR.sub(_year, _TIME.sub(_time, text))
    return text


def _slashed(match: re.Match[str], *, language: str) -> str:
    first, second, year = match.groups()
    if language == "en-us" and int(first) <= 12:
        first, second = second, first
    return _date(match[0], year, second, first, language)


def _date(text: str, year: str, month: str, day: str, language: str) -> str:
    """A date in words; the text itself where there is no such day."""
    if not (1 <= int(month) <= 12 and 1 <= int(day) <= 31):
        return text
    name, number = _MONTHS[language[:2]].split()[int(month) - 1], int(day)
    pattern = _DAYS.get(language, "{day} {month} {year}")
    return pattern.format(month=name, day=number, nth=_ordinal(number), year=year)


def _ordinal(number: int) -> str:
    ending = "th" if number in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _amount(match: re.Match[str], *, language: str) -> str:
    sign, whole, part, scale = match.groups()
    one, many = _MONEY[language]["$€£".index(sign)].split()
    said = f"{whole} {scale}" if scale else whole
    rest = f" {int(part)}" if part and int(part) else ""
    return f"{said} {one if said == '1' else many}{rest}"


def _time(match: re.Match[str]) -> str:
    hour, minute = int(match[1]), int(match[2])
    return f"{hour} o'clock" if not minute else f"{hour} oh {minute}" if minute < 10 else f"{hour} {minute}"


def _year(match: re.Match[str]) -> str:
    century, rest, plural = match[1], int(match[2]), match[3]
    if century == "20" and rest < 10:
        return match[0]  # two thousand and five
    if plural:
        return f"{century} {_DECADES[rest // 10]}" if rest % 10 == 0 else match[0]
    return f"{century} hundred" if not rest else f"{century} oh {rest}" if rest < 10 else f"{century} {rest}"
