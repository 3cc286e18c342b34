"""What runs in the processes of the engines' deployments: an engine or a speech model, asked by a handle.

A replica is loaded of the same settings as a server without Ray, and answers with the engine's own tokens. Ray asks
`check_health`, and replaces a replica that does not answer or raises, after some time; one that breaks in the meantime
ends by itself. `__del__` is how Ray tells it that it is to end; the requests that it had are done by then, or are
moved.
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
    """What the API asks a replica once."""

    model: str
    context: int | None = None
    parallel: int = 1
    max_beams: int = 1
    supports_word_times: bool = False
    goes_on_from_words: bool = False
    family: str | None = None
    vocabulary: Vocabulary | None = None
    """Of a speech model. That of others is known to the API."""


class _Replica:
    """What both kinds have in common."""

    _runs: Engine | Listener

    async def check_health(self) -> None:
        """Raise what is wrong with it. Most speech models have nothing that could break without their process."""
        check = getattr(self._runs, "check", None)
        if check is not None:
            await check()

    async def _failure(self, error: UnbraidError) -> Failure:
        """What is told of an error. If the engine is down, nothing: the process ends. It would refuse all requests at
        once, and so be the one with the fewest, to which Ray sends the next."""
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
        """See `Engine.generate`. An error is the last thing that it yields."""
        try:
            asked = unpacked(request, self._engine.vocabulary)
            async with aclosing(self._engine.generate(asked)) as outputs:
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
        """Its process, and what it has to do."""
        return os.getpid(), self._engine.load


class ListenerReplica(_Replica):
    """A speech model in a process of its own."""

    async def __init__(self, settings: Settings) -> None:  # type: ignore[misc]  # Ray waits for it
        from ..speech.listening import family_of, goes_on_from_words, max_beams, supports_word_times
        from ..speech.loading import load_listener

        self._stack = log_as(settings)
        found = self._runs = self._listener = await load_listener(listener_settings(_on_own_cores(settings)))
        self._described = Described(
            found.model,
            parallel=found.parallel,
            max_beams=max_beams(found),
            supports_word_times=supports_word_times(found),
            goes_on_from_words=goes_on_from_words(found),
            family=family_of(found),
            vocabulary=found.vocabulary,
        )

    async def describe(self) -> Described:
        return self._described

    async def listen(self, request: bytes) -> list[Any] | Failure:
        """All of the output of one chunk: its text is told only when it is whole."""
        try:
            asked = unpacked(request, self._listener.vocabulary)
            async with aclosing(self._listener.listen(asked)) as outputs:
                return [output async for output in outputs]
        except UnbraidError as error:
            return await self._failure(error)


def _on_own_cores(settings: Settings) -> Settings:
    """With as many threads as Ray has given cores to this replica: there may be others beside it."""
    cores = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)
    return replace(settings, threads=settings.threads or max(1, int(cores)))


def log_as(settings: Settings) -> ExitStack:
    """Log as the settings say, for as long as the process lives: Ray shows it with the replica's name."""
    stack = ExitStack()
    stack.enter_context(logging_as(settings.log_format, settings.log_level))
    return stack
