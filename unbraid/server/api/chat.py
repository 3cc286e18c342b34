"""`POST /v1/chat/completions`."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...engines import TokenLogprob
from ..http import json_response, while_connected
from ..plan import Plan, plan_chat
from ..service import Service
from ..turn import Turn, Update, Usage, merged, usage_of
from .bodies import ChatRequest, read_request
from .replies import ChatChunks, Head, chat_choice
from .streams import parts_of, stream


async def chat(service: Service, request: Request) -> Response:
    arrived = time.perf_counter()
    asked = await read_request(request, ChatRequest, service.max_body)
    head = Head(service.check_model(asked.model))
    plan = await while_connected(request.receive, service.planned(plan_chat, service, asked))
    usage = Usage()
    turns = [_turn(service, plan, choice, usage, asked, arrived) for choice in range(len(plan.generations))]
    updates = merged(turns)
    with_logprobs = bool(asked.logprobs)
    if asked.stream:
        with_usage = asked.stream_options is not None and bool(asked.stream_options.include_usage)
        chunks = ChatChunks(
            head, len(turns), service.reasoning_keys(), with_usage=with_usage, with_logprobs=with_logprobs
        )
        return await stream(request.receive, parts_of(updates, chunks, [usage] if with_usage else []))
    choices = await while_connected(request.receive, _collect(service, head, turns, updates, with_logprobs))
    return json_response({**head.fields("chat.completion"), "choices": choices, "usage": usage_of([usage])})


def _turn(service: Service, plan: Plan, choice: int, usage: Usage, asked: ChatRequest, arrived: float) -> Turn:
    parser = plan.parser(service, choice, keep_message=not asked.stream)
    voice = None if service.vocoder is None else service.vocoder.voice()
    return Turn(service, plan.generations[choice], parser, choice, usage, arrived, voice)


async def _collect(
    service: Service, head: Head, turns: list[Turn], updates: AsyncGenerator[Update, None], with_logprobs: bool
) -> list[dict[str, Any]]:
    """All choices as a whole."""
    logprobs: list[list[TokenLogprob]] = [[] for _ in turns]
    sounds = [bytearray() for _ in turns]
    reasons = [""] * len(turns)
    async with aclosing(updates):
        async for update in updates:
            logprobs[update.choice] += update.logprobs
            sounds[update.choice] += update.sound
            reasons[update.choice] = update.end or ""
    return [
        chat_choice(
            head,
            choice,
            turn.parser.message,
            reasons[choice],
            service.reasoning_keys(),
            logprobs[choice] if with_logprobs else None,
            bytes(sounds[choice]),
        )
        for choice, turn in enumerate(turns)
    ]
