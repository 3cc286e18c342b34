"""`POST /v1/chat/completions/derender`: the ids that an engine sampled, as a reply of OpenAI's chat dialect.

A whole reply is parsed like an output of `/v1/parse`, where it holds up nobody. A chunk of a stream is parsed at once:
that takes less time than to hand it to a thread.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ...core.custom_tools import input_of
from ...core.message import Message
from ..api.bodies import MOST_VALUES, invalid, read_json_body
from ..api.parse import parts
from ..errors import ApiError
from ..http import client_of, while_connected
from ..model import Model, chosen
from ..service import Service
from .deltas import chat_logprobs
from .readings import Reading, Readings
from .streams import Streams, seed_of, told_state
from .wire import (
    DerenderChatRequest,
    DerenderFields,
    GenerateChunk,
    Id,
    TokenChoice,
    TokenCounts,
    ToldChatChoice,
    ToldChatChunk,
    ToldChunk,
    bad_state,
    field_bytes,
)

Asked = TypeVar("Asked", bound=DerenderFields)
_decode = msgspec.json.Decoder(DerenderChatRequest).decode
_decode_ids = msgspec.json.Decoder(list[Id] | None).decode
_encode = msgspec.json.encode
_NEEDED = (
    "chat_request is required: without the request's tools, markup of calls cannot be told from text; "
    "its `messages` may be left out"
)
_LARGE = 100_000
"""Bytes of a body that take milliseconds to read."""
_MANY = 512
"""Ids that are parsed at once."""


async def derender_chat(service: Service, request: Request) -> Response:
    body, fields = await read_derender(service, request, _decode)
    if fields.stream:
        is_known = len(body) < _LARGE and service.own(Streams).has_read(field_bytes(fields.chat_request) or b"{}")
        return await answer_chunk(_chunk, service, request, fields, at_once=is_known)
    work = service.planned(_derender, service.models_by_name(), body)
    return Response(await while_connected(request.receive, work), media_type="application/json")


async def read_derender(service: Service, request: Request, decode: Callable[[bytes], Asked]) -> tuple[bytes, Asked]:
    """The body of a request, and what it says."""
    body = await read_json_body(request, service.max_body, MOST_VALUES)
    small = len(body) < _LARGE
    return body, decoded(decode, body) if small else await asyncio.to_thread(decoded, decode, body)


async def answer_chunk(
    work: Callable[[Service, Streams, Asked, str], bytes],
    service: Service,
    request: Request,
    body: Asked,
    *,
    at_once: bool,
) -> Response:
    """What `work` makes of a chunk. One of many ids takes a while, and so does a request that was not read before; then
    a thread does it."""
    client, chunk = client_of(request), body.generate_chunk
    count = 0 if chunk is None else sum(len(choice.token_ids or ()) for choice in chunk.choices)
    arguments = (service, service.own(Streams), body, client)
    reply = work(*arguments) if at_once and count < _MANY else await asyncio.to_thread(work, *arguments)
    return Response(reply, media_type="application/json")


def decoded(decode: Callable[[bytes], Asked], body: bytes) -> Asked:
    """A body, checked."""
    try:
        request = decode(body)
    except msgspec.ValidationError as error:
        if "base64" in str(error):  # nothing else is
            raise bad_state("it was not made by this server") from error
        raise invalid(str(error)) from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ApiError(400, f"the body is not JSON: {error}") from error
    if request.stream and request.generate_chunk is None:
        raise ApiError(400, "generate_chunk is missing: it is required with `stream: true`", param="generate_chunk")
    return request


# Chunks


def _chunk(service: Service, streams: Streams, request: DerenderChatRequest, client: str) -> bytes:
    chunk = request.generate_chunk
    assert chunk is not None
    served = service.served(request.model)
    choice = only_choice(chunk)
    sealed = None if request.stream_state is None else request.stream_state.sealed
    reading = _reading(streams.readings(served), request, begun=sealed is not None)
    name = request.model or served.names[0]
    id = chunk.request_id or secrets.token_hex(8)
    if sealed is not None:
        stream = streams.resume(reading, sealed, client)
    else:
        stream = streams.begin(reading, _prompt(request, chunk), id, 0 if choice is None else choice.index)
    deltas = stream.deltas
    choices: tuple[ToldChatChoice, ...] = ()
    if choice is not None:
        ids, reason = choice.token_ids or [], choice.finish_reason
        reply = ToldChatChoice(
            choice.index,
            deltas.delta(stream.feed(ids, reason), reading),
            None if choice.logprobs is None else _shown_logprobs(choice, reading),
            None if reason is None else _finish(reason, reading, called=deltas.called),
            choice.stop_reason,
            ids if reading.token_ids and reading.include_reasoning else None,
        )
        choices = (reply,)
    usage = None if chunk.usage is None else chunk_usage(chunk.usage, request.prompt_tokens)
    answer = ToldChatChunk(id, int(time.time()), name, choices, usage, chunk.metrics)
    return _encode(ToldChunk(answer, told_state(streams, stream, client)))


def chunk_reply(service: Service, streams: Streams, body: bytes, client: str) -> bytes:
    """The reply to one chunk of a stream, bytes in and bytes out."""
    return _chunk(service, streams, decoded(_decode, body), client)


def only_choice(chunk: GenerateChunk) -> TokenChoice | None:
    if len(chunk.choices) > 1:
        message = f"a chunk has at most one choice, with a state of its own: got {len(chunk.choices)}"
        raise ApiError(400, message, param="generate_chunk.choices")
    return chunk.choices[0] if chunk.choices else None


def _reading(readings: Readings, body: DerenderChatRequest, *, begun: bool) -> Reading:
    request = field_bytes(body.chat_request)
    if request is None and not begun:
        raise ApiError(400, _NEEDED, param="chat_request")
    return readings.chat(request or b"{}")


def _prompt(request: DerenderChatRequest, chunk: GenerateChunk) -> list[int]:
    prompt = _ids(request.prompt_token_ids)
    prompt = chunk.prompt_token_ids if prompt is None else prompt
    if prompt is None:
        message = (
            "prompt_token_ids is required with the first chunk of a stream: the prompt's end says whether the "
            "reasoning is open"
        )
        raise ApiError(400, message, param="prompt_token_ids")
    return prompt


def _ids(raw: msgspec.Raw) -> list[int] | None:
    try:
        ids: list[int] | None = _decode_ids(raw)
        return ids
    except msgspec.ValidationError as error:
        raise ApiError(400, f"prompt_token_ids: {error}", param="prompt_token_ids") from error


def chunk_usage(counts: TokenCounts, prompt_tokens: Any) -> dict[str, Any]:
    prompt = prompt_tokens if isinstance(prompt_tokens, int) else counts.prompt_tokens or 0
    return usage_of(prompt, counts.completion_tokens or 0)


def usage_of(prompt: int, completion: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }


def _finish(reason: str | None, reading: Reading, *, called: bool) -> str | None:
    return "tool_calls" if reason == "stop" and called and not reading.named else reason


def _shown_logprobs(choice: TokenChoice, reading: Reading) -> dict[str, Any] | None:
    """Where the reasoning is not to be seen, the tokens that it consists of are not either."""
    vocabulary = reading.model.vocabulary
    assert vocabulary is not None
    return chat_logprobs(choice.logprobs, vocabulary) if reading.include_reasoning else None


# Whole replies


class DerenderedChat(TypedDict):
    """A whole chat completion, with vLLM's fields."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[dict[str, Any]]
    service_tier: None
    system_fingerprint: None
    usage: dict[str, Any]
    prompt_logprobs: Any
    prompt_token_ids: None
    prompt_text: None
    kv_transfer_params: dict[str, Any] | None
    ec_transfer_params: dict[str, Any] | None
    metrics: dict[str, Any] | None


