"""Engines that are HTTP servers: what vLLM, SGLang, llama.cpp's server and OpenAI's interface have in common.

`Server` is one server as an engine. A kind of server is a subclass with two methods: `body` writes a `Generation` as
the JSON that the server takes, `reader` makes the `Reader` for the answer. `Servers` is several of a kind behind one
`Routed`.

A server learns of an abort by its closed connection, or by `abort` if that is not enough. Name and context of the model
are asked for once (`describe`), when they are first needed.
"""

from __future__ import annotations

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from contextvars import Context
from typing import Any, ClassVar, TypedDict, cast

from ..core.vocabulary import Vocabulary
from .base import (
    EngineDown,
    EngineError,
    EngineFailed,
    Finish,
    Generation,
    Load,
    Piece,
    PromptTooLong,
    refuse_audio,
)
from .http.address import Address
from .http.refusals import error_text, refusal, too_long_field
from .http.sources import Source, source_of
from .http.timeouts import PieceClock, Timeouts, UsualGap
from .reader import Reader
from .routing import Replica, Routed, Routing
from .routing.replica import log

_log = logging.getLogger(__name__)
_LARGE = 10_000
"""Tokens or characters of a prompt whose request is written in a thread."""
_RUNNING = (
    *("vllm:num_requests_running", "sglang:num_running_reqs"),
    *("llamacpp:requests_processing", "unbraid_engine_running"),
)
_WAITING = (
    *("vllm:num_requests_waiting", "sglang:num_queue_reqs"),
    *("llamacpp:requests_deferred", "unbraid_engine_waiting"),
)
_METRIC = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{.*\})? +([0-9.eE+-]+)(?: +[0-9]+)?$", re.MULTILINE)
Message = dict[str, Any]
"""One JSON object of a server's answer."""


class ServerOptions(TypedDict, total=False):
    """What all engines behind HTTP take."""

    model: str | None
    """The server's name for its model. The server is asked if it is None."""
    vocabulary: Vocabulary | None
    """The model's tokens. Stop texts and the bytes of logprobs are exact with it."""
    context: int | None
    """The most tokens of prompt and output together. The server is asked if it is None."""
    extra: Mapping[str, Any] | None
    """Further fields for the body of every request."""
    check_timeout: float
    """Seconds that the server may take to answer a health check."""
    api_key: str | None
    headers: Mapping[str, str] | None
    timeouts: Timeouts


class Server(ABC):
    """One server as an engine. Subclasses know the bodies that it takes and the answers that it gives."""

    path: ClassVar[str]
    health: ClassVar[str] = "/health"
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
        self.check_timeout = check_timeout
        self._described = bool(model) and context is not None
        self._running = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.reported: Load | None = None
        """The server's last report of its own load."""
        self._shows_metrics = True

    @property
    def load(self) -> Load:
        """Requests of ours; the server may have others."""
        return Load(self._running)

    @abstractmethod
    def body(self, request: Generation) -> dict[str, Any]:
        """The body that asks the server for `request`."""

    @abstractmethod
    def reader(self, request: Generation, body: Mapping[str, Any]) -> Reader[Message, Finish]:
        """The reader of the answer."""

    def messages(
        self, request: Generation, body: dict[str, Any], clock: PieceClock
    ) -> AsyncGenerator[Message | None, None]:
        """The answer; see `Address.stream`."""
        return self.address.stream(self.path, body, clock)

    async def describe(self) -> tuple[str, int | None]:
        """The server's name for its model, and the context."""
        models = await self.address.get("/v1/models", self.check_timeout)
        cards = (models.get("data") if isinstance(models, dict) else None) or [{}]
        card = next((card for card in cards if card.get("id") == self.model), cards[0])
        return str(card.get("id") or ""), card.get("max_model_len")

    def abort(self, body: Mapping[str, Any]) -> Coroutine[Any, Any, Any] | None:
        """The work that aborts a request, if closing its connection is not enough."""
        return None

    async def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        if not self.hears:
            refuse_audio(request, self.address.url)
        await self._discover()
        fields = await asyncio.to_thread(self.body, request) if _is_large(request) else self.body(request)
        body = {**fields, **self.extra}
        running, begun = True, False
        self._running += 1
        try:
            async with aclosing(self._outputs(request, body)) as outputs:
                async for output in outputs:
                    begun, running = True, isinstance(output, Piece)
                    yield output
        except EngineError as error:
            running = isinstance(error, EngineFailed)
            if isinstance(error, PromptTooLong):
                error.field = too_long_field(request, self.context, str(error))
            if begun and not isinstance(error, EngineFailed):
                broken = EngineFailed(f"the output broke off: {error}")
                broken.status = error.status
                raise broken from error
            raise
        finally:
            self._running -= 1
            if running:
                self._abort(body)

    async def _outputs(self, request: Generation, body: dict[str, Any]) -> AsyncGenerator[Piece | Finish, None]:
        reader = self.reader(request, body)
        clock = PieceClock(self.address.timeouts, self.address.usual)
        ended = False
        async with aclosing(self.messages(request, body, clock)) as messages:
            async for message in messages:
                if message is not None:
                    piece = self._read(reader, message)
                    if piece is not None:
                        yield piece
                        clock.came = True
                elif not ended:  # now, not when the server has closed its answer
                    ended = True
                    for output in reader.end(self.address.url):
                        yield output
                if reader.over:
                    self._abort(body)
                    break
        if not ended:
            for output in reader.end(self.address.url):
                yield output

    def _read(self, reader: Reader[Message, Finish], message: Message) -> Piece | None:
        if message.get("error"):
            text, status = error_text(message["error"])
            raise refusal(status or 500, f"{self.address.url}: {text}")
        try:
            return reader.read(message)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            _log.debug("%s sent what cannot be read: %.200s", self.address.url, message)
            raise EngineFailed(f"{self.address.url} sent what cannot be read") from error

    async def check(self) -> None:
        try:
            await self.address.get(self.health, self.check_timeout)
            await self._discover()
        except EngineDown:
            raise
        except EngineError as error:
            raise EngineDown(str(error)) from error
        await self._ask_for_load()

    async def _ask_for_load(self) -> None:
        """Read the server's metrics. One that shows none is not asked again."""
        if not self._shows_metrics:
            return
        try:
            self.reported = read_load(await self.address.get_text("/metrics", self.check_timeout))
        except EngineError as error:  # it has just said that it is well
            self.reported = None
            self._shows_metrics = error.status is None or error.status >= 500

    async def _discover(self) -> None:
        """Ask for the name and the context of the model, once."""
        if self._described:
            return
        try:
            model, context = await self.describe()
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise EngineFailed(f"{self.address.url} describes its model in a way that cannot be read") from error
        except EngineError as error:
            if not 400 <= (error.status or 0) < 500 or isinstance(error, EngineDown):
                raise
            model, context = "", None  # it does not say
        self.model = self.model or model
        self.context = self.context or context
        self._described = True

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


