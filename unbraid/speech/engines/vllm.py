"""Whisper on vLLM in this process, as a listener: the language is detected in the request that transcribes.

The prefix and Whisper's rules are applied inside vLLM by a logits processor (`vllm_processor`): they are exact, and no
grammar has to be compiled. vLLM loads the processor by its name, in its own processes.
"""

from __future__ import annotations

import math
import os
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

from ...engines.base import Piece, PromptTooLong, TokenLogprob, Unsupported
from ...engines.reader import Reader
from ...engines.vllm.local import AsyncVLLM, vllm
from ..audio.decode import RATE
from ..listening import EndReason, ListenEnd, ListenRequest, Opening, TextVocabulary
from ..whisper.rules import WhisperRules
from ..whisper.tokens import WhisperVocabulary
from .remote import ReceivedTokens

EXTRA_ARGS_KEY = "unbraid_whisper"
"""The key in a request's `extra_args` with the processor's instructions."""
REPORTED_OFFSET = 1000.0
"""By how much the processor lowers the logprobs of tokens that are reported but must not be chosen."""
_PROCESSOR = "unbraid.speech.engines.vllm_processor:WhisperProcessor"
_MOST_REPORTED = 128  # tokens whose logprobs vLLM reports
_GREEDY = 1e-5  # below this temperature, vLLM decodes greedily


class VLLMWhisper(AsyncVLLM):
    """A Whisper that vLLM runs for this process; see `AsyncVLLM`."""

    def __init__(self, model: str | Path, *, name: str | None = None, parallel: int = 8, **engine_args: Any) -> None:
        """Load a model; this takes a minute or more.

        model: a name on the Hugging Face hub, or a folder with such a model.
        name: what to call it.
        parallel: how many chunks of a recording are asked for at once.
        engine_args: what vLLM's `AsyncEngineArgs` take: `gpu_memory_utilization`, `dtype` and so on.
        """
        if parallel < 1:
            raise Unsupported(f"parallel must be 1 or more, not {parallel}")
        arguments = {**engine_args, "logprobs_mode": "processed_logits", "logits_processors": [_PROCESSOR]}
        kind = _kind(model, arguments)
        if kind != "whisper":
            raise Unsupported(f"{model} is a {kind}: vLLM transcribes with Whispers only")
        with _whisper_environment():
            super().__init__(model, name, arguments)
        self.parallel = parallel
        self._vocabulary = WhisperVocabulary(self._llm.get_tokenizer())
        self._rules = rules_of(self._llm.model_config, self._vocabulary)

    @property
    def vocabulary(self) -> TextVocabulary:
        return self._vocabulary

    async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        """The output, piece by piece; see `Listener`."""
        room = self.context - len(request.prompt)
        if room < 1:
            raise PromptTooLong(f"a prompt of {len(request.prompt)} tokens leaves no room in {self.context}")
        reader = _ResultReader(request, self._rules)

        async def prompt_and_sampling() -> tuple[Any, Any]:
            return await self._prompt(request), self._sampling(request, reader, room)

        async with aclosing(self._results(prompt_and_sampling)) as results:
            async for result in results:
                piece = reader.read(result.outputs[0])
                if piece is not None:
                    yield piece
                if reader.over:
                    break
        for last in reader.end("vLLM"):
            yield last

    async def _prompt(self, request: ListenRequest) -> Any:
        """The rendered prompt. vLLM's own rendering would put `<|startoftranscript|>` before the tokens of a user's
        prompt."""
        prompt = {
            "encoder_prompt": {"prompt": "", "multi_modal_data": {"audio": (request.samples, RATE)}},
            "decoder_prompt": {"prompt_token_ids": list(request.prompt)},
        }
        parsed = vllm("vllm.renderers.inputs.preprocess").parse_enc_dec_prompt(prompt)
        [rendered] = await self._llm.renderer.render_cmpl_async([parsed])
        rendered["decoder_prompt"]["prompt_token_ids"] = list(request.prompt)
        return rendered

    def _sampling(self, request: ListenRequest, reader: _ResultReader, room: int) -> Any:
        library = vllm("vllm.sampling_params")
        prefix = [sorted(some) for some in request.prefix.sets]
        return library.SamplingParams(
            temperature=request.temperature,
            # 0, so that a recording always gives the same transcript.
            seed=None if request.temperature < _GREEDY else request.seed or 0,
            max_tokens=room if request.max_tokens is None else min(room, request.max_tokens),
            stop_token_ids=[self._rules.end],
            logprob_token_ids=reader.reported,
            extra_args={EXTRA_ARGS_KEY: {"prefix": prefix, "timestamps": request.timestamps}},
            output_kind=library.RequestOutputKind.DELTA,
            detokenize=False,
        )