def _derender(models: Mapping[str, Model], body: bytes) -> bytes:
    """The reply. All of it is made here: outputs may be large."""
    request = decoded(_decode, body)
    response = request.generate_response
    if response is None:
        raise ApiError(400, "generate_response is missing: it is required", param="generate_response")
    model = chosen(models, request.model)
    reading = _reading(Readings(model), request, begun=False)
    id = response.request_id or secrets.token_hex(8)
    prompt = _ids(request.prompt_token_ids)
    prompt = response.prompt_token_ids if prompt is None else prompt
    choices = [_choice(each, reading, prompt, id) for each in response.choices]
    completion = sum(len(each.token_ids or ()) for each in response.choices)
    reply: DerenderedChat = {
        "id": id,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": request.model or next(iter(models)),
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": None,
        "usage": usage_of(request.prompt_tokens or 0, completion),
        "prompt_logprobs": response.prompt_logprobs,
        "prompt_token_ids": None,
        "prompt_text": None,
        "kv_transfer_params": response.kv_transfer_params,
        "ec_transfer_params": response.ec_transfer_params,
        "metrics": response.metrics,
    }
    return _encode(reply)


def _choice(choice: TokenChoice, reading: Reading, prompt: list[int] | None, request_id: str) -> dict[str, Any]:
    ids = sampled(choice)
    parser = reading.parser(prompt, seed_of(request_id, choice.index, prompt), keep_message=True)
    for part in parts(ids):
        parser.feed_tokens(part)
    parser.finish(end_of_turn=choice.finish_reason == "stop")
    message = parser.message.settled()
    return {
        "index": choice.index,
        "message": _told(message, reading),
        "logprobs": _shown_logprobs(choice, reading),
        "finish_reason": _finish(choice.finish_reason, reading, called=bool(message.tool_calls)),
        "stop_reason": choice.stop_reason,
        "token_ids": ids if reading.token_ids and reading.include_reasoning else None,
        "routed_experts": None,
    }


def sampled(choice: TokenChoice) -> list[int]:
    if not choice.token_ids:
        raise ApiError(400, f"choice {choice.index} has empty or null token_ids", param="token_ids")
    return choice.token_ids


def _told(message: Message, reading: Reading) -> dict[str, Any]:
    fields = message.to_openai()
    reasoning = fields.pop("reasoning_content")
    for at, call in enumerate(message.tool_calls):
        if call.name in reading.custom:
            custom = {"name": call.name, "input": input_of(call.arguments)}
            fields["tool_calls"][at] = {"id": call.id, "type": "custom", "custom": custom}
    content = fields.pop("content") or None
    if message.tool_calls and not (content or "").strip():
        content = None  # whitespace before a call is no answer
    return {
        "role": "assistant",
        "content": content or ("" if reading.forced else None),
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
        "reasoning": reasoning if reading.include_reasoning else None,
        **{name: value for name, value in fields.items() if name != "role"},
    }