def _is_large(request: Generation) -> bool:
    """Whether writing the body of a request may take more than a few milliseconds: constraints are printed, recordings
    encoded."""
    return request.constraint is not None or bool(request.audio) or len(request.prompt) > _LARGE


class Servers(Routed):
    """Replicas of one kind of server. A text in `urls` is the URL of one, or says where several are found
    (`http.sources`)."""

    def __init__(self, urls: str | Sequence[str], kind: Callable[[str], Server], routing: Routing | None) -> None:
        self._start(routing or Routing())
        self._kind = kind
        self._sources: list[Source] = []
        self._followers: list[asyncio.Task[None]] = []
        self._at: dict[str, Replica] = {}
        self.follow([urls] if isinstance(urls, str) else urls)

    def follow(self, urls: Sequence[str]) -> None:
        """Have the replicas that these texts name from now on. All that may change is looked up again."""
        if not urls:
            raise EngineError("no engine was named: give the address of at least one")
        before = {source.text: source for source in self._sources}
        self._sources = [before.get(text) or source_of(text) for text in dict.fromkeys(urls)]
        self._changes = any(source.changes for source in self._sources)
        for follower in self._followers:
            follower.cancel()
        self._followers = []
        self._arrange()
        if self._watching:
            self._follow()

    def _follow(self) -> None:
        self._followers = [
            asyncio.create_task(source.follow(self._arrange), context=Context())
            for source in self._sources
            if source.changes
        ]

    async def _located(self) -> None:
        if self._changes:
            if not self._followers:
                self._follow()
            for source in self._sources:
                await source.looked.wait()

    def _arrange(self) -> None:
        """Have the replicas where the sources say, once all of them have said something."""
        if not all(source.looked.is_set() for source in self._sources):
            return
        urls = dict.fromkeys(url for source in self._sources for url in source.urls)
        if urls.keys() != self._at.keys():
            self._at = {url: self._at.get(url) or self._replica(url) for url in urls}
            for each in self._at.values():
                address = cast(Server, each.engine).address
                several = len(self._at) > 1 and address.timeouts.follows
                address.usual = (address.usual or UsualGap()) if several else None
            self.have([*self._at.values()])
        self._nobody = "; ".join(str(each.problem or f"{each.text} names none") for each in self._sources)

    def _replica(self, url: str) -> Replica:
        server = self._kind(url)
        if self._changes:
            log.info("%s is there", server.address.url)
        return Replica(server, server.address.url, self._routing)

    async def close(self) -> None:
        for follower in self._followers:
            follower.cancel()
        await asyncio.gather(*self._followers, return_exceptions=True)
        await super().close()


def read_load(metrics: str) -> Load | None:
    """A server's own load by its Prometheus metrics, or None if they lack it. Other clients' requests are in it."""
    running = waiting = 0.0
    reports = False
    for name, value in _METRIC.findall(metrics):
        try:
            if name in _RUNNING:
                running, reports = running + float(value), True
            elif name in _WAITING:
                waiting += float(value)
        except ValueError:  # it looks like a number, and is none
            return None
    return Load(int(running), int(waiting)) if reports else None
