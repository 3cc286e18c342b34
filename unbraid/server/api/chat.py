"""`POST /v1/chat/completions`: OpenAI's chat dialect.

A further dialect is a module like this one, and a line in `app`. It has four parts: the fields of the request
(`ChatRequest`), what they mean (`task_of`, a `ChatTask` of `generation.task`), the whole reply (`chat_choice`), and the
chunks of a streamed one (`ChatChunks`, written by `api.sse`); the last two are in `chat_reply`. What comes in between
is the same for all: a plan, and a `Choice` for each choice.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Set
from contextlib import aclosing
from typing import Any, Literal

from msgspec import Raw
from starlette.requests import Request
from starlette.responses import Response

from ..errors import ApiError
from ..generation.choice import Choice, merged
from ..generation.enforcing import unenforced_header
from ..generation.plan import Plan, plan_chat
from ..generation.task import ChatTask, SoFar
from ..generation.updates import Update, Usage
from ..http import json_response, while_connected
from ..model import Model
from ..observing.exchange import note_reply
from ..service import Service
from ..vocoder import sound_fields
from .bodies import read_and_plan
from .chat_reply import ChatChunks, chat_choice
from .fields import (
    Budget,
    Count,
    GenerationFields,
    Ids,
    MessageList,
    Object,
    ReasoningFields,
    ToolList,
    Top,
    budget_of,
    template_kwargs,
)
from .replies import Head, logprobs_of, usage_of
from .sse import stream_updates


class ChatRequest(GenerationFields, kw_only=True):
    """The body of `POST /v1/chat/completions`."""

    PLANNED = (
        *("messages", "tools", "tool_choice", "documents", "chat_template_kwargs"),
        *("response_format", "logit_bias", "stop", "stop_token_ids", "metadata"),
        *("prompt_token_ids", "token_ids"),
    )
    messages: MessageList
    tools: ToolList | None = None
    tool_choice: str | Object | None = None
    parallel_tool_calls: bool | None = None
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Top | None = None
    reasoning_effort: str | None = None
    reasoning: ReasoningFields | None = None
    thinking_token_budget: Budget | None = None
    separate_reasoning: bool | None = None
    calls_in_reasoning: bool | None = None
    include_reasoning: bool | None = None
    chat_template_kwargs: Object | None = None
    documents: list[Object] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    tts_output: bool | None = None
    modalities: list[Literal["text", "audio"]] | None = None
    prompt_token_ids: Ids | None = None
    """The ids so far, to go on from with new `messages`."""
    token_ids: Ids | None = None
    """Those of them that the model sampled last, if they are given apart."""
    past: Literal["template", "sampled"] | None = None
    """What counts where the template would rewrite what was sampled."""


async def chat(service: Service, request: Request) -> Response:
    arrived = time.perf_counter()
    asked, served, plan = await read_and_plan(service, request, ChatRequest, _plan)
    head = Head(asked.model or served.names[0])
    note_reply(head.id)
    usage = Usage()
    custom = frozenset(name for name in plan.tools if plan.tools.custom(name) is not None)
    choices = plan.choices(service, served, usage, arrived, keep_message=not asked.stream)
    updates = merged(choices)
    headers = unenforced_header(plan.unenforced)
    with_logprobs, prompt = bool(asked.logprobs), _prompt_ids(plan) if asked.return_token_ids else None
    if asked.stream:
        chunks = ChatChunks(
            head,
            len(choices),
            service.reasoning_keys(),
            usage=usage if asked.wants_usage() else None,
            with_logprobs=with_logprobs,
            prompt_ids=prompt,
            counted_from=len(_prompt_ids(plan)) if asked.wants_running_usage() and served.model.encoder else None,
            custom_tools=custom,
            sound=sound_fields(served.vocoder),
        )
        return await stream_updates(request.receive, updates, chunks, headers=headers)
    replies = await while_connected(
        request.receive, _collect(service, head, choices, updates, with_logprobs, prompt is not None, custom)
    )
    for reply in replies:
        if "audio" in reply["message"]:
            reply["message"]["audio"] |= sound_fields(served.vocoder)
    ids = {} if prompt is None else {"prompt_token_ids": prompt}
    whole = {**head.fields("chat.completion"), "choices": replies, "usage": usage_of([usage]), **ids}
    return json_response(whole, headers=headers)


def _prompt_ids(plan: Plan) -> tuple[int, ...]:
    prompt = plan.generations[0].prompt
    return () if isinstance(prompt, str) else prompt


# The request


def _plan(model: Model, asked: ChatRequest) -> Plan:
    return plan_chat(model, task_of(asked))


def task_of(asked: ChatRequest) -> ChatTask:
    if asked.modalities is not None and "audio" in asked.modalities and not asked.tts_output:
        raise ApiError(400, "modalities: audio is asked for by `tts_output: true` here", param="modalities")
    return ChatTask(
        messages=asked.messages,
        so_far=_so_far(asked),
        tools=asked.tools or (),
        tool_choice=asked.tool_choice,
        parallel_tool_calls=asked.parallel_tool_calls,
        response_format=asked.response_format,
        documents=asked.documents,
        add_generation_prompt=asked.add_generation_prompt is not False,
        continue_final_message=bool(asked.continue_final_message),
        speak=bool(asked.tts_output),
        must_speak="audio" in (asked.modalities or ()),
        template_kwargs=template_kwargs(_effort(asked), asked.chat_template_kwargs),
        separate_reasoning=asked.separate_reasoning is not False and asked.include_reasoning is not False,
        calls_in_reasoning=asked.calls_in_reasoning,
        choices=asked.n or 1,
        sampling=asked.chosen_sampling(),
        logit_bias=asked.token_bias(),
        max_tokens=asked.max_completion_tokens or asked.max_tokens,
        thinking_budget=_thinking_budget(asked),
        needs_ids="return_token_ids" if asked.return_token_ids else "",
        stop=asked.stop_texts(),
        stop_tokens=tuple(asked.stop_token_ids or ()),
        logprobs=_logprobs(asked),
        places={
            ("prompt",): ("messages",),
            ("max_tokens",): ("max_completion_tokens" if asked.max_completion_tokens else "max_tokens",),
        },
    )


def _so_far(asked: ChatRequest) -> SoFar | None:
    if asked.prompt_token_ids is None:
        for name in ("token_ids", "past"):
            if getattr(asked, name) is not None:
                message = f"{name} is for a chat that goes on from ids: give prompt_token_ids with it, or leave it out"
                raise ApiError(400, message, param=name)
        return None
    sampled = None if asked.token_ids is None else tuple(asked.token_ids)
    return SoFar(tuple(asked.prompt_token_ids), sampled, asked.past or "template")


def _logprobs(asked: ChatRequest) -> int | None:
    if asked.top_logprobs is not None and not asked.logprobs:
        raise ApiError(400, "top_logprobs needs `logprobs: true`", param="top_logprobs")
    return (asked.top_logprobs or 0) if asked.logprobs else None


def _effort(asked: ChatRequest) -> str | None:
    return asked.reasoning_effort or (None if asked.reasoning is None else asked.reasoning.effort)


def _thinking_budget(asked: ChatRequest) -> int | None:
    other = None if asked.reasoning is None else asked.reasoning.max_tokens
    if asked.thinking_token_budget is not None and other is not None and asked.thinking_token_budget != other:
        message = "reasoning.max_tokens and thinking_token_budget differ: give one of them"
        raise ApiError(400, message, param="reasoning.max_tokens")
    budget = other if asked.thinking_token_budget is None else asked.thinking_token_budget
    return budget_of(budget)


async def _collect(
    service: Service,
    head: Head,
    choices: list[Choice],
    updates: AsyncGenerator[Update, None],
    with_logprobs: bool,
    with_ids: bool,
    custom_tools: Set[str],
) -> list[dict[str, Any]]:
    """All choices of a whole reply."""
    logprobs: list[list[Raw]] = [[] for _ in choices]
    ids: list[list[int]] = [[] for _ in choices]
    sounds = [bytearray() for _ in choices]
    reasons = [""] * len(choices)
    async with aclosing(updates):
        async for update in updates:
            if with_logprobs:
                logprobs[update.choice] += logprobs_of(update.logprobs)
            ids[update.choice] += update.ids
            sounds[update.choice] += update.sound
            reasons[update.choice] = update.end or ""
    return [
        chat_choice(
            head,
            index,
            choice.parser.message.settled(),
            reasons[index],
            service.reasoning_keys(),
            logprobs[index] if with_logprobs else None,
            bytes(sounds[index]),
            ids[index] if with_ids else None,
            custom_tools,
        )
        for index, choice in enumerate(choices)
    ]