class _ResultReader(Reader[Any, ListenEnd]):
    """Reads vLLM's results for one request: logprobs with the offset removed, and the end."""

    def __init__(self, request: ListenRequest, rules: WhisperRules) -> None:
        self.reason: EndReason | None = None
        self._request = request
        self._silence = rules.silence
        self._output = ReceivedTokens(request.prefix, rules.end)
        self._scale = 1.0 if request.temperature < _GREEDY else request.temperature
        self._no_speech: float | None = None
        self._choices: dict[int, float] = {}
        choices = ((at, some) for at, some in enumerate(request.prefix.sets) if 1 < len(some) < _MOST_REPORTED)
        self._step, self._among = next(choices, (-1, frozenset[int]()))

    @property
    def reported(self) -> list[int]:
        """The tokens whose logprobs vLLM is to report."""
        return [*sorted(self._among), self._silence]

    def read(self, output: Any) -> Piece | None:
        """The tokens in `output`, up to the start of a loop."""
        first = len(self._output.all)
        steps = enumerate(zip(output.token_ids, output.logprobs, strict=True), first)
        piece = self._output.take([self._read(step, token, likely) for step, (token, likely) in steps])
        if self._output.looping:
            self.over, self.reason = True, "loop"
        elif output.finish_reason in ("stop", "length"):
            self.reason = output.finish_reason
        if not piece.ids:
            return None
        return piece if first else Opening(piece.ids, logprobs=piece.logprobs, no_speech=self._no_speech)

    def _read(self, step: int, token: int, likely: Mapping[int, Any]) -> TokenLogprob:
        if step == 0:
            self._no_speech = math.exp(self._logprob(likely, self._silence, offset=True))
        if step == self._step:
            self._choices = {one: math.exp(self._logprob(likely, one, offset=one != token)) for one in self._among}
        return TokenLogprob(token, b"", self._logprob(likely, token))

    def _logprob(self, likely: Mapping[int, Any], token: int, offset: bool = False) -> float:
        value: float = likely[token].logprob
        return value * self._scale + (REPORTED_OFFSET if offset else 0.0)

    def finish(self) -> ListenEnd | None:
        if self.reason is None:
            return None
        counts = len(self._request.prompt), len(self._output.all)
        return ListenEnd(self.reason, *counts, self._no_speech, self._choices)


def _kind(model: str | Path, arguments: Mapping[str, Any]) -> str:
    """The type of a model, before it is loaded: errors in vLLM's own processes appear only in its log."""
    library = vllm("vllm.engine.arg_utils")
    try:
        config = library.AsyncEngineArgs(model=str(model), **arguments).create_model_config()
    except (OSError, ValueError) as error:
        raise Unsupported(f"vLLM cannot load {model}: {' '.join(str(error).split())}") from error
    return str(config.hf_config.model_type)


def rules_of(config: Any, vocabulary: WhisperVocabulary) -> WhisperRules:
    """The rules of a Whisper, by vLLM's `ModelConfig`."""
    return WhisperRules.of(vocabulary, config.hf_config.to_dict(), config.try_get_generation_config())


@contextmanager
def _whisper_environment() -> Iterator[None]:
    """vLLM's environment while a Whisper is loaded. Its second model runner does not show the processor the output so
    far. That workers must not be forked is vLLM's own advice for Whisper."""
    needed = {"VLLM_USE_V2_MODEL_RUNNER": "0", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
    before = {name: os.environ.get(name) for name in needed}
    os.environ.update(needed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
