"""vLLM inside the process, as an engine: token ids in, token ids out. Checked against vLLM 0.32.

`AsyncVLLM` starts vLLM's `AsyncLLM`, runs requests on it, shuts it down, and maps its errors to those of
`engines.base`. `VLLMLocalEngine` writes requests for it and reads its results; so does `unbraid.speech` for Whisper.
"""

from __future__ import annotations

import asyncio
import importlib
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ... import tokens
from ...constraints.printers import VLLMSyntax
from ...core.vocabulary import Vocabulary
from ...errors import UnbraidError
from ...fairness import FairQueue
from ...templates import TokenizerFiles, load_tokenizer
from ..base import (
    Audio,
    EngineBusy,
    EngineDown,
    EngineError,
    EngineFailed,
    EngineOptions,
    Finish,
    Generation,
    Load,
    Piece,
    PromptTooLong,
    Sampling,
    TokenLogprob,
    Unsupported,
    refuse_penalties,
    turn,
)
from ..http.refusals import refusal, too_long_field
from ..reader import OutputReader, finish_reason, token_bytes
from ..tokenizers import vocabulary_of
from .server import structured_outputs

_MOST_RUNNING, _MOST_WAITING = 1024, 8192
"""Requests that vLLM has at once, and those that wait here for their turn."""


class AsyncVLLM:
    """A model that vLLM runs for this process, in processes that vLLM starts: a script that makes one needs
    `if __name__ == "__main__":`.

    It belongs to the event loop in which it is used first.
    """

    def __init__(self, model: str | Path, name: str | None, engine_args: dict[str, Any]) -> None:
        arguments, llm = vllm("vllm.engine.arg_utils"), vllm("vllm.v1.engine.async_llm")
        # What vLLM does not take, it says clearly itself.
        self._llm: Any = llm.AsyncLLM.from_engine_args(arguments.AsyncEngineArgs(model=str(model), **engine_args))
        self.context = int(self._llm.model_config.max_model_len)
        self.model = name or str(model)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: set[str] = set()
        self._turns = FairQueue(_MOST_RUNNING, _MOST_WAITING)
        self._closed = False

    @property
    def load(self) -> Load:
        """Requests here; vLLM does not say which of its own wait."""
        return Load(len(self._running), self._turns.waiting)

    async def _results(
        self, request: Callable[[], Awaitable[tuple[Any, Any]]], **options: Any
    ) -> AsyncGenerator[Any, None]:
        """vLLM's results for a request. Closing the generator aborts it.

        request: makes the prompt and the `SamplingParams`, either of which vLLM may refuse.
        """
        await self.check()
        place = await turn(self._turns, self.model)
        name = uuid.uuid4().hex
        begun, reason = False, None
        self._running.add(name)
        try:
            prompt, sampling = await request()
            async with aclosing(self._llm.generate(prompt, sampling, name, **options)) as results:
                async for result in results:
                    begun, reason = begun or bool(result.outputs[0].token_ids), result.outputs[0].finish_reason
                    yield result
        except EngineError:
            raise
        except Exception as error:
            raise _as_error(error, begun) from error
        finally:
            self._running.discard(name)
            place.leave()
        if reason == "error":
            raise EngineFailed(f"{self.model}: vLLM made an error with this request, which it has logged")
        if reason == "abort" and self._closed:
            raise EngineFailed("the output broke off: the engine was closed") if begun else _closed()

    async def check(self) -> None:
        """Return if the engine can take requests now; raise `EngineDown` if not."""
        if self._closed:
            raise _closed()
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise EngineError("this engine was used in another event loop before: make one for each, or use one loop")
        self._loop = loop
        if self._llm.errored:
            raise EngineDown(f"{self.model}: vLLM has broken down, as its log says: make a new engine", 60.0)

    async def close(self) -> None:
        """Abort what runs, and let the model go."""
        if self._closed:
            return
        self._closed = True
        if self._loop is asyncio.get_running_loop():
            with suppress(Exception):  # where vLLM has broken down, there is nothing to abort
                await self._llm.abort(list(self._running))
        await asyncio.to_thread(self._llm.shutdown)
        self._llm = None  # it shuts itself down once more when it is dropped, and should not do so when Python ends


def vllm(module: str) -> Any:
    """A module of vLLM. It is large, so only its users import it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "vllm":
            raise
        raise Unsupported(
            f"vLLM inside the process needs its library (there is no {error.name}): pip install vllm"
        ) from error


def _closed() -> EngineDown:
    return EngineDown("the engine was closed", retry_after=60.0)


def _as_error(error: Exception, begun: bool) -> EngineError:
    """One of vLLM's errors as one of ours."""
    ours, engine = vllm("vllm.exceptions"), vllm("vllm.v1.engine.exceptions")
    cause = error.__cause__ if isinstance(error, engine.EngineGenerateError) else error
    message = " ".join(str(cause or error).split()) or type(cause or error).__name__
    if not begun:
        if isinstance(cause, (ours.VLLMClientError, ValueError, TypeError)):
            return refusal(400, message)
        if isinstance(cause, ours.GracefulHTTPError):
            return EngineBusy(message)
        if isinstance(cause, engine.EngineDeadError):
            return EngineDown(f"vLLM has broken down, as its log says: {message}", 60.0)
    return EngineFailed(message)


