"""The handlers: `POST /v1/messages` and `POST /v1/messages/count_tokens`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import TypedDict

from starlette.requests import Request
from starlette.responses import Response

from ...core.tools import Tools
from ..api.bodies import read_and_plan
from ..api.replies import unhurried
from ..api.sse import stream_updates
from ..errors import ApiError
from ..generation.enforcing import unenforced_header
from ..generation.plan import Plan, plan_chat, prompt_of
from ..generation.updates import Update, Usage
from ..http import client_of, json_response, while_connected
from ..model import Model
from ..observing.exchange import arrival, current_id, note_reply
from ..service import Service
from ..storage.seal import Seal
from .errors import REQUEST_ID, framing
from .reply import MessageEvents, MessageHead, whole_reply
from .request import UNDECLARED, MessagesRequest, PromptFields, omits_thinking, prompt_task, task_of


class TokenCount(TypedDict):
    input_tokens: int


async def messages(service: Service, request: Request) -> Response:
    arrived = arrival()
    client = client_of(request)
    planning = partial(_plan, service.seal, client)
    body, served, plan = await read_and_plan(service, request, MessagesRequest, planning, UNDECLARED)
    (generation,) = plan.generations
    head = MessageHead(
        body.model or served.names[0],
        service.seal,
        client,
        0 if isinstance(generation.prompt, str) else len(generation.prompt),
        clipped=generation.max_tokens != body.max_tokens,
        omit_thinking=omits_thinking(body),
    )
    note_reply(head.id)
    request_id = current_id()
    headers = {REQUEST_ID: request_id, **unenforced_header(plan.unenforced)}
    usage = Usage()
    (choice,) = plan.choices(service, served, usage, arrived, keep_message=not body.stream)
    if body.stream:
        events = MessageEvents(head, usage)
        return await stream_updates(request.receive, choice.updates(), events, framing(request_id), headers=headers)
    last = await while_connected(request.receive, _last(choice.updates()))
    message = choice.parser.message
    reply = await unhurried(message, partial(whole_reply, head, message, last, usage))
    return json_response(reply, headers=headers)


async def count_tokens(service: Service, request: Request) -> Response:
    counting = partial(_count, service.seal, client_of(request))
    _, _, count = await read_and_plan(service, request, PromptFields, counting, UNDECLARED)
    return json_response(TokenCount(input_tokens=count), headers={REQUEST_ID: current_id()})


def _plan(seal: Seal, client: str, model: Model, request: MessagesRequest) -> Plan:
    return plan_chat(model, task_of(seal, client, request))


def _count(seal: Seal, client: str, model: Model, request: PromptFields) -> int:
    task = prompt_task(seal, client, request)
    with task.in_its_words():
        Tools(task.tools)  # raises what is wrong with them
    prompt = prompt_of(model, task)
    if isinstance(prompt, str):
        raise ApiError(400, "only the engine knows the model's tokens: start the server with --tokenizer")
    return len(prompt)


async def _last(updates: AsyncGenerator[Update, None]) -> Update:
    """The last update. The choice's parser keeps the message."""
    last = Update(0)
    async with aclosing(updates):
        async for update in updates:
            last = update
    return last
