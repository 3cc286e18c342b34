"""llama.cpp's server and its own `/completion`: token ids in, token ids out where the vocabulary is known.

Checked against the server in xllamacpp 2026.10.11549.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack, cast

from ...core.vocabulary import Vocabulary
from ..base import Finish, Generation, Piece, TokenLogprob
from ..retokenize import is_whole
from ..routing import Routing
from ..server import Server, ServerOptions, Servers, biases, finish_reason, token_bytes
from .requests import constraint_fields, missing_tokens

_LOOK_BACK = 4096
"""How far penalties reach where the context is not known."""


class LlamaCppServerEngine(Servers):
    """One or more servers of llama.cpp with the same model.

    Without `vocabulary`, or with one whose tokens cannot be gone through, the output is text. llama.cpp streams no id
    for a token that ends inside of a character, so with one, the bytes of such tokens are spelled with others of the
    vocabulary: the same bytes, not always the same ids.
    """

    def __init__(
        self, urls: str | Sequence[str], *, routing: Routing | None = None, **options: Unpack[ServerOptions]
    ) -> None:
        super().__init__(urls, lambda url: LlamaCppServer(url, **options), routing)

    async def tokenize(self, text: str) -> list[int]:
        """The ids of `text`, with special tokens recognised; the first server is asked."""
        return await cast(LlamaCppServer, self.replicas[0].engine).tokenize(text)


class LlamaCppServer(Server):
    """One server."""

    path = "/completion"
    stops_itself = False

    def __init__(self, url: str, **options: Unpack[ServerOptions]) -> None:
        super().__init__(url, **options)
        self._whole = self.vocabulary if is_whole(self.vocabulary) else None

    async def describe(self) -> tuple[str, int | None]:
        """The context is that of one slot: the server shares its own among them."""
        props = await self.address.get("/props") or {}
        return str(props.get("model_alias") or props.get("model_path") or ""), _context(props)

    async def tokenize(self, text: str) -> list[int]:
        answer = await self.address.post("/tokenize", {"content": text, "parse_special": True})
        return list(answer["tokens"])

    def body(self, request: Generation) -> dict[str, Any]:
        chosen = request.sampling
        body: dict[str, Any] = {
            "prompt": request.prompt if isinstance(request.prompt, str) else list(request.prompt),
            "stream": True,
            "return_tokens": True,
            "cache_prompt": True,
            "n_predict": -1 if request.max_tokens is None else request.max_tokens,
            # Text that may be the beginning of a stop text comes late, and the bytes of lost tokens with it.
            "stop": list(request.stop) if self._whole is None else [],
            # Every value is said, since the server has defaults of its own.
            "temperature": chosen.temperature,
            "top_p": chosen.top_p,
            "top_k": chosen.top_k,
            "min_p": chosen.min_p,
            "presence_penalty": chosen.presence_penalty,
            "frequency_penalty": chosen.frequency_penalty,
            "repeat_penalty": chosen.repetition_penalty,
            "repeat_last_n": self.context or _LOOK_BACK,
            "seed": -1 if chosen.seed is None else chosen.seed,
            "logit_bias": [[token, bias] for token, bias in biases(chosen).items()],
        }
        if request.logprobs is not None:
            body["n_probs"] = max(1, request.logprobs)
        if request.constraint is not None:
            body |= constraint_fields(request.constraint, self._whole)
        return body

    def reader(self, request: Generation, body: Mapping[str, Any]) -> _Reader:
        return _Reader(request, self.vocabulary)


def _context(props: Mapping[str, Any]) -> int | None:
    found = (props.get("default_generation_settings") or {}).get("n_ctx")
    return found if isinstance(found, int) else None


class _Reader:
    def __init__(self, request: Generation, vocabulary: Vocabulary | None) -> None:
        self.over = False
        self._vocabulary = vocabulary
        self._ends = frozenset(request.stop_tokens)
        self._top = request.logprobs
        self._count = 0
        self._prompt = 0
        self._last: dict[str, Any] = {}
        self._stopped_by: int | None = None

    def read(self, message: dict[str, Any]) -> Piece | None:
        if message.get("stop"):
            self._last = message
        self._prompt = message.get("tokens_evaluated", self._prompt)
        text, ids = message.get("content") or "", tuple(message.get("tokens") or ())
        before, self._count = self._count, message.get("tokens_predicted", self._count + len(ids))
        logprobs: tuple[TokenLogprob, ...] = ()
        if self._top is not None:
            logprobs = tuple(map(self._logprob, message.get("completion_probabilities") or ()))
        self._look_for_end(ids)
        if not is_whole(self._vocabulary):
            return Piece(text=text, logprobs=logprobs) if text else None
        missing = self._count - before - len(ids)
        if ids and missing > 0:
            told = b"".join(token_bytes(self._vocabulary, token) for token in ids)
            ids = missing_tokens(self._vocabulary, text, told, missing) + ids
        return Piece(ids, logprobs=logprobs) if ids else None

    def _look_for_end(self, ids: Sequence[int]) -> None:
        """The server has no stop tokens but those of the model: others end the output here."""
        if ids and ids[-1] in self._ends:  # there is one token in a message
            self.over, self._stopped_by = True, ids[-1]

    def _logprob(self, entry: Mapping[str, Any]) -> TokenLogprob:
        top = tuple(map(self._logprob, (entry.get("top_logprobs") or ())[: self._top]))
        data = token_bytes(self._vocabulary, entry["id"]) or bytes(entry.get("bytes") or ())
        logprob = entry.get("logprob")
        return TokenLogprob(entry["id"], data, float("-inf") if logprob is None else logprob, top)

    def finish(self) -> Finish | None:
        if not self._last and not self.over:
            return None
        return Finish(
            finish_reason(self._last.get("stop_type") or "eos"),
            self._prompt,
            self._count,
            (self._last.get("timings") or {}).get("cache_n") or 0,
            self._last.get("stopping_word") or self._stopped_by,
        )
