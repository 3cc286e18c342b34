"""An engine that is one server: what all kinds of them have in common."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any, ClassVar, Protocol, TypedDict

from ..core.vocabulary import Vocabulary
from .base import (
    EngineDown,
    EngineError,
    EngineFailed,
    Finish,
    FinishReason,
    Generation,
    Load,
    Piece,
    Sampling,
    refuse_audio,
)
from .http import Address, problem, said
from .retokenize import is_whole
from .routing import Routed, Routing
from .stops import StopTexts, as_piece


class ServerOptions(TypedDict, total=False):
    """What all engines behind HTTP take; see `Address` for the last four."""

    model: str | None
    """What the server calls its model; asked for if not given."""
    vocabulary: Vocabulary | None
    """The model's tokens. Stop texts and the bytes of logprobs are exact with it."""
    context: int | None
    """The most tokens of prompt and output together; asked for if not given."""
    extra: Mapping[str, Any] | None
    """More fields for every request, in the server's own words."""
    check_timeout: float
    """How long the server may take to say that it is well."""
    api_key: str | None
    headers: Mapping[str, str] | None
    connect_timeout: float
    read_timeout: float


class Reader(Protocol):
    """Reads the messages of one answer."""

    over: bool
    """The output has ended though the server may not know: it is to be aborted."""

    def read(self, message: dict[str, Any]) -> Piece | None:
        """The tokens in the next message."""
        ...

    def finish(self) -> Finish | None:
        """How the output ended, None if the server has not said that it did."""
        ...


