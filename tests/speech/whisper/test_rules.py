"""What Whisper may write next: OpenAI's rules, the prefix, chance, and the end of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.constraints.printers.token_sets import TokenSets
from unbraid.core.events import Content, Diagnostic, Language, Timestamp
from unbraid.formats import find
from unbraid.parsing import Parser
from unbraid.speech.decoding.sampling import Logits, SamplingDecoding, is_looping
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.whisper.adapter import WhisperAdapter
from unbraid.speech.whisper.rules import WhisperRules
from unbraid.tokens import vocabulary

from .whisper_models import files, tokenizer, tokens

pytestmark = pytest.mark.system

BASE = "whisper-base"
BLANK = 220


@cache
def rules() -> WhisperRules:
    """As the model's own files have them."""
    known = tokens(BASE)
    config = files(BASE).generation_config
    prompts = (known.sot, known.transcribe, known.translate, known.no_speech, known.startofprev, known.startoflm)
    never = {*config["suppress_tokens"], *prompts, *known.languages.values()}
    return WhisperRules(known, tuple(sorted(never)), tuple(config["begin_suppress_tokens"]))


def some_logits(seed: int, times: float = 0.0, end: float = 0.0) -> Logits:
    """By chance; times and the end are more or less likely than words."""
    known = tokens(BASE)
    logits = np.random.default_rng(seed).normal(0.0, 2.0, known.size).astype(np.float32)
    logits[known.first_timestamp :] += times
    logits[known.eot] += end
    return logits


def even(**likely: float) -> Logits:
    """All alike, but for some: tokens by the names that `WhisperTokens` has for them."""
    logits = np.zeros(tokens(BASE).size, np.float32)
    for name, value in likely.items():
        logits[getattr(tokens(BASE), name)] = value
    return logits


def allowed(written: Sequence[int], timestamps: bool = True, logits: Logits | None = None) -> set[int]:
    logits = even() if logits is None else logits.copy()
    rules().apply(logits, written, timestamps)
    return set(map(int, np.flatnonzero(~np.isneginf(logits))))


def time(seconds: float) -> int:
    return tokens(BASE).timestamp(seconds)


def writing(
    *sets: set[int], timestamps: bool = False, temperature: float = 0.0, limit: int = 447, seed: int = 1
) -> SamplingDecoding:
    prefix = TokenSets(tuple(map(frozenset, sets)))
    return SamplingDecoding(rules(), prefix, timestamps, temperature, limit, np.random.default_rng(seed))


# OpenAI's rules


def openais(logits: Logits, written: Sequence[int], timestamps: bool = True) -> None:
    """`SuppressBlank`, `SuppressTokens` and `ApplyTimestampRules` of openai-whisper's decoding.py, for one row."""
    known = tokens(BASE)
    begin = known.first_timestamp
    if len(written) == 0:
        logits[[BLANK, known.eot]] = -np.inf
    logits[list(rules().suppressed)] = -np.inf
    if not timestamps:
        return
    logits[known.no_timestamps] = -np.inf
    last_was_timestamp = len(written) >= 1 and written[-1] >= begin
    penultimate_was_timestamp = len(written) < 2 or written[-2] >= begin
    if last_was_timestamp:
        if penultimate_was_timestamp:
            logits[begin:] = -np.inf
        else:
            logits[: known.eot] = -np.inf
    times = [token for token in written if token >= begin]
    if times:
        last = times[-1] if last_was_timestamp and not penultimate_was_timestamp else times[-1] + 1
        logits[begin:last] = -np.inf
    if len(written) == 0:
        logits[:begin] = -np.inf
        logits[begin + 50 + 1 :] = -np.inf
    logprobs = logits.astype(np.float64) - np.logaddexp.reduce(logits.astype(np.float64))
    if np.logaddexp.reduce(logprobs[begin:]) > logprobs[:begin].max():
        logits[:begin] = -np.inf


outputs = st.lists(st.one_of(st.integers(0, 50256), st.integers(50364, 51864)), max_size=6)


@given(outputs, st.integers(0, 1000), st.sampled_from([-20.0, -4.0, 0.0, 4.0, 20.0]))
def test_the_rules_are_openais(written: list[int], seed: int, times: float) -> None:
    ours, theirs = some_logits(seed, times), some_logits(seed, times)
    rules().apply(ours, written, True)
    openais(theirs, written)
    np.testing.assert_array_equal(ours, theirs)


@given(outputs, st.integers(0, 1000))
def test_without_times_they_are_openais_too(written: list[int], seed: int) -> None:
    """Except that no time can come at all, which OpenAI leaves to the model."""
    ours, theirs = some_logits(seed), some_logits(seed)
    rules().apply(ours, written, False)
    openais(theirs, written, False)
    words = slice(0, tokens(BASE).no_timestamps)
    np.testing.assert_array_equal(ours[words], theirs[words])
    assert np.isneginf(ours[words.stop :]).all()


