"""llama.cpp's answers read: which tokens they bring, and where the output ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..models import GgufVocabulary
from .base import EngineFailed, Finish, FinishReason, Generation, Piece, TokenLogprob
from .embedded_llama import as_error

_LEAST_LOGPROB = -9999.0  # what OpenAI's API says of a token that is as good as impossible
_REPLACEMENT = "\ufffd"


@dataclass(frozen=True, slots=True)
class Unit:
    """One token of the output."""

    token: int
    data: bytes
    logprob: TokenLogprob | None = None


class Output:
    """What one request has brought so far. `finish` says how it ended."""

    def __init__(self, request: Generation, vocabulary: GgufVocabulary, prompt_tokens: int, limit: int) -> None:
        self.finish: Finish | None = None
        self._vocabulary = vocabulary
        self._logprobs = request.logprobs
        self._stop_tokens = frozenset(request.stop_tokens)
        self._stops = StopTexts(request.stop) if any(request.stop) else None
        self._prompt_tokens = prompt_tokens
        self._limit = limit
        self._count = 0
        self._cached = 0
        self._last: int | None = None
        self._full = False

    def read(self, chunk: dict[str, Any]) -> list[Unit]:
        """The tokens that go out now."""
        progress = chunk.get("prompt_progress")
        if progress is not None:
            self._cached = progress["cache"]
            return []
        if "choices" not in chunk:
            raise as_error(chunk)
        choice = chunk["choices"][0]
        if choice["finish_reason"] is not None:
            return self._end(choice["finish_reason"], chunk["usage"])
        return self._tokens(chunk, choice)

    def _tokens(self, chunk: dict[str, Any], choice: dict[str, Any]) -> list[Unit]:
        detail = chunk.get("__verbose")
        if detail is None:
            raise EngineFailed("this llama.cpp does not tell the ids of its tokens: pip install 'xllamacpp>=2026.10'")
        token, total = detail["tokens"][0], detail["tokens_predicted"]
        data = self._vocabulary.token_bytes(token) or b""
        untold = total - self._count - 1
        before = self._untold(choice["text"], data, untold) if untold > 0 else []
        whole = b"".join(unit.data for unit in before) + data
        units = [*before, Unit(token, data, self._logprob(choice, whole))]
        released: list[Unit] = []
        for at, unit in enumerate(units):
            released += self._accept(unit, total - len(units) + 1 + at)
            if self.finish is not None:
                break
        return released

    def _untold(self, text: str, data: bytes, count: int) -> list[Unit]:
        """Tokens that end inside of a character are told only with the token that completes it, and then only by their
        bytes. Mostly those can be cut into so many tokens in one way alone; if not, the text is the same anyway."""
        before = text.encode().removesuffix(data)
        ids = None
        if _REPLACEMENT not in text:
            ids = self._vocabulary.spell(before, count)
        if ids is None:
            ids = self._vocabulary.spell(before) or []
        return [Unit(token, self._vocabulary.token_bytes(token) or b"") for token in ids]

    def _accept(self, unit: Unit, count: int) -> list[Unit]:
        if self._full:
            return self._close("length")
        self._count, self._last = count, unit.token
        released = [unit] if self._stops is None else self._stops.push(unit, self._vocabulary)
        if self._stops is not None and self._stops.found is not None:
            self._finish("stop", self._stops.found)
        elif unit.token in self._stop_tokens:
            released += self._close("stop", unit.token)
        elif count >= self._limit:
            if unit.token not in self._vocabulary.special:
                released += self._close("length")
            self._full = True  # if it ends the output by itself, llama.cpp says so next
        return released

    def _end(self, reason: str, usage: dict[str, Any]) -> list[Unit]:
        self._cached = usage["prompt_tokens_details"]["cached_tokens"]
        if not self._full:
            self._count = usage["completion_tokens"]
        if reason == "stop":
            return self._close("stop", self._last)
        return self._close("length")

    def _close(self, reason: FinishReason, by: str | int | None = None) -> list[Unit]:
        self._finish(reason, by)
        return [] if self._stops is None else self._stops.flush()

    def _finish(self, reason: FinishReason, by: str | int | None) -> None:
        self.finish = Finish(reason, self._prompt_tokens, self._count, self._cached, by)

    def _logprob(self, choice: dict[str, Any], data: bytes) -> TokenLogprob | None:
        """How likely the token was. Of tokens before it that were not told, llama.cpp does not say it: their bytes are
        counted to this one, so that all bytes are there."""
        if self._logprobs is None or not choice["logprobs"]:
            return None
        said = choice["logprobs"]["content"][0]
        top = tuple(map(self._one, said["top_logprobs"][: self._logprobs]))
        return TokenLogprob(said["id"], data, self._one(said).logprob, top)

    def _one(self, said: dict[str, Any]) -> TokenLogprob:
        data = self._vocabulary.token_bytes(said["id"]) or b""
        return TokenLogprob(said["id"], data, max(_LEAST_LOGPROB, said["logprob"]))


class StopTexts:
    """Holds tokens back as long as they may be the beginning of a stop text."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        self.found: str | None = None
        self._stops = [(text.encode(), text) for text in texts if text]
        self._held: list[Unit] = []

    def push(self, unit: Unit, vocabulary: GgufVocabulary) -> list[Unit]:
        """The tokens that are free now. If a stop text is there, those before it; where it begins inside of a token,
        what comes before it is spelt in other tokens."""
        self._held.append(unit)
        data = b"".join(held.data for held in self._held)
        places = [(data.find(stop), -len(stop), text) for stop, text in self._stops if stop in data]
        if places:
            at, _, self.found = min(places)
            released, rest = self._release(at)
            more = vocabulary.spell(rest) or []
            return [*released, *(Unit(token, vocabulary.token_bytes(token) or b"") for token in more)]
        return self._release(len(data) - max(_overlap(data, stop) for stop, _ in self._stops))[0]

    def flush(self) -> list[Unit]:
        """All that is still held back."""
        released, self._held = self._held, []
        return released

    def _release(self, end: int) -> tuple[list[Unit], bytes]:
        """The tokens that are over at `end`, and what the next one has before it."""
        at = count = 0
        while count < len(self._held) and at + len(self._held[count].data) <= end:
            at += len(self._held[count].data)
            count += 1
        released, self._held = self._held[:count], self._held[count:]
        return released, self._held[0].data[: end - at] if self._held else b""


def _overlap(data: bytes, stop: bytes) -> int:
    """How much of the end of `data` may be the beginning of `stop`."""
    for length in range(min(len(data), len(stop) - 1), 0, -1):
        if data.endswith(stop[:length]):
            return length
    return 0


def as_piece(units: list[Unit]) -> Piece:
    """Tokens as an engine gives them."""
    logprobs = tuple(unit.logprob for unit in units if unit.logprob is not None)
    return Piece(tuple(unit.token for unit in units), None, logprobs)
