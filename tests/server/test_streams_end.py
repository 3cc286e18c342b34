"""Whenever a stream is ended, by its client or by the server, what it writes is closed: no generation runs on for
nobody. All turns of the event loop are tried."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

import pytest
from starlette.types import Message, Scope

from unbraid.server.api.sse import stream
from unbraid.server.errors import ApiError
from unbraid.server.http import ClientLeft, Connection, expire_all

TURNS = 30
"""More than a stream takes until it waits for its engine."""


class Reply:
    """A reply to a client that may leave."""

    def __init__(self) -> None:
        self.running = 0
        self.sent: list[Message] = []
        self._gone = asyncio.Event()

    async def events(self) -> AsyncGenerator[bytes, None]:
        self.running += 1
        try:
            for number in range(3):
                await asyncio.sleep(0)
                yield b"data: %d\n\n" % number
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # an engine has to be told
            self.running -= 1

    async def receive(self) -> Message:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await asyncio.sleep(0)
        if self._gone.is_set():
            raise OSError("the client is gone")
        self.sent.append(message)

    def leave(self) -> None:
        self._gone.set()

    async def run(self) -> None:
        connection = Connection(self.receive)
        scope: Scope = {"type": "http"}
        try:
            response = await stream(connection, self.events())
            await response(scope, connection, self.send)
        except (ClientLeft, ApiError, OSError):
            pass
        finally:
            connection.close()


def shutdown(reply: Reply) -> None:
    expire_all()


@pytest.mark.parametrize("end", [Reply.leave, shutdown], ids=["client", "server"])
@pytest.mark.parametrize("turns", range(TURNS))
def test_a_stream_that_is_ended_leaves_nothing_running(turns: int, end: Callable[[Reply], None]) -> None:
    async def run() -> Reply:
        reply = Reply()
        work = asyncio.create_task(reply.run())
        for _ in range(turns):
            await asyncio.sleep(0)
        while not work.done():  # a request that has not begun cannot be ended yet
            end(reply)
            await asyncio.sleep(0)
        assert reply.running == 0
        return reply

    reply = asyncio.run(run())
    if turns == TURNS - 1:
        assert len(reply.sent) >= 4  # the last turn is late enough: all has come that will
    if end is shutdown and reply.sent:
        assert b"shutdown" in reply.sent[-1]["body"]
        assert b"".join(each.get("body", b"") for each in reply.sent).endswith(b"data: [DONE]\n\n")
