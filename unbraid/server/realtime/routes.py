"""`GET /v1/realtime`: a WebSocket with OpenAI's realtime protocol, or vLLM's.

`?intent=transcription`, or the name of the model that transcribes as `?model=`, makes a session that transcribes; any
other model one that converses. A session ends when its client leaves. When the server is to end, it ends as soon as
nothing is being made, with a close frame that says so (1012); what is still being made when the time is up is told by
an `error`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..access.websocket import GOING_AWAY, LEAVING
from ..errors import ApiError
from ..http import SHUTDOWN, until_shutdown
from ..model import Served
from ..service import Service

_SUBPROTOCOL = "realtime"
_BETA_PROTOCOL = "openai-beta.realtime-v1"
_RESTART = "the server ends: connect again"


async def upgrade_required(service: Service, request: Request) -> Response:
    """A request for it that is no WebSocket."""
    message = "/v1/realtime is a WebSocket: connect with ws:// or wss:// (see docs/realtime.md)"
    raise ApiError(426, message, code="upgrade_required", headers={"Upgrade": "websocket"})


async def converse(service: Service, scope: Scope, receive: Receive, send: Send) -> None:
    """One connection. Raises `ApiError` before it is accepted."""
    try:
        from .event_writer import EventWriter
        from .session import RealtimeSession, reader_for
    except ModuleNotFoundError as error:
        message = f"/v1/realtime needs the packages of speech ({error.name} is missing): pip install 'unbraid[speech]'"
        raise ApiError(501, message, code="unsupported") from error
    headers = Headers(scope=scope)
    offered = scope["subprotocols"]
    beta = "realtime=v1" in headers.get("openai-beta", "") or _BETA_PROTOCOL in offered
    query = {name: values[-1] for name, values in parse_qs(scope["query_string"].decode("latin-1")).items()}
    served = _model(service, query)
    reader = reader_for(service, served)
    if served is None:
        options = reader.first("transcription", query.get("model", ""))
    else:
        options = reader.first("realtime", query.get("model") or served.names[0])
    await receive()  # websocket.connect
    await send({"type": "websocket.accept", "subprotocol": _SUBPROTOCOL if _SUBPROTOCOL in offered else None})
    out = EventWriter(send, beta=beta)
    session = RealtimeSession(service, served, options, out)
    connection = _Connection(service, session, out, receive, scope[LEAVING])
    try:
        await until_shutdown(connection.run())
    except ApiError as error:  # the server has to end now
        if error is not SHUTDOWN:
            raise
        await out.error(error)
        await out.close(GOING_AWAY, _RESTART)


def _model(service: Service, query: Mapping[str, str]) -> Served | None:
    """The model that is to converse; None where all is to be transcribed. Raises `ApiError` for one that is not
    here."""
    name, intent = query.get("model"), query.get("intent")
    if intent not in (None, "transcription", "conversation", "realtime"):
        raise ApiError(400, f"intent must be transcription, or left out, not {intent!r:.40}", param="intent")
    listens = service.transcriber is not None
    if intent == "transcription" or name in service.listener_names or (not service.models and listens):
        if not listens:
            message = "this server does not transcribe: start it with --transcription-model"
            raise ApiError(400, message, param="intent", code="unsupported")
        if name is not None and name not in service.names:
            service.check_listener(name)
        return None
    return service.served(name)


class _Connection:
    """Reads a client's events, for the session of its dialect."""

    def __init__(self, service: Service, session: Any, out: Any, receive: Receive, leaving: asyncio.Event) -> None:
        self._service = service
        self._session = session
        self._out = out
        self._receive = receive
        self._leaving = leaving
        self._first = True

    async def run(self) -> None:
        from .session import ClientGone

        reading = asyncio.create_task(self._read())
        leaving = asyncio.create_task(self._until_idle())
        try:
            await self._session.begin()
            await asyncio.wait([reading, leaving], return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                try:
                    reading.result()
                except ClientGone:
                    return
            await self._out.close(GOING_AWAY, _RESTART)
        finally:
            for task in (reading, leaving):
                task.cancel()
            await asyncio.gather(reading, leaving, return_exceptions=True)
            await self._session.close()

    async def _read(self) -> None:
        from .session import next_message
        from .vllm import VllmSession, is_vllm

        while True:
            try:
                event = await next_message(self._receive)
                if self._first and is_vllm(event):
                    await self._session.close()
                    self._session = VllmSession(self._service, self._out)
            except ApiError as error:
                if isinstance(self._session, VllmSession):
                    await self._session.error(error)
                else:
                    await self._out.error(error)
                continue
            self._first = False
            await self._session.take(event)

    async def _until_idle(self) -> None:
        """Wait until the server is to end, and nothing is being made."""
        await self._leaving.wait()
        while self._session.busy:
            await asyncio.sleep(0.1)
