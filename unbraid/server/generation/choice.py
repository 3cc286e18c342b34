"""One choice of a reply while it is generated: an engine's tokens in, events out.

`Choice.updates` is the heart of the server: it feeds the parser with what the engine says, and counts and times it.
`merged` runs several choices at once. Every dialect writes its reply out of the `Update`s.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from time import perf_counter
from typing import Any

from msgspec import Struct, field

from ...core.events import Diagnostic, Event, SpeechAudio
from ...engines import EngineError, EngineFailed, Finish, Generation, Piece, Unsupported
from ...engines.base import costly_work
from ...errors import Place
from ...parsing import Parser
from ..access.rates import Quota, text_tokens, token_count
from ..model import Served
from ..observing.exchange import current, note_end
from ..observing.metrics import Metrics
from ..observing.spans import EngineCall
from ..vocoder import Voice
from .task import ClientPlaces, client_place
from .thinking import ThinkingBudget, bounded
from .updates import Outgoing, Update, Usage


def with_rest(counts: Mapping[str, int], total: int) -> dict[str, int]:
    """The counts, made to add up to `total`. Tokens that the engine counts and does not show (the end of the turn, or
    what a stop text cut off) are added to the content. If the counts exceed `total`, because a token that was cut is
    spelled with several others, content is reduced."""
    strands = dict(counts)
    rest = total - sum(strands.values())
    for strand in ("content", *strands):
        taken = max(-strands[strand], rest)
        strands[strand] += taken
        rest -= taken
    return strands


def in_proportion(counts: Mapping[str, int], total: int) -> dict[str, int]:
    """The counts, as shares of `total`."""
    whole = sum(counts.values())
    if not whole:
        return with_rest(counts, total)
    strands, seen, shared = {}, 0, 0
    for strand, count in counts.items():
        seen += count
        strands[strand] = seen * total // whole - shared
        shared += strands[strand]
    return strands


_MOST_TIMES = 64
"""How many pieces come before the times between them are added to the metrics."""
_PART = 2_000
"""Tokens or characters that are parsed at a time. A piece of more, from an engine that does not stream, is parsed in
parts, and others have their turn in between."""
_MOST_WAITING = 64
"""Backpressure: how many updates of several choices may wait for a slow client."""


class Choice(Struct, eq=False):
    """One choice of a reply."""

    served: Served
    metrics: Metrics
    generation: Generation
    parser: Parser
    index: int
    usage: Usage
    arrived: float
    voice: Voice | None = None
    places: Callable[[], ClientPlaces] = dict
    """What the client calls the fields of `generation`, where it calls them otherwise."""
    budget: ThinkingBudget | None = None
    """How much reasoning there may be, if that is limited."""
    needs_ids: str = ""
    """The client's field that asks for token ids. Where the engine gives none, the request is refused."""
    recount: Callable[[], Parser] | None = None
    """Makes a parser like `parser`, to count the tokens of text by strand."""
    work: Callable[..., Awaitable[Any]] | None = None
    """Runs what the engine finds costly, within the time that a request may take."""
    _timed: bool = False
    """Whether the time to the first piece was counted."""
    _outgoing: Outgoing = field(default_factory=Outgoing)
    _ids: tuple[int, ...] = ()
    """The tokens since the last update."""
    _text: list[str] = field(default_factory=list)
    """The output, where it is text and is to be counted at the end."""
    _finished: bool = False
    """Whether the engine has said how it ended, and the usage is known."""
    _payer: tuple[str, str] = ("", "")
    """The model and the key that tokens are counted for."""
    _keeps_text: bool = False
    """Whether text without ids goes through `_feed`: it is counted at the end, or refused because the request needs
    ids."""

    def __post_init__(self) -> None:
        exchange = current()
        self._payer = (self.served.names[0], "" if exchange is None else exchange.key)
        self._keeps_text = bool(self.needs_ids) or (self.recount is not None and self.served.model.encoder is not None)

    async def updates(self) -> AsyncGenerator[Update, None]:
        """What is new, as it comes. Closing the generator aborts the engine's work."""
        times: list[float] = []
        """When pieces came, those that are not counted yet and the one before them."""
        note, take, finish = times.append, self._take, None
        count = characters = 0
        """Tokens that have come as ids, and characters without."""
        if self.work is not None:
            costly_work.set(self.work)
        try:
            with EngineCall(self.served.engine, self.generation, self.usage):
                outputs = self._outputs()
                try:
                    async for output in outputs:
                        if isinstance(output, Finish):
                            self._finished = True
                            finish = output
                            last = await self._end(output)
                            last.ids = self._ids
                            yield last
                            return
                        note(perf_counter())
                        if len(times) == _MOST_TIMES:
                            self._count(times)
                        if output.ids:
                            size = len(output.ids)
                            count += size
                        else:
                            size = len(output.text or "")
                            characters += size
                        if size > _PART:
                            async for each in self._take_large(output):
                                yield each
                        elif (update := take(output)) is not None:
                            if self.voice is not None:
                                update.sound = await self._sound(self.voice, update.events)
                            yield update
                finally:
                    await outputs.aclose()
        except EngineError as error:
            error.rename(partial(client_place, self.places()))
            raise
        finally:
            self._count(times)
            if not self._finished:
                self._count_given_up(characters)
            self._bill(finish, count + text_tokens(characters))
        raise EngineFailed("the engine ended without saying how")

    def _take(self, piece: Piece) -> Update | None:
        """Parse a piece. What is new with it, but for sound; None where nothing is."""
        if piece.ids:
            self._ids = self._ids + piece.ids if self._ids else piece.ids
            events = self.parser.feed_tokens(piece.ids)
        else:
            text = piece.text or ""
            events = self._feed(text) if self._keeps_text else self.parser.feed(text)
        # Most pieces are one event more of what there is already.
        if len(events) != 1 or type(events[0]) not in self._outgoing.unremarkable:
            events = self._remarked(events)
        if not events and not piece.logprobs:
            return None
        update = Update(self.index, events, piece.logprobs)
        if self._ids:
            update.ids, self._ids = self._ids, ()
        return update

    async def _take_large(self, piece: Piece) -> AsyncGenerator[Update, None]:
        """Parse a large piece in parts, so that other requests have their turn in between. Returns what `_take`
        does."""
        for part in _parts(piece):
            await asyncio.sleep(0)
            if (update := self._take(part)) is not None:
                if self.voice is not None:
                    update.sound = await self._sound(self.voice, update.events)
                yield update

    def _count(self, times: list[float]) -> None:
        """Count how long pieces took to come, and keep the time of the last."""
        if times and not self._timed:
            self.metrics.first_token.labels(*self._payer).observe(times[0] - self.arrived)
            self._timed = True
        if len(times) > 1:
            self.metrics.between_tokens.labels(*self._payer).observe_all(times)
            del times[:-1]

    def _count_given_up(self, characters: int) -> None:
        """Count the tokens of an output that broke off before the engine reported a number. `characters` came without
        ids: if only the engine knows the tokenizer, the number is estimated as for `Quota`."""
        if self.recount is None:
            return  # the parser counts nothing, and nobody is told
        strands = {} if self.served.model.encoder is None else self.parser.tokens
        tokens = sum(strands.values()) + text_tokens(characters)
        finish = Finish("abort", token_count(self.generation.prompt), tokens)
        self.usage.add(finish, None if characters else strands)

    def _bill(self, finish: Finish | None, count: int) -> None:
        """Bill the tokens that the engine reports, or those that came if the engine broke off or the client left. The
        prompt of several choices is billed once."""
        metrics, usage = self.metrics, self.usage
        prompt = token_count(self.generation.prompt) if finish is None else finish.prompt_tokens
        if finish is None and not count:  # perhaps nobody has read it
            return
        if prompt > usage.told:
            metrics.series(metrics.prompt_tokens, *self._payer).inc(prompt - usage.told)
            metrics.series(metrics.cached_tokens, *self._payer).inc(0 if finish is None else finish.cached_tokens)
            usage.told = prompt
        tokens = count if finish is None else finish.completion_tokens
        metrics.series(metrics.completion_tokens, *self._payer).inc(tokens)

    def _outputs(self) -> AsyncGenerator[Piece | Finish, None]:
        engine = self.served.engine
        if self.budget is None:
            outputs = engine.generate(self.generation)
        else:
            outputs = bounded(engine, self.generation, self.parser, self.budget)
        quota = Quota.current()
        return outputs if quota is None else quota.count(self.generation, outputs)

    def _feed(self, text: str) -> list[Event]:
        """Feed text that is to be counted, or refused."""
        if self.needs_ids:
            raise Unsupported(Place(self.needs_ids), ": the engine gives text and no token ids here; leave it out")
        self._text.append(text)
        return self.parser.feed(text)

    def _strands(self, finish: Finish) -> dict[str, int] | None:
        """How many tokens belong to each strand; None if that cannot be told, as when only the engine knows the
        tokenizer."""
        if self.recount is None or self.served.model.encoder is None:
            return None
        if not self._text:
            return with_rest(self.parser.tokens, finish.completion_tokens)
        parser = self.recount()
        parser.feed_tokens(self.served.model.encode_output("".join(self._text)))
        parser.finish()
        return in_proportion(parser.tokens, finish.completion_tokens)

    async def _end(self, finish: Finish) -> Update:
        if finish.reason == "abort":
            raise EngineFailed("the engine gave the request up")
        # A stop text of the client's cuts the output off as the limit does. Only the model itself ends its turn.
        own_end = finish.reason == "stop" and not isinstance(finish.stopped_by, str)
        events = self.parser.finish(end_of_turn=own_end)
        strands = await asyncio.to_thread(self._strands, finish) if self._text else self._strands(finish)
        self.usage.add(finish, strands)
        events = self._remarked(events)
        update = Update(self.index, self._outgoing.last(events, cut_off=not own_end))
        if self.voice is not None:
            update.sound = await self._sound(self.voice, update.events) + await asyncio.to_thread(self.voice.finish)
        if isinstance(finish.stopped_by, str) and finish.stopped_by in self.generation.stop:
            update.stopped_by = finish.stopped_by
        update.end = "length" if finish.reason == "length" else self._outgoing.end
        note_end(update.end)
        return update

    def _remarked(self, events: list[Event]) -> list[Event]:
        """The events that go out now. Counts the diagnostics among them."""
        for event in events:
            if type(event) is Diagnostic:
                self.metrics.diagnostics.labels(self.served.model.format.name, event.kind).inc()
        return self._outgoing.passed(events)

    async def _sound(self, voice: Voice, events: Sequence[Event]) -> bytes:
        spoken = (event.codes for event in events if isinstance(event, SpeechAudio))
        return b"".join([await asyncio.to_thread(voice.feed, codes) for codes in spoken])


