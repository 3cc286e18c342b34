"""SGLang's `/generate` as a listener, against what stands in for it, with a real Whisper."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from unbraid.engines import EngineDown, EngineFailed, Unsupported
from unbraid.engines.base import TokenLogprob
from unbraid.speech.audio.decode import RATE
from unbraid.speech.engines.sglang import SGLangWhisper
from unbraid.speech.families import adapter_for
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.transcriber import Transcriber
from unbraid.speech.transcript import Transcript
from unbraid.speech.whisper.listener import WhisperEngine

from ...support.fake_servers import Fault
from ...support.in_loop import in_loop
from ...support.real_speech import recording
from ..fake_listening import FakeSGLangWhisper
from ..listening import QUIET, TINY, run, speech, times
from ..whisper.whisper_models import files, tokenizer, tokens, whisper_engine

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def embedded() -> Iterator[WhisperEngine]:
    engine = whisper_engine(TINY, parallel=2, full_window=True)  # as SGLang
    yield engine
    asyncio.run(engine.close())


@asynccontextmanager
async def sglang(server: FakeSGLangWhisper, **options: Any) -> AsyncGenerator[SGLangWhisper, None]:
    config = files(TINY).generation_config
    async with server:
        listener = SGLangWhisper(
            server.url, tokenizer(), generation_config=config, routing=QUIET, **{"parallel": 1, **options}
        )
        try:
            yield listener
        finally:
            await listener.close()


@pytest.mark.parametrize(
    ("language", "name", "options", "incremental"),
    [
        ("en", "jfk", TranscriptionOptions(), True),
        ("en", "tt-weasels", TranscriptionOptions(), False),
        ("es", "demo-thanks", TranscriptionOptions(timestamps=True), True),
        ("fr", "demo-thanks", TranscriptionOptions(languages=("fr", "en")), True),
        ("es", "tt-weasels", TranscriptionOptions(task="translate", language="es", temperature=0.0), True),
    ],
)
def test_sglang_says_what_its_model_says(
    embedded: WhisperEngine, language: str, name: str, options: TranscriptionOptions, incremental: bool
) -> None:
    """With a real Whisper behind what stands in for SGLang: one request a chunk, in which the language is chosen."""
    samples = recording(language, name).samples
    server = FakeSGLangWhisper(incremental=incremental)

    async def both() -> tuple[Transcript, Transcript]:
        async with sglang(server) as listener:
            return (
                await Transcriber(listener).transcribe([samples], options),
                await Transcriber(embedded).transcribe([samples], options),
            )

    there, here = run(both())
    assert (there.text, there.language) == (here.text, language)
    assert times(there)  # as the model wrote them; here they are those of the words
    if options.language is None:
        assert there.language_probability == pytest.approx(here.language_probability)
    tried = [request.temperature for request in server.listen_requests]
    assert len(server.generated) == len(tried)
    assert tried == sorted(set(tried))  # once, or again where the model was unsure
    known = tokens()
    candidates = [options.language] if options.language else options.languages or known.languages
    for asked in server.listen_requests:
        assert asked.prefix.sets[0] == {known.languages[code] for code in candidates}
        assert asked.prefix.sets[1] == {known.translate if options.task == "translate" else known.transcribe}
        assert asked.timestamps  # always: the text is the same with and without
        assert len(asked.prefix.sets) == 2


def test_what_sglang_is_told_not_to_write() -> None:
    server = FakeSGLangWhisper()

    async def ask() -> None:
        async with sglang(server) as listener:
            await Transcriber(listener).transcribe(
                [speech()], TranscriptionOptions(language="en", temperature=0.2, seed=5)
            )

    run(ask())
    [asked] = server.generated
    sampling = asked["sampling_params"]
    assert sampling["max_new_tokens"] == 32 + round(16 * len(speech()) / RATE)
    assert (sampling["temperature"], sampling["sampling_seed"]) == (0.2, 5)
    biases = {int(token): bias for token, bias in sampling["logit_bias"].items()}
    assert set(biases.values()) == {-100.0}
    assert biases.keys() == {
        token for token in files(TINY).generation_config["suppress_tokens"] if token < tokens().eot
    }


def test_a_loop_is_stopped() -> None:
    known = tokens()
    begun = [known.languages["en"], known.transcribe, known.no_timestamps]

    def looping(request: Any) -> list[TokenLogprob]:
        return [TokenLogprob(token, b"", -0.1) for token in [*begun, *[400] * 300, known.eot]]

    server = FakeSGLangWhisper(looping, pace=0.001)

    async def ask() -> Any:
        async with sglang(server) as listener:
            adapter = adapter_for(listener.vocabulary)
            outputs = [
                output async for output in listener.listen(adapter.request(speech(), TranscriptionOptions(), 0.0))
            ]
            await listener.close()
            return outputs

    *pieces, end = run(ask())
    assert (end.reason, end.completion_tokens) == ("loop", 43)
    assert sum(len(piece.ids) for piece in pieces) == 43
    assert len(server.aborted) == 1


@in_loop
async def test_what_sglang_cannot_do() -> None:
    async with sglang(FakeSGLangWhisper()) as listener:
        with pytest.raises(Unsupported, match="prompt: SGLang's Whisper takes none"):
            await Transcriber(listener).transcribe([speech()], TranscriptionOptions(prompt="Weasels"))


@pytest.mark.parametrize(
    ("fault", "error"), [(Fault("status", status=503), EngineDown), (Fault("cut", after=3), EngineFailed)]
)
@in_loop
async def test_faults_of_sglang(fault: Fault, error: type[Exception]) -> None:
    known = tokens()
    said = [known.languages["en"], known.transcribe, known.no_timestamps, 400, known.eot]
    server = FakeSGLangWhisper(lambda request: [TokenLogprob(token, b"", 0.0) for token in said], fault=fault)
    async with sglang(server) as listener:
        with pytest.raises(error):
            await Transcriber(listener).transcribe([speech()], TranscriptionOptions())
