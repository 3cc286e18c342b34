"""Times of words: from where a model looked to when each token was said, to words, to where the sound is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from unbraid.speech.audio.decode import RATE, Samples
from unbraid.speech.decoding.alignment import FRAME, Attention, _warp, token_times
from unbraid.speech.transcript import Word
from unbraid.speech.words import fit_to_sound, join_words

# --- When each token was said ----------------------------------------------------------------------------------------


def looking(at: list[int], frames: int = 1500, heads: int = 3) -> list[Attention]:
    """A model that attention at one place for each token, and a little at all others."""
    found = []
    for frame in at:
        weights = np.full((heads, frames), 0.1 / frames, np.float32)
        weights[:, max(0, frame - 3) : frame + 4] += 0.9 / 7
        found.append(weights)
    return found


def test_tokens_are_said_where_the_model_looks() -> None:
    at = [10, 60, 90, 160, 161 + 40, 300]
    *times, end = token_times(looking(at), 8.0)
    assert end == 8.0
    assert times[0] == 0.0  # it is said until the next begins
    for begun, before, here in zip(times[1:], at[:-1], at[1:], strict=True):
        assert before * FRAME < begun <= here * FRAME


def test_what_is_looked_at_after_the_end_does_not_count() -> None:
    attention = looking([10, 60, 90])
    for weights in attention:
        weights[:, 400:] += 5.0
    assert token_times(attention, 8.0) == token_times(looking([10, 60, 90]), 8.0)


@given(
    arrays.arrays(
        np.float32,
        st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(1, 20)),
        elements=st.floats(0, 1, width=32),
    ),
    st.floats(0.0, 1.0),
)
def test_times_go_forward_whatever_is_looked_at(attention: Attention, seconds: float) -> None:
    times = token_times(list(attention), seconds)
    assert len(times) == len(attention) + 1
    assert times[0] == 0.0
    assert list(times[:-1]) == sorted(times[:-1])
    assert max(times[:-1]) < max(seconds, FRAME)
    assert times[-1] == round(seconds, 2)


def test_no_tokens() -> None:
    assert token_times([], 1.0) == (0.0,)


@given(arrays.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 5)), elements=st.integers(-9, 9)))
def test_the_path_is_the_cheapest(cost: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> None:
    """Of all that there are: each step goes to the next token, the next frame, or both."""
    tokens, frames = cost.shape

    def paths(token: int, frame: int) -> Iterator[list[tuple[int, int]]]:
        if (token, frame) == (tokens - 1, frames - 1):
            yield [(token, frame)]
        for further, later in ((1, 1), (1, 0), (0, 1)):
            if token + further < tokens and frame + later < frames:
                yield from ([(token, frame), *rest] for rest in paths(token + further, frame + later))

    costs = {tuple(path): sum(cost[cell] for cell in path) for path in paths(0, 0)}
    cheapest = [path for path, total in costs.items() if total == min(costs.values())]
    begins = [[min(frame for at, frame in path if at == token) for token in range(tokens)] for path in cheapest]
    assert _warp(cost) in begins


# --- Words -----------------------------------------------------------------------------------------------------------


def pieces(*texts: str) -> list[Word]:
    """A second each; the nth has the probability 1/n."""
    return [Word(text, float(at), at + 1.0, 1 / (at + 1)) for at, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([" And", " so"], [" And", " so"]),
        ([" un", "bra", "id", " it"], [" unbraid", " it"]),
        ([" Yes", ",", " no", "!?"], [" Yes,", " no!?"]),
        ([" inter", "-", "aster", "isk"], [" inter-asterisk"]),
        ([" I", "'m", " here"], [" I'm", " here"]),
        ([" he", " said", ' "', "hello", '"', " twice"], [" he", " said", ' "hello"', " twice"]),
        ([" (", "maybe", ")", "."], [" (maybe)."]),
        ([" ¿", "Qué", "?", " ¡", "Hola", "!"], [" ¿Qué?", " ¡Hola!"]),
        ([" Oui", " !", " «", " Non", " »"], [" Oui !", " « Non »"]),
        ([" -", " Hello", " -", " Bye"], [" - Hello", " - Bye"]),
        ([" 5", "%", " of", " $", "20"], [" 5%", " of", " $20"]),
        (["今日", "は", "、", "「", "晴", "れ", "」", "です", "。"], ["今日", "は、", "「晴", "れ」", "です。"]),
        (["カ", "ー", "ド"], ["カー", "ド"]),
        (["สวั", "สดี"], ["สวั", "สดี"]),
        (["ก", "ำ"], ["ก", "ำ"]),
        (["ก", "ิ", "น"], ["กิ", "น"]),
        ([" 안녕", "하세요"], [" 안녕하세요"]),
        ([" Hello", " world", " ", "\n"], [" Hello", " world \n"]),
        ([" ...", " and"], [" ... and"]),
        ([" ...", "!"], [" ...!"]),
        ([" wait", " ("], [" wait ("]),
        ([], []),
    ],
)
def test_words(texts: list[str], expected: list[str]) -> None:
    assert [word.text for word in join_words(pieces(*texts))] == expected


def test_the_times_of_words() -> None:
    """Signs take none: where they are, nobody speaks."""
    found = join_words(pieces(" un", "braid", ",", ' "', "yes", "!", " inter", "-", "net", "."))
    assert [(word.text, word.start, word.end) for word in found] == [
        (" unbraid,", 0.0, 2.0),
        (' "yes!', 4.0, 5.0),
        (" inter-net.", 6.0, 9.0),
    ]
    assert found[0].probability == pytest.approx((1 + 1 / 2) / 2)
    assert found[1].probability == pytest.approx(1 / 5)
    assert found[2].probability == pytest.approx((1 / 7 + 1 / 9) / 2)


@given(st.lists(st.text(alphabet=" aB1-'\",.()«»¿$%今は。ー\u0e34\n", min_size=1, max_size=3), max_size=12))
def test_no_text_is_lost(texts: list[str]) -> None:
    found = join_words(pieces(*texts))
    assert "".join(word.text for word in found) == "".join(texts)
    assert all(word.start < word.end for word in found)
    assert all(one.end <= other.start for one, other in itertools.pairwise(found))


# --- Where the sound is ----------------------------------------------------------------------------------------------


def sound(*loud: tuple[float, float], seconds: float = 6.0, noise: float = 0.0) -> Samples:
    """A tone between some times."""
    time = np.arange(round(seconds * RATE)) / RATE
    samples = np.random.default_rng(1).normal(0.0, noise, len(time)) if noise else np.zeros(len(time))
    for begin, end in loud:
        samples += np.where((time >= begin) & (time < end), 0.3 * np.sin(2 * np.pi * 200 * time), 0.0)
    return samples.astype(np.float32)


def times(words: list[Word]) -> list[tuple[float, float]]:
    return [(word.start, word.end) for word in words]


@pytest.mark.parametrize("noise", [0.0, 0.003])
def test_words_are_where_the_sound_is(noise: float) -> None:
    samples = sound((1.0, 1.5), (2.0, 2.6), (4.0, 4.4), noise=noise)
    found = fit_to_sound([Word(" a", 0.0, 1.4), Word(" b", 1.8, 2.5), Word(" c", 2.5, 5.0)], samples)
    assert times(found) == [(1.0, 1.5), (2.0, 2.6), (4.0, 4.4)]
    assert [word.text for word in found] == [" a", " b", " c"]


def test_a_word_is_not_cut_at_a_short_silence() -> None:
    samples = sound((1.0, 1.3), (1.4, 1.8))
    assert times(fit_to_sound([Word(" attempt", 0.9, 1.9)], samples)) == [(1.0, 1.8)]


def test_the_end_of_another_word_is_none_of_it() -> None:
    samples = sound((1.0, 1.1), (3.0, 3.5))
    assert times(fit_to_sound([Word(" ask", 1.04, 3.6)], samples)) == [(3.0, 3.5)]


def test_a_word_does_not_last_into_the_next() -> None:
    samples = sound((1.0, 3.0))
    found = fit_to_sound([Word(" a", 0.5, 1.5), Word(" b", 1.6, 1.8), Word(" c", 2.0, 2.2)], samples)
    assert times(found) == [(1.0, 1.6), (1.6, 2.0), (2.0, 2.5)]  # by no more than 0.3 s


def test_without_any_sound_words_stay_where_they_are() -> None:
    words = [Word(" a", 0.5, 1.5), Word(" b", 1.5, 1.5)]
    assert fit_to_sound(words, sound()) == [Word(" a", 0.5, 1.46), Word(" b", 1.46, 1.5)]  # but none takes no time
    assert fit_to_sound(words, sound(seconds=0.0)) == fit_to_sound(words, sound())
    assert fit_to_sound([], sound()) == []


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8),
    st.lists(st.tuples(st.integers(0, 150), st.integers(1, 40)), max_size=6),
    st.sampled_from([0.0, 0.001, 0.1]),
)
def test_the_order_of_words_stays(gaps: list[tuple[int, int]], loud: list[tuple[int, int]], noise: float) -> None:
    words, at = [], 0
    for pause, length in gaps:
        words.append(Word(" x", (at + pause) * FRAME, (at + pause + length) * FRAME))
        at += pause + length
    seconds = max(1, at) * FRAME
    found = fit_to_sound(words, sound(*((a * FRAME, (a + b) * FRAME) for a, b in loud), seconds=seconds, noise=noise))
    assert len(found) == len(words)
    flat = [time for word in found for time in (word.start, word.end)]
    assert all(one <= other + 1e-9 for one, other in itertools.pairwise(flat))
    assert all(0 <= time <= seconds + 1e-9 for time in flat)
