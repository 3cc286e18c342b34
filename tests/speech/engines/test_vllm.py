"""vLLM as a listener, against a real one with Whisper tiny: `AsyncLLM` inside the process, and `vllm serve`'s endpoint.

Where there is no vLLM (`scripts/install-vllm` installs it), all is skipped. The embedded Whisper that they are compared
with has the same weights with 8 bits a number, where vLLM's have 16.
"""

from __future__ import annotations

import asyncio
import gc
import math
import re
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from openai import OpenAI

from unbraid.engines import EngineDown, Unsupported
from unbraid.engines.base import Piece, PromptTooLong
from unbraid.server.loading.service import load
from unbraid.server.settings import Settings
from unbraid.speech.engines.endpoint import EndpointListener
from unbraid.speech.engines.vllm import VLLMWhisper
from unbraid.speech.listening import ListenEnd, ListenRequest
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.transcriber import Transcriber
from unbraid.speech.transcript import Transcript
from unbraid.speech.whisper.listener import WhisperEngine

from ...engines.vllm_model import checkpoint
from ...engines.vllm_process import ENVIRONMENT, EngineProcess, arguments, skip_without_vllm, vllm_serve
from ...support.places import ROOT
from ...support.real_speech import Recording, recording
from ...support.running_server import serving
from ..listening import QUIET, TINY, times, transcript_of
from ..whisper.whisper_models import files
from .vllm_whisper_model import whisper_checkpoint

pytestmark = pytest.mark.system

T = TypeVar("T")
CONTEXT = 448
PATIENCE = 120.0  # the longest test
NAME = "whisper-tiny"


@cache
def recordings() -> tuple[Recording, ...]:
    found = [
        ("en", "jfk"),
        ("en", "tt-weasels"),
        ("es", "demo-thanks"),
        ("it", "demo-thanks"),
        ("ru", "demo-abouttotry"),
    ]
    return tuple(recording(*one) for one in found)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def agreement(one: str, other: str) -> float:
    """Which part of the words of both is in the other, too."""
    ours, theirs = words(one), words(other)
    return sum(word in theirs for word in ours) / max(len(ours), len(theirs), 1)


@pytest.fixture(scope="module")
def embedded() -> dict[Path, Transcript]:
    """What the embedded Whisper makes of each recording."""

    async def end() -> list[Transcript]:
        engine = WhisperEngine(files(TINY), parallel=2, threads=1)
        transcriber = Transcriber(engine)
        found = [await transcriber.transcribe([one.samples], TranscriptionOptions()) for one in recordings()]
        await engine.close()
        return found

    skip_without_vllm()
    return {one.path: found for one, found in zip(recordings(), asyncio.run(end()), strict=True)}


# Inside the process


@dataclass
class Local:
    """A Whisper on vLLM. All is done in one event loop, as `AsyncLLM` wants it."""

    engine: VLLMWhisper
    runner: asyncio.Runner

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(PATIENCE):
                return await work

        return self.runner.run(bounded())

    def transcribe(self, one: Recording, options: TranscriptionOptions) -> Transcript:
        return self.run(Transcriber(self.engine).transcribe([one.samples], options))

    def hear(
        self, one: Recording, options: TranscriptionOptions, temperature: float = 0.0, **more: Any
    ) -> tuple[list[Piece], ListenEnd]:
        asked = Transcriber(self.engine).adapter.request(one.samples, options, temperature)
        fields = {name: getattr(asked, name) for name in ListenRequest.__dataclass_fields__}

        async def outputs() -> list[Piece | ListenEnd]:
            return [output async for output in self.engine.listen(ListenRequest(**{**fields, **more}))]

        *pieces, end = self.run(outputs())
        assert isinstance(end, ListenEnd)
        assert all(isinstance(piece, Piece) and piece.ids for piece in pieces)
        return pieces, end  # type: ignore[return-value]


@pytest.fixture(scope="module")
def local() -> Iterator[Local]:
    skip_without_vllm()
    folder = whisper_checkpoint()
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        engine = VLLMWhisper(folder, name=NAME, parallel=4, **arguments(CONTEXT))
        try:
            yield Local(engine, runner)
        finally:
            runner.run(engine.close())
            gc.collect()  # what is left of vLLM is not to wait for the end of Python


def requests() -> float:
    """How many vLLM has answered."""
    import prometheus_client

    return sum(
        sample.value
        for metric in prometheus_client.REGISTRY.collect()
        for sample in metric.samples
        if sample.name == "vllm:request_success_total"
    )


def ids(pieces: list[Piece]) -> list[int]:
    return [token for piece in pieces for token in piece.ids]


