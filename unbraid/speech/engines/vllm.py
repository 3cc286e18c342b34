"""Whisper on vLLM inside the process, as a listener: the language is chosen in the request that transcribes.

What the output must begin with, and Whisper's own rules, are applied inside of vLLM, to the logits of each step
(`vllm_whisper_processor`): exact to the token, and with nothing to compile.
"""

from __future__ import annotations

import math
import os
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

from ...engines.base import EngineFailed, Piece, PromptTooLong, TokenLogprob, Unsupported
from ...engines.vllm.async_llm import AsyncVLLM, vllm
from ..audio.decode import RATE
from ..decoding.loop_guard import HeardTokens
from ..listening import HeardReason, ListenEnd, ListenRequest, Opening, TextVocabulary
from ..whisper.rules import WhisperRules
from ..whisper.vocabulary import ListeningVocabulary

ASKED = "unbraid_whisper"
"""Where a request says, in its `extra_args`, what the processor is to do."""
TOLD = 1000.0
"""By how much the logprobs are lowered of tokens that are to be told of, and not to be chosen."""
_PROCESSOR = "unbraid.speech.engines.vllm_processor:WhisperProcessor"
_MOST_TOLD = 128  # tokens that vLLM tells of
_GREEDY = 1e-5  # below, vLLM divides by no temperature


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
            raise Unsupported(f"{model} is a {kind}, and no Whisper: vLLM listens with these only")
        with _as_whisper_wants_it():
            super().__init__(model, name, arguments)
        self.parallel = parallel
        self._vocabulary = ListeningVocabulary(self._llm.get_tokenizer())
        self._rules = rules_of(self._llm.model_config, self._vocabulary)

    @property
    def vocabulary(self) -> TextVocabulary:
        return self._vocabulary

    async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        """The output, piece by piece; see `Listener`."""
        room = self._context - len(request.prompt)
        if room < 1:
            raise PromptTooLong(f"a prompt of {len(request.prompt)} tokens leaves no room in {self._context}")
        reader = _Reader(request, self._rules)

        async def asked() -> tuple[Any, Any]:
            return await self._prompt(request), self._sampling(request, reader, room)

        async with aclosing(self._results(asked)) as results:
            async for result in results:
                piece = reader.read(result.outputs[0])
                if piece.ids:
                    yield piece
                if reader.reason == "loop":
                    break
        yield reader.heard()

    async def _prompt(self, request: ListenRequest) -> Any:
        """Rendered here, and not by vLLM on its way: it would put `<|startoftranscript|>` before what a user's prompt
        begins with."""
        prompt = {
            "encoder_prompt": {"prompt": "", "multi_modal_data": {"audio": (request.samples, RATE)}},
            "decoder_prompt": {"prompt_token_ids": list(request.prompt)},
        }
        parsed = vllm("vllm.renderers.inputs.preprocess").parse_enc_dec_prompt(prompt)
        [rendered] = await self._llm.renderer.render_cmpl_async([parsed])
        rendered["decoder_prompt"]["prompt_token_ids"] = list(request.prompt)
        return rendered

    def _sampling(self, request: ListenRequest, reader: _Reader, room: int) -> Any:
        library = vllm("vllm.sampling_params")
        prefix = [sorted(some) for some in request.prefix.sets]
        return library.SamplingParams(
            temperature=request.temperature,
            seed=None if request.temperature < _GREEDY else request.seed or 0,  # the same each time
            max_tokens=room if request.max_tokens is None else min(room, request.max_tokens),
            stop_token_ids=[self._rules.end],
            logprob_token_ids=reader.told,
            extra_args={ASKED: {"prefix": prefix, "timestamps": request.timestamps}},
            output_kind=library.RequestOutputKind.DELTA,
            detokenize=False,
        )


class _Reader:
    """Reads the results of one request."""

    def __init__(self, request: ListenRequest, rules: WhisperRules) -> None:
        self.reason: HeardReason | None = None
        self._request = request
        self._silence = rules.silence
        self._output = HeardTokens(request.prefix, rules.end)
        self._scale = 1.0 if request.temperature < _GREEDY else request.temperature
        self._no_speech: float | None = None
        self._choices: dict[int, float] = {}
        choices = ((at, some) for at, some in enumerate(request.prefix.sets) if 1 < len(some) < _MOST_TOLD)
        self._step, self._among = next(choices, (-1, frozenset[int]()))

    @property
    def told(self) -> list[int]:
        """The tokens that vLLM is to tell the logprobs of."""
        return [*sorted(self._among), self._silence]

    def read(self, output: Any) -> Piece:
        """The tokens in `output`, up to the one that makes it a loop."""
        first = len(self._output.said)
        steps = enumerate(zip(output.token_ids, output.logprobs, strict=True), first)
        piece = self._output.take([self._read(step, token, likely) for step, (token, likely) in steps])
        if self._output.loops:
            self.reason = "loop"
        elif output.finish_reason in ("stop", "length"):
            self.reason = output.finish_reason
        return piece if first else Opening(piece.ids, logprobs=piece.logprobs, no_speech=self._no_speech)

    def _read(self, step: int, token: int, likely: Mapping[int, Any]) -> TokenLogprob:
        if step == 0:
            self._no_speech = math.exp(self._logprob(likely, self._silence, told=True))
        if step == self._step:
            self._choices = {one: math.exp(self._logprob(likely, one, told=one != token)) for one in self._among}
        return TokenLogprob(token, b"", self._logprob(likely, token))

    def _logprob(self, likely: Mapping[int, Any], token: int, told: bool = False) -> float:
        value: float = likely[token].logprob
        return value * self._scale + (TOLD if told else 0.0)

    def heard(self) -> ListenEnd:
        if self.reason is None:
            raise EngineFailed("vLLM broke off in the middle of an output")
        counts = len(self._request.prompt), len(self._output.said)
        return ListenEnd(self.reason, *counts, self._no_speech, self._choices)


def _kind(model: str | Path, arguments: Mapping[str, Any]) -> str:
    """What a model is, before it is loaded: what goes wrong in vLLM's processes is told in its log alone."""
    library = vllm("vllm.engine.arg_utils")
    try:
        config = library.AsyncEngineArgs(model=str(model), **arguments).create_model_config()
    except (OSError, ValueError) as error:
        raise Unsupported(f"vLLM cannot load {model}: {' '.join(str(error).split())}") from error
    return str(config.hf_config.model_type)


def rules_of(config: Any, vocabulary: ListeningVocabulary) -> WhisperRules:
    """What a Whisper may write, by vLLM's `ModelConfig` of it."""
    return WhisperRules.of(vocabulary, config.hf_config.to_dict(), config.try_get_generation_config())


@contextmanager
def _as_whisper_wants_it() -> Iterator[None]:
    """How vLLM runs what is loaded meanwhile. Its second model runner keeps the tokens to itself that the processor has
    to know; and not to fork is its own advice for Whisper."""
    wanted = {"VLLM_USE_V2_MODEL_RUNNER": "0", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