class VLLMLocalEngine(AsyncVLLM):
    """A model that vLLM runs for this process; see `AsyncVLLM`."""

    def __init__(
        self,
        model: str | Path,
        *,
        vocabulary: Vocabulary | None = None,
        syntax: VLLMSyntax = "structural_tag",
        name: str | None = None,
        **engine_args: Any,
    ) -> None:
        """Load a model; this takes a minute or more.

        model: a name on the Hugging Face hub, or a folder with such a model.
        vocabulary: the model's tokens, if not those of the tokenizer that vLLM finds.
        syntax: what constraints are written in; see `VLLMEngine`.
        name: what to call the model.
        engine_args: what vLLM's `AsyncEngineArgs` take: `max_model_len`, `tensor_parallel_size`, `dtype` and so on.
        """
        super().__init__(model, name, engine_args)
        self.vocabulary = _tokens_of(self._llm) if vocabulary is None else vocabulary
        self._syntax: VLLMSyntax = syntax

    async def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        """The output, piece by piece; see `Engine`. All tokens that have come in the meantime make one piece."""
        reader = VLLMReader(request, self.vocabulary)

        async def arguments() -> tuple[dict[str, Any], Any]:
            return await self._prompt(request), self._sampling(request)

        options = {"tokenization_kwargs": {"add_special_tokens": False}}
        try:
            async with aclosing(self._results(arguments, **options)) as results:
                async for result in results:
                    piece = reader.read(result)
                    if piece is not None:
                        yield piece
        except PromptTooLong as error:
            error.field = too_long_field(request, self.context, str(error))
            raise
        for output in reader.end("vLLM"):
            yield output

    async def _prompt(self, request: Generation) -> dict[str, Any]:
        prompt: dict[str, Any] = {}
        if isinstance(request.prompt, str):
            prompt["prompt"] = request.prompt
        else:
            prompt["prompt_token_ids"] = list(request.prompt)
        if request.audio:
            prompt["multi_modal_data"] = {"audio": await asyncio.to_thread(_decode, request.audio)}
        return prompt

    def _sampling(self, request: Generation) -> Any:
        refuse_penalties(request, "vLLM", "presence_penalty", "frequency_penalty")
        library = vllm("vllm.sampling_params")
        chosen: Sampling = request.sampling
        constraint = None
        if request.constraint is not None:
            constraint = library.StructuredOutputsParams(**structured_outputs(request.constraint, self._syntax))
        return library.SamplingParams(
            **chosen.numbers(),
            seed=chosen.seed,
            logit_bias=chosen.clipped_bias() or None,
            max_tokens=request.max_tokens,
            stop=[text for text in request.stop if text],
            stop_token_ids=list(request.stop_tokens),
            logprobs=request.logprobs,
            structured_outputs=constraint,
            output_kind=library.RequestOutputKind.DELTA,
            # Text is made only where it is needed: to look for stop texts, and where we cannot make it.
            detokenize=any(request.stop) or self.vocabulary is None,
            skip_special_tokens=False,
            spaces_between_special_tokens=False,
        )


class VLLMReader(OutputReader[Any]):
    """Reads the `RequestOutput`s of one request."""

    def parse(self, chunk: Any) -> Piece | None:
        output = chunk.outputs[0]
        self.prompt_tokens = len(chunk.prompt_token_ids or ())
        self.cached_tokens = chunk.num_cached_tokens or 0
        self.completion_tokens += len(output.token_ids)
        self.reason = None if output.finish_reason is None else finish_reason(output.finish_reason)
        self.stopped_by = output.stop_reason
        logprobs = self._logprobs(output.token_ids, output.logprobs) if output.logprobs else ()
        if self.as_text:
            return Piece(text=output.text, logprobs=logprobs) if output.text else None
        return Piece(tuple(output.token_ids), logprobs=logprobs)

    def _logprobs(self, ids: Sequence[int], logprobs: Sequence[Mapping[int, Any]]) -> tuple[TokenLogprob, ...]:
        return tuple(
            replace(self._logprob(token, at[token]), top=self._likeliest(at))
            for token, at in zip(ids, logprobs, strict=True)
        )

    def _likeliest(self, at: Mapping[int, Any]) -> tuple[TokenLogprob, ...]:
        """vLLM adds the token itself where it is none of the likeliest."""
        ranked = sorted(at.items(), key=lambda item: -item[1].logprob)[: self.top_logprobs]
        return tuple(self._logprob(token, value) for token, value in ranked)

    def _logprob(self, token: int, value: Any) -> TokenLogprob:
        return TokenLogprob(token, token_bytes(self.vocabulary, token, value.decoded_token), value.logprob)


def _tokens_of(llm: Any) -> Vocabulary | None:
    try:
        return tokens.vocabulary(llm.get_tokenizer())
    except (TypeError, ValueError):  # one that we cannot read, or none
        return None


def _decode(audio: Sequence[Audio]) -> list[Any]:
    """Recordings as samples, and how many there are a second."""
    media = vllm("vllm.multimodal.media.audio").AudioMediaIO()
    try:
        return [media.load_bytes(one.data) for one in audio]
    except (ValueError, RuntimeError) as error:
        raise Unsupported(f"the audio cannot be read: {error}", field="audio") from error


def load(options: EngineOptions) -> tuple[VLLMLocalEngine, TokenizerFiles]:
    """From the settings of the server."""
    if options.model is None:
        raise UnbraidError("--vllm-local needs --model: a folder with the model, or ORG/REPO on the hub")
    arguments: dict[str, Any] = {} if options.context is None else {"max_model_len": options.context}
    arguments |= options.json_object("vllm_options", '{"tensor_parallel_size": 2}')
    files = load_tokenizer(options.tokenizer or options.model)
    try:
        return VLLMLocalEngine(options.model, vocabulary=vocabulary_of(files), **arguments), files
    except (TypeError, ValueError) as error:  # an argument that vLLM does not know, or does not take
        raise UnbraidError(f"vLLM does not start so: {error}") from error
