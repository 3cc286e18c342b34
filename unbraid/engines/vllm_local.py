"""vLLM inside the process: its `AsyncLLM`, token ids in, token ids out. Checked against vLLM 0.32."""

from __future__ import annotations

import asyncio
import importlib
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import tokens
from ..core.vocabulary import Vocabulary
from .base import (
    Audio,
    EngineDown,
    EngineError,
    EngineFailed,
    Finish,
    Generation,
    Load,
    Piece,
    Sampling,
    TokenLogprob,
    Unsupported,
)
from .http import problem
from .server import as_text, biases, finish_reason, token_bytes
from .spelling import is_whole
from .stops import StopTexts, as_piece
from .vllm import Dialect, structured_outputs


class VLLMLocalEngine:
    """A model that vLLM runs for this process. The work itself is done in processes that vLLM starts: a script that
    makes an engine needs `if __name__ == "__main__":`.

    It belongs to the event loop in which it is used first.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        vocabulary: Vocabulary | None = None,
        dialect: Dialect = "structural_tag",
        name: str | None = None,
        **engine_args: Any,
    ) -> None:
        """Load a model; this takes a minute or more.

        model: a name on the Hugging Face hub, or a folder with such a model.
        vocabulary: the model's tokens, if not those of the tokenizer that vLLM finds.
        dialect: how constraints are said; see `VLLMEngine`.
        name: what to call the model.
        engine_args: what vLLM's `AsyncEngineArgs` take: `max_model_len`, `tensor_parallel_size`, `dtype` and so on.
        """
        arguments, llm = _vllm("vllm.engine.arg_utils"), _vllm("vllm.v1.engine.async_llm")
        # What vLLM does not take, it says clearly itself.
        self._llm: Any = llm.AsyncLLM.from_engine_args(arguments.AsyncEngineArgs(model=str(model), **engine_args))
        self._context = int(self._llm.model_config.max_model_len)
        self._name = name or str(model)
        self._vocabulary = _tokens_of(self._llm) if vocabulary is None else vocabulary
        self._dialect: Dialect = dialect
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: set[str] = set()
        self._closed = False

    @property
    def model(self) -> str:
        """What the model is called."""
        return self._name

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The model's tokens."""
        return self._vocabulary

    @property
    def context(self) -> int:
        """The most tokens that prompt and output can have together."""
        return self._context

    @property
    def load(self) -> Load:
        """Requests here; vLLM does not say which of them wait."""
        return Load(len(self._running))

    async def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        """The output, piece by piece; see `Engine`. All tokens that have come in the meantime make one piece."""
        await self.check()
        name = uuid.uuid4().hex
        begun = False
        self._running.add(name)
        try:
            async with aclosing(self._outputs(request, name)) as outputs:
                async for output in outputs:
                    begun = True
                    yield output
        except EngineError as error:
            if begun and not isinstance(error, EngineFailed):
                raise EngineFailed(f"the output broke off: {error}") from error
            raise
        except Exception as error:
            raise _as_error(error, begun) from error
        finally:
            self._running.discard(name)

    async def _outputs(self, request: Generation, name: str) -> AsyncGenerator[Piece | Finish, None]:
        reader = _Reader(request, self._vocabulary)
        prompt = await self._prompt(request)
        options = {"tokenization_kwargs": {"add_special_tokens": False}}
        # Closing vLLM's generator aborts its request.
        async with aclosing(self._llm.generate(prompt, self._sampling(request), name, **options)) as results:
            async for result in results:
                piece = reader.read(result)
                if piece is not None:
                    yield piece
        if reader.reason == "error":
            raise EngineFailed(f"{self._name}: vLLM made an error with this request, which it has logged")
        if reader.reason == "abort" and self._closed:
            raise _closed()
        for output in reader.end():
            yield output

    async def check(self) -> None:
        """Return if the engine can take requests now; raise `EngineDown` if not."""
        if self._closed:
            raise _closed()
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise EngineError("this engine was used in another event loop before: make one for each, or use one loop")
        self._loop = loop
        if self._llm.errored:
            raise EngineDown(f"{self._name}: vLLM has broken down, as its log says: make a new engine", 60.0)

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

    async def _prompt(self, request: Generation) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if isinstance(request.prompt, str):
            found["prompt"] = request.prompt
        else:
            found["prompt_token_ids"] = list(request.prompt)
        if request.audio:
            heard = await asyncio.to_thread(_decode, request.audio)
            found["multi_modal_data"] = {"audio": heard}
        return found

    def _sampling(self, request: Generation) -> Any:
        library = _vllm("vllm.sampling_params")
        chosen: Sampling = request.sampling
        constraint = None
        if request.constraint is not None:
            constraint = library.StructuredOutputsParams(**structured_outputs(request.constraint, self._dialect))
        return library.SamplingParams(
            temperature=chosen.temperature,
            top_p=chosen.top_p,
            top_k=chosen.top_k,
            min_p=chosen.min_p,
            presence_penalty=chosen.presence_penalty,
            frequency_penalty=chosen.frequency_penalty,
            repetition_penalty=chosen.repetition_penalty,
            seed=chosen.seed,
            logit_bias=biases(chosen) or None,
            max_tokens=request.max_tokens,
            stop=[text for text in request.stop if text],
            stop_token_ids=list(request.stop_tokens),
            logprobs=request.logprobs,
            structured_outputs=constraint,
            output_kind=library.RequestOutputKind.DELTA,
            # Text is made only where it is needed: to look for stop texts, and where we cannot make it.
            detokenize=any(request.stop) or self._vocabulary is None,
            skip_special_tokens=False,
            spaces_between_special_tokens=False,
        )


