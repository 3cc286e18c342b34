"""Sentences: texts cut into them, whole or as they are written, and requests to one model that take turns with theirs.

The first sentence can be heard while the others are made. Nothing is left out: the pieces, joined with spaces, have the
words of the text in its order. A piece is a sentence, or several if they are very short ("No. 5" is none, "Yes. I
will." may be two). One that is too long for a model is divided where a speaker would pause, or else between words, or
else anywhere.

A model computes one call at a time, so one thread has it to itself (`SentenceQueue`). A request asks for one sentence,
and for the next when it has been given that one, and clients take turns (`unbraid.fairness`). So each client waits for
one sentence of each of the others at most, however many and long their texts are, and nothing is made much earlier than
somebody listens.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from ...engines.base import EngineBusy, EngineDown, Load
from ...fairness import FairQueue, QueueFull, client

T = TypeVar("T")

SHORT = 24
"""Characters. What is shorter is spoken together with what follows: alone, models speak it badly."""
CLAUSE = 32
"""Characters that the first clause of a text has at least, if it is spoken before its sentence is over."""
LONGEST = 300
"""Characters of a piece."""

# The end of a sentence: a mark, perhaps with closing quotes, before white space; or a mark of a script without spaces.
_ENDS = re.compile(r"(?<=[.!?…])[\"'”’»)\]]*(?=\s)|[。！？]+[」』”]*|\n\s*\n|\n(?=\s*[-*•\d])")
_ABBREVIATED = re.compile(
    r"(?:^|[\s(])(?:[A-Za-z]|[Dd]r|[Mm]rs?|[Mm]s|[Pp]rof|[Ss]t|[Nn]o|[Vv]s|e\.g|i\.e|bzw|z\.B|Sra?)\.$"
)
_PAUSES = (re.compile(r"[;:—–]+\s*|\s-\s"), re.compile(r"[,、，]+\s*"), re.compile(r"\s+"))


_CLAUSE = re.compile(r"[,;:—–]\s+(?=\S)")
_MARKUP = re.compile(
    r"```[\w+-]*|(?:[*_`]{1,3}|~~)(?=\S)|(?<=\S)(?:[*_`]{1,3}|~~)|^\s{0,3}(?:#{1,6}|>|[-*•+])\s+", re.MULTILINE
)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)\s]*\)")


def sentences(text: str) -> list[str]:
    """The pieces of a text, each with a character or more."""
    pieces: list[str] = []
    begun = 0
    for end in _ends(text):
        pieces += _divided(text[begun:end].strip())
        begun = end
    rest = text[begun:].strip()
    if rest and pieces and len(rest) < SHORT and len(pieces[-1]) + len(rest) < LONGEST:
        pieces[-1] += f" {rest}"
    elif rest:
        pieces += _divided(rest)
    return pieces


def _ends(text: str) -> Iterator[int]:
    """Where the pieces of a text end, but for the last one."""
    begun = 0
    for end in _ENDS.finditer(text):
        size = end.end() - begun
        if size < SHORT or (size < LONGEST and _ABBREVIATED.search(text[max(begun, end.start() - 8) : end.start()])):
            continue
        begun = end.end()
        yield begun


class SentenceCutter:
    """Cuts a text that is still being written. Joined, its pieces are the text, with all its spaces.

    The first piece ends with a clause, where a sentence begins with a long one: somebody waits for its sound.
    """

    def __init__(self) -> None:
        self._text = ""
        self._is_first = True

    def feed(self, text: str) -> list[str]:
        """The pieces that more text completes. What a sentence ends with is certain once something follows it."""
        self._text += text
        pieces: list[str] = []
        if self._is_first and (end := self._first_end()):
            self._is_first = False
            pieces.append(self._text[:end])
            self._text = self._text[end:]
        begun = 0
        for end in _ends(self._text) if not self._is_first else ():
            if end < len(self._text):
                pieces.append(self._text[begun:end])
                begun = end
        self._text = self._text[begun:]
        while len(self._text) > LONGEST:
            self._is_first = False
            cut = _pause(self._text)
            pieces.append(self._text[:cut])
            self._text = self._text[cut:]
        return pieces

    def _first_end(self) -> int | None:
        """Where the first piece ends, if that is certain: with a clause or with a sentence."""
        clause = next((one.end() for one in _CLAUSE.finditer(self._text) if CLAUSE <= one.start() < LONGEST), None)
        sentence = next((end for end in _ends(self._text) if end < len(self._text)), None)
        return min((end for end in (clause, sentence) if end is not None), default=None)

    def finish(self) -> list[str]:
        """The rest."""
        text, self._text = self._text, ""
        return [text] if text else []


def read_aloud(text: str) -> str:
    """What is to be said of a text: without the marks of Markdown."""
    return _MARKUP.sub("", _LINK.sub(r"\1", text)).strip()


def _pause(text: str) -> int:
    """Where a text that is too long is divided."""
    for pause in _PAUSES:
        ends = [match.end() for match in pause.finditer(text, LONGEST // 3, LONGEST)]
        if ends:
            return ends[-1]
    return LONGEST


def _divided(piece: str) -> list[str]:
    """A sentence in parts of at most `LONGEST` characters."""
    parts = []
    while len(piece) > LONGEST:
        cut = _pause(piece)
        parts.append(piece[:cut].strip())
        piece = piece[cut:].strip()
    return [*parts, piece] if piece else parts


class SentenceQueue:
    """The thread of one model.

    model: its name, for messages.
    most: how many requests there may be at once, with the one that is spoken. More are refused with `EngineBusy`.
    """

    def __init__(self, model: str, most: int) -> None:
        self._model = model
        self._most = most
        self._requests = FairQueue(most, 0)
        self._turns = FairQueue(1, sys.maxsize)
        self._working = 0
        self._closed = False
        self._thread = ThreadPoolExecutor(1, f"unbraid-{model}")

    @property
    def load(self) -> Load:
        running = min(1, self._working)
        return Load(running, max(0, self._requests.taken - running))

    @contextmanager
    def request(self) -> Iterator[None]:
        """A request is at work while this is open."""
        if self._closed:
            raise EngineDown("the engine was closed", retry_after=60.0)
        try:
            place = self._requests.take(client.get())
        except QueueFull as full:
            raise self._busy(full) from None
        try:
            yield
        finally:
            place.leave()

    def _busy(self, full: QueueFull) -> EngineBusy:
        error = EngineBusy(f"{self._model} has {self._most} texts to speak: try again later")
        error.status = 429 if full.own else None
        return error

    def soon(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """What `work` returns in the thread, when it is its turn. What is cancelled before that is not done at all."""
        return asyncio.ensure_future(self._in_turn(work))

    async def _in_turn(self, work: Callable[[], T]) -> T:
        place = await self._turns.enter(client.get())
        try:
            done: Future[T] = self._thread.submit(self._work, work)
        except RuntimeError:
            place.leave()
            raise EngineDown("the engine was closed", retry_after=60.0) from None
        done.add_done_callback(lambda _: place.leave())
        return await asyncio.wrap_future(done)

    async def result(self, done: asyncio.Future[T]) -> T:
        """The result of `soon`. Raises `EngineDown` if the engine was closed before."""
        try:
            return await done
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed and done.cancelled() and not (task is not None and task.cancelling()):
                raise EngineDown("the engine was closed", retry_after=60.0) from None
            raise

    async def close(self) -> None:
        """End the thread after the sentence that it is at."""
        self._closed = True
        self._turns.close(EngineDown("the engine was closed", retry_after=60.0))
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

    def _work(self, work: Callable[[], T]) -> T:
        self._working = 1
        try:
            return work()
        finally:
            self._working = 0
