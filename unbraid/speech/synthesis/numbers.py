"""Numbers as they are said, where espeak-ng reads them as they are written: dates, times, money, units, telephones.

    read_numbers("On 2026-11-18 it cost $5.20.", "en-us")  # On November 18th, 20 26 it cost 5 dollars 20.
    read_numbers("5-10 km", "fr")                          # 5 à 10 kilomètres

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
_CENTS = {"$": "cent cents", "€": "cent cents", "£": "penny pence"}
_SCALES = {"k": "thousand", "m": "million", "mn": "million", "b": "billion", "bn": "billion", "tn": "trillion"}
_UNITS = {
    "en": {
        "km/h": "kilometer_per_hour kilometers_per_hour", "km": "kilometer kilometers", "cm": "centimeter centimeters",
        "mm": "millimeter millimeters", "m": "meter meters", "m²": "square_meter square_meters",
        "km²": "square_kilometer square_kilometers", "m³": "cubic_meter cubic_meters", "ft": "foot feet",
        "m/s": "meter_per_second meters_per_second", "mph": "mile_per_hour miles_per_hour",
        "kg": "kilogram kilograms", "g": "gram grams", "mg": "milligram milligrams", "lb": "pound pounds",
        "lbs": "pound pounds", "oz": "ounce ounces", "ml": "milliliter milliliters", "ms": "millisecond milliseconds",
        "min": "minute minutes", "kB": "kilobyte kilobytes", "KB": "kilobyte kilobytes", "MB": "megabyte megabytes",
        "GB": "gigabyte gigabytes", "TB": "terabyte terabytes", "Hz": "hertz hertz", "kHz": "kilohertz kilohertz",
        "MHz": "megahertz megahertz", "GHz": "gigahertz gigahertz", "kW": "kilowatt kilowatts",
        "kWh": "kilowatt_hour kilowatt_hours",
    },
    "es": {
        "km/h": "kilómetro_por_hora kilómetros_por_hora", "km": "kilómetro kilómetros", "cm": "centímetro centímetros",
        "mm": "milímetro milímetros", "kg": "kilogramo kilogramos", "m²": "metro_cuadrado metros_cuadrados",
    },
    "fr": {
        "km/h": "kilomètre_heure kilomètres_heure", "km": "kilomètre kilomètres", "cm": "centimètre centimètres",
        "mm": "millimètre millimètres", "kg": "kilogramme kilogrammes", "m²": "mètre_carré mètres_carrés",
    },
    "hi": {
        "km/h": "किलोमीटर_प्रति_घंटा किलोमीटर_प्रति_घंटा", "km": "किलोमीटर किलोमीटर", "cm": "सेंटीमीटर सेंटीमीटर",
        "mm": "मिलीमीटर मिलीमीटर", "kg": "किलोग्राम किलोग्राम", "m²": "वर्ग_मीटर वर्ग_मीटर",
    },
    "it": {
        "km/h": "chilometro_orario chilometri_orari", "km": "chilometro chilometri", "cm": "centimetro centimetri",
        "mm": "millimetro millimetri", "kg": "chilogrammo chilogrammi", "m²": "metro_quadrato metri_quadrati",
    },
    "pt": {
        "km/h": "quilômetro_por_hora quilômetros_por_hora", "km": "quilômetro quilômetros",
        "cm": "centímetro centímetros", "mm": "milímetro milímetros", "kg": "quilograma quilogramas",
        "m²": "metro_quadrado metros_quadrados",
    },
}  # fmt: skip
"""One and many; a space is written as `_`."""
_SIGNS = {
    "en": ("minus", "to"), "es": ("menos", "a"), "fr": ("moins", "à"), "hi": ("माइनस", "से"), "it": ("meno", "a"),
    "pt": ("menos", "a"),
}  # fmt: skip
"""What a minus is called, and what stands between the two ends of a range."""
_COMPARED = {"~": "about", "≈": "about", "<": "less than", ">": "more than"}
_PARTS = {"2": "half halves", "3": "third thirds", "4": "quarter quarters", "5": "fifth fifths", "6": "sixth sixths",
          "8": "eighth eighths", "10": "tenth tenths"}  # fmt: skip
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

ISO_DATE = re.compile(r"(?<![\w-])(\d{4})-(\d\d)-(\d\d)(?![\w-])")
_SLASHES = re.compile(r"(?<![\w/])(\d\d?)/(\d\d?)/(\d{4})(?![\w/])")
_WHOLE = r"(\d+(?:,\d{3})*)"
_AMOUNT = re.compile(rf"([$€£])\s?{_WHOLE}(?:[.,](\d\d))?(?![\d.,]*\d)")
_AMOUNT_BEFORE = re.compile(r"(?<![\d.,])(\d+(?:[., ]\d{3})*)(?:[.,](\d\d))?\s?([$€£])(?!\s?\d)")
_SCALED = re.compile(rf"([$€£])\s?{_WHOLE}(\.\d+)?\s?(million|billion|trillion|(?:mn?|bn?|tn|k)(?!\w))", re.IGNORECASE)
_TELEPHONE = re.compile(
    r"(?<![\w.,$€£#-])(?:\+\d[\d ()-]{6,}\d|(?:\(\d{3}\) ?|\d{3}[- ])?\d{3}-\d{4})(?![\w:/-]|[.,]\d)"
)
_RANGE = re.compile(r"(?<![\w.,:/$€£+#-])(\d{1,4})[-—](\d{1,4})(?![\w:/-]|[.,]\d)")
_MINUS = re.compile(r"(?:(?<=\s)|(?<=\()|^)[-−](?=\d)")
_NAMES = sorted({unit for units in _UNITS.values() for unit in units}, key=len, reverse=True)
_MEASURE = rf"[ \u00a0\u202f]?({'|'.join(map(re.escape, _NAMES))})(?![\w/²³])"
_UNIT = re.compile(rf"(?<![\w.,$€£])(\d+(?:[.,]\d+)*){_MEASURE}")
_CELSIUS = re.compile(r"°\s?([CF])\b")
_COMMA = re.compile(rf"(?<![\d.,])(\d+),(\d\d?)(?=\s?[%°]|{_MEASURE})")
_FRACTION = re.compile(rf"(?<![\w/.,$€£-])(?:(\d+) )?(\d)/({'|'.join(_PARTS)})(?![\w/]|[.,]\d)")
_COMPARISON = re.compile(r"([~≈<>])\s?(?=[\d$€£])")
_NUMBERED = re.compile(r"\bNo\. ?(?=\d)")
_FORMULA = re.compile(r"(?<![\w-])([A-Z]{2,3})(\d{1,3})(?![\w-])")
TIME = re.compile(r"(?<![\d:])([01]?\d|2[0-3]):([0-5]\d)(?![\d:])")
_YEAR = re.compile(r"(?<![\w.,:/$€£+#-])(1[1-9]|20)(\d\d)(s?)(?![\w%:/]|[.,]\d|-\d)")


def read_numbers(text: str, language: str) -> str:
    """A text with its numbers as they are said.

    language: what espeak-ng calls it.
    """
    tongue = language[:2]
    minus, to = _SIGNS[tongue]
    text = ISO_DATE.sub(lambda match: _date(match[0], match[1], match[2], match[3], language), text)
    text = _SLASHES.sub(partial(_slashed, language=language), text)
    if tongue == "en":
        text = _SCALED.sub(_scaled, _COMPARISON.sub(lambda match: f"{_COMPARED[match[1]]} ", text))
        text = _COMMA.sub(r"\1.\2", _NUMBERED.sub("number ", text))
    text = _AMOUNT.sub(lambda match: _amount(match[1], match[2], match[3], tongue), text)
    text = _AMOUNT_BEFORE.sub(lambda match: _amount(match[3], re.sub(r"\D", "", match[1]), match[2], tongue), text)
    text = _TELEPHONE.sub(_telephone, text)
    text = _CELSIUS.sub(lambda match: "° Celsius" if match[1] == "C" else "° Fahrenheit", _MINUS.sub(f"{minus} ", text))
    text = _RANGE.sub(lambda match: f"{match[1]} {to} {match[2]}" if int(match[1]) < int(match[2]) else match[0], text)
    text = _UNIT.sub(partial(_measured, tongue=tongue), text)
    if tongue == "en":
        text = _YEAR.sub(_year, TIME.sub(_time, _FRACTION.sub(_fraction, text)))
    return _FORMULA.sub(lambda match: f"{' '.join(match[1])} {match[2]}", text)


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


def _currency(sign: str, tongue: str) -> tuple[str, str]:
    one, many = _MONEY[tongue]["$€£".index(sign)].split()
    return one, many


def _amount(sign: str, whole: str, part: str | None, tongue: str) -> str:
    one, many = _currency(sign, tongue)
    if tongue == "en" and whole == "0" and part:
        one, many = _CENTS[sign].split()
        whole, part = str(int(part)), None
    rest = f" {int(part)}" if part and int(part) else ""
    return f"{_count(whole, tongue)} {one if whole == '1' else many}{rest}"


def _scaled(match: re.Match[str]) -> str:
    sign, whole, part, scale = match.groups()
    _, many = _currency(sign, "en")
    return f"{whole}{part or ''} {_SCALES.get(scale.lower(), scale)} {many}"


def _telephone(match: re.Match[str]) -> str:
    """Digit by digit, with a pause between groups."""
    groups = re.findall(r"\d+", match[0])
    return ("+" if match[0].startswith("+") else "") + ", ".join(map(" ".join, groups))


def _count(number: str, tongue: str) -> str:
    """A number that is no year."""
    return f"{int(number):,}" if tongue == "en" and number.isdigit() else number


def _measured(match: re.Match[str], *, tongue: str) -> str:
    number, unit = match.groups()
    units = _UNITS[tongue]
    if unit not in units:
        return match[0]
    return f"{_count(number, tongue)} {units[unit].split()[number != '1'].replace('_', ' ')}"


def _fraction(match: re.Match[str]) -> str:
    whole, number, part = match.groups()
    if int(number) >= int(part):
        return match[0]
    said = f"{number} {_PARTS[part].split()[number != '1']}"
    return f"{whole} and {said}" if whole else said


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