def _parts(piece: Piece) -> Iterator[Piece]:
    """Split a large piece. Logprobs stay with their tokens. Logprobs of text cannot be assigned, so they go with the
    first part."""
    of_tokens = len(piece.logprobs) == len(piece.ids)
    for at in range(0, len(piece.ids or piece.text or ""), _PART):
        part = slice(at, at + _PART)
        logprobs = piece.logprobs[part] if of_tokens else piece.logprobs if at == 0 else ()
        yield Piece(piece.ids[part], None if piece.text is None else piece.text[part], logprobs)


def merged(choices: Sequence[Choice]) -> AsyncGenerator[Update, None]:
    """The updates of all choices, as they come."""
    return choices[0].updates() if len(choices) == 1 else _interleaved(choices)


async def _interleaved(choices: Sequence[Choice]) -> AsyncGenerator[Update, None]:
    queue: asyncio.Queue[Update | None] = asyncio.Queue(_MOST_WAITING)

    async def run(choice: Choice) -> None:
        async with aclosing(choice.updates()) as updates:
            async for update in updates:
                await queue.put(update)

    async def run_all() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for choice in choices:
                    group.create_task(run(choice))
        except ExceptionGroup:
            await queue.put(None)
            raise
        await queue.put(None)

    runner = asyncio.create_task(run_all())
    try:
        while (item := await queue.get()) is not None:
            yield item
        await runner
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors
    finally:
        runner.cancel()
        await asyncio.gather(runner, return_exceptions=True)
