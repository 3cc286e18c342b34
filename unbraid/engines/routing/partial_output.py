"""An output that has begun, and how another replica goes on with it when its own has died.

From ids. If prompt and output are token ids, the next replica gets both as its prompt, the constraint for the rest, and
the limit that is left. Nothing is generated twice, and a greedy model writes what it would have written.

Again. If the output is text, or the engine cannot take up a penalty or a constraint midway, a greedy request is made
once more. The tokens so far must come again, and are left out; if other tokens come, the output is lost. Sampled tokens
would not come again, so then the output is lost at once.

A seed is not repeated: the rest is drawn with another seed, which follows from the first seed and the place.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from random import Random

from ...constraints import AllPrinted, Constraint, NotContinued
from ...errors import OverBudget
from ..base import Engine, EngineError, EngineFailed, Finish, Generation, Piece, Sampling, Unsupported, costly_work


class WentOnDifferently(EngineFailed):
    """A replica did not repeat the tokens that had come already. That is no fault of its own."""


class PartialOutput:
    """One output so far. False while it is empty."""

    def __init__(self, request: Generation) -> None:
        self._request = request
        self._ids: list[int] = []
        self._texts: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._ids or self._texts)

    def note(self, piece: Piece) -> None:
        """Add tokens that have come."""
        if piece.ids:
            self._ids += piece.ids
        elif piece.text:
            self._texts.append(piece.text)

    def __str__(self) -> str:
        """Its length, for logs."""
        return f"{len(self._ids)} tokens" if self._ids else f"{sum(map(len, self._texts))} characters"

    def end(self) -> Finish | None:
        """How the output ended, if it is complete and only the engine's `Finish` is missing."""
        request, ids = self._request, self._ids
        prompt = 0 if isinstance(request.prompt, str) else len(request.prompt)
        if ids and ids[-1] in request.stop_tokens:
            return Finish("stop", prompt, len(ids), 0, ids[-1])
        if ids and request.max_tokens is not None and len(ids) >= request.max_tokens:
            return Finish("length", prompt, len(ids))
        return None

    def why_not(self) -> str | None:
        """Why no engine can go on with it, if that is certain before one is asked."""
        if (self._texts or isinstance(self._request.prompt, str)) and self._request.sampling.temperature > 0:
            return "it came as text, and was drawn by chance"
        return None

    async def rest(self, engine: Engine) -> AsyncGenerator[Piece | Finish, None]:
        """The rest of the output, by another engine. Raises `Unsupported` if it cannot go on."""
        came = False
        try:
            count, request = await self._continued()
            async with aclosing(self._past(count, engine.generate(request))) as outputs:
                async for output in outputs:
                    came = True
                    yield output
            return
        except (NotContinued, Unsupported) as error:
            if came or self._request.sampling.temperature > 0:
                raise Unsupported(str(error)) from error
        async with aclosing(self._past(0, engine.generate(self._request))) as outputs:
            async for output in outputs:
                yield output

    async def _continued(self) -> tuple[int, Generation]:
        """How many of the tokens go into the prompt, and the request for the rest."""
        request, ids = self._request, self._ids
        if self._texts or isinstance(request.prompt, str):
            raise NotContinued("it came as text")
        count, constraint = len(ids), None
        if request.constraint is not None:
            try:
                count, printed = await costly_work.get()(_printed_rest, request.constraint, ids)
            except OverBudget as error:
                raise NotContinued(f"the constraint for the rest takes too long to work out: {error}") from error
            constraint = request.constraint.after(ids[:count])
            constraint.add(printed)
        return count, replace(
            request,
            prompt=(*request.prompt, *ids[:count]),
            written=request.written + count,
            max_tokens=None if request.max_tokens is None else request.max_tokens - count,
            constraint=constraint,
            sampling=_further(request.sampling, count),
        )

    async def _past(
        self, count: int, outputs: AsyncGenerator[Piece | Finish, None]
    ) -> AsyncGenerator[Piece | Finish, None]:
        """The outputs without the part that has come already, of which `count` tokens were in the prompt."""
        ids, text = tuple(self._ids[count:]), "".join(self._texts)
        async with aclosing(outputs):
            async for output in outputs:
                if isinstance(output, Finish):
                    if ids or text:
                        raise WentOnDifferently("the output ended earlier than before")
                    yield _counted(output, count)
                    return
                piece = output
                if ids or text:
                    piece, ids, text = _without(output, ids, text)
                if piece.ids or piece.text:
                    yield piece


_LONGEST_CHARACTER = 4
"""Bytes, and so at most as many tokens."""


def _printed_rest(constraint: Constraint, ids: list[int]) -> tuple[int, AllPrinted]:
    """How many of the tokens another engine can go on from, and the constraint for the rest, in every syntax that the
    whole constraint was printed in."""
    count, rest = len(ids), None
    while rest is None:
        try:
            rest = constraint.after(ids[:count])
        except NotContinued:  # an incomplete character comes again
            if not count or count < len(ids) - _LONGEST_CHARACTER:
                raise
            count -= 1
    return count, rest.printed_like(constraint)


def _further(sampling: Sampling, count: int) -> Sampling:
    """The sampling, with a seed for the tokens after the first `count`."""
    if sampling.seed is None or not count:
        return sampling
    return replace(sampling, seed=Random(f"{sampling.seed} {count}").getrandbits(31))


def _counted(finish: Finish, count: int) -> Finish:
    """The end of an output of which `count` tokens were in the prompt."""
    prompt = max(0, finish.prompt_tokens - count)
    cached = min(prompt, finish.cached_tokens)
    return Finish(finish.reason, prompt, count + finish.completion_tokens, cached, finish.stopped_by)


def _without(piece: Piece, ids: tuple[int, ...], text: str) -> tuple[Piece, tuple[int, ...], str]:
    """A piece without the ids or text that had to come again, and what is still to come again after it."""
    if piece.ids:
        size = min(len(piece.ids), len(ids))
        if text or piece.ids[:size] != ids[:size]:
            raise WentOnDifferently("the output went on differently than before")
        left = piece.ids[size:]
        # Fewer logprobs than tokens are those of the last tokens.
        return Piece(left, logprobs=piece.logprobs[-len(left) :] if left else ()), ids[size:], text
    new_text = piece.text or ""
    size = min(len(new_text), len(text))
    if ids or new_text[:size] != text[:size]:
        raise WentOnDifferently("the output went on differently than before")
    left_text = new_text[size:]
    return Piece(text=left_text, logprobs=piece.logprobs if left_text else ()), ids, text[size:]


def may_go_on(error: EngineError) -> bool:
    """Whether another replica may do better. If the request is wrong, none would."""
    return error.status is None or error.status >= 500 or error.status in (408, 429)