@pytest.mark.parametrize("number", range(5))
def test_the_language_is_found_in_the_request_that_transcribes(
    local: Local, embedded: dict[Path, Transcript], number: int
) -> None:
    one = recordings()[number]
    before = requests()
    found = local.transcribe(one, TranscriptionOptions(temperature=0.0))
    assert requests() - before == 1
    beside = embedded[one.path]
    assert (found.language, beside.language) == (one.language, one.language)
    assert found.language_probability == pytest.approx(beside.language_probability, abs=0.1)
    assert agreement(found.text, beside.text) > 0.65
    assert found.segments[0].avg_logprob == pytest.approx(beside.segments[0].avg_logprob, abs=0.15)
    assert found.segments[0].no_speech_prob == pytest.approx(beside.segments[0].no_speech_prob, abs=0.1)


def test_it_hears_what_the_embedded_one_hears(local: Local, embedded: dict[Path, Transcript]) -> None:
    found = [local.transcribe(one, TranscriptionOptions()).text for one in recordings()]
    same = [agreement(text, embedded[one.path].text) for one, text in zip(recordings(), found, strict=True)]
    assert sum(same) / len(same) > 0.85


def test_streamed_is_whole(local: Local) -> None:
    found = local.run(
        transcript_of(local.engine, recording("en", "demo-congrats").samples, TranscriptionOptions(temperature=0.0))
    )
    assert found.duration > 30, "several chunks"
    assert "congratulations" in found.text.lower()


def test_what_a_request_tells(local: Local) -> None:
    pieces, end = local.hear(recording("en", "jfk"), TranscriptionOptions())
    known = local.engine._rules.tokens
    assert ids(pieces)[:3] == [known.languages["en"], known.transcribe, known.no_timestamps]
    assert ids(pieces)[-1] == known.eot
    logprobs = [one.logprob for piece in pieces for one in piece.logprobs]
    assert len(logprobs) == len(ids(pieces)) == end.completion_tokens
    assert logprobs[1:3] == [0.0, 0.0], "where there is no choice, all is certain"
    assert all(-20.0 < logprob <= 0.0 for logprob in logprobs)
    assert (end.reason, end.prompt_tokens) == ("stop", 1)
    assert end.choices.keys() == set(known.languages.values())
    assert sum(end.choices.values()) == pytest.approx(1.0, abs=1e-4)
    assert max(end.choices, key=lambda token: end.choices[token]) == known.languages["en"]
    assert end.choices[known.languages["en"]] == pytest.approx(math.exp(logprobs[0]), abs=1e-4)
    assert end.no_speech is not None
    assert 0.0 < end.no_speech < 0.6


def test_nobody_speaks_in_noise(local: Local) -> None:
    noise = np.random.default_rng(0).normal(0.0, 0.01, 16000 * 5).astype(np.float32)
    _, speech = local.hear(recording("en", "jfk"), TranscriptionOptions())
    _, silence = local.hear(recording("en", "jfk"), TranscriptionOptions(), samples=noise)
    assert speech.no_speech is not None
    assert silence.no_speech is not None
    assert silence.no_speech > speech.no_speech


def test_the_language_is_one_of_those_that_it_may_be(local: Local) -> None:
    _, end = local.hear(recording("en", "jfk"), TranscriptionOptions(languages=("de", "fr")))
    known = local.engine._rules.tokens
    assert end.choices.keys() == {known.languages["de"], known.languages["fr"]}
    assert local.transcribe(recording("en", "jfk"), TranscriptionOptions(languages=("de", "fr"))).language in (
        "de",
        "fr",
    )


def test_a_language_that_is_given_and_a_prompt(local: Local) -> None:
    known = local.engine._rules.tokens
    pieces, end = local.hear(
        recording("es", "demo-thanks"), TranscriptionOptions(language="Spanish", prompt="Asterisk, PBX")
    )
    assert ids(pieces)[0] == known.languages["es"]
    assert end.choices == {}
    assert end.prompt_tokens > 3, "the prompt is part of what the decoder is given"
    one, plain = recording("es", "demo-thanks"), TranscriptionOptions(language="es", temperature=0.0)
    assert "Asterisk" not in local.transcribe(one, plain).text, "it is spelled as it sounds"
    assert "Asterisk" in local.transcribe(one, replace(plain, prompt="Asterisk, PBX")).text


def test_translations(local: Local) -> None:
    pieces, _ = local.hear(recording("es", "demo-thanks"), TranscriptionOptions(task="translate"))
    assert ids(pieces)[1] == local.engine._rules.tokens.translate


def test_times(local: Local) -> None:
    one = recording("ru", "demo-abouttotry")
    found = local.transcribe(one, TranscriptionOptions(timestamps=True, temperature=0.0))
    assert len(found.segments) > 1
    last = 0.0
    for start, end, text in times(found):
        assert last <= start < end <= one.seconds + 0.1
        assert text.strip()
        last = end


def test_chance_and_seeds(local: Local) -> None:
    one = recording("ru", "demo-abouttotry")
    first = local.hear(one, TranscriptionOptions(seed=1), 1.0)
    assert ids(first[0]) == ids(local.hear(one, TranscriptionOptions(seed=1), 1.0)[0])
    assert ids(first[0]) != ids(local.hear(one, TranscriptionOptions(seed=2), 1.0)[0])
    known = local.engine._rules.tokens
    assert ids(first[0])[0] == known.languages["ru"], "the language is never left to chance"
    greedy = local.hear(one, TranscriptionOptions())[1]
    assert first[1].no_speech == pytest.approx(greedy.no_speech, abs=1e-3), "and what is told does not depend on it"
    assert first[1].choices == pytest.approx(greedy.choices, abs=1e-3)