class Server(ABC):
    """One server. Kinds of servers differ in the request that they want and in how their answer is read."""

    path: ClassVar[str]
    health: ClassVar[str] = "/health"
    stops_itself: ClassVar[bool] = True
    """Whether the server ends the output at stop texts; otherwise that is done here."""
    hears: ClassVar[bool] = False
    """Whether audio can be sent."""

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        vocabulary: Vocabulary | None = None,
        context: int | None = None,
        extra: Mapping[str, Any] | None = None,
        check_timeout: float = 5.0,
        **address: Any,
    ) -> None:
        self.address = Address(url, **address)
        self.vocabulary = vocabulary
        self.model = model or ""
        self.context = context
        self.extra = dict(extra or {})
        self._check_timeout = check_timeout
        self._met = bool(model) and context is not None
        self._running = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def load(self) -> Load:
        """Requests of ours; the server may have others."""
        return Load(self._running)

    @abstractmethod
    def body(self, request: Generation) -> dict[str, Any]:
        """`request` in the server's words."""

    @abstractmethod
    def reader(self, request: Generation, body: Mapping[str, Any]) -> Reader:
        """What reads the answer."""

    def messages(self, request: Generation, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any] | None, None]:
        """The answer; see `Address.stream`."""
        return self.address.stream(self.path, body)

    async def describe(self) -> tuple[str, int | None]:
        """The server's name for its model, and the context."""
        models = await self.address.get("/v1/models", self._check_timeout)
        cards = (models.get("data") if isinstance(models, dict) else None) or [{}]
        card = next((card for card in cards if card.get("id") == self.model), cards[0])
        return str(card.get("id") or ""), card.get("max_model_len")

    def abort(self, body: Mapping[str, Any]) -> Coroutine[Any, Any, Any] | None:
        """What aborts a request besides closing its connection."""
        return None

    async def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        if not self.hears:
            refuse_audio(request, self.address.url)
        await self._discover()
        body = {**self.body(request), **self.extra}
        running, begun = True, False
        self._running += 1
        try:
            async with aclosing(self._outputs(request, body)) as outputs:
                async for output in outputs:
                    begun, running = True, isinstance(output, Piece)
                    yield output
        except EngineError as error:
            running = isinstance(error, EngineFailed)
            if begun and not isinstance(error, EngineFailed):
                raise EngineFailed(f"the output broke off: {error}") from error
            raise
        finally:
            self._running -= 1
            if running:
                self._abort(body)

    async def _outputs(self, request: Generation, body: dict[str, Any]) -> AsyncGenerator[Piece | Finish, None]:
        reader = self.reader(request, body)
        stops = StopTexts(request.stop, self.vocabulary) if request.stop and is_whole(self.vocabulary) else None
        ended = False
        async with aclosing(self.messages(request, body)) as messages:
            async for message in messages:
                if message is not None:
                    piece = self._read(reader, message)
                    if piece is not None and piece.ids and stops is not None:
                        piece = stops.feed(piece)
                        reader.over |= stops.found is not None and not self.stops_itself
                    if piece is not None and (piece.ids or piece.text):
                        yield piece
                elif not ended:  # the connection is still to be brought to its end
                    ended = True
                    for output in self._end(reader, stops):
                        yield output
                if reader.over:
                    self._abort(body)
                    break
        if not ended:
            for output in self._end(reader, stops):
                yield output

    def _read(self, reader: Reader, message: dict[str, Any]) -> Piece | None:
        if message.get("error"):
            text, status = said(message["error"])
            raise problem(status or 500, f"{self.address.url}: {text}")
        try:
            return reader.read(message)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise EngineFailed(f"{self.address.url} sent what cannot be read: {str(message)[:200]}") from error

    def _end(self, reader: Reader, stops: StopTexts | None) -> Iterator[Piece | Finish]:
        finish = reader.finish()
        if finish is None:
            raise EngineFailed(f"{self.address.url} broke off in the middle of an output")
        if stops is not None:
            held = stops.flush()
            if held:
                yield as_piece(held)
            if stops.found is not None:
                finish = replace(finish, reason="stop", stopped_by=stops.found)
        yield finish

    async def check(self) -> None:
        try:
            await self.address.get(self.health, self._check_timeout)
            await self._discover()
        except EngineDown:
            raise
        except EngineError as error:
            raise EngineDown(str(error)) from error

    async def _discover(self) -> None:
        """Learn the model's name and context, once."""
        if self._met:
            return
        try:
            model, context = await self.describe()
        except EngineError as error:
            if not 400 <= (error.status or 0) < 500 or isinstance(error, EngineDown):
                raise
            model, context = "", None  # it does not say
        self.model = self.model or model
        self.context = self.context or context
        self._met = True

    def _abort(self, body: Mapping[str, Any]) -> None:
        """Abort without waiting for it: the connection is closed, or just about to be."""
        work = self.abort(body)
        if work is None:
            return

        async def abort() -> None:
            with suppress(EngineError):
                await work

        task = asyncio.get_running_loop().create_task(abort())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.address.close()


class Servers(Routed):
    """Replicas of one kind of server."""

    def __init__(self, urls: str | Sequence[str], kind: Callable[[str], Server], routing: Routing | None) -> None:
        addresses = [urls] if isinstance(urls, str) else urls
        super().__init__([kind(url) for url in addresses], routing or Routing())


_REASONS: dict[str, FinishReason] = {"length": "length", "limit": "length", "abort": "abort", "none": "abort"}


def finish_reason(word: str) -> FinishReason:
    """The servers' words for how an output ends; whatever else they say is a stop."""
    return _REASONS.get(word, "stop")


def biases(sampling: Sampling) -> dict[int, float]:
    """Within what all servers take: 100 either way decides, and JSON has no infinity."""
    return {token: min(100.0, max(-100.0, bias)) for token, bias in sampling.logit_bias.items()}


def token_bytes(vocabulary: Vocabulary | None, token: int, text: str | None = None) -> bytes:
    """The bytes of a token, from its text where there is no vocabulary."""
    found = None if vocabulary is None else vocabulary.token_bytes(token)
    return (text or "").encode() if found is None else found


def as_text(request: Generation, vocabulary: Vocabulary | None) -> bool:
    """Whether the output is to be read as text though there are ids. With stop texts, ids have to be cut inside of
    tokens, which takes the whole vocabulary; without it, only the server knows where to cut, and cuts the text. All of
    the output is text then: a parser takes the one or the other."""
    return bool(request.stop) and not is_whole(vocabulary)
