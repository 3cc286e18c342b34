"""Whisper on ONNX Runtime, with real weights and real speech: greedy outputs, batches, rows, and the cache."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from unbraid.engines.base import EngineError, PromptTooLong, Unsupported
from unbraid.speech.onnx.runtime import Floats, Tokens
from unbraid.speech.whisper.features import log_mels
from unbraid.speech.whisper.model import Encoded, WhisperModel

from .whisper_models import WORDS, as_float_pair, as_in_the_hub_cache, files, jfk, prompt, tokenizer, tokens, whisper

pytestmark = pytest.mark.system

TINY, BASE = "whisper-tiny", "whisper-base"


@cache
def recordings() -> Floats:
    """Four rows that a model writes different things about: the whole, its end, its beginning, and silence."""
    whole = jfk()
    return log_mels([whole, whole[8 * 16_000 :], whole[: 4 * 16_000], np.zeros(16_000, np.float32)])


@cache
def encoded(name: str, *, rewrite: bool = True) -> Encoded:
    return whisper(name, rewrite=rewrite).encode(recordings())


def greedy(model: WhisperModel, audio: Encoded, rows: tuple[int, ...], most: int = 40) -> list[list[int]]:
    """What the model says of some recordings in English, without timestamps."""
    special = tokens()
    prompts = np.array([prompt(special)] * len(rows))
    state = model.begin(audio, prompts, audio=rows)
    said: list[list[int]] = [[] for _ in rows]
    ended = np.zeros(len(rows), bool)
    for _ in range(most):
        chosen = np.where(ended, special.eot, state.logits[:, : special.first_timestamp].argmax(-1))
        ended |= chosen == special.eot
        if ended.all():
            break
        for row in np.flatnonzero(~ended):
            said[row].append(int(chosen[row]))
        model.step(state, chosen)
    return said


def words(said: list[int]) -> str:
    return " ".join(re.findall(r"[a-z']+", tokenizer().decode(said).lower()))


@pytest.mark.parametrize("rewrite", [True, False])
@pytest.mark.parametrize("name", [TINY, BASE])
def test_the_language_and_the_words(name: str, rewrite: bool) -> None:
    model, special = whisper(name, rewrite=rewrite), tokens(name)
    assert model.rewritten is rewrite
    audio = model.encode(log_mels([jfk()]))
    state = model.begin(audio, np.array([[special.sot]]))
    languages = np.array(list(special.languages.values()))
    assert special.codes[int(languages[state.logits[0, languages].argmax()])] == "en"
    assert int(state.logits[0].argmax()) == special.languages["en"]
    assert words(greedy(model, audio, (0,))[0]) == WORDS


@pytest.mark.parametrize("name", [TINY, BASE])
def test_a_batch_says_what_each_row_says_alone(name: str) -> None:
    model, audio = whisper(name), encoded(name)
    alone = [greedy(model, audio, (row,))[0] for row in range(3)]
    assert len({tuple(said) for said in alone}) == 3
    assert greedy(model, audio, (0, 1, 2)) == alone
    assert greedy(model, audio, (2, 0, 3, 1, 0))[:2] == [alone[2], alone[0]]
    by_itself = model.encode(recordings()[1:2])
    assert greedy(model, by_itself, (0,))[0] == alone[1]


def test_rows_of_a_batch_do_not_touch_each_other() -> None:
    """With the published graphs they do: rows that are quantised together have one scale."""
    special = tokens()
    prompts = np.array([prompt(special)] * 4)
    model, audio = whisper(TINY), encoded(TINY)
    together, alone = model.begin(audio, prompts), model.begin(audio, prompts[:1], audio=[0])
    np.testing.assert_allclose(together.logits[0], alone.logits[0], atol=1e-3)
    model, audio = whisper(TINY, rewrite=False), encoded(TINY, rewrite=False)
    together, alone = model.begin(audio, prompts), model.begin(audio, prompts[:1], audio=[0])
    assert np.abs(together.logits[0] - alone.logits[0]).max() > 1e-2


@pytest.mark.parametrize("rewrite", [True, False])
def test_rows_are_dropped_repeated_and_put_in_another_order(rewrite: bool) -> None:
    """All that a row goes on with is its own, bit by bit. What a step makes of it may depend on the batch where the
    published graphs quantise all rows together, and by how much depends on the processor: so it is computed twice from
    the same rows."""
    model, audio, special = whisper(TINY, rewrite=rewrite), encoded(TINY, rewrite=rewrite), tokens()
    state = model.begin(audio, np.array([prompt(special)] * 4))
    before = state.logits.copy()
    for rows in ([2, 0], [1, 1, 3], [0, 1], [3, 2, 1, 0]):
        chosen = model.select(state, rows)
        assert chosen.audio == tuple(rows)
        np.testing.assert_array_equal(chosen.logits, before[rows])
        for selected, given in ((chosen.past, state.past), (chosen.cross, state.cross)):
            assert selected.keys() == given.keys() != set()
            for name, value in given.items():
                np.testing.assert_array_equal(selected[name].numpy(), value.numpy()[rows])
        following = before[rows].argmax(-1)
        after = model.step(chosen, following)
        np.testing.assert_array_equal(after, model.step(model.select(state, rows), following))
        if rewrite:  # rows do not touch each other
            whole = model.step(model.select(state, list(range(4))), before.argmax(-1))
            np.testing.assert_allclose(after, whole[rows], atol=1e-3)
    assert state.length == 4  # the one that was chosen from has not moved


def test_beams_share_their_recording() -> None:
    """Rows of two recordings, with one set of keys and values for each. What a row computes is its own but for
    rounding: a change of a millionth in the audio changes logits by as much."""
    model, audio, special = whisper(TINY), encoded(TINY), tokens()
    state = model.begin(audio, np.array([prompt(special)] * 6), audio=[1, 1, 1, 0, 0, 0], attentions=True)
    assert {value.shape()[0] for value in state.cross.values()} == {2}
    best = state.logits[3].argsort()[-3:]
    model.step(state, np.array([*best, *best]))
    moved = model.select(state, [2, 0, 0, 5, 3, 3])
    assert moved.cross is state.cross
    after = model.step(moved, np.array([11, 11, 12] * 2))
    apart = [(1, best[2], 11), (1, best[0], 11), (1, best[0], 12), (0, best[2], 11), (0, best[0], 11), (0, best[0], 12)]
    each = [model.begin(audio, np.array([prompt(special)]), audio=[place], attentions=True) for place, *_ in apart]
    for alone, (_, *said) in zip(each, apart, strict=True):
        for token in said:
            model.step(alone, np.array([token]))
    for row, alone in enumerate(each):
        errors = [np.abs(after[row] - other.logits[0]).mean() for other in each]
        assert errors[row] == min(errors) < 0.3, errors
        assert moved.attention is not None
        assert alone.attention is not None
        np.testing.assert_allclose(moved.attention[row], alone.attention[0], atol=0.05)


def test_recordings_with_unlike_numbers_of_beams() -> None:
    model, audio, special = whisper(TINY), encoded(TINY), tokens()
    state = model.begin(audio, np.array([prompt(special)] * 2), audio=[1, 0])
    assert {value.shape()[0] for value in state.cross.values()} == {2}
    chosen = model.select(state, [0, 1, 1])
    assert {value.shape()[0] for value in chosen.cross.values()} == {3}
    after = model.step(chosen, np.array([11, 11, 11]))
    np.testing.assert_allclose(after[[0, 1]], model.step(state, np.array([11, 11])), atol=1e-3)
    np.testing.assert_allclose(after[1], after[2], atol=1e-3)


def test_forced_tokens_at_once_are_those_one_by_one() -> None:
    """As far as the quantised weights allow it: what is rounded depends on what is computed together."""
    model, audio, special = whisper(TINY), encoded(TINY), tokens()
    prefix = prompt(special)
    one_by_one = model.begin(audio, np.array([prefix[:1]] * 4))
    for token in prefix[1:]:
        model.step(one_by_one, np.full(4, token))
    for read in (1, 2, len(prefix)):
        state = model.begin(audio, np.array([prefix[:read]] * 4))
        if prefix[read:]:
            model.step(state, np.array([prefix[read:]] * 4))
        assert state.length == one_by_one.length
        for ours, theirs in zip(state.logits, one_by_one.logits, strict=True):
            assert np.corrcoef(ours, theirs)[0, 1] > 0.98


def long_prompt() -> Tokens:
    special = tokens()
    text = " We choose to go to the Moon in this decade and do the other things, not because they are easy."
    before = tokenizer().encode(text, add_special_tokens=False).ids
    return np.array([[special.startofprev, *before, *prompt(special)]])


@pytest.mark.parametrize("rewrite", [True, False])
def test_a_long_prompt(rewrite: bool) -> None:
    """It is read at once, without a past: the same as token by token, as far as the quantised weights allow it."""
    model, audio = whisper(TINY, rewrite=rewrite), encoded(TINY, rewrite=rewrite)
    prompt = long_prompt()
    assert prompt.shape[1] > 20
    state = model.begin(audio, prompt, audio=[0])
    assert state.length == prompt.shape[1]
    steps = model.begin(audio, prompt[:, :1], audio=[0])
    model.step(steps, prompt[:, 1:])
    assert state.logits.argmax() == steps.logits.argmax()
    if rewrite:
        # Quantisation depends on what is computed together, and on the processor: the two are alike, not equal.
        assert np.corrcoef(state.logits.ravel(), steps.logits.ravel())[0, 1] > 0.98


def test_files_of_floats_with_two_decoders(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Without quantisation the cache changes nothing; and our graphs say nearly the same as theirs."""
    model = WhisperModel(as_float_pair(files(TINY), tmp_path_factory.mktemp("whisper") / "tiny"), threads=2)
    assert not model.files.merged
    assert not model.rewritten
    audio = model.encode(recordings())
    assert words(greedy(model, audio, (0, 1))[0]) == WORDS
    prompt = np.repeat(long_prompt(), 2, axis=0)
    at_once = model.begin(audio, prompt, audio=[0, 1])
    steps = model.begin(audio, prompt[:, :3], audio=[0, 1])
    model.step(steps, prompt[:, 3:])
    np.testing.assert_allclose(at_once.logits, steps.logits, atol=1e-3)
    ours = whisper(TINY).begin(encoded(TINY), prompt[:, -4:-3], audio=[0, 1])
    for token in prompt[0, -3:]:
        whisper(TINY).step(ours, np.full(2, token))
    theirs = model.begin(audio, prompt[:, -4:], audio=[0, 1])
    assert np.sqrt(np.mean((ours.logits - theirs.logits) ** 2)) < 0.2