def test_length(local: Local) -> None:
    pieces, end = local.hear(recording("en", "jfk"), TranscriptionOptions(), max_tokens=7)
    assert (end.reason, end.completion_tokens, len(ids(pieces))) == ("length", 7, 7)
    with pytest.raises(PromptTooLong, match="448"):
        local.hear(recording("en", "jfk"), TranscriptionOptions(), prompt=(1,) * 448)


def test_several_at_once(local: Local) -> None:
    async def all_of_them() -> list[Transcript]:
        transcriber = Transcriber(local.engine)
        both = [TranscriptionOptions(temperature=0.0), TranscriptionOptions(timestamps=True, temperature=0.0)]
        work = [transcriber.transcribe([one.samples], options) for one in recordings() for options in both]
        return await asyncio.gather(*work)

    together = local.run(all_of_them())
    alone = local.transcribe(recordings()[2], TranscriptionOptions(temperature=0.0))
    assert together[4].text == alone.text
    assert [found.language for found in together[::2]] == [one.language for one in recordings()]


def test_leaving_aborts(local: Local) -> None:
    async def leave() -> None:
        asked = Transcriber(local.engine).adapter.request(recording("en", "jfk").samples, TranscriptionOptions(), 0.0)
        outputs = local.engine.listen(asked)
        await anext(outputs)
        assert local.engine.load.running == 1
        await outputs.aclose()
        assert local.engine.load.running == 0

    local.run(leave())
    assert local.transcribe(recording("en", "tt-weasels"), TranscriptionOptions()).text


def test_what_is_no_whisper() -> None:
    skip_without_vllm()
    with pytest.raises(Unsupported, match="is a llama, and no Whisper"):
        VLLMWhisper(checkpoint())


def test_what_is_not_there(tmp_path: Path) -> None:
    skip_without_vllm()
    with pytest.raises(Unsupported, match="vLLM cannot load"):
        VLLMWhisper(tmp_path)


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed here")
def test_without_vllm_it_says_what_to_install() -> None:
    with pytest.raises(Unsupported, match="pip install vllm"):
        VLLMWhisper("a/whisper")


def test_a_closed_engine_says_so(local: Local) -> None:
    """The last one with it."""

    async def close() -> None:
        await local.engine.close()
        with pytest.raises(EngineDown, match="closed"):
            await Transcriber(local.engine).transcribe([recordings()[0].samples], TranscriptionOptions())

    local.run(close())


# Its own endpoint


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    skip_without_vllm()
    with vllm_serve(CONTEXT, tmp_path_factory.mktemp("vllm"), model=whisper_checkpoint(), name=NAME) as found:
        yield found


def ask(server: EngineProcess, one: Recording, options: TranscriptionOptions) -> Transcript:
    async def asked() -> Transcript:
        listener = EndpointListener(server.url, routing=QUIET)
        try:
            async with asyncio.timeout(PATIENCE):
                found = await transcript_of(listener, one.samples, options)
            assert listener.model == NAME
            return found
        finally:
            await listener.close()

    return asyncio.run(asked())


@pytest.mark.parametrize("number", range(3))
def test_the_endpoint_transcribes(server: EngineProcess, embedded: dict[Path, Transcript], number: int) -> None:
    one = recordings()[number]
    found = ask(server, one, TranscriptionOptions())
    assert agreement(found.text, embedded[one.path].text) > 0.7
    assert (found.language, found.warnings) == (None, ()), "vLLM says it only with times"


def test_the_endpoint_with_a_language_or_times(server: EngineProcess) -> None:
    one = recording("es", "demo-thanks")
    assert ask(server, one, TranscriptionOptions(language="es")).language == "es"
    found = ask(server, one, TranscriptionOptions(timestamps=True))
    assert found.language == "es", "as vLLM has found it"
    assert found.segments
    assert all(0.0 <= start < end <= 6.5 for start, end, _ in times(found))


def test_our_server_before_it(server: EngineProcess) -> None:
    """As `unbraid serve --transcription-engine vllm --transcription-url URL` makes it."""
    replay = str(ROOT / "examples" / "step-audio-2.jsonl")
    options = Settings(replay=replay, format="hermes", transcription_engine="vllm", transcription_url=(server.url,))
    with serving(asyncio.run(load(options))) as front:
        client = OpenAI(base_url=f"{front.url}/v1", api_key="any", max_retries=0, timeout=60)
        file = ("a.wav", recording("en", "jfk").path.read_bytes())
        found = client.audio.transcriptions.create(model=NAME, file=file)
        assert "ask not what your country" in found.text
        assert client.audio.transcriptions.create(model="whisper-1", file=file).text == found.text
