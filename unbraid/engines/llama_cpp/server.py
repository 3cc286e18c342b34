"""llama.cpp's server, by its own `/completion`: token ids in, token ids out where the vocabulary is known.

The server takes no stop tokens besides the model's own, and for stop texts it holds back tokens whose ids it then
omits. So the reader looks for both, and the request is aborted. Checked against the server in xllamacpp 2026.10.11549.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack, cast

from ...core.vocabulary import Vocabulary, is_whole
from ...tokens.retokenize import missing_tokens
from ..base import Generation, Piece, TokenLogprob
from ..reader import OutputReader, finish_reason, token_bytes
from ..routing import Routing
from ..server import Message, Server, ServerOptions, Servers
from .requests import constraint_fields

_LOOK_BACK = 4096
"""How far back penalties reach if the context is unknown."""


class LlamaCppServerEngine(Servers):
    """One or more servers of llama.cpp with the same model.

    Without a `vocabulary` that can list its tokens, the output is text. With one, the output is ids. llama.cpp streams
    no id for a token that ends inside a character, so the bytes of such tokens are spelled anew: the same bytes, not
    always the same ids.
    """

    def __init__(
        self, urls: str | Sequence[str], *, routing: Routing | None = None, **options: Unpack[ServerOptions]
    ) -> None:
        super().__init__(urls, lambda url: LlamaCppServer(url, **options), routing)

    async def tokenize(self, text: str) -> list[int]:
        """The ids of `text`, with special tokens recognised; the first server is asked."""
        await self._located()
        if not self.replicas:
            raise self._worst(())
        return await cast(LlamaCppServer, self.replicas[0].engine).tokenize(text)


class LlamaCppServer(Server):
    """One server."""

    path = "/completion"

    def __init__(self, url: str, **options: Unpack[ServerOptions]) -> None:
        super().__init__(url, **options)
        self._whole = self.vocabulary if is_whole(self.vocabulary) else None

    async def describe(self) -> tuple[str, int | None]:
        """Name and context. The context is that of one slot."""
        props = await self.address.get("/props", self.check_timeout) or {}
        return str(props.get("model_alias") or props.get("model_path") or ""), _context(props)

    async def tokenize(self, text: str) -> list[int]:
        answer = await self.address.post("/tokenize", {"content": text, "parse_special": True})
        return list(answer["tokens"])

    def body(self, request: Generation) -> dict[str, Any]:
        chosen = request.sampling
        numbers = chosen.numbers()
        body: dict[str, Any] = {
            "prompt": request.prompt if isinstance(request.prompt, str) else list(request.prompt),
            "stream": True,
            "return_tokens": True,
            "cache_prompt": True,
            "n_predict": -1 if request.max_tokens is None else request.max_tokens,
            # Text that may be the beginning of a stop text comes late, and the bytes of lost tokens with it.
            "stop": list(request.stop) if self._whole is None else [],
            # All values, since the server has defaults of its own.
            "repeat_penalty": numbers.pop("repetition_penalty"),
            **numbers,
            "repeat_last_n": self.context or _LOOK_BACK,
            "seed": -1 if chosen.seed is None else chosen.seed,
            "logit_bias": [[token, bias] for token, bias in chosen.clipped_bias().items()],
        }
        if request.logprobs is not None:
            body["n_probs"] = max(1, request.logprobs)
        if request.constraint is not None:
            body |= constraint_fields(request.constraint, self._whole)
        return body

    def reader(self, request: Generation, body: Mapping[str, Any]) -> LlamaCppReader:
        return LlamaCppReader(request, self.vocabulary)


def _context(props: Mapping[str, Any]) -> int | None:
    size = (props.get("default_generation_settings") or {}).get("n_ctx")
    return size if isinstance(size, int) else None


class LlamaCppReader(OutputReader[Message]):
    """Reads the answer of `/completion`."""

    stops_itself = False

    def __init__(self, request: Generation, vocabulary: Vocabulary | None) -> None:
        super().__init__(request, vocabulary)
        self.prompt_tokens = 0
        self._stop_tokens = frozenset(request.stop_tokens)
        self._with_logprobs = request.logprobs is not None

    def parse(self, chunk: Message) -> Piece | None:
        if chunk.get("stop"):
            self._read_end(chunk)
        self.prompt_tokens = chunk.get("tokens_evaluated", self.prompt_tokens)
        text, ids = chunk.get("content") or "", tuple(chunk.get("tokens") or ())
        before, self.completion_tokens = (
            self.completion_tokens,
            chunk.get("tokens_predicted", self.completion_tokens + len(ids)),
        )
        logprobs: tuple[TokenLogprob, ...] = ()
        if self._with_logprobs:
            logprobs = tuple(map(self._logprob, chunk.get("completion_probabilities") or ()))
        self._look_for_stop(ids)
        if not is_whole(self.vocabulary):
            return Piece(text=text, logprobs=logprobs) if text else None
        missing = self.completion_tokens - before - len(ids)
        if ids and missing > 0:
            data = b"".join(token_bytes(self.vocabulary, token) for token in ids)
            ids = missing_tokens(self.vocabulary, text, data, missing) + ids
        return Piece(ids, logprobs=logprobs) if ids else None

    def _read_end(self, chunk: Message) -> None:
        self.reason = finish_reason(chunk.get("stop_type") or "eos")
        self.cached_tokens = (chunk.get("timings") or {}).get("cache_n") or 0
        self.stopped_by = chunk.get("stopping_word") or None

    def _look_for_stop(self, ids: Sequence[int]) -> None:
        if ids and ids[-1] in self._stop_tokens:  # there is one token in a message
            self.over, self.stopped_by = True, ids[-1]

    def _logprob(self, entry: Mapping[str, Any]) -> TokenLogprob:
        top = tuple(map(self._logprob, (entry.get("top_logprobs") or ())[: self.top_logprobs]))
        data = token_bytes(self.vocabulary, entry["id"]) or bytes(entry.get("bytes") or ())
        logprob = entry.get("logprob")
        return TokenLogprob(entry["id"], data, float("-inf") if logprob is None else logprob, top)
