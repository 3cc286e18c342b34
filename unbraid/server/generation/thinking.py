"""A thinking budget: after so many tokens of reasoning, the reasoning is made to end, on any engine.

Engines know nothing of it. When the budget is used up, the running generation is closed, and another one goes on from
the prompt, what was written so far, and the marker that ends the reasoning. (An engine that keeps prompts in a cache
has most of that already.) To whoever reads the pieces it is one output: the marker is a piece of it, counted and with
logprobs of 0, since it was not chosen.

What counts is text of the reasoning, without its markers. What may be the beginning of the marker that ends it is
waited for, so a marker of several tokens may take the reasoning some tokens further. With ids the output is looked at
token by token, so that the end does not depend on how the engine cuts its pieces; tokens of the same piece that come
after the end are left out. Where an engine gives text alone, a piece is as many tokens as the tokenizer makes of it, or
one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace

from ...constraints import Constraint
from ...engines import Engine, Finish, Generation, Piece, TokenLogprob
from ...engines.reader import token_bytes
from ...parsing import Parser

RawPrompt = str | tuple[int, ...]

_MOST_ENDS = 4
"""How often the end of the reasoning is forced in one output."""


@dataclass(frozen=True, slots=True)
class ThinkingBudget:
    """How much reasoning there may be, and how it ends."""

    tokens: int
    closer: str
    """What ends the reasoning, as the format writes it."""
    encode: Callable[[str], tuple[int, ...]] | None
    """Text that a model writes to ids, where the tokenizer is known."""
    constrain: Callable[[RawPrompt], Awaitable[Constraint | None]]
    """The constraint for what follows such a prompt."""


def bounded(
    engine: Engine, generation: Generation, parser: Parser, budget: ThinkingBudget
) -> AsyncGenerator[Piece | Finish, None]:
    """The output of `engine` for `generation`, with no more reasoning than the budget has. `parser` has been fed all
    pieces by the time that the next one is asked for."""
    return _Bounded(engine, generation, parser, budget).outputs()


class _Bounded:
    """An output that may take several generations."""

    def __init__(self, engine: Engine, generation: Generation, parser: Parser, budget: ThinkingBudget) -> None:
        self._engine, self._asked, self._parser, self._budget = engine, generation, parser, budget
        self._ids: list[int] = []
        self._text: list[str] = []
        self._count = 0
        """The tokens so far."""
        self._thoughts = 0
        """Tokens of reasoning, counted here if the engine gives only text."""
        self._gives_up = False
        """The model has reopened its reasoning `_MOST_ENDS` times. It is no longer stopped."""

    async def outputs(self) -> AsyncGenerator[Piece | Finish, None]:
        is_over, ends = False, 0
        while not is_over:
            before = self._count
            async with aclosing(self._engine.generate(await self._next())) as outputs:
                async for output in outputs:
                    if isinstance(output, Finish):
                        yield _after(before, output)
                        return
                    for piece in _one_by_one(output):
                        self._note(piece)
                        yield piece
                        if self._is_used_up():
                            break
                    if self._is_used_up():
                        break
                else:
                    return  # which is for the caller to notice
            closing, is_over = self._closing()
            ends += 1
            self._gives_up = ends == _MOST_ENDS
            if closing is not None:
                yield closing
        yield Finish("length", 0 if isinstance(self._asked.prompt, str) else len(self._asked.prompt), self._count)

    def _is_used_up(self) -> bool:
        parser = self._parser
        if self._gives_up or parser.strand != "reasoning" or parser.holds_back:
            return False
        return (self._thoughts if self._text else parser.thoughts) >= self._budget.tokens

    def _note(self, piece: Piece) -> None:
        if piece.ids:
            self._ids += piece.ids
            self._count += len(piece.ids)
        elif piece.text:
            size = self._size(piece.text)
            self._text.append(piece.text)
            self._count += size
            self._thoughts += size if self._parser.strand == "reasoning" else 0

    def _size(self, text: str) -> int:
        encode = self._budget.encode
        return 1 if encode is None else max(1, len(encode(text)))

    def _closing(self) -> tuple[Piece | None, bool]:
        """The closing marker, as far as there is room for it, and whether the output is full then. As text, the marker
        comes whole or not at all."""
        budget, most = self._budget, self._asked.max_tokens
        room = None if most is None else max(0, most - self._count)
        if self._text or budget.encode is None:
            size = self._size(budget.closer)
            if room is not None and room < size:
                return None, True
            self._text.append(budget.closer)
            self._count += size
            return Piece(text=budget.closer), room == size or self._is_full()
        ids = budget.encode(budget.closer)[:room]
        self._ids += ids
        self._count += len(ids)
        logprobs: tuple[TokenLogprob, ...] = ()
        if self._asked.logprobs is not None:
            vocabulary = self._engine.vocabulary
            logprobs = tuple(TokenLogprob(token, token_bytes(vocabulary, token), 0.0) for token in ids)
        return Piece(ids, logprobs=logprobs) if ids else None, room == len(ids) or self._is_full()

    def _is_full(self) -> bool:
        context, prompt = self._engine.context, self._prompt()
        return context is not None and not isinstance(prompt, str) and len(prompt) >= context

    def _prompt(self) -> RawPrompt:
        """The prompt of the request and all that was written since."""
        prompt, text = self._asked.prompt, "".join(self._text)
        if isinstance(prompt, str):
            return prompt + text
        more = self._budget.encode(text) if text and self._budget.encode is not None else ()
        return (*prompt, *self._ids, *more)

    async def _next(self) -> Generation:
        """The next request to the engine: the first one, or a request for what is left of it."""
        generation = self._asked
        if not self._count:
            return generation
        prompt = self._prompt()
        left = None if generation.max_tokens is None else generation.max_tokens - self._count
        constraint = None if generation.constraint is None else await self._budget.constrain(prompt)
        return replace(generation, prompt=prompt, max_tokens=left, constraint=constraint)


def _after(before: int, finish: Finish) -> Finish:
    """The `Finish` of a later request, whose prompt had `before` tokens of this output. These count as output; the
    engine's count of cached tokens no longer applies."""
    if not before:
        return finish
    counts = max(0, finish.prompt_tokens - before), before + finish.completion_tokens
    return Finish(finish.reason, *counts, 0, finish.stopped_by)


def _one_by_one(piece: Piece) -> Iterator[Piece]:
    """The tokens of a piece, each with its logprob. If there are fewer logprobs than tokens, they belong to the last
    tokens."""
    if len(piece.ids) < 2:
        yield piece
        return
    unknown = len(piece.ids) - len(piece.logprobs)
    for at, token in enumerate(piece.ids):
        yield Piece((token,), logprobs=piece.logprobs[at - unknown : at - unknown + 1] if at >= unknown else ())
