"""Streams that are parsed chunk by chunk, each chunk by whichever process it comes to.

`Streams.next` takes a chunk of ids and the state that the last reply brought, and returns what is new and the next
state. All else about a stream is in that state: nothing of it is kept here that another process would miss.

What a chunk costs does not depend on what came before it. `bench/derender.py` measures it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from ....core.events import Event
from ....core.machine.snapshot import load_state, state_of
from ....parsing import Parser
from ...errors import ApiError
from ...model import Served
from ...service import Service
from ...storage.stream_states import StreamStates
from .deltas import Deltas
from .readings import Reading, Readings

Standing = tuple[Reading, Parser, Deltas]
"""A stream between two chunks, as far as this process has it."""


class Streams:
    """All streams of a service."""

    def __init__(self, service: Service) -> None:
        self._states: StreamStates[Standing] = StreamStates(service.seal)
        self._readings: dict[str, Readings] = {}

    def readings(self, served: Served) -> Readings:
        found = self._readings.get(served.names[0])
        if found is None:
            found = self._readings[served.names[0]] = Readings(served.model)
        return found

    def begin(self, reading: Reading, prompt: Sequence[int] | None, request_id: str, index: int) -> Standing:
        """A stream before its first chunk."""
        return reading, reading.parser(prompt, seed_of(request_id, index, prompt)), Deltas(reading)

    def resume(self, reading: Reading, sealed: str, client: str) -> Standing:
        """A stream as it was when its state was sealed. Raises `ApiError` for a state that is not ours, or of another
        request."""
        standing = self._states.take(sealed, client)
        if standing is not None and standing[0].digest == reading.digest:
            return standing
        saved = self._states.open(sealed, client)
        if saved is None:
            raise _refused("it was not made by this server, or for another API key; replicas must share `--secret`")
        digest, told, state = saved
        if digest != reading.digest:
            raise _refused("it belongs to another model, version of the server, or `chat_request`: send the same one")
        parser, deltas = reading.idle(), Deltas(reading)
        load_state(parser.machine, state)
        deltas.load(told)
        return reading, parser, deltas

    def seal(self, standing: Standing, client: str) -> str:
        """The state of a stream, for the next chunk."""
        reading, parser, deltas = standing
        sealed = self._states.close((reading.digest, deltas.save(), state_of(parser.machine)), client)
        unused = standing if parser.machine.finished else self._states.keep(sealed, client, standing)
        if unused is not None:
            unused[0].give_back(unused[1])
        return sealed


def fed(parser: Parser, ids: Sequence[int], finish_reason: str | None) -> Iterable[Event]:
    """What comes of the next ids; and of the end, where they are the last."""
    events: list[Event] = parser.feed_tokens(ids) if ids else []
    if finish_reason is not None:
        events += parser.finish(end_of_turn=finish_reason == "stop")
    return events


def seed_of(request_id: str, index: int, prompt: Sequence[int] | None) -> int:
    """For the ids of calls. A reply has the same whole and in chunks. The next turn of a conversation has others, even
    if a gateway gives all its requests the same id."""
    told = f"{request_id}/{index}/{len(prompt or ())}/{list(prompt or ())[-16:]}"
    return int.from_bytes(hashlib.sha256(told.encode()).digest()[:24], "big")


def _refused(why: str) -> ApiError:
    return ApiError(400, f"stream_state: {why}", param="stream_state", code="invalid_stream_state")


def told_state(sealed: str, standing: Standing) -> dict[str, Any]:
    """A state with the fields of vLLM's."""
    deltas = standing[2]
    return {
        "prev_tokens": [sealed],
        "prefix_offset": 0,
        "read_offset": 0,
        "role_sent": deltas.role_sent,
        "logprob_context_token_ids": [],
        "logprob_text_offset": deltas.characters,
        "output_token_ids": [],
        "output_chunk_lens": [],
        "tools_streamed": deltas.called,
        "last_tool_call_ids": [],
    }
