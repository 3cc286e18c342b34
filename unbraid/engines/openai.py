"""OpenAI's completions, `/v1/completions`, which most servers speak in some way.

Servers differ in what they add: token ids, stop reasons, constraints. `CompletionServer` sends the standard fields and
reads any others that come; `engines.vllm.server` is a subclass that asks for more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

from ..constraints import Constraint
from ..core.vocabulary import Vocabulary
from .base import Generation, Piece, Sampling, TokenLogprob, Unsupported, refuse_penalties
from .reader import OutputReader, finish_reason, token_bytes
from .routing import Routing
from .server import Message, Server, ServerOptions, Servers

Constrain = Callable[[Constraint], Mapping[str, Any]]
UNKNOWN = -1
"""The id of a token that a server names only by its text."""
_ID = "token_id:"
_NEUTRAL = Sampling().numbers()


class OpenAIEngine(Servers):
    """One or more servers that speak OpenAI's completions. Most give text and no ids.

    constrain: gives the fields of a request that hold a constraint for this server. Without it, requests with a
        constraint are refused.

    Fields that OpenAI's own interface lacks (`top_k`, `min_p`, `repetition_penalty`, `stop_token_ids`) are sent only if
    a request sets them. Servers that do not know a field refuse or ignore it.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        constrain: Constrain | None = None,
        routing: Routing | None = None,
        **options: Unpack[ServerOptions],
    ) -> None:
        super().__init__(urls, lambda url: CompletionServer(url, constrain, **options), routing)


class CompletionServer(Server):
    """A server with `/v1/completions`."""

    path = "/v1/completions"
    health = "/v1/models"

    def __init__(self, url: str, constrain: Constrain | None, **options: Unpack[ServerOptions]) -> None:
        super().__init__(url, **options)
        self._constrain = constrain

    def body(self, request: Generation) -> dict[str, Any]:
        refuse_penalties(request, self.address.url, "presence_penalty", "frequency_penalty")
        chosen = request.sampling
        body: dict[str, Any] = {
            "model": self.model,
            "prompt": request.prompt if isinstance(request.prompt, str) else list(request.prompt),
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": chosen.temperature,
            "top_p": chosen.top_p,
        }
        room = self._room(request)
        if room is not None:
            body["max_tokens"] = room
        body |= {name: value for name, value in chosen.numbers().items() if value != _NEUTRAL[name]}
        if chosen.seed is not None:
            body["seed"] = chosen.seed
        if chosen.logit_bias:
            body["logit_bias"] = {str(token): bias for token, bias in chosen.clipped_bias().items()}
        if request.stop:
            body["stop"] = list(request.stop)
        if request.stop_tokens:
            body["stop_token_ids"] = list(request.stop_tokens)
        if request.logprobs is not None:
            body["logprobs"] = request.logprobs
        if request.constraint is not None:
            if self._constrain is None:
                message = f"{self.address.url} is not known to take constraints: leave the constraint out"
                raise Unsupported(message, field="constraint")
            body |= self._constrain(request.constraint)
        return body

    def _room(self, request: Generation) -> int | None:
        """The limit of the output. Without one, these servers stop after 16 tokens."""
        if request.max_tokens is not None or self.context is None or isinstance(request.prompt, str):
            return request.max_tokens
        return max(1, self.context - len(request.prompt))

    def reader(self, request: Generation, body: Mapping[str, Any]) -> OpenAIReader:
        return OpenAIReader(request, self.vocabulary)


class OpenAIReader(OutputReader[Message]):
    """Reads the answer of `/v1/completions`: ids if the server sends them, otherwise text; never both in one output."""

    def __init__(self, request: Generation, vocabulary: Vocabulary | None) -> None:
        super().__init__(request, vocabulary)
        self._as_ids = False
        self._count = 0
        self._usage: Mapping[str, Any] = {}

    def parse(self, chunk: Message) -> Piece | None:
        piece = self._choice(chunk["choices"][0]) if chunk.get("choices") else None
        usage = self._usage = chunk.get("usage") or self._usage
        self.prompt_tokens = usage.get("prompt_tokens", self.prompt_tokens)
        self.completion_tokens = usage.get("completion_tokens") or self._count
        self.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return piece

    def _choice(self, choice: Mapping[str, Any]) -> Piece | None:
        if choice.get("finish_reason"):
            self.reason = finish_reason(choice["finish_reason"])
        if choice.get("stop_reason") is not None:
            self.stopped_by = choice["stop_reason"]
        ids = tuple(choice.get("token_ids") or ())
        text = choice.get("text") or ""
        self._count += len(ids) or bool(text)
        logprobs = self._logprobs(choice["logprobs"], ids) if choice.get("logprobs") else ()
        if ids and not self.as_text:
            self._as_ids = True
            return Piece(ids, logprobs=logprobs)
        if not text or self._as_ids:  # text that comes late, of ids that came before
            return None
        self.as_text = True
        return Piece(text=text, logprobs=logprobs)

    def _logprobs(self, logprobs: Mapping[str, Any], ids: Sequence[int]) -> tuple[TokenLogprob, ...]:
        tokens, values = logprobs["tokens"], logprobs["token_logprobs"]
        tops = logprobs.get("top_logprobs") or [None] * len(tokens)
        token_ids = ids if len(ids) == len(tokens) else [None] * len(tokens)
        return tuple(
            self._logprob(token, value, at, self._likeliest(top or {}))
            for token, value, top, at in zip(tokens, values, tops, token_ids, strict=True)
        )

    def _likeliest(self, top: Mapping[str, float]) -> tuple[TokenLogprob, ...]:
        """Servers add the chosen token if it is none of the likeliest."""
        ranked = sorted(top.items(), key=lambda item: -item[1])[: self.top_logprobs]
        return tuple(self._logprob(token, value) for token, value in ranked)

    def _logprob(
        self, token: str, value: float | None, id: int | None = None, top: tuple[TokenLogprob, ...] = ()
    ) -> TokenLogprob:
        named = int(token.removeprefix(_ID)) if token.startswith(_ID) else None
        if named is None and id is None and self.vocabulary is not None:
            id = self.vocabulary.token_id(token)
        at = next((each for each in (named, id) if each is not None), UNKNOWN)
        spelled = token_bytes(self.vocabulary, at, None if named is not None else token)
        return TokenLogprob(at, spelled, float("-inf") if value is None else value, top)