def test_files_that_are_links(tmp_path: Path) -> None:
    """What stays in a file is found where the file is: ONNX Runtime reads nothing through links out of a folder."""
    model = WhisperModel(as_in_the_hub_cache(files(TINY), tmp_path), threads=2)
    assert model.rewritten
    assert words(greedy(model, model.encode(recordings()[:1]), (0,))[0]) == WORDS


def test_attention_follows_the_audio() -> None:
    model, audio, special = whisper(TINY), encoded(TINY), tokens()
    assert len(model.heads) == 6
    assert model.begin(audio, np.array([prompt(special)]), audio=[0]).attention is None
    state = model.begin(audio, np.array([prompt(special)]), audio=[0], attentions=True)
    said = greedy(model, audio, (0,))[0]
    attention = []
    for token in said:
        assert state.attention is not None
        attention.append(state.attention)
        model.step(state, np.array([token]))
    whole = np.stack(attention, axis=2)
    assert whole.shape == (1, 6, len(said), 1500)
    np.testing.assert_allclose(whole.sum(-1), 1.0, atol=1e-3)
    seconds = whole[0].mean(0).argmax(-1) * 0.02
    assert np.all(seconds < 12)
    assert np.corrcoef(seconds, np.arange(len(said)))[0, 1] > 0.9
    selected = model.select(state, [0, 0])
    assert selected.attention is not None
    assert selected.attention.shape == (2, 6, 1500)
    # A long prompt is read at once, and only its end is told of.
    state = model.begin(audio, long_prompt(), audio=[0], attentions=True)
    assert state.attention is not None
    assert state.attention.shape == (1, 6, 1500)