def test_what_is_never_written() -> None:
    never = set(rules().suppressed)
    assert {1, 7, 8, 9, 10} < never  # quotes, brackets and the like
    assert tokens(BASE).languages["de"] in never
    for written in ([], [1000], [time(0)], [time(0), 1000, time(1)]):
        for timestamps in (True, False):
            assert not never & allowed(written, timestamps)
            assert tokens(BASE).no_timestamps not in allowed(written, timestamps)


def test_what_is_not_first() -> None:
    assert not {BLANK, tokens(BASE).eot} & allowed([], False)
    assert {BLANK, tokens(BASE).eot} < allowed([1000], False)


def test_the_first_time_is_within_a_second() -> None:
    assert allowed([]) == set(range(time(0.0), time(1.0) + 1))


def test_times_come_in_pairs() -> None:
    first, eot = tokens(BASE).first_timestamp, tokens(BASE).eot
    likely = some_logits(1, times=20.0)
    assert max(allowed([time(0.5)], logits=likely)) < first  # words, after the first
    assert min(allowed([time(0.5), 1000], logits=likely)) >= first
    after = allowed([time(0.5), 1000, time(2.0)])
    assert min(after) in (eot, time(2.0))  # the next stretch begins, or it is over
    assert max(allowed([time(0.5), 1000, time(2.0), time(2.0)], logits=likely)) < first
    assert eot in allowed([time(0.5), 1000, time(2.0)], logits=even(eot=30.0))


def test_times_go_forward() -> None:
    likely = some_logits(1, times=20.0)
    assert min(allowed([time(0.5), 1000], logits=likely)) == time(0.52)  # no stretch is empty
    assert min(allowed([time(0.5), 1000, time(2.0)], logits=likely)) == time(2.0)  # there may be no pause
    assert min(allowed([time(0.5), 1000, time(2.0), time(3.0), 1000], logits=likely)) == time(3.02)


def test_after_the_last_time_only_words_come() -> None:
    last = tokens(BASE).last_timestamp
    assert allowed([time(0), 1000, last]) >= {last}
    after = allowed([time(0), 1000, last, last, 1000], logits=some_logits(1, times=20.0))
    assert max(after) < tokens(BASE).first_timestamp


def test_a_time_comes_where_times_are_likelier_than_any_word() -> None:
    logits = even()
    logits[1000] = 5.0  # 1,400 times with e⁰ are more than one word with e⁵
    assert min(allowed([time(0), 1000], logits=logits)) >= tokens(BASE).first_timestamp
    logits[1000] = 9.0
    assert 1000 in allowed([time(0), 1000], logits=logits)


def test_what_fills_up_the_vocabulary_is_not_written() -> None:
    logits = np.concatenate([some_logits(1), np.full(7, 50.0, np.float32)])
    for written in ([], [time(0)], [time(0), 1000], [1000]):
        for timestamps in (True, False):
            assert max(allowed(written, timestamps, logits)) < tokens(BASE).size


# The prefix


def test_the_language_is_chosen_among_the_candidates() -> None:
    known = tokens(BASE)
    de, fr, en = (known.languages[code] for code in ("de", "fr", "en"))
    logits = even()
    logits[[de, fr, en, 1000]] = [2.0, 1.0, 7.0, 30.0]
    one = writing({de, fr}, {known.transcribe}, {known.no_timestamps})
    said = one.next(logits)
    assert said.token == de
    assert np.exp(said.logprob) == pytest.approx(1 / (1 + np.exp(-1)))
    assert one.choices == pytest.approx({de: 1 / (1 + np.exp(-1)), fr: 1 / (1 + np.exp(1))})
    assert [one.next(logits).token for _ in range(3)] == [known.transcribe, known.no_timestamps, 1000]
    assert (one.begun, one.written) == ([de, known.transcribe, known.no_timestamps], [1000])
    assert len(one.choices) == 2


def test_what_is_forced_is_certain() -> None:
    known = tokens(BASE)
    one = writing({known.languages["de"]}, {known.transcribe}, temperature=1.0)
    assert [one.next(some_logits(number)).logprob for number in range(2)] == [0.0, 0.0]
    assert one.choices == {}


def test_the_language_is_not_left_to_chance() -> None:
    known = tokens(BASE)
    languages = set(known.languages.values())
    logits = some_logits(3)
    likeliest = max(languages, key=lambda token: logits[token])
    assert {writing(languages, temperature=1.0, seed=seed).next(logits).token for seed in range(5)} == {likeliest}


def test_silence_is_judged_by_the_first_step_alone() -> None:
    known = tokens(BASE)
    one = writing({known.languages["de"]}, {known.transcribe})
    first = even(no_speech=12.0)
    one.next(first)
    expected = np.exp(12.0) / (np.exp(12.0) + known.size - 1)
    assert one.no_speech == pytest.approx(expected)
    one.next(even(no_speech=-9.0))
    assert one.no_speech == pytest.approx(expected)


