"""`POST /v1/chat/completions`: OpenAI's chat dialect.

A further dialect is a module like this one, and a line in `app`. It has four parts: the fields of the request
(`ChatRequest`), what they mean (`task_of`, a `ChatTask` of `generation.task`), the whole reply (`chat_choice`), and the
chunks of a streamed one (`ChatChunks`, written by `api.sse`); the last two are in `chat_reply`. What comes in between
is the same for all: a plan, and a `Choice` for each choice.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Set
from contextlib import aclosing
from typing import Literal

from msgspec import Raw
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from ..errors import ApiError
from ..generation.choice import Choice, merged
from ..generation.enforcing import unenforced_header
from ..generation.plan import Plan, plan_chat
from ..generation.task import ChatTask, SoFar
from ..generation.updates import Update, Usage, as_told
from ..http import json_response, while_connected
from ..model import Model
from ..observing.exchange import arrival, note_reply
from ..service import Service
from ..vocoder import sound_fields
from .bodies import read_and_plan
from .chat_reply import ChatChoice, ChatChunks, ChatCompletion, chat_choice
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
    VARIES = "messages"
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
    """The ids of the conversation so far. `messages` then has only the new ones."""
    token_ids: Ids | None = None
    """The ids that the model sampled last, if `prompt_token_ids` does not include them."""
    past: Literal["template", "sampled"] | None = None
    """Which of the two is kept if the template would rewrite what was sampled."""


async def chat(service: Service, request: Request) -> Response:
    arrived = arrival()
    body, served, plan = await read_and_plan(service, request, ChatRequest, _plan)
    head = Head(body.model or served.names[0])
    note_reply(head.id)
    usage = Usage()
    custom = frozenset(name for name in plan.tools if plan.tools.custom(name) is not None)
    choices = plan.choices(service, served, usage, arrived, keep_message=not body.stream)
    updates = merged(choices)
    headers = unenforced_header(plan.unenforced)
    with_logprobs, prompt = bool(body.logprobs), _prompt_ids(plan) if body.return_token_ids else None
    if body.stream:
        chunks = ChatChunks(
            head,
            len(choices),
            service.reasoning_keys(),
            usage=usage if body.wants_usage() else None,
            with_logprobs=with_logprobs,
            prompt_ids=prompt,
            counted_from=len(_prompt_ids(plan)) if body.wants_running_usage() and served.model.encoder else None,
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
    whole: ChatCompletion = {
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": replies,
        "usage": usage_of([usage]),
    }
    if prompt is not None:
        whole["prompt_token_ids"] = prompt
    return json_response(whole, headers=headers)


def _prompt_ids(plan: Plan) -> tuple[int, ...]:
    prompt = plan.generations[0].prompt
    return () if isinstance(prompt, str) else prompt


# The request


def _plan(model: Model, request: ChatRequest) -> Plan:
    kept: ChatTask | None = request.kept.get("task")
    if kept is not None:
        return plan_chat(model, replace(kept, messages=request.messages))
    task = task_of(request)
    request.kept["task"] = replace(task, messages=())
    return plan_chat(model, task)


def task_of(request: ChatRequest) -> ChatTask:
    if request.modalities is not None and "audio" in request.modalities and not request.tts_output:
        raise ApiError(400, "modalities: audio is asked for by `tts_output: true` here", param="modalities")
    return ChatTask(
        messages=request.messages,
        so_far=_so_far(request),
        tools=request.tools or (),
        tool_choice=request.tool_choice,
        parallel_tool_calls=request.parallel_tool_calls,
        response_format=request.response_format,
        documents=request.documents,
        add_generation_prompt=request.add_generation_prompt is not False,
        continue_final_message=bool(request.continue_final_message),
        speak=bool(request.tts_output),
        must_speak="audio" in (request.modalities or ()),
        template_kwargs=template_kwargs(_effort(request), request.chat_template_kwargs),
        separate_reasoning=request.separate_reasoning is not False and request.include_reasoning is not False,
        calls_in_reasoning=request.calls_in_reasoning,
        choices=request.n or 1,
        sampling=request.chosen_sampling(),
        logit_bias=request.token_bias(),
        max_tokens=request.max_completion_tokens or request.max_tokens,
        thinking_budget=_thinking_budget(request),
        needs_ids="return_token_ids" if request.return_token_ids else "",
        stop=request.stop_texts(),
        stop_tokens=tuple(request.stop_token_ids or ()),
        logprobs=_logprobs(request),
        places={
            ("prompt",): ("messages",),
            ("max_tokens",): ("max_completion_tokens" if request.max_completion_tokens else "max_tokens",),
        },
    )


def _so_far(request: ChatRequest) -> SoFar | None:
    if request.prompt_token_ids is None:
        for name in ("token_ids", "past"):
            if getattr(request, name) is not None:
                message = f"{name} is for a chat that goes on from ids: give prompt_token_ids with it, or leave it out"
                raise ApiError(400, message, param=name)
        return None
    sampled = None if request.token_ids is None else tuple(request.token_ids)
    return SoFar(tuple(request.prompt_token_ids), sampled, request.past or "template")


def _logprobs(request: ChatRequest) -> int | None:
    if request.top_logprobs is not None and not request.logprobs:
        raise ApiError(400, "top_logprobs needs `logprobs: true`", param="top_logprobs")
    return (request.top_logprobs or 0) if request.logprobs else None


def _effort(request: ChatRequest) -> str | None:
    return request.reasoning_effort or (None if request.reasoning is None else request.reasoning.effort)


def _thinking_budget(request: ChatRequest) -> int | None:
    other = None if request.reasoning is None else request.reasoning.max_tokens
    if request.thinking_token_budget is not None and other is not None and request.thinking_token_budget != other:
        message = "reasoning.max_tokens and thinking_token_budget differ: give one of them"
        raise ApiError(400, message, param="reasoning.max_tokens")
    budget = other if request.thinking_token_budget is None else request.thinking_token_budget
    return budget_of(budget)


async def _collect(
    service: Service,
    head: Head,
    choices: list[Choice],
    updates: AsyncGenerator[Update, None],
    with_logprobs: bool,
    with_ids: bool,
    custom_tools: Set[str],
) -> list[ChatChoice]:
    """All choices of a whole reply."""
    logprobs: list[list[Raw]] = [[] for _ in choices]
    ids: list[list[int]] = [[] for _ in choices]
    sounds = [bytearray() for _ in choices]
    reasons = [""] * len(choices)
    cut_off = [False] * len(choices)
    async with aclosing(updates):
        async for update in updates:
            if with_logprobs:
                logprobs[update.choice] += logprobs_of(update.logprobs)
            ids[update.choice] += update.ids
            sounds[update.choice] += update.sound
            reasons[update.choice] = update.end or ""
            cut_off[update.choice] = update.cut_off
    return [
        chat_choice(
            head,
            index,
            as_told(choice.parser.message, cut_off=cut_off[index]).settled(),
            reasons[index],
            service.reasoning_keys(),
            logprobs[index] if with_logprobs else None,
            bytes(sounds[index]),
            ids[index] if with_ids else None,
            custom_tools,
        )
        for index, choice in enumerate(choices)
    ]