class _Reader:
    """Reads the results of one request."""

    def __init__(self, request: Generation, vocabulary: Vocabulary | None) -> None:
        self.reason: str | None = None
        self._vocabulary = vocabulary
        self._as_text = as_text(request, vocabulary)
        self._stops = StopTexts(request.stop, vocabulary) if request.stop and is_whole(vocabulary) else None
        self._top = request.logprobs or 0
        self._prompt = 0
        self._cached = 0
        self._count = 0
        self._stopped_by: str | int | None = None

    def read(self, result: Any) -> Piece | None:
        """The tokens in `result`, less those that may be the beginning of a stop text."""
        output = result.outputs[0]
        self._prompt = len(result.prompt_token_ids or ())
        self._cached = result.num_cached_tokens or 0
        self._count += len(output.token_ids)
        self.reason = output.finish_reason
        self._stopped_by = output.stop_reason
        logprobs = self._logprobs(output.token_ids, output.logprobs) if output.logprobs else ()
        if self._as_text:
            return Piece(text=output.text, logprobs=logprobs) if output.text else None
        piece = Piece(tuple(output.token_ids), logprobs=logprobs)
        if self._stops is not None:
            piece = self._stops.feed(piece)
        return piece if piece.ids else None

    def end(self) -> list[Piece | Finish]:
        """What was held back, and how it ended."""
        if self.reason is None:
            raise EngineFailed("vLLM broke off in the middle of an output")
        finish = Finish(finish_reason(self.reason), self._prompt, self._count, self._cached, self._stopped_by)
        if self._stops is None:
            return [finish]
        if self._stops.found is not None:
            finish = replace(finish, reason="stop", stopped_by=self._stops.found)
        held = self._stops.flush()
        return [as_piece(held), finish] if held else [finish]

    def _logprobs(self, ids: Sequence[int], found: Sequence[Mapping[int, Any]]) -> tuple[TokenLogprob, ...]:
        return tuple(
            replace(self._logprob(token, at[token]), top=self._likeliest(at))
            for token, at in zip(ids, found, strict=True)
        )

    def _likeliest(self, at: Mapping[int, Any]) -> tuple[TokenLogprob, ...]:
        """vLLM adds the token itself where it is none of the likeliest."""
        ranked = sorted(at.items(), key=lambda item: -item[1].logprob)[: self._top]
        return tuple(self._logprob(token, value) for token, value in ranked)

    def _logprob(self, token: int, value: Any) -> TokenLogprob:
        return TokenLogprob(token, token_bytes(self._vocabulary, token, value.decoded_token), value.logprob)


def _vllm(module: str) -> Any:
    """A module of vLLM, which is large, and imported only by those who use it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "vllm":
            raise
        raise Unsupported(
            f"vLLM inside the process needs its library (there is no {error.name}): pip install vllm"
        ) from error


def _tokens_of(llm: Any) -> Vocabulary | None:
    try:
        return tokens.vocabulary(llm.get_tokenizer())
    except (TypeError, ValueError):  # one that we cannot read, or none
        return None


def _decode(audio: Sequence[Audio]) -> list[Any]:
    """Recordings as samples, and how many there are a second."""
    media = _vllm("vllm.multimodal.media.audio").AudioMediaIO()
    try:
        return [media.load_bytes(one.data) for one in audio]
    except (ValueError, RuntimeError) as error:
        raise Unsupported(f"the audio cannot be read: {error}") from error


def _closed() -> EngineDown:
    return EngineDown("the engine was closed", retry_after=60.0)


def _as_error(error: Exception, begun: bool) -> EngineError:
    """What vLLM's errors mean."""
    ours, engine = _vllm("vllm.exceptions"), _vllm("vllm.v1.engine.exceptions")
    cause = error.__cause__ if isinstance(error, engine.EngineGenerateError) else error
    message = " ".join(str(cause or error).split()) or type(cause or error).__name__
    if not begun:
        if isinstance(cause, (ours.VLLMClientError, ValueError, TypeError)):
            return problem(400, message)
        if isinstance(cause, ours.GracefulHTTPError):
            return EngineDown(message)
        if isinstance(cause, engine.EngineDeadError):
            return EngineDown(f"vLLM has broken down, as its log says: {message}", 60.0)
    return EngineFailed(message)
