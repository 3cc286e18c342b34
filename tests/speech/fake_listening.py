"""Servers that listen as SGLang 0.5.23 does, and such as have an endpoint like OpenAI's, without either.

What they say was read off the sources. SGLang: `multimodal/processors/whisper.py` (one recording; `_detect_language`,
taken out of the sampling parameters, makes `<|startoftranscript|>` the whole prompt, whatever else is sent),
`entrypoints/openai/transcription_adapters/whisper.py` (how its own endpoint asks for that), `managers/io_struct.py` and
`managers/tokenizer_manager.py` (`audio_data`, `modalities`). vLLM: `entrypoints/speech_to_text/base/serving.py`.
"""

from __future__ import annotations

import asyncio
import base64
import io
import re
import wave
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from unbraid.constraints.printers.token_sets import TokenSets
from unbraid.engines.base import TokenLogprob
from unbraid.engines.replay import ReplayEngine, script
from unbraid.speech.audio.decode import RATE, Samples
from unbraid.speech.decoding.sampling import SamplingDecoding
from unbraid.speech.listening import ListenRequest
from unbraid.speech.transcriber import Transcriber
from unbraid.speech.whisper.features import log_mels
from unbraid.speech.whisper.rules import WhisperRules

from ..support.fake_servers import SGLANG_SAMPLING, Asked, FakeServer, FakeSGLang, _send_json
from ..support.running_server import RunningServer, service_of, serving
from .listening import TINY
from .whisper.whisper_models import files, tokens, whisper, whisper_engine

Hear = Callable[[ListenRequest], Sequence[TokenLogprob]]
_TOKENS = re.compile(r"Token\(([\d, ]+)\)")


def real_tokens(request: ListenRequest) -> list[TokenLogprob]:
    """What a real Whisper says to it."""
    model, config = whisper(TINY), files(TINY).generation_config
    known = tokens(TINY)
    rules = WhisperRules.of(known._vocabulary, {}, config)
    limit = 447 if request.max_tokens is None else request.max_tokens
    written = SamplingDecoding(
        rules, request.prefix, request.timestamps, request.temperature, limit, np.random.default_rng(request.seed)
    )
    state = model.begin(model.encode(log_mels([request.samples], model.bins)), np.array([request.prompt], np.int64))
    said: list[TokenLogprob] = []
    while True:
        # The forced tokens are read in one step, as in the engine here: at 8 bits, two steps round otherwise than one.
        step = written.step(state.logits, forced=written.forced if model.reads_runs else 0)
        said += step.emitted
        if not step.rows:
            break
        model.step(state, np.array([(*step.tokens, *step.forced)], np.int64))
    return said


class FakeSGLangWhisper(FakeSGLang):
    """SGLang's `/generate` with a Whisper.

    hear: says what the Whisper does.
    folder: where the server says that its model is.
    """

    def __init__(self, hear: Hear = real_tokens, *, folder: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.hear = hear
        self.folder = folder
        self.listen_requests: list[ListenRequest] = []
        self.grammars: list[str] = []

    def other(self, asked: Asked) -> tuple[int, Any]:
        if asked.path == "/model_info":
            return 200, {"model_path": self.folder, "tokenizer_path": self.folder, "is_generation": True}
        return super().other(asked)

    def events(self, body: Any) -> Iterator[Any]:
        said = self.hear(self._read(body))
        ids = [one.token for one in said]
        limit = body["sampling_params"]["max_new_tokens"]
        for at in range(1, len(said) + 1):
            before = at - 1 if self.incremental else 0
            meta: dict[str, Any] = {"id": body["rid"], "prompt_tokens": 1, "completion_tokens": at, "cached_tokens": 0}
            meta["finish_reason"] = None
            if at == len(said):
                stopped = {"type": "stop", "matched": ids[-1]}
                meta["finish_reason"] = {"type": "length", "length": at} if at == limit else stopped
            meta["output_token_logprobs"] = [[one.logprob, one.token, None] for one in said[before:at]]
            yield {"text": "", "output_ids": ids[before:at], "meta_info": meta}

    def _read(self, body: Any) -> ListenRequest:
        """The request, as SGLang's processor makes it."""
        sampling = dict(body["sampling_params"])
        detects = sampling.pop("_detect_language", None)
        unknown = set(sampling) - SGLANG_SAMPLING
        if unknown:
            raise ValueError(f"unexpected keyword arguments {unknown}")
        if not detects or body["text"] or "input_ids" in body:
            raise ValueError("this Whisper would be told to write English")
        if len(body["audio_data"]) != 1:
            raise ValueError(f"Whisper expects exactly 1 audio input, got {len(body['audio_data'])}")
        assert body["modalities"] == ["audio"]
        assert body["return_logprob"]
        self.grammars.append(sampling["ebnf"])
        root = sampling["ebnf"].partition("\n")[0]
        sets = [frozenset(map(int, found.split(","))) for found in _TOKENS.findall(root)]
        timed = "time ::=" in sampling["ebnf"]
        if timed:  # Whisper's own rules say how it begins with times
            first = tokens().first_timestamp
            assert sets.pop() == set(range(first, first + 51))
        request = ListenRequest(
            samples=_samples(body["audio_data"][0]),
            prompt=(tokens().sot,),
            prefix=TokenSets(tuple(sets)),
            timestamps=timed,
            temperature=sampling["temperature"],
            seed=sampling.get("sampling_seed"),
            max_tokens=sampling["max_new_tokens"],
        )
        self.listen_requests.append(request)
        return request


def _samples(url: str) -> Samples:
    head, _, data = url.partition(",")
    assert head == "data:audio/wav;base64"
    return read_wav(base64.b64decode(data, validate=True))


def read_wav(data: bytes) -> Samples:
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32)
    return samples / np.float32(32768)


@contextmanager
def whisper_server() -> Iterator[RunningServer]:
    """Our own server, with a Whisper inside: what others take for OpenAI's. It is no fake."""
    engine = whisper_engine(TINY, parallel=2)
    chat = ReplayEngine([script("Hi.")], repeat=True)
    names = (engine.model, "whisper-1")
    with serving(service_of(chat, "qwen3", transcriber=Transcriber(engine), listener_names=names)) as server:
        yield server


class FakeEndpoint(FakeServer):
    """`/v1/audio/transcriptions`, which answers with these messages.

    whole: as one JSON object, to whoever asks for a stream as well.
    """

    generates = "/v1/audio/transcriptions"

    def __init__(self, *messages: Any, whole: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.messages = messages
        self.whole = whole

    def events(self, body: Any) -> Iterator[Any]:
        return iter(self.messages)

    async def _stream(self, body: Any, writer: asyncio.StreamWriter, ahead: asyncio.Future[bytes]) -> None:
        if self.whole and self.fault is None:
            _send_json(writer, 200, self.messages[0], {"Content-Type": "application/json"})
            return
        await super()._stream(body, writer, ahead)