def test_the_logits_stay_as_they_were() -> None:
    logits = some_logits(1)
    writing().next(logits)
    np.testing.assert_array_equal(logits, some_logits(1))


# Chance


def written_by_chance(seed: int, temperature: float) -> list[int]:
    one = writing(temperature=temperature, seed=seed)
    return [one.next(some_logits(step)).token for step in range(8)]


def test_a_seed_gives_the_same_again() -> None:
    assert written_by_chance(7, 0.8) == written_by_chance(7, 0.8)
    assert written_by_chance(7, 0.8) != written_by_chance(8, 0.8)
    assert written_by_chance(7, 0.0) == written_by_chance(8, 0.0)


def test_temperature_says_how_often_the_unlikely_comes() -> None:
    logits = np.full(tokens(BASE).size, -100.0, np.float32)
    logits[[1000, 2000]] = [1.0, 0.0]
    one = writing(temperature=0.5, limit=10_000)
    said = [one.next(logits) for _ in range(400)]
    share = sum(each.token == 1000 for each in said) / len(said)
    assert share == pytest.approx(1 / (1 + np.exp(-2)), abs=0.06)
    # How likely it was is said without the temperature.
    assert {round(each.logprob, 3) for each in said if each.token == 1000} == {-0.313}


def test_without_temperature_the_likeliest_comes() -> None:
    logits = some_logits(5)
    said = writing().next(logits)
    rules().apply(logits, [], False)
    assert said.token == int(logits.argmax())


# The end


def test_why_it_is_over() -> None:
    one = writing(limit=3)
    assert one.reason is None
    one.next(even(eot=-1.0))
    assert one.reason is None
    one.next(even(eot=9.0))
    assert one.reason == "stop"
    one = writing({1}, {2}, limit=3)
    for _ in range(3):
        assert one.reason is None
        one.next(some_logits(1))
    assert one.reason == "length"
    one = writing()
    one.written = [7] * 40
    assert one.reason == "loop"


@pytest.mark.parametrize("period", [1, 2, 3, 7, 10, 13, 31, 32])
def test_a_phrase_over_and_over_is_a_loop(period: int) -> None:
    phrase = list(range(100, 100 + period))
    needed = max(4 * period, 40)
    endless = [1, 2, 3, *phrase * 60]
    found = next(size for size in range(len(endless)) if is_looping(endless[:size]))
    assert needed + 3 <= found <= needed + 3 + period
    assert is_looping(endless)
    assert not is_looping([*endless[:found], 1])


def test_ordinary_texts_are_no_loops() -> None:
    assert not is_looping([])
    assert not is_looping([7] * 39)  # ha ha ha
    assert not is_looping(list(range(500)))
    assert not is_looping(list(range(33)) * 4)
    text = "the cat and the dog and the cow and the hen and the pig and the fox and the owl " * 2
    assert not is_looping(tokenizer(BASE).encode(text, add_special_tokens=False).ids)


# What follows the rules can be read


@given(st.integers(0, 10_000), st.booleans(), st.sampled_from([0.0, 0.7]), st.sampled_from([-3.0, 3.0]))
def test_all_that_follows_the_rules_is_whispers_format(
    seed: int, timestamps: bool, temperature: float, times: float
) -> None:
    tokens_of = vocabulary(tokenizer(BASE))
    adapter = WhisperAdapter(tokens_of)
    request = adapter.request(np.zeros(0, np.float32), TranscriptionOptions(timestamps=timestamps), temperature)
    rng = np.random.default_rng(seed)
    one = SamplingDecoding(rules(), request.prefix, timestamps, temperature, 60, rng)
    parser = Parser(find("whisper"), tokenizer=tokens_of)
    events = []
    while one.reason is None:
        events += parser.feed_tokens([one.next(some_logits(int(rng.integers(10**9)), times, end=6.0)).token])
    events += parser.finish()
    assert not [event for event in events if isinstance(event, Diagnostic)]
    assert [event.code for event in events if isinstance(event, Language)] == [tokens(BASE).codes[one.begun[0]]]
    said = [event.seconds for event in events if isinstance(event, Timestamp)]
    assert said == sorted(said)
    first = tokens(BASE).first_timestamp
    assert said == [round((token - first) * 0.02, 2) for token in one.written if token >= first]
    assert bool(said) == timestamps
    assert isinstance(events[0], Language)
    if timestamps:
        assert isinstance(events[1], Timestamp)
        assert events[1].seconds <= 1.0
    spelled = [token for token in one.written if token < tokens(BASE).eot]
    plain = b"".join(tokens_of.token_bytes(token) or b"" for token in spelled).decode(errors="replace")
    assert "".join(event.text for event in events if isinstance(event, Content)) == plain
