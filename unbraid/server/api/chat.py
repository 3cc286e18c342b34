"""`POST /v1/chat/completions`: OpenAI's chat dialect.

A further dialect is a module like this one, and a line in `app`. It has four parts: the fields of the request
(`ChatRequest`), what they mean (`_task`, a `ChatTask` for `server.plan`), the whole reply (`chat_choice`), and the
chunks of a streamed one (`ChatChunks`, written by `api.sse`). What comes in between is the same for all: a plan, and a
`Turn` for each choice.
"""

from __future__ import annotations

import base64
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from ...core.events import Content, Event, Reasoning, ToolCallArguments
from ...core.message import Message
from ...engines import TokenLogprob
from ..enforcing import unenforced_header
from ..errors import ApiError
from ..http import json_response, while_connected
from ..plan import ChatTask, Plan, plan_chat
from ..service import Service
from ..turn import Turn, Update, Usage, merged
from .bodies import read_request
from .fields import Budget, Count, GenerationFields, Object, ReasoningFields, Top, template_kwargs
from .replies import Head, logprobs_of, usage_of, usage_so_far
from .sse import events_of, stream

_encode = msgspec.json.encode
_HOUR = 3600


class ChatRequest(GenerationFields, kw_only=True):
    """The body of `POST /v1/chat/completions`."""

    messages: Annotated[list[Object], Meta(max_length=20_000)]
    tools: Annotated[list[Object], Meta(max_length=512)] | None = None
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


async def chat(service: Service, request: Request) -> Response:
    arrived = time.perf_counter()
    asked = await read_request(request, ChatRequest, service.max_body)
    head = Head(service.check_model(asked.model))
    plan = await while_connected(request.receive, service.planned(_plan, service, asked))
    usage = Usage()
    turns = plan.turns(service, usage, arrived, keep_message=not asked.stream)
    updates = merged(turns)
    headers = unenforced_header(plan.unenforced)
    with_logprobs, prompt = bool(asked.logprobs), _prompt_ids(plan) if asked.return_token_ids else None
    if asked.stream:
        chunks = ChatChunks(
            head,
            len(turns),
            service.reasoning_keys(),
            usage=usage if asked.wants_usage() else None,
            with_logprobs=with_logprobs,
            prompt_ids=prompt,
            counted_from=len(_prompt_ids(plan)) if asked.wants_running_usage() and service.encoder else None,
        )
        return await stream(request.receive, events_of(updates, chunks), headers=headers)
    choices = await while_connected(
        request.receive, _collect(service, head, turns, updates, with_logprobs, prompt is not None)
    )
    ids = {} if prompt is None else {"prompt_token_ids": prompt}
    reply = {**head.fields("chat.completion"), "choices": choices, "usage": usage_of([usage]), **ids}
    return json_response(reply, headers=headers)


def _prompt_ids(plan: Plan) -> tuple[int, ...]:
    prompt = plan.generations[0].prompt
    return () if isinstance(prompt, str) else prompt


# The request


def _plan(service: Service, asked: ChatRequest) -> Plan:
    return plan_chat(service, _task(asked))


def _task(asked: ChatRequest) -> ChatTask:
    if asked.modalities is not None and "audio" in asked.modalities and not asked.tts_output:
        raise ApiError(400, "modalities: audio is asked for by `tts_output: true` here", param="modalities")
    return ChatTask(
        messages=asked.messages,
        tools=asked.tools or (),
        tool_choice=asked.tool_choice,
        parallel_tool_calls=asked.parallel_tool_calls,
        response_format=asked.response_format,
        documents=asked.documents,
        add_generation_prompt=asked.add_generation_prompt is not False,
        continue_final_message=bool(asked.continue_final_message),
        speak=bool(asked.tts_output),
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
        names={
            "prompt": "messages",
            "max_tokens": "max_completion_tokens" if asked.max_completion_tokens else "max_tokens",
        },
    )


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
    return None if budget is None or budget < 0 else budget


async def _collect(
    service: Service,
    head: Head,
    turns: list[Turn],
    updates: AsyncGenerator[Update, None],
    with_logprobs: bool,
    with_ids: bool,
) -> list[dict[str, Any]]:
    """All choices of a whole reply."""
    logprobs: list[list[TokenLogprob]] = [[] for _ in turns]
    ids: list[list[int]] = [[] for _ in turns]
    sounds = [bytearray() for _ in turns]
    reasons = [""] * len(turns)
    async with aclosing(updates):
        async for update in updates:
            logprobs[update.choice] += update.logprobs
            ids[update.choice] += update.ids
            sounds[update.choice] += update.sound
            reasons[update.choice] = update.end or ""
    return [
        chat_choice(
            head,
            choice,
            turn.parser.message.settled(),
            reasons[choice],
            service.reasoning_keys(),
            logprobs[choice] if with_logprobs else None,
            bytes(sounds[choice]),
            ids[choice] if with_ids else None,
        )
        for choice, turn in enumerate(turns)
    ]


# The reply


def chat_choice(
    head: Head,
    choice: int,
    message: Message,
    reason: str,
    reasoning_keys: Sequence[str],
    logprobs: Sequence[TokenLogprob] | None,
    sound: bytes,
    ids: Sequence[int] | None,
) -> dict[str, Any]:
    """One choice of a whole reply."""
    written = message.to_openai()
    reasoning = written.pop("reasoning_content")
    written |= dict.fromkeys(reasoning_keys, reasoning)
    written["refusal"] = None
    if not message.parts:
        written["content"] = ""
    elif message.tool_calls and not message.content.strip():
        written["content"] = None  # whitespace before a call is no answer
    if sound:
        written["audio"] = {
            "id": f"audio_{head.id[-12:]}",
            "data": base64.b64encode(sound).decode(),
            "transcript": "".join(speech.text for speech in message.speech),
            "expires_at": head.created + _HOUR,
        }
    said = None if logprobs is None else {"content": logprobs_of(logprobs), "refusal": None}
    tokens = {} if ids is None else {"token_ids": ids}
    return {"index": choice, "message": written, "logprobs": said, "finish_reason": reason, **tokens}


