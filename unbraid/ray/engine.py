"""An engine whose replicas are behind a handle of Ray Serve, and a speech model likewise.

Ray chooses the replica, and checks its health. This module does what Ray cannot: when a replica dies in the middle of
an output, the output goes on at another, from the ids that have come (`engines.routing.partial_output`).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..core.vocabulary import Vocabulary
from ..engines import (
    Engine,
    EngineBusy,
    EngineError,
    EngineFailed,
    Finish,
    Generation,
    Load,
    Piece,
    PromptTooLong,
    Unsupported,
)
from ..engines.base import turn
from ..engines.http.timeouts import Timeouts
from ..engines.routing.partial_output import PartialOutput, may_go_on
from ..fairness import FairQueue
from .replicas import Described
from .wire import answer, packed, streamed

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

    from ..speech.listening import ListenEnd, ListenRequest

_log = logging.getLogger(__name__)
_MOST_RUNNING, _MOST_WAITING = 1024, 8192
"""Requests at the replicas, and those that wait here for their turn."""


class RayEngine:
    """The replicas of one deployment as one engine.

    vocabulary: the model's tokens; the replicas have the same.
    tokenizer: the engine behind the vocabulary, if it has to be closed in the end.
    retries: how often a request is tried again, or an output goes on, at another replica.
    """

    def __init__(
        self,
        handle: DeploymentHandle[Any],
        described: Described,
        *,
        vocabulary: Vocabulary | None,
        timeouts: Timeouts,
        retries: int,
        tokenizer: Engine | None = None,
    ) -> None:
        self.model = described.model
        self.context = described.context
        self.vocabulary = vocabulary
        self._one = _Replica(handle, self, timeouts)
        self._retries = retries
        self._tokenizer = tokenizer
        self._running = 0
        self._turns = FairQueue(_MOST_RUNNING, _MOST_WAITING)

    @property
    def load(self) -> Load:
        """Requests of ours. Only Ray knows which of them wait for a replica."""
        return Load(self._running, self._turns.waiting)

    async def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        """The output, piece by piece; see `Engine`."""
        partial = PartialOutput(request)
        left = self._retries
        place = await turn(self._turns, self.model)
        self._running += 1
        try:
            while True:
                try:
                    async with aclosing(partial.rest(self._one) if partial else self._one.generate(request)) as outputs:
                        async for output in outputs:
                            if isinstance(output, Piece):
                                partial.note(output)
                                left = self._retries
                            elif output.reason == "abort":
                                raise EngineFailed(f"{self.model} gave the request up")
                            yield output
                    return
                except EngineError as error:
                    if not self._may_move(error, partial, left):
                        raise
                    if partial and (end := partial.end()) is not None:
                        yield end
                        return
                    left -= 1
                    what = f"an output of {partial} so far" if partial else "a request"
                    _log.warning("%s moves to another replica: %s", what, error)
        finally:
            self._running -= 1
            place.leave()

    @staticmethod
    def _may_move(error: EngineError, partial: PartialOutput, left: int) -> bool:
        if isinstance(error, Unsupported | PromptTooLong | EngineBusy) or not may_go_on(error):
            return False
        return left > 0 and not (partial and partial.why_not())

    async def check(self) -> None:
        """Return if a replica can take requests now."""
        await self._one.check()

    async def close(self) -> None:
        """The replicas are Ray's."""
        if self._tokenizer is not None:
            await self._tokenizer.close()


class _Replica:
    """The replica that Ray chooses for a request, as an engine. If the replica dies, its output breaks off."""

    def __init__(self, handle: DeploymentHandle[Any], whole: RayEngine, timeouts: Timeouts) -> None:
        self._handle = handle
        self._whole = whole
        self._timeouts = timeouts
        self.model, self.vocabulary, self.context, self.load = whole.model, whole.vocabulary, whole.context, Load()

    def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        response = self._handle.options(stream=True).generate.remote(packed(request, self.vocabulary))
        return streamed(response, self.model, self._timeouts)

    async def check(self) -> None:
        await answer(self._handle.check.remote(), self.model, self._timeouts.connect)

    async def close(self) -> None:
        """There is nothing to free."""


class RayListener:
    """The replicas of a speech model as one listener. A chunk whose replica dies is decoded again by another: the same
    request gives the same transcript."""

    def __init__(
        self, handle: DeploymentHandle[Any], described: Described, *, timeouts: Timeouts, retries: int
    ) -> None:
        self.model = described.model
        self.vocabulary = described.vocabulary
        self.parallel = described.parallel
        self.max_beams = described.max_beams
        self.supports_word_times = described.supports_word_times
        self.goes_on_from_words = described.goes_on_from_words
        self.family = described.family
        self._handle = handle
        self._timeouts = timeouts
        self._retries = retries

    async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        """The output of a chunk; see `Listener`."""
        # The recording itself stays here; its number stands for it.
        sent = packed(replace(request, recording=id(request.recording)), self.vocabulary)
        for output in await self._listen(sent):
            yield output

    async def _listen(self, request: bytes) -> list[Piece | ListenEnd]:
        left = self._retries
        while True:
            try:
                outputs: list[Piece | ListenEnd] = await answer(
                    self._handle.listen.remote(request), self.model, self._timeouts.first
                )
                return outputs
            except EngineError as error:
                if left <= 0 or isinstance(error, Unsupported | PromptTooLong | EngineBusy) or not may_go_on(error):
                    raise
                left -= 1
                _log.warning("a chunk of a recording moves to another replica: %s", error)

    async def close(self) -> None:
        """The replicas are Ray's."""
