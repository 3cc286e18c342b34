"""Chinese and Japanese as Kokoro reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.speech.synthesis.east_asian import chinese_numbers, japanese_numbers, sounds, syllable
from unbraid.speech.synthesis.phonemes import LANGUAGES, phonetic, readable

from ...support.examples import examples


@pytest.mark.parametrize(
    ("text", "chinese", "japanese"),
    [
        ("2026年11月18日", "二零二六年十一月十八日", "二千二十六年十一月十八日"),
        ("0 7 10 15 110", "零 七 十 十五 一百一十", "ゼロ 七 十 十五 百十"),
        ("101, 1010 and 10001", "一百零一, 一千零一十 and 一万零一", "百一, 千十 and 一万一"),
        ("1,234,567", "一百二十三万四千五百六十七", "百二十三万四千五百六十七"),
        ("100000 and 300000000", "十万 and 三亿", "十万 and 三億"),
        ("3.14, 50% and 007", "三点一四, 百分之五十 and 零零七", "三点一四, 五十パーセント and 零零七"),
        ("１２人", "十二人", "十二人"),
        ("1" * 17, "一" * 17, "一" * 17),
        ("10:30, 10:00", "十点三十分, 十点", "十時三十分, 十時"),
        ("2026-11-19", "二零二六年十一月十九日", "二千二十六年十一月十九日"),
        ("£12.5, 500 ¥", "十二点五英镑, 五百元", "十二点五ポンド, 五百円"),
        ("-5 °C, 5 km", "负五摄氏度, 五公里", "マイナス五度, 五キロメートル"),
        ("1.5 %", "百分之一点五", "一点五パーセント"),
    ],
)
def test_numbers(text: str, chinese: str, japanese: str) -> None:
    assert chinese_numbers(text) == chinese
    assert japanese_numbers(text) == japanese


@given(st.integers(0, 10**16 - 1))
def test_a_number_is_read_back(number: int) -> None:
    """What is said adds up to the number."""
    places = {"十": 10, "百": 100, "千": 1000}
    for said in (chinese_numbers(str(number)), japanese_numbers(str(number)).replace("ゼロ", "零")):
        total = group = digit = 0
        for letter in said:
            if letter in places:
                group += (digit or 1) * places[letter]
                digit = 0
            elif letter in "万亿億兆":
                total += (group + digit) * {"万": 10**4, "兆": 10**12}.get(letter, 10**8)
                group = digit = 0
            else:
                digit = "零一二三四五六七八九".index(letter)
        assert total + group + digit == number, said


@pytest.mark.parametrize(
    ("kana", "read"),
    [
        ("こんにちは", "koɲɲiʨiha"), ("トーキョー", "toːkʲoː"), ("ガッコー", "ɡaʔkoː"), ("シュミ", "ɕɨmʲi"),
        ("ツァーリ", "ʦaːɾʲi"), ("パーティー", "paːtʲiː"), ("ウィ", "βi"), ("ヴァ", "va"), ("ニュース", "ɲɨːsɨ"),
        ("サンポ", "sampo"), ("テンキ", "teŋkʲi"), ("ホンダ", "honda"), ("ホン", "hoɴ"), ("ヂョ", "ʥo"),
        ("クァ", "kᵝa"), ("イェ", "je"), ("ヲ", "o"), ("ァ", "a"), ("ンン", "ɴɴ"), ("漢x", ""), ("", ""),
    ],
)  # fmt: skip
def test_kana(kana: str, read: str) -> None:
    assert sounds(kana) == read


@pytest.mark.parametrize(
    ("pinyin", "read"),
    [
        ("n i 3", "ni↓"), ("zh i 1", "ꭧɨ→"), ("r i 4", "ɻɨ↘"), ("j i 1", "ʨi→"), ("x ve 2", "ɕɥe↗"),
        ("zh uang 4", "ꭧwa↘ŋ"), ("j iong 3", "ʨjʊ↓ŋ"), ("l iou 4", "ljou↘"), ("g uei 4", "kwei↘"), ("d e 5", "tɤ"),
        ("q van 2", "ʨʰɥɛ↗n"), ("l üe 4", "lɥe↘"), ("ch uen 1", "ꭧʰwə→n"), ("p in 1", "pʰi→n"), ("g ong 1", "kʊ→ŋ"),
    ],
)  # fmt: skip
def test_syllables(pinyin: str, read: str) -> None:
    initial, final, tone = pinyin.split()
    assert syllable(initial, final, tone) == read
    assert syllable("", "er", "2") == "ɚ↗"


def test_chinese() -> None:
    pytest.importorskip("pypinyin", reason="pypinyin is not installed: pip install 'unbraid[voice-chinese]'")
    read = phonetic("你好，世界！《中国》有2个。", LANGUAGES["z"])
    assert read.replace(" ", "") == "ni↓xau↓,ʂɨ↘ʨje↘!“ꭧʊ→ŋkwo↗”jou↓ɚ↘kɤ↘."
    pytest.importorskip("espeakng_loader", reason="espeakng-loader is not installed: pip install 'unbraid[voice]'")
    assert "fˈOn" in phonetic("我用iPhone。", LANGUAGES["z"]), "words of other scripts are English"


def test_japanese() -> None:
    pytest.importorskip("fugashi", reason="fugashi is not installed: pip install 'unbraid[voice-japanese]'")
    pytest.importorskip("unidic_lite", reason="unidic-lite is not installed: pip install 'unbraid[voice-japanese]'")
    assert phonetic("僕は東京に行きました。", LANGUAGES["j"]) == "bokɯ βa toːkʲoː ɲi ikʲi maɕi ta."
    assert phonetic("「はい」と、3人。", LANGUAGES["j"]).startswith("“hai” to, sa")


@pytest.mark.parametrize("voice", "jz")
@examples(4)
@given(text=st.text(max_size=40))
def test_any_text_can_be_read(voice: str, text: str) -> None:
    pytest.importorskip("espeakng_loader", reason="espeakng-loader is not installed: pip install 'unbraid[voice]'")
    if not readable(voice):
        pytest.skip(f"no reader for voices of {voice!r} is installed")
    assert isinstance(phonetic(text, LANGUAGES[voice]), str)


def test_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert readable("af_heart")
    assert not any(map(readable, ("zf_xiaobei", "jf_alpha", "xx_other", "")))
