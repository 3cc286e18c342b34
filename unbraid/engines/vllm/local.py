"""vLLM inside the process: token ids in, token ids out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from ... import tokens
from ...core.vocabulary import Vocabulary
from ..base import Audio, EngineFailed, Finish, Generation, Piece, Sampling, TokenLogprob, Unsupported
from ..retokenize import is_whole
from ..server import as_text, biases, finish_reason, token_bytes
from ..stops import StopTexts, as_piece
from .async_llm import AsyncVLLM, vllm
from .server import Dialect, structured_outputs


class VLLMLocalEngine(AsyncVLLM):
    """A model that vLLM runs for this process; see `AsyncVLLM`."""

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
        super().__init__(model, name, engine_args)
        self._vocabulary = _tokens_of(self._llm) if vocabulary is None else vocabulary
        self._dialect: Dialect = dialect

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The model's tokens."""
        return self._vocabulary

    async def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        """The output, piece by piece; see `Engine`. All tokens that have come in the meantime make one piece."""
        reader = _Reader(request, self._vocabulary)

        async def asked() -> tuple[dict[str, Any], Any]:
            return await self._prompt(request), self._sampling(request)

        options = {"tokenization_kwargs": {"add_special_tokens": False}}
        async with aclosing(self._results(asked, **options)) as results:
            async for result in results:
                piece = reader.read(result)
                if piece is not None:
                    yield piece
        for output in reader.end():
            yield output

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
        library = vllm("vllm.sampling_params")
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
        raise Unsupported(f"the audio cannot be read: {error}") from error
