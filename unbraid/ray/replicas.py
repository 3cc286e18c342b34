"""What runs in the processes of the engines' deployments: an engine or a speech model, called through a handle.

A replica is loaded from the same settings as a server without Ray, and answers with the engine's own tokens. Ray calls
`check_health`, and after some time replaces a replica that raises or does not answer. A replica that breaks in the
meantime ends itself. Ray ends a replica through `__del__`; by then its requests are done, or have moved.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import ray

from ..core.vocabulary import Vocabulary
from ..engines import Engine, EngineDown, Load
from ..errors import UnbraidError
from ..server.loading.engine import load_engine
from ..server.loading.service import listener_settings
from ..server.observing.logs import logging_as
from ..server.settings import Settings
from .wire import Failure, unpacked

if TYPE_CHECKING:
    from ..speech.listening import Listener

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Described:
    """The answer of a replica to `describe`, which the API calls once."""

    model: str
    context: int | None = None
    parallel: int = 1
    max_beams: int = 1
    supports_word_times: bool = False
    goes_on_from_words: bool = False
    family: str | None = None
    vocabulary: Vocabulary | None = None
    """The tokens of a speech model. The API knows those of others."""


class _Replica:
    """What both kinds share."""

    _runs: Engine | Listener

    async def check_health(self) -> None:
        """Raise if the engine is broken. Most speech models only break together with their process."""
        check = getattr(self._runs, "check", None)
        if check is not None:
            await check()

    async def _failure(self, error: UnbraidError) -> Failure:
        """The failure to send for an error. If the engine is down, the process ends instead: it would refuse all
        requests at once, and so be the replica with the fewest, to which Ray sends the next."""
        try:
            await self.check_health()
        except EngineDown as down:
            _log.error("this replica ends, for Ray to start another: %s", down)
            os._exit(1)
        return Failure.of(error)

    async def __del__(self) -> None:
        if hasattr(self, "_runs"):
            await self._runs.close()


class EngineReplica(_Replica):
    """An engine in a process of its own."""

    async def __init__(self, settings: Settings) -> None:  # type: ignore[misc]  # Ray waits for it
        self._stack = log_as(settings)
        self._engine, _ = await load_engine(_on_own_cores(settings))
        self._runs = self._engine

    async def describe(self) -> Described:
        return Described(self._engine.model, self._engine.context)

    async def generate(self, request: bytes) -> AsyncGenerator[Any, None]:
        """See `Engine.generate`. An error is yielded last, as a `Failure`."""
        try:
            generation = unpacked(request, self._engine.vocabulary)
            async with aclosing(self._engine.generate(generation)) as outputs:
                async for output in outputs:
                    yield output
        except UnbraidError as error:
            yield await self._failure(error)

    async def check(self) -> Failure | None:
        try:
            await self._engine.check()
        except UnbraidError as error:
            return Failure.of(error)
        return None

    async def state(self) -> tuple[int, Load]:
        """Its process id and its load."""
        return os.getpid(), self._engine.load


class ListenerReplica(_Replica):
    """A speech model in a process of its own."""

    async def __init__(self, settings: Settings) -> None:  # type: ignore[misc]  # Ray waits for it
        from ..speech.listening import family_of, goes_on_from_words, max_beams, supports_word_times
        from ..speech.loading import load_listener

        self._stack = log_as(settings)
        listener = self._runs = self._listener = await load_listener(listener_settings(_on_own_cores(settings)))
        self._described = Described(
            listener.model,
            parallel=listener.parallel,
            max_beams=max_beams(listener),
            supports_word_times=supports_word_times(listener),
            goes_on_from_words=goes_on_from_words(listener),
            family=family_of(listener),
            vocabulary=listener.vocabulary,
        )

    async def describe(self) -> Described:
        return self._described

    async def listen(self, request: bytes) -> list[Any] | Failure:
        """The whole output of one chunk of a recording."""
        try:
            chunk = unpacked(request, self._listener.vocabulary)
            async with aclosing(self._listener.listen(chunk)) as outputs:
                return [output async for output in outputs]
        except UnbraidError as error:
            return await self._failure(error)


def _on_own_cores(settings: Settings) -> Settings:
    """The settings with one thread for each core that Ray has assigned to this replica."""
    cores = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)
    return replace(settings, threads=settings.threads or max(1, int(cores)))


def log_as(settings: Settings) -> ExitStack:
    """Log as the settings say until the process ends. Ray adds the replica's name."""
    stack = ExitStack()
    stack.enter_context(logging_as(settings.log_format, settings.log_level))
    return stack
