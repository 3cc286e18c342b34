"""The replay engine: plays scripted or recorded outputs instead of running a model, for demos and tests.

A `Script` is one output: pieces with delays, and an ending, which may be an error or silence. `recording` makes scripts
from the outputs of a real engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from random import Random

from ..core.vocabulary import Vocabulary
from .base import EngineDown, EngineError, EngineFailed, Finish, FinishReason, Generation, Load, Piece, Unsupported

Ending = Finish | FinishReason | EngineError | None
Chunks = int | tuple[int, int]

_KEPT = 1000
"""Requests that are kept for inspection, at least."""


@dataclass(frozen=True, slots=True)
class TimedPiece:
    """The next tokens of a script, and the seconds before them."""

    piece: Piece
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Script:
    """One output."""

    steps: tuple[TimedPiece, ...]
    ending: Ending = "stop"
    """A `Finish`; a reason, with the tokens counted for it; an error to raise; or None to go silent for ever."""
    name: str = ""

    def until(self, pieces: int, ending: Ending) -> Script:
        """The first pieces, then another ending."""
        return replace(self, steps=self.steps[:pieces], ending=ending)

    def failing(self, after: int = 0, error: EngineError | None = None) -> Script:
        """The script, failing after so many pieces."""
        return self.until(after, error or EngineFailed(f"the script breaks down after {after} pieces"))

    def hanging(self, after: int = 0) -> Script:
        """The script, silent after so many pieces, without an end."""
        return self.until(after, None)

    def paced(self, delay: float) -> Script:
        """The script, with so many seconds before each piece."""
        return replace(self, steps=tuple(replace(step, after=delay) for step in self.steps))


def script(
    *output: str | Sequence[int],
    chunks: Chunks = 1,
    seed: int = 0,
    delay: float = 0.0,
    ending: Ending = "stop",
    name: str = "",
) -> Script:
    """A script of texts and token ids.

    chunks: how many tokens or characters a piece has, or the range from which the number is drawn.
    seed: of these draws.
    delay: the seconds before each piece.
    """
    chance = Random(seed)
    pieces = [piece for part in output for piece in _cut(part, chunks, chance)]
    return Script(tuple(TimedPiece(piece, delay) for piece in pieces), ending, name)


def _cut(part: str | Sequence[int], chunks: Chunks, chance: Random) -> Iterator[Piece]:
    at = 0
    while at < len(part):
        size = chunks if isinstance(chunks, int) else chance.randint(*chunks)
        next_ones = part[at : at + max(1, size)]
        yield Piece(text=next_ones) if isinstance(next_ones, str) else Piece(tuple(next_ones))
        at += len(next_ones)


class ReplayEngine:
    """Plays scripts.

    scripts: a list, one for each request in order; a mapping by names, of which the last in the prompt counts; or a
        function that chooses one.
    repeat: start over after the last of a list.
    speed: divides all delays; `float("inf")` leaves none.
    """

    def __init__(
        self,
        scripts: Sequence[Script] | Mapping[str, Script] | Callable[[Generation], Script],
        *,
        vocabulary: Vocabulary | None = None,
        model: str = "replay",
        context: int | None = None,
        repeat: bool = False,
        speed: float = 1.0,
    ) -> None:
        self.vocabulary = vocabulary
        self.model = model
        self.context = context
        self.requests: list[Generation] = []
        """The last requests, a thousand at least."""
        self._asked = 0
        """How many requests there were."""
        self.aborted = 0
        """How many outputs were closed before their end."""
        self.down = False
        """Set it to have requests refused."""
        self._scripts = scripts
        self._repeat = repeat
        self._speed = speed
        self._running = 0

    @property
    def load(self) -> Load:
        return Load(self._running)

    async def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        await self.check()
        self.requests.append(request)
        if len(self.requests) > 2 * _KEPT:
            del self.requests[:_KEPT]
        chosen = self._choose(request, self._asked)
        self._asked += 1
        ended = False
        self._running += 1
        try:
            for step in chosen.steps if not request.written else _after(request.written, chosen.steps):
                await asyncio.sleep(step.after / self._speed)
                yield step.piece
            ended = chosen.ending is not None
            yield await _ending(chosen, request)
        finally:
            self._running -= 1
            self.aborted += not ended

    def _choose(self, request: Generation, at: int) -> Script:
        scripts = self._scripts
        if callable(scripts):
            return scripts(request)
        if isinstance(scripts, Mapping):
            return self._named(scripts, request)
        if not scripts or (at >= len(scripts) and not self._repeat):
            raise Unsupported(f"there are {len(scripts)} scripts, and this is request {at + 1}")
        return scripts[at % len(scripts)]

    def _named(self, scripts: Mapping[str, Script], request: Generation) -> Script:
        prompt = self._text(request.prompt[: len(request.prompt) - request.written])
        name = max(scripts, key=prompt.rfind, default=None)
        if name is None or name not in prompt:
            raise Unsupported(f"the prompt names no script: put one of these into it: {', '.join(scripts)}")
        return scripts[name]

    def _text(self, prompt: tuple[int, ...] | str) -> str:
        if isinstance(prompt, str):
            return prompt
        if self.vocabulary is None:
            raise Unsupported("scripts cannot be found by name in token ids: give the engine a vocabulary")
        return b"".join(self.vocabulary.token_bytes(token) or b"" for token in prompt).decode("utf-8", "replace")

    async def check(self) -> None:
        if self.down:
            raise EngineDown("the replay engine is set to be down")

    async def close(self) -> None:
        pass


def _after(count: int, steps: Sequence[TimedPiece]) -> Iterator[TimedPiece]:
    """The pieces without the first `count` tokens: these are in the prompt already."""
    for step in steps:
        ids = step.piece.ids[count:]
        if ids or not step.piece.ids:
            logprobs = step.piece.logprobs[-len(ids) :] if ids else step.piece.logprobs
            yield replace(step, piece=replace(step.piece, ids=ids, logprobs=logprobs))
        count = max(0, count - len(step.piece.ids))


async def _ending(chosen: Script, request: Generation) -> Finish:
    ending = chosen.ending
    if isinstance(ending, Finish):
        return ending
    if isinstance(ending, EngineError):
        raise copy(ending)
    if ending is None:
        await asyncio.get_running_loop().create_future()
    prompt = 0 if isinstance(request.prompt, str) else len(request.prompt)
    count = sum(len(step.piece.ids) or 1 for step in chosen.steps) - request.written
    return Finish(ending or "stop", prompt, count)
