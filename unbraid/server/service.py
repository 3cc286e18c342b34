"""The service: the models that are served, and what goes with all of them.

Every handler gets it. `loading.service` makes one of the settings; tests put one together by hand.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from ..constraints import Unenforced
from ..fairness import FairQueue, LoopTurns
from .access.addresses import Network
from .access.rates import Rates
from .errors import ApiError
from .model import Model, Served, not_served
from .observing.exchange import note_model
from .observing.metrics import Loaded, Metrics
from .planning.planner import Planner
from .storage.seal import Seal
from .storage.store import Store

if TYPE_CHECKING:  # a server that only chats runs without the packages of speech
    from ..speech.synthesis.speaker import Speaker
    from ..speech.transcriber import Transcriber

_log = logging.getLogger(__name__)
_ARCHIVISTS = 4
_MOST_WARNINGS = 100
_REQUESTS, _SOCKETS, _BACKGROUND = 8192, 1024, 256
_RECORDINGS, _RECORDINGS_WAITING = 16, 256
"""How many recordings may be transcribed at once, and how many may wait. One client may have three quarters of each."""
_BEGIN, _SHARE = 8, 16
"""How many waiting requests begin in one turn of the event loop: `_BEGIN`, or one for every `_SHARE` that wait or are
being answered if that is more."""
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(kw_only=True)
class Service:
    """Models, ready to answer."""

    models: tuple[Served, ...]
    """The first answers requests that name none. There are none where the server only transcribes or speaks."""
    reasoning_field: Literal["both", "reasoning_content", "reasoning"] = "both"
    transcriber: Transcriber | None = None
    """Transcribes recordings, where a model for that is served."""
    listener_names: tuple[str, ...] = ()
    """The names that clients use for that model."""
    speaker: Speaker | None = None
    """Speaks texts, where a model for that is served."""
    speaker_names: tuple[str, ...] = ()
    """The names that clients use for that model."""
    max_speech: int = 100_000
    """The longest text that is spoken, in characters."""
    max_audio: int = 25_000_000
    """The largest recording, in bytes."""
    max_audio_seconds: float = 4 * 3600.0
    api_keys: tuple[str, ...] = ()
    rates: Rates = field(default_factory=Rates)
    """Requests and tokens a minute for each client."""
    proxies: tuple[Network, ...] = ()
    """The proxies that are believed when they say who the client is."""
    body_seconds: float = 30.0
    """How long a body may pause."""
    max_body: int = 64_000_000
    seal: Seal = field(default_factory=Seal)
    """Seals what clients keep for us."""
    store: Store | None = None
    """Keeps responses. None where nothing is to be kept."""
    background: dict[tuple[str, str], asyncio.Task[None]] = field(default_factory=dict)
    """The responses that run with nobody waiting, by client and id."""
    requests: FairQueue = field(default_factory=lambda: FairQueue(_REQUESTS, 0, shared=True))
    """The requests that are answered now, sockets aside."""
    turns: LoopTurns = field(init=False)
    """The order in which simultaneous requests begin: before anything is known of them but who sends them, as all that
    is done for those that wait holds up the first answer."""
    sockets: FairQueue = field(default_factory=lambda: FairQueue(_SOCKETS, 0, shared=True))
    """The WebSockets that are open."""
    in_background: FairQueue = field(default_factory=lambda: FairQueue(_BACKGROUND, 0, shared=True))
    """The responses in `background`, by who asked for them."""
    recordings: FairQueue = field(default_factory=lambda: FairQueue(_RECORDINGS, _RECORDINGS_WAITING))
    """The recordings that are transcribed, and those that wait."""
    leaving: bool = False
    """The server is to end, and says so to whoever asks whether it is ready."""
    draining: bool = False
    """The server is about to end, and takes no more requests."""
    created: int = field(default_factory=lambda: int(time.time()))
    metrics: Metrics = field(init=False)
    metrics_of_all: Callable[[], Awaitable[bytes]] | None = None
    """The metrics of all workers, added up, where there are several."""
    shutdown_seconds: float = 0.0
    """How long responses in the background may go on when the server is to end."""
    planner: Planner = field(default_factory=Planner)
    """Works requests out, where they cannot hold up anything else."""
    _archivists: ThreadPoolExecutor = field(init=False)
    _warned: set[Unenforced] = field(default_factory=set, init=False)
    _own: dict[Callable[[Service], Any], Any] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._archivists = ThreadPoolExecutor(_ARCHIVISTS, "unbraid-store")
        self.metrics = Metrics(self._engines)
        self.turns = LoopTurns(lambda: max(_BEGIN, (self.requests.taken + self.turns.waiting) // _SHARE))

    def _engines(self) -> dict[str, Loaded]:
        """The engine of each model, and of those that transcribe and speak."""
        engines: dict[str, Loaded] = {served.names[0]: served.engine for served in self.models}
        listener = None if self.transcriber is None else self.transcriber.listener
        if isinstance(listener, Loaded):
            engines[self.listener_names[0]] = listener
        if self.speaker is not None:
            engines[self.speaker_names[0]] = self.speaker
        return engines

    def own(self, kind: Callable[[Service], T]) -> T:
        """The state that a route keeps in this process: `kind(service)`, made at the first call."""
        if kind not in self._own:
            self._own[kind] = kind(self)
        own: T = self._own[kind]
        return own

    async def planned(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `work`, within the time that one request may take. Cancelling this gives the work up."""
        return await self.planner.run(work, args, kwargs)

    async def stored(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` in a thread for the store: a file that is locked must not hold up anything else."""
        call = partial(copy_context().run, work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._archivists, call)

    async def end_background(self) -> None:
        """Give what runs with nobody waiting its time to end, then end it. It is stored that it was cut off."""
        self.draining = True
        tasks = list(self.background.values())
        if tasks:
            await asyncio.wait(tasks, timeout=self.shutdown_seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def log_unenforced(self, unenforced: Iterable[Unenforced]) -> None:
        """Log what an engine does not enforce, once."""
        for each in unenforced:
            if each not in self._warned and len(self._warned) < _MOST_WARNINGS:
                self._warned.add(each)
                _log.warning("a constraint is not enforced in full: %s", each)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that clients use for the models."""
        return tuple(name for served in self.models for name in served.names)

    def models_by_name(self) -> dict[str, Model]:
        """The models by all of their names, for work that finds out by itself which one is asked for."""
        return {name: served.current() for served in self.models for name in served.names}

    def served(self, name: str | None, models: tuple[Served, ...] | None = None) -> Served:
        """The model of that name, of these or of all. Raises `ApiError` for one that is not served."""
        for served in self.models if models is None else models:
            if name is None or name in served.names:
                note_model(name or served.names[0])
                return served
        raise not_served(name, self.names)

    def check_listener(self, name: str | None) -> str:
        """The name of the model that transcribes, for the reply. Raises `ApiError` for one that does not."""
        return _named(name, self.listener_names, "transcribe")

    def check_speaker(self, name: str | None) -> str:
        """The name of the model that speaks. Raises `ApiError` for one that does not."""
        return _named(name, self.speaker_names, "speak")

    def reasoning_keys(self) -> tuple[str, ...]:
        return ("reasoning_content", "reasoning") if self.reasoning_field == "both" else (self.reasoning_field,)


def _named(name: str | None, names: tuple[str, ...], does: str) -> str:
    """The model of that name, or the first. Raises `ApiError` for any other name."""
    if name is None or name in names:
        note_model(name or names[0])
        return name or names[0]
    message = f"the model {name!r} does not {does} here; it is {', '.join(map(repr, names))}"
    raise ApiError(404, message, param="model", code="model_not_found")
