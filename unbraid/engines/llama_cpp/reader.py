"""Reads the chunks of llama.cpp inside the process: prompt progress, then tokens, then the end.

llama.cpp gets neither stop texts nor stop tokens, and a limit that is a little too high (`requests.MARGIN`). The reader
applies all three, token by token, so that counts and ids are exact. Once `over` is set, abort the request.
"""

from __future__ import annotations

from typing import Any

from ...models import GgufVocabulary
from ...tokens.retokenize import missing_tokens
from ..base import EngineFailed, Finish, FinishReason, Generation, Piece, TokenLogprob
from ..reader import OutputToken, Reader, StopTexts, as_piece, as_tokens
from .requests import as_error

_LEAST_LOGPROB = -9999.0  # what OpenAI's API says of a token that is as good as impossible


class EmbeddedReader(Reader[dict[str, Any], Finish]):
    """Reads the answer to one request.

    prompt_tokens: how many tokens the prompt has.
    limit: how many may follow it.
    """

    def __init__(self, request: Generation, vocabulary: GgufVocabulary, prompt_tokens: int, limit: int) -> None:
        self.unread = prompt_tokens
        """Prompt tokens that llama.cpp has still to read, by its last report."""
        self._end: Finish | None = None
        self._vocabulary = vocabulary
        self._logprobs = request.logprobs
        self._stop_tokens = frozenset(request.stop_tokens)
        self._stops = StopTexts(request.stop, vocabulary) if any(request.stop) else None
        self._prompt_tokens = prompt_tokens
        self._limit = limit
        self._count = 0
        self._cached = 0
        self._last: int | None = None
        self._full = False

    def read(self, chunk: dict[str, Any]) -> Piece | None:
        progress = chunk.get("prompt_progress")
        if progress is not None:
            self._cached = progress["cache"]
            self.unread = progress["total"] - progress["processed"]
            return None
        if "choices" not in chunk:
            raise as_error(chunk)
        self.unread = 0
        choice = chunk["choices"][0]
        if choice["finish_reason"] is not None:
            tokens = self._ended(choice["finish_reason"], chunk["usage"])
        else:
            tokens = self._tokens(chunk, choice)
        self.over = self._end is not None
        return as_piece(tokens) if tokens else None

    def finish(self) -> Finish | None:
        return self._end

    def _tokens(self, chunk: dict[str, Any], choice: dict[str, Any]) -> list[OutputToken]:
        detail = chunk.get("__verbose")
        if detail is None:
            raise EngineFailed("this llama.cpp does not tell the ids of its tokens: pip install 'xllamacpp>=2026.10'")
        id, total = detail["tokens"][0], detail["tokens_predicted"]
        data = self._vocabulary.token_bytes(id) or b""
        missing = total - self._count - 1
        before = missing_tokens(self._vocabulary, choice["text"], data, missing) if missing > 0 else ()
        tokens = as_tokens(before, self._vocabulary)
        whole = b"".join(token.data for token in tokens) + data
        tokens.append(OutputToken(id, data, self._logprob(choice, whole)))
        released: list[OutputToken] = []
        for at, token in enumerate(tokens, 1):
            released += self._accept(token, total - len(tokens) + at)
            if self._end is not None:
                break
        return released

    def _accept(self, token: OutputToken, count: int) -> list[OutputToken]:
        if self._full:
            return self._close("length")
        self._count, self._last = count, token.id
        released = [token] if self._stops is None else self._stops.push(token)
        if self._stops is not None and self._stops.found is not None:
            self._finish("stop", self._stops.found)
        elif token.id in self._stop_tokens:
            released += self._close("stop", token.id)
        elif count >= self._limit:
            if token.id not in self._vocabulary.special:
                released += self._close("length")
            self._full = True  # if it ends the output by itself, llama.cpp says so next
        return released

    def _ended(self, reason: str, usage: dict[str, Any]) -> list[OutputToken]:
        self._cached = usage["prompt_tokens_details"]["cached_tokens"]
        if not self._full:
            self._count = usage["completion_tokens"]
        if reason == "stop":
            return self._close("stop", self._last)
        return self._close("length")

    def _close(self, reason: FinishReason, by: str | int | None = None) -> list[OutputToken]:
        self._finish(reason, by)
        return [] if self._stops is None else self._stops.flush()

    def _finish(self, reason: FinishReason, by: str | int | None) -> None:
        self._end = Finish(reason, self._prompt_tokens, self._count, self._cached, by)

    def _logprob(self, choice: dict[str, Any], data: bytes) -> TokenLogprob | None:
        """The logprob of the token. llama.cpp gives none for tokens before it that it did not stream: their bytes are
        counted to this one, so that all bytes are there."""
        if self._logprobs is None or not choice["logprobs"]:
            return None
        token = choice["logprobs"]["content"][0]
        top = tuple(map(self._one, token["top_logprobs"][: self._logprobs]))
        return TokenLogprob(token["id"], data, self._one(token).logprob, top)

    def _one(self, entry: dict[str, Any]) -> TokenLogprob:
        data = self._vocabulary.token_bytes(entry["id"]) or b""
        return TokenLogprob(entry["id"], data, max(_LEAST_LOGPROB, entry["logprob"]))
