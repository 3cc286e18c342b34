"""Streams that are parsed chunk by chunk, each chunk by whichever process it comes to.

A chunk comes with the state that the reply to the last one brought (`Streams.resume`), and goes with the next
(`Streams.seal`). All about a stream is in that state: nothing of it is kept here that another process would miss.

What a chunk costs does not depend on what came before it; `bench/derender.py` measures it. Most chunks are plain text,
which changes nothing but where the parser is. So the rest of its state is packed once, and parsers are kept by their
state: one that rests serves any stream that comes along in the same state, whichever process had it before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from ...caching import LruCache
from ...core.events import Event
from ...core.machine.snapshot import load_state, state_of
from ...parsing import Parser
from ...templates import BegunCall
from ..generation.begun_calls import past_beginning, taken_up
from ..model import Served
from ..service import Service
from ..storage.seal import StreamStates, pack, unpack
from .deltas import Deltas
from .readings import Reading, Readings
from .wire import ToldState, bad_state

_REMEMBERED = 1024
_RESTING = 1024


class TokenStream:
    """A stream between two chunks, as far as this process has it."""

    __slots__ = ("_ids", "_moves", "_state", "_waiting", "deltas", "machine", "parser", "reading")

    def __init__(self, reading: Reading, parser: Parser) -> None:
        self.reading = reading
        self.parser = parser
        self.machine = parser.machine
        self.deltas = Deltas()
        self._moves = -1
        self._state = b""
        self._ids: list[Any] = []
        self._waiting: list[Event] = []
        """What comes with the first chunk."""

    def take_up(self, begun: BegunCall) -> None:
        """Go on inside a call. What the prompt has of it stands before the beginning."""
        machine = self.machine
        self._waiting = taken_up(machine, begun, self.parser.feed_tokens(begun.ids))
        machine.offset -= len(begun.text)

    def feed(self, ids: Sequence[int], finish_reason: str | None) -> list[Event]:
        """What comes of the next ids; and of the end, where they are the last."""
        events: list[Event] = self.parser.feed_tokens(ids) if ids else []
        if finish_reason is not None:
            events += self.parser.finish(end_of_turn=finish_reason == "stop")
        waiting, self._waiting = self._waiting, []
        return [*waiting, *past_beginning(events, 0)] if waiting else past_beginning(events, 0)

    def state(self) -> bytes:
        """The parser's state, packed."""
        if self._moves != self.machine.moves:
            self._moves, self._ids = self.machine.moves, self.machine.ids.save()
            self._state = pack(state_of(self.machine))
        return self._state

    def save(self) -> tuple[Any, ...]:
        state = self.state()
        return self.reading.digest, self.deltas.save(), self.machine.offset, self._ids, state

    def load(self, reading: Reading, delta_state: list[Any], offset: int, ids: list[Any], state: bytes) -> None:
        """Go on from what `save` returned. The parser is in that state already."""
        machine = self.machine
        machine.offset = offset
        machine.ids.load(ids)
        self.reading = reading
        self.deltas.load(delta_state)
        self._moves, self._state, self._ids = machine.moves, state, ids


class Streams:
    """All streams of a service.

    cache_size: how many states that were sealed here are known without being read.
    """

    def __init__(self, service: Service, cache_size: int = _REMEMBERED) -> None:
        self._states = StreamStates(service.seal, cache_size)
        self._readings: dict[str, Readings] = {}
        self._resting: LruCache[tuple[bytes, bytes], TokenStream] = LruCache(_RESTING)
        """Between two chunks, by reading and state."""

    def readings(self, served: Served) -> Readings:
        readings = self._readings.get(served.names[0])
        if readings is None:
            readings = self._readings[served.names[0]] = Readings(served.model)
        return readings

    def has_read(self, request: bytes) -> bool:
        """Whether this process knows how the replies to a `chat_request` are to be read."""
        return any(readings.has_read(request) for readings in self._readings.values())

    def begin(self, reading: Reading, prompt: Sequence[int] | None, request_id: str, index: int) -> TokenStream:
        """A stream before its first chunk."""
        stream = TokenStream(reading, reading.parser(prompt, seed_of(request_id, index, prompt)))
        begun = reading.goes_on(prompt)
        if begun is not None:
            stream.take_up(begun)
        return stream

    def resume(self, reading: Reading, sealed: bytes, client: str) -> TokenStream:
        """A stream as it was when its state was sealed. Raises `ApiError` for a state that is not ours, or of another
        request."""
        saved = self._states.open(sealed, client)
        if saved is None:
            raise bad_state("it was not made by this server, or for another API key; replicas must share `--secret`")
        digest, delta_state, offset, ids, state = saved
        if digest != reading.digest:
            raise bad_state("it belongs to another model, version of the server, or `chat_request`: send the same one")
        stream = self._resting.pop((digest, state))
        if stream is None:
            stream = self._idle(reading)
            load_state(stream.machine, unpack(state))
        stream.load(reading, delta_state, offset, ids, state)
        return stream

    def seal(self, stream: TokenStream, client: str) -> bytes:
        """The state of a stream, for the next chunk. The stream itself serves others from here on."""
        sealed = self._states.close(stream.save(), client)
        self._resting[stream.reading.digest, stream.state()] = stream
        return sealed

    def _idle(self, reading: Reading) -> TokenStream:
        """A parser for this reading, in whatever state. Where there are many, the one that has rested longest: to make
        one takes longer than to load a state into one."""
        if len(self._resting) == _RESTING:
            for key in self._resting:  # other threads take some away
                if key[0] == reading.digest and (idle := self._resting.pop(key)) is not None:
                    return idle
        return TokenStream(reading, reading.parser(None, 0))


def seed_of(request_id: str, index: int, prompt: Sequence[int] | None) -> int:
    """For the ids of calls. A reply has the same whole and in chunks. The next turn of a conversation has others, even
    if a gateway gives all its requests the same id."""
    text = f"{request_id}/{index}/{len(prompt or ())}/{list(prompt or ())[-16:]}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:24], "big")


def told_state(streams: Streams, stream: TokenStream, client: str) -> ToldState:
    """The state of a stream, as the reply to a chunk tells it."""
    deltas = stream.deltas
    progress = deltas.role_sent, deltas.characters, deltas.called  # the next stream may overwrite them
    return ToldState((streams.seal(stream, client),), *progress)
