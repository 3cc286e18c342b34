"""The handlers of `/v1/responses`: create one, and ask again for those that are stored.

A response is in the store before its client is told that it is complete. One that runs in the background is a task of
this process, which may be cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypedDict, cast

from starlette.requests import Request
from starlette.responses import Response

from ...errors import Place
from ...fairness import HeldPlace, QueueFull, client
from ..api.bodies import read_request
from ..api.fields import Object
from ..api.replies import unhurried
from ..api.sse import Framing, stream
from ..errors import ApiError, as_api_error, too_many
from ..generation.choice import Choice
from ..generation.enforcing import unenforced_header
from ..generation.plan import Plan, plan_chat
from ..generation.updates import Usage
from ..http import SHUTDOWN, client_of, json_response, while_connected, whole_number
from ..model import Model, Served
from ..observing.exchange import arrival, note_reply
from ..service import Service
from ..storage.seal import Seal
from ..storage.store import BEAT, RUNNING, Store, StoredResponse
from .items import kind_of, resolved
from .output_items import new_id
from .request import (
    ENCRYPTED,
    LOGPROBS,
    UNDECLARED,
    FullRequest,
    ResponsesRequest,
    chat_task,
    check_ids,
    check_include,
    given_tools,
)
from .tools import ShownTools
from .writer import ResponseObject, ResponseWriter

_log = logging.getLogger(__name__)
_LONGEST_CHAIN = 10_000
_MOST_LISTED = 100
_DONE = b"data: [DONE]\n\n"


class DeletedResponse(TypedDict):
    id: str
    object: Literal["response"]
    deleted: Literal[True]


class ItemList(TypedDict):
    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


async def create(service: Service, request: Request) -> Response:
    """`POST /v1/responses`."""
    arrived = arrival()
    body = await read_request(service, request, ResponsesRequest, UNDECLARED)
    served = service.served(body.model)
    full, plan = await while_connected(request.receive, _planned(service, served, body, client_of(request)))
    usage = Usage()
    (choice,) = plan.choices(service, served, usage, arrived, keep_message=True)
    writer = ResponseWriter(
        body.model or served.names[0],
        full.echo(served.model),
        full.tools,
        usage,
        seal=partial(service.seal.close, client=full.client) if full.includes(ENCRYPTED) else None,
        summarized=full.summarized,
        with_logprobs=full.includes(LOGPROBS),
    )
    note_reply(writer.response["id"])
    run = _Run(service, full, writer, choice)
    headers = unenforced_header(plan.unenforced)
    if body.background:
        return json_response(await run.in_background(), headers=headers)
    if body.stream:
        return await stream(request.receive, run.events(), Framing(run.failed, _DONE), headers=headers)
    await while_connected(request.receive, run.whole())
    return json_response(writer.response, headers=headers)


async def retrieve(service: Service, request: Request) -> Response:
    """`GET /v1/responses/{id}`."""
    if request.query_params.get("stream", "false").lower() == "true":
        message = "stream: a stored response is not streamed again; ask for it without"
        raise ApiError(400, message, param="stream", code="unsupported")
    return json_response((await _stored(service, request)).response)


async def delete(service: Service, request: Request) -> Response:
    """`DELETE /v1/responses/{id}`."""
    id = request.path_params["id"]
    store = _store_of(service)
    await _cancel(service, client_of(request), id)
    if not await service.stored(store.delete, client_of(request), id):
        raise _no_such(id)
    return json_response(DeletedResponse(id=id, object="response", deleted=True))


async def cancel(service: Service, request: Request) -> Response:
    """`POST /v1/responses/{id}/cancel`."""
    stored = await _stored(service, request)
    if not stored.response["background"]:
        message = "only a response with `background: true` is cancelled; to stop another one, close its connection"
        raise ApiError(400, message, param="background")
    await _cancel(service, client_of(request), stored.response["id"])
    return json_response((await _stored(service, request)).response)


async def input_items(service: Service, request: Request) -> Response:
    """`GET /v1/responses/{id}/input_items`: all that the response was an answer to."""
    stored = await _stored(service, request)
    before = await service.stored(_chain, _store_of(service), client_of(request), stored.previous)
    items = [item for one in before for item in (*one.input, *one.response["output"])] + stored.input
    query = request.query_params
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise ApiError(400, f"order must be asc or desc, not {order!r:.40}", param="order")
    if order == "desc":
        items.reverse()
    after = query.get("after")
    if after is not None:
        at = next((at for at, item in enumerate(items) if item.get("id") == after), None)
        if at is None:
            raise ApiError(400, f"after: there is no item {after!r:.80} here", param="after")
        items = items[at + 1 :]
    most = _limit(query.get("limit", "20"))
    page = [_listed(item) for item in items[:most]]
    first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
    listed: ItemList = {
        "object": "list",
        "data": page,
        "first_id": first,
        "last_id": last,
        "has_more": len(items) > most,
    }
    return json_response(listed)


# The request


async def _planned(service: Service, served: Served, body: ResponsesRequest, client: str) -> tuple[FullRequest, Plan]:
    full = await service.stored(_gather, service, body, client)
    return full, await service.planned(_plan, served.current(), service.seal, full)


def _plan(model: Model, seal: Seal, full: FullRequest) -> Plan:
    return plan_chat(model, chat_task(seal, full))


def _gather(service: Service, body: ResponsesRequest, client: str) -> FullRequest:
    """The request, with what is stored of the conversation."""
    check_include(body.include or ())
    if body.background and body.stream:
        message = "stream: a response in the background is not streamed; ask for it with GET /v1/responses/{id}"
        raise ApiError(400, message, param="stream")
    if body.background and (service.store is None or body.store is False):
        raise ApiError(400, "background: what runs in the background must be stored", param="background")
    before: list[StoredResponse] = []
    if body.previous_response_id is not None:
        before = _chain(_store_of(service), client, body.previous_response_id)
    items: list[Object] = body.input if isinstance(body.input, list) else []
    if isinstance(body.input, str):
        items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": body.input}]}]
    check_ids(items)
    if body.input is None and not before:
        raise ApiError(400, "input is missing: it is required", param="input")
    items = [resolved(item, Place("input", at), partial(_item, service, client)) for at, item in enumerate(items)]
    items = [item if item.get("id") else {**item, "id": new_id("item")} for item in items]
    stores = service.store is not None and body.store is not False
    return FullRequest(body, client, items, before, stores, ShownTools(given_tools(body, before)))


def _item(service: Service, client: str, id: str) -> Object | None:
    return None if service.store is None else service.store.item(client, id)


def _chain(store: Store, client: str, id: str | None) -> list[StoredResponse]:
    """The responses that one goes on from, as far as they are there, the oldest first, and it."""
    chain: list[StoredResponse] = []
    while id is not None:
        one = store.get(client, id)
        if (one is None and chain) or len(chain) > _LONGEST_CHAIN:
            break  # the rest was deleted, which was somebody's wish
        if one is None:
            message = f"previous_response_id: there is no response {id!r:.80} here; it may have been deleted"
            raise ApiError(400, message, param="previous_response_id", code="previous_response_not_found")
        if one.response["status"] in RUNNING:
            message = f"previous_response_id: the response {id!r:.80} is not complete yet"
            raise ApiError(400, message, param="previous_response_id")
        chain.append(one)
        id = one.previous
    return chain[::-1]


# The reply


class _Run:
    """A response while it is made."""

    def __init__(self, service: Service, full: FullRequest, writer: ResponseWriter, choice: Choice) -> None:
        self._service = service
        self._full = full
        self._writer = writer
        self._choice = choice
        self._farewell = b""
        """What the stream has ended with, if it failed."""
        self._kept = False

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The events, as they come. Once the client knows of the response, it is kept, however it ends."""
        begun = False
        try:
            async with aclosing(self._choice.updates()) as updates:
                before = self._writer.first()
                async for update in updates:
                    written_events = before + self._writer.update(update)
                    before, begun = b"", True
                    yield written_events
            await self._keep()
        except (asyncio.CancelledError, GeneratorExit):
            if begun:
                self._cut_off()
                await self._keep()
            raise
        except Exception as error:
            if not begun:
                raise
            self._farewell = self._writer.fail(as_api_error(error))
            await self._keep()
            yield self._farewell
            return
        yield before + self._writer.last()

    async def whole(self) -> None:
        """All of it, for a client that waits for the end."""
        end = None
        try:
            async with aclosing(self._choice.updates()) as updates:
                async for update in updates:
                    self._writer.hear(update)
                    end = update.end
        except BaseException:  # what has come is kept all the same
            self._writer.whole(self._choice.parser.message, None)
            raise
        message = self._choice.parser.message
        await unhurried(message, partial(self._writer.whole, message, end))
        await self._keep()

    def failed(self, error: Exception) -> bytes:
        """What the stream ends with, where it fails outside of `events`: because the server has to end."""
        api_error = as_api_error(error)
        return self._farewell or self._writer.fail(api_error)

    def _cut_off(self) -> None:
        """The client has left or cancelled, or the server has to end."""
        if self._service.draining:
            self._farewell = self._writer.fail(SHUTDOWN)
        else:
            self._writer.cancel()

    async def in_background(self) -> ResponseObject:
        """Begin, and return what there is to see of it now."""
        place = _place_in_background(self._service)
        try:
            await self._keep()
        except BaseException:
            place.leave()
            raise
        key = (self._full.client, self._writer.response["id"])
        task = asyncio.create_task(self._finish())
        self._service.background[key] = task
        task.add_done_callback(lambda _: self._service.background.pop(key, None))
        task.add_done_callback(lambda _: place.leave())
        return {**self._writer.response, "status": "queued"}

    async def _finish(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        client.set(replace(client.get(), background=True))
        beats = asyncio.create_task(self._beat(task))
        try:
            await self.whole()
            return
        except asyncio.CancelledError:
            self._cut_off()
        except Exception as error:
            self._writer.fail(as_api_error(error))
        finally:
            beats.cancel()
        await self._keep()

    async def _beat(self, task: asyncio.Task[None]) -> None:
        """Say in the store that the response is being made, until it is cancelled there by another process."""
        store = _store_of(self._service)
        while await self._service.stored(store.beat, self._full.client, self._writer.response["id"]):
            await asyncio.sleep(BEAT)
        task.cancel()

    async def _keep(self) -> None:
        """Store what there is of the response, if it is to be stored. If that fails, the client is answered all the
        same."""
        store, response = self._service.store, self._writer.response
        if store is None or not self._full.store:
            return
        try:
            await self._service.stored(
                store.put, self._full.client, self._full.input, cast(Object, response), again=self._kept
            )
            self._kept = True
        except sqlite3.Error as error:
            _log.error("a response could not be stored: %s", error)
            response["store"] = False


def _place_in_background(service: Service) -> HeldPlace:
    try:
        return service.in_background.take(client.get())
    except QueueFull as full:
        raise too_many("responses in the background", full) from None


# Stored responses


def _store_of(service: Service) -> Store:
    if service.store is None:
        raise ApiError(400, "nothing is stored here: start the server with --store, or send the whole conversation")
    return service.store


async def _stored(service: Service, request: Request) -> StoredResponse:
    id = request.path_params["id"]
    stored = await service.stored(_store_of(service).get, client_of(request), id)
    if stored is None:
        raise _no_such(id)
    return stored


def _no_such(id: str) -> ApiError:
    return ApiError(404, f"there is no response {id!r:.80} here", param="id", code="not_found")


async def _cancel(service: Service, client: str, id: str) -> None:
    """Here at once; where another process runs it, soon."""
    task = service.background.get((client, id))
    if task is not None:
        task.cancel()
        await asyncio.wait([task])
    else:
        await service.stored(_store_of(service).cancel, client, id)


def _limit(text: str) -> int:
    number = whole_number(text)
    if number is None or not 1 <= number <= _MOST_LISTED:
        raise ApiError(400, f"limit must be a number from 1 to {_MOST_LISTED}, not {text!r:.40}", param="limit")
    return number


def _listed(item: Object) -> dict[str, Any]:
    """An item as lists show it: with its type and status, and content in parts."""
    listed = {"status": "completed", **item, "type": kind_of(item)}
    if "role" in item:
        is_output = item["role"] == "assistant"
        content = item.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        listed["content"] = [_listed_part(part, is_output) for part in parts or ()]
    return listed


def _listed_part(part: Any, is_output: bool) -> Any:
    if not isinstance(part, dict) or part.get("type") not in ("text", "input_text", "output_text"):
        return part
    if not is_output:
        return {**part, "type": "input_text"}
    return {"annotations": [], "logprobs": [], **part, "type": "output_text"}