@pytest.mark.parametrize("name", [TINY, BASE])
def test_a_short_recording_needs_no_thirty_seconds(name: str) -> None:
    """The same words, at the same times as far as heads can tell."""
    model, said = whisper(name), {}
    for columns in (1500, 3000):
        audio = model.encode(log_mels([jfk()])[:, :, :columns])
        assert audio.hidden.shape[1] == columns // 2
        state = model.begin(audio, np.array([prompt(tokens())]), attentions=True)
        assert state.attention is not None
        looked: list[float] = []
        words: list[int] = []
        while (token := int(state.logits[0].argmax())) != tokens().eot and len(words) < 60:
            words.append(token)
            model.step(state, np.array([token]))
            looked.append(state.attention[0, :, :550].mean(0).argmax() * 0.02)
        said[columns] = tokenizer().decode(words), looked
    assert re.sub(r"[^a-z ]", "", said[1500][0].lower()) == re.sub(r"[^a-z ]", "", said[3000][0].lower())
    if said[1500][0] == said[3000][0]:
        assert np.median(np.abs(np.subtract(said[1500][1], said[3000][1]))) < 0.1


def test_what_cannot_be() -> None:
    model, audio, special = whisper(TINY), encoded(TINY), tokens()
    with pytest.raises(Unsupported, match="80, 3000"):
        model.encode(np.zeros((1, 128, 3000), np.float32))
    for columns in (0, 1501, 3002):
        with pytest.raises(Unsupported, match="80, 3000"):
            model.encode(np.zeros((1, 80, columns), np.float32))
    with pytest.raises(Unsupported, match="80, 3000"):
        whisper(TINY, rewrite=False).encode(np.zeros((1, 80, 1500), np.float32))
    with pytest.raises(Unsupported, match="4 rows need prompts"):
        model.begin(audio, np.array([[special.sot]]))
    with pytest.raises(Unsupported, match="4 recordings"):
        model.begin(audio, np.array([[special.sot]]), audio=[4])
    with pytest.raises(Unsupported, match="0 … 51864"):
        model.begin(audio, np.array([[51865]]), audio=[0])
    with pytest.raises(PromptTooLong, match="448"):
        model.begin(audio, np.zeros((1, 449), np.int64), audio=[0])
    state = model.begin(audio, np.full((1, 446), 11), audio=[0])
    model.step(state, np.array([[11, 11]]))
    with pytest.raises(PromptTooLong):
        model.step(state, np.array([11]))
    with pytest.raises(Unsupported, match="1 rows"):
        model.select(state, [1])
    assert issubclass(PromptTooLong, EngineError)


@pytest.mark.parametrize("name", [TINY, BASE])
def test_several_tokens_are_read_in_one_step(name: str) -> None:
    """As one by one, as far as the quantised arithmetic allows it; also in the middle of an output, and by row."""
    model, special = whisper(name), tokens(name)
    assert model.reads_runs
    audio, prefix = encoded(name), [special.languages["en"], *prompt(special)[2:]]
    starts = np.full((4, 1), special.sot)
    at_once, steps = (model.begin(audio, starts, attentions=True) for _ in range(2))
    before = model.runs
    model.step(at_once, np.array([prefix] * 4))
    assert model.runs - before == 1
    seen = []
    for token in prefix:
        model.step(steps, np.full(4, token))
        seen.append(steps.attention)
    assert model.runs - before == 1 + len(prefix)
    assert at_once.length == steps.length
    for row in range(4):
        assert np.corrcoef(at_once.logits[row], steps.logits[row])[0, 1] > 0.98
    for found, wanted in zip((*at_once.before, at_once.attention), seen, strict=True):
        assert found is not None
        assert wanted is not None
        np.testing.assert_allclose(found, wanted, atol=0.05)
