"""Whisper's rules elsewhere: inside of vLLM, where they are applied to its logits, and as the grammar that SGLang is
given. They are compared with those of the embedded engine, which OpenAI's are compared with (`test_whisper_rules.py`).

It takes torch, vLLM and xgrammar: `scripts/install-vllm` installs them. Without, all is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest

from unbraid.constraints.printers.token_sets import TokenSets
from unbraid.speech.decoding.sampling import Logits, SamplingDecoding
from unbraid.speech.engines.sglang import _constraint
from unbraid.speech.engines.vllm import EXTRA_ARGS_KEY, REPORTED_OFFSET
from unbraid.speech.options import Task, TranscriptionOptions
from unbraid.speech.whisper.adapter import WhisperAdapter
from unbraid.speech.whisper.rules import WhisperRules

from ...engines.vllm_process import skip_without_vllm
from ...support.real_speech import recording
from ..fake_listening import real_tokens
from ..whisper.whisper_models import files, tokenizer, tokens
from .vllm_whisper_model import whisper_checkpoint

pytestmark = pytest.mark.system

SIZE = 51865


@cache
def rules() -> WhisperRules:
    return WhisperRules.of(tokens()._vocabulary, {}, files("whisper-tiny").generation_config)


def prefix(options: TranscriptionOptions) -> TokenSets:
    return WhisperAdapter(tokens()._vocabulary).request(np.zeros(0, np.float32), options, 0.0).prefix


def some_logits(seed: int, times: float = 0.0) -> Logits:
    logits = np.random.default_rng(seed).normal(0.0, 3.0, SIZE).astype(np.float32)
    logits[tokens().first_timestamp :] += times
    return logits


# vLLM


@pytest.fixture(scope="module")
def processor() -> Any:
    skip_without_vllm()
    from vllm.engine.arg_utils import AsyncEngineArgs

    from unbraid.speech.engines.vllm_processor import WhisperProcessor

    config = AsyncEngineArgs(model=str(whisper_checkpoint())).create_model_config()
    import torch

    return WhisperProcessor(SimpleNamespace(model_config=config), torch.device("cpu"), False)


Row = tuple[TokenSets, bool, list[int]]


def applied(processor: Any, rows: Sequence[Row | None], logits: Sequence[Logits]) -> list[Logits]:
    """What becomes of the logits of these outputs in one batch; None for one that does not ask for it."""
    import torch
    from vllm.sampling_params import SamplingParams
    from vllm.v1.sample.logits_processor import BatchUpdate

    added: list[tuple[int, Any, list[int], list[int]]] = []
    for at, row in enumerate(rows):
        asked = None
        if row is not None:
            asked = {EXTRA_ARGS_KEY: {"prefix": [sorted(some) for some in row[0].sets], "timestamps": row[1]}}
        added.append((at, SamplingParams(extra_args=asked), [], [] if row is None else row[2]))
    processor.update_state(BatchUpdate(len(rows), (), added, ()))
    batch = torch.from_numpy(np.stack(logits))
    found = processor.apply(batch).numpy()
    processor.update_state(BatchUpdate(0, list(range(len(rows))), (), ()))
    return [np.array(row) for row in found]


def chosen(row: Row, logits: Logits) -> SamplingDecoding:
    """The same by our own means: greedily, and where the output has got to."""
    begins, timestamps, output = row
    count = len(begins.sets)
    written = SamplingDecoding(rules(), begins, timestamps, 0.0, 448, np.random.default_rng(0))
    written.begun, written.written = list(output[:count]), list(output[count:])
    written.no_speech = 0.0 if output else None
    written.next(logits)
    return written


def outputs(seed: int) -> Row:
    """An output that has got to somewhere, by rng."""
    rng = np.random.default_rng(seed)
    timestamps = bool(rng.integers(2))
    begins = prefix(TranscriptionOptions(timestamps=timestamps, language=("de" if rng.integers(2) else None)))
    output: list[int] = []
    for step in range(int(rng.integers(14))):
        logits = some_logits(1000 * seed + step, times=float(rng.choice([-9.0, 0.0, 9.0])))
        after = chosen((begins, timestamps, output), logits)
        output = [*after.begun, *after.written]
        if output[-1] == rules().end:
            output.pop()
            break
    return begins, timestamps, output


@pytest.mark.parametrize("seed", range(12))
def test_vllm_is_held_to_the_same_rules(processor: Any, seed: int) -> None:
    rows: list[Row | None] = [outputs(10 * seed + at) for at in range(5)]
    rows.insert(seed % 6, None)
    before = [some_logits(7 * seed + at, times=4.0 * (at % 2)) for at in range(len(rows))]
    after = applied(processor, rows, [logits.copy() for logits in before])
    for row, raw, found in zip(rows, before, after, strict=True):
        if row is None:
            assert np.array_equal(raw, found)
            continue
        begins, timestamps, output = row
        written = chosen(row, raw)
        token = [*written.begun, *written.written][-1]
        assert int(found.argmax()) == token
        allowed = begins.allowed(output)
        if allowed is None:
            wanted = raw.copy()
            rules().apply(wanted, output[len(begins.sets) :], timestamps)
            likely = wanted - wanted.max()
            likely -= np.log(np.exp(likely).sum())
        else:
            likely = np.full_like(raw, -np.inf)
            among = sorted(allowed)
            likely[among] = raw[among] - raw[among].max()
            likely[among] -= np.log(np.exp(likely[among]).sum())
            lower = [one for one in among if one != token]
            likely[lower] -= REPORTED_OFFSET
        if not output:
            shifted = raw - raw.max()
            likely[rules().silence] = (shifted - np.log(np.exp(shifted).sum()))[rules().silence] - REPORTED_OFFSET
        assert np.array_equal(np.isneginf(found), np.isneginf(likely))
        assert np.allclose(found, likely, atol=2e-3)


def test_only_what_is_likelier_than_all_that_is_told_is_chosen(processor: Any) -> None:
    """That nobody speaks is told even where the model is sure of it."""
    logits = some_logits(1)
    logits[rules().silence] = 60.0
    [found] = applied(processor, [(prefix(TranscriptionOptions()), False, [])], [logits])
    assert int(found.argmax()) in tokens().languages.values()
    assert found[rules().silence] == pytest.approx(-REPORTED_OFFSET, abs=1e-2)


# SGLang


@cache
def compiler() -> Any:
    xgrammar = pytest.importorskip("xgrammar", reason="xgrammar is not installed here: make test-engines")
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(whisper_checkpoint())
    known = xgrammar.TokenizerInfo.from_huggingface(theirs, vocab_size=SIZE, stop_token_ids=[tokens().eot])
    return xgrammar.GrammarCompiler(known)


def masks(options: TranscriptionOptions, output: Sequence[int]) -> list[set[int]]:
    """Which tokens xgrammar lets come, before each of these and after them."""
    xgrammar = pytest.importorskip("xgrammar", reason="xgrammar is not installed here: make test-engines")
    import torch

    grammar = _constraint(prefix(options), tokens() if options.timestamps else None).to_ebnf()
    matcher = xgrammar.GrammarMatcher(compiler().compile_grammar(grammar))
    found = []
    for token in [*output, None]:
        mask = xgrammar.allocate_token_bitmask(1, SIZE)
        matcher.fill_next_token_bitmask(mask)
        logits = torch.zeros(1, SIZE)
        xgrammar.apply_token_bitmask_inplace(logits, mask)
        found.append(set((logits[0] == 0).nonzero()[:, 0].tolist()))
        assert token is None or matcher.accept_token(token)
    return found


def words(text: str) -> list[int]:
    return list(tokenizer().encode(text, add_special_tokens=False).ids)


def special(found: set[int]) -> set[int]:
    return {token for token in found if token >= tokens().eot}


def test_the_grammar_of_text() -> None:
    known = tokens()
    output = [known.languages["de"], known.transcribe, known.no_timestamps, *words(" Guten Tag")]
    first, second, third, *rest = masks(TranscriptionOptions(languages=("de", "en")), output)
    assert first == {known.languages["de"], known.languages["en"]}
    assert (second, third) == ({known.transcribe}, {known.no_timestamps})
    for found in rest:
        assert special(found) == {known.eot}
        assert len(found) > 50_000, "any text"


def test_the_grammar_of_times() -> None:
    known = tokens()
    every = set(range(known.first_timestamp, known.last_timestamp + 1))
    output = [known.languages["en"], known.translate, known.timestamp(0.0), *words(" Hello")]
    output += [known.timestamp(2.0), known.timestamp(2.0), *words(" World"), known.timestamp(4.0)]
    found = masks(TranscriptionOptions(task="translate", timestamps=True), output)
    assert found[0] == set(known.languages.values())
    assert found[1] == {known.translate}
    assert found[2] == set(range(known.first_timestamp, known.timestamp(1.0) + 1))
    assert special(found[3]) == {known.eot}, "after the first time there is text, or nothing"
    assert special(found[4]) == {known.eot, *every}
    assert found[5] == {known.eot, *every}, "one time calls for another"
    assert special(found[6]) == {known.eot}, "and two are enough"
    assert special(found[7]) == {known.eot, *every}
    assert found[8] == {known.eot, *every}


@pytest.mark.parametrize("timestamps", [False, True])
def test_grammars_that_differ_in_their_tokens_alone(timestamps: bool) -> None:
    """xgrammar, which keeps what it has compiled, does not take one for the other."""
    known = tokens()
    every = [
        TranscriptionOptions(language=language, task=task, timestamps=timestamps)
        for language in ("en", "de")
        for task in get_args(Task)
    ]
    for options in every:
        language, task = masks(options, [known.languages[options.language or ""]])
        assert language == {known.languages[options.language or ""]}
        assert task == {known.transcribe if options.task == "transcribe" else known.translate}


@pytest.mark.parametrize("timestamps", [False, True])
@pytest.mark.parametrize(("language", "name"), [("en", "jfk"), ("ru", "demo-abouttotry"), ("it", "demo-thanks")])
def test_the_grammar_lets_a_whisper_say_what_it_says(language: str, name: str, timestamps: bool) -> None:
    """The embedded one, which is held to its own rules."""
    compiler()
    options = TranscriptionOptions(timestamps=timestamps)
    asked = WhisperAdapter(tokens()._vocabulary).request(recording(language, name).samples, options, 0.0)
    output = [one.token for one in real_tokens(asked)]
    assert output[0] == tokens().languages[language]
    for token, allowed in zip(output, masks(options, output[:-1]), strict=True):
        assert token in allowed
