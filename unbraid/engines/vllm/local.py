"""vLLM inside the process, as an engine: token ids in, token ids out.

`AsyncVLLM` runs the model and maps its errors; this module writes requests for it and reads its results.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from ... import tokens
from ...constraints.printers import VLLMSyntax
from ...core.vocabulary import Vocabulary
from ..base import (
    Audio,
    Finish,
    Generation,
    Piece,
    PromptTooLong,
    Sampling,
    TokenLogprob,
    Unsupported,
    refuse_penalties,
)
from ..reader import OutputReader, finish_reason, token_bytes
from ..refusals import too_long_field
from .async_llm import AsyncVLLM, vllm
from .server import structured_outputs


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
        self._vocabulary = _tokens_of(self._llm) if vocabulary is None else vocabulary
        self._syntax: VLLMSyntax = syntax

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The model's tokens."""
        return self._vocabulary

    async def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        """The output, piece by piece; see `Engine`. All tokens that have come in the meantime make one piece."""
        reader = VLLMReader(request, self._vocabulary)

        async def asked() -> tuple[dict[str, Any], Any]:
            return await self._prompt(request), self._sampling(request)

        options = {"tokenization_kwargs": {"add_special_tokens": False}}
        try:
            async with aclosing(self._results(asked, **options)) as results:
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
        refuse_penalties(request, "vLLM", "presence_penalty", "frequency_penalty")
        library = vllm("vllm.sampling_params")
        chosen: Sampling = request.sampling
        constraint = None
        if request.constraint is not None:
            constraint = library.StructuredOutputsParams(**structured_outputs(request.constraint, self._syntax))
        return library.SamplingParams(
            temperature=chosen.temperature,
            top_p=chosen.top_p,
            top_k=chosen.top_k,
            min_p=chosen.min_p,
            presence_penalty=chosen.presence_penalty,
            frequency_penalty=chosen.frequency_penalty,
            repetition_penalty=chosen.repetition_penalty,
            seed=chosen.seed,
            logit_bias=chosen.clipped_bias() or None,
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

    def _logprobs(self, ids: Sequence[int], found: Sequence[Mapping[int, Any]]) -> tuple[TokenLogprob, ...]:
        return tuple(
            replace(self._logprob(token, at[token]), top=self._likeliest(at))
            for token, at in zip(ids, found, strict=True)
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