class ChatChunks:
    """Writes the chunks of a streamed reply. What does not change is written once.

    usage: told at the end, where it is given.
    prompt_ids: the tokens of the prompt, where token ids are told.
    counted_from: how many tokens the prompt has, where each chunk tells the counts so far.
    """

    def __init__(
        self,
        head: Head,
        choices: int,
        reasoning_keys: Sequence[str],
        *,
        usage: Usage | None,
        with_logprobs: bool,
        prompt_ids: Sequence[int] | None = None,
        counted_from: int | None = None,
    ) -> None:
        fields = _encode(head.fields("chat.completion.chunk"))[:-1]
        self._head = b"data: " + fields
        self._starts = [b'%b,"choices":[{"index":%d,"delta":' % (self._head, choice) for choice in range(choices)]
        self._usage = usage
        self._close = b"}]}\n\n" if usage is None else b'}],"usage":null}\n\n'
        self._open = b',"logprobs":null,"finish_reason":null' + self._close
        self._with_logprobs = with_logprobs
        self._prompt_ids = prompt_ids
        self._counted_from = counted_from
        self._counts = [0] * choices
        """The tokens of each choice so far."""
        self._is_plain = not with_logprobs and prompt_ids is None and counted_from is None
        """Whether a chunk says nothing but its delta."""
        self._pending: list[list[TokenLogprob]] = [[] for _ in range(choices)]
        """Logprobs of tokens whose text has not gone out yet,"""
        self._pending_ids: list[tuple[int, ...]] = [()] * choices
        """and their ids."""
        self._reasoning = [
            b'{"%b":' % reasoning_keys[0].encode(),
            *(b',"%b":' % k.encode() for k in reasoning_keys[1:]),
        ]
        self._audio_id = f"audio_{head.id[-12:]}"

    def first(self) -> bytes:
        """The role of each choice."""
        delta = b'{"role":"assistant","content":""}'
        if self._is_plain:
            return b"".join(start + delta + self._open for start in self._starts)
        chunks = [self._chunk(choice, delta, b"null", b"null", ()) for choice in range(len(self._starts))]
        if self._prompt_ids is not None:  # in the first of all chunks
            chunks[0] = b'%b,"prompt_token_ids":%b}\n\n' % (chunks[0][:-3], _encode(self._prompt_ids))
        return b"".join(chunks)

    def update(self, update: Update) -> bytes:
        """The chunks for what is new."""
        start = self._starts[update.choice]
        if update.logprobs and self._with_logprobs:
            self._pending[update.choice] += update.logprobs
        if self._is_plain and not update.sound and update.end is None:
            said = b""
            for event in update.events:
                if delta := self._delta(event):
                    said += start + delta + self._open
            return said
        deltas = [delta for event in update.events if (delta := self._delta(event))]
        if update.sound:
            deltas.append(_encode({"audio": {"id": self._audio_id, "data": base64.b64encode(update.sound).decode()}}))
        return b"".join(self._rest(deltas, update))

    def _rest(self, deltas: list[bytes], update: Update) -> list[bytes]:
        """Chunks that say more than a delta: logprobs and token ids come with the first, the finish reason with one of
        its own."""
        self._counts[update.choice] += len(update.ids)
        self._pending_ids[update.choice] += update.ids
        if update.end is not None:
            deltas.append(b"{}")
        chunks = []
        for at, delta in enumerate(deltas):
            last = update.end is not None and at == len(deltas) - 1
            said = self._take_logprobs(update.choice)
            reason = _encode(update.end) if last else b"null"
            chunks.append(self._chunk(update.choice, delta, said, reason, self._pending_ids[update.choice]))
            self._pending_ids[update.choice] = ()
        return chunks

    def _chunk(self, choice: int, delta: bytes, logprobs: bytes, reason: bytes, new: Sequence[int]) -> bytes:
        ids = b"" if self._prompt_ids is None else b',"token_ids":%b' % _encode(new)
        close = self._close
        if self._counted_from is not None:
            usage = _encode(usage_so_far(self._counted_from, self._counts[choice]))
            close = b'}],"usage":%b}\n\n' % usage
        parts = (self._starts[choice], delta, logprobs, reason, ids, close)
        return b'%b%b,"logprobs":%b,"finish_reason":%b%b%b' % parts

    def _take_logprobs(self, choice: int) -> bytes:
        pending = self._pending[choice]
        if not pending:
            return b"null"
        self._pending[choice] = []
        return _encode({"content": logprobs_of(pending), "refusal": None})

    def _delta(self, event: Event) -> bytes | None:
        kind = type(event)
        if kind is Content:
            return b'{"content":%b}' % _encode(event.text)  # type: ignore[union-attr]
        if kind is ToolCallArguments:
            written = _encode(event.fragment)  # type: ignore[union-attr]
            return b'{"tool_calls":[{"index":%d,"function":{"arguments":%b}}]}' % (event.index, written)  # type: ignore[union-attr]
        if kind is Reasoning:
            text = _encode(event.text)  # type: ignore[union-attr]
            return b"".join([key + text for key in self._reasoning]) + b"}"
        said = event.to_openai()
        return _encode(said) if said else None

    def last(self) -> bytes:
        if self._usage is None:
            return b""
        return b'%b,"choices":[],"usage":%b}\n\n' % (self._head, _encode(usage_of([self._usage])))
