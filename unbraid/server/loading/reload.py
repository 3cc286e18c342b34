"""Settings that are read again while the server runs (SIGHUP): keys, rates, models and their replicas.

A model whose settings are the same stays as it is. One of which only the addresses of its servers differ follows the
new ones (`Servers.follow`). Any other is loaded, and the old one is closed when nobody uses it. If anything cannot
be read or loaded, all stays as it was.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from ...engines import Engine
from ...engines.http.sources import source_of
from ...engines.server import Servers
from ...engines.table import engine_of
from ...errors import UnbraidError
from ..model import Served
from ..service import Service
from ..settings import OF_A_MODEL, SETTINGS, Settings
from .service import load_model

_log = logging.getLogger(__name__)
_IDLE = 5
"""Seconds that an engine has nothing to do before it is closed."""
_OF_A_MODEL = [each.name for each in SETTINGS if each.group in OF_A_MODEL]
_ANYTIME = {*_OF_A_MODEL, "models", "api_key", "requests_per_minute", "tokens_per_minute"}
"""The settings that may change while the server runs."""


class Reloader:
    """Brings a service to what its settings say now. `again` reads them."""

    def __init__(self, service: Service, settings: Settings, again: Callable[[], Settings]) -> None:
        self._service, self._settings, self._again = service, settings, again
        self._loaded = list(zip(settings.each_model(), service.models, strict=True))
        self._closing: set[asyncio.Task[None]] = set()

    async def run(self, hung_up: asyncio.Event) -> None:
        """Reload whenever the event is set, without end."""
        while True:
            await hung_up.wait()
            hung_up.clear()
            try:
                await self.reload()
            except UnbraidError as error:
                _log.error("the settings stay as they are: %s", error)
            except Exception:  # a mistake of ours, or of a library that loads: the next time may go well
                _log.exception("the settings stay as they are")

    async def reload(self) -> None:
        """Read the settings again. Raises `UnbraidError` if there is something wrong with them."""
        settings, service = self._again(), self._service
        if service.api_keys and not settings.api_key:
            raise UnbraidError(
                "they have no API key any more, which would let everybody in: give one, or start the server anew"
            )
        _warn_of_others(self._settings, settings)
        loaded = await self._all_served(settings)
        for each, served in loaded:
            name, _ = engine_of(each)
            if name is not None and isinstance(served.engine, Servers):
                served.engine.follow(getattr(each, name))
            service.planner.add(served.model)
        gone = [old for _, old in self._loaded if not any(old is served for _, served in loaded)]
        self._loaded = loaded
        service.models = tuple(served for _, served in loaded)
        service.api_keys = settings.api_key
        if (settings.requests_per_minute, settings.tokens_per_minute) != (service.rates.requests, service.rates.tokens):
            service.rates = replace(
                service.rates, requests=settings.requests_per_minute, tokens=settings.tokens_per_minute
            )
        for old in gone:
            weakref.finalize(old, self._close, old.engine, asyncio.get_running_loop())
        _log.info("the settings were read again: %s", ", ".join(service.names) or "no model that writes")

    async def _all_served(self, settings: Settings) -> list[tuple[Settings, Served]]:
        """Each model with its settings. Where one cannot be loaded, none is."""
        loaded: list[tuple[Settings, Served]] = []
        try:
            for each in settings.each_model():
                served = await self._served(each)
                loaded.append((each, served))
        except BaseException:
            for _, served in loaded:
                if not any(served is old for _, old in self._loaded):
                    await served.engine.close()
            raise
        return loaded

    async def _served(self, settings: Settings) -> Served:
        """The model with these settings: one that is there, or a new one."""
        for before, served in self._loaded:
            if _own(before) == _own(settings) and (isinstance(served.engine, Servers) or _same_urls(before, settings)):
                _check_urls(settings)
                return served
        return await load_model(settings)

    def _close(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        if not loop.is_closed():
            task = loop.create_task(_close_when_idle(engine))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def _own(settings: Settings) -> dict[str, Any]:
    """What makes a model what it is, the addresses of its servers aside."""
    name, kind = engine_of(settings)
    own = {each: getattr(settings, each) for each in _OF_A_MODEL}
    return own | ({name: ()} if name is not None and kind.place == "elsewhere" else {})


def _same_urls(before: Settings, after: Settings) -> bool:
    name, _ = engine_of(after)
    return name is None or getattr(before, name) == getattr(after, name)


def _check_urls(settings: Settings) -> None:
    """Raise `UnbraidError` if there is something wrong with where the replicas of a model are."""
    name, kind = engine_of(settings)
    if name is not None and kind.place == "elsewhere":
        for text in getattr(settings, name):
            source_of(text)


def _warn_of_others(before: Settings, after: Settings) -> None:
    names = {each.name for each in fields(Settings)} - _ANYTIME
    for name in sorted(name for name in names if getattr(before, name) != getattr(after, name)):
        _log.warning("%s has changed, which counts from the next start on", name)


async def _close_when_idle(engine: Engine) -> None:
    idle = 0
    while idle < _IDLE:
        idle = 0 if engine.load.running or engine.load.waiting else idle + 1
        await asyncio.sleep(1.0)
    await engine.close()
