"""`POST /v1/completions/derender`: the ids that an engine sampled, as a reply of OpenAI's older dialect.

All is text but the tokens that end the output. A stream goes on as that of a chat does.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any, Literal, TypedDict

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ...core.events import Content
from ..api.parse import parts
from ..errors import ApiError
from ..http import while_connected
from ..model import Model, chosen
from ..service import Service
from .deltas import text_logprobs
from .derender import answer_chunk, chunk_usage, decoded, only_choice, read_derender, sampled, usage_of
from .readings import Reading, Readings
from .streams import Streams, told_state
from .wire import DerenderCompletionRequest, TextChunk, TokenChoice, ToldTextChunk, field_bytes

_decode = msgspec.json.Decoder(DerenderCompletionRequest).decode
_encode = msgspec.json.encode


async def derender_text(service: Service, request: Request) -> Response:
    body, fields = await read_derender(service, request, _decode)
    if fields.stream:
        return await answer_chunk(_chunk, service, request, fields, at_once=True)
    work = service.planned(_derender, service.models_by_name(), body)
    return Response(await while_connected(request.receive, work), media_type="application/json")


def _chunk(service: Service, streams: Streams, request: DerenderCompletionRequest, client: str) -> bytes:
    """The reply to one chunk of a stream."""
    chunk = request.generate_chunk
    assert chunk is not None
    served = service.served(request.model)
    reading = streams.readings(served).text(field_bytes(request.completion_request) or b"{}")
    id = chunk.request_id or secrets.token_hex(8)
    sealed = None if request.stream_state is None else request.stream_state.sealed
    stream = streams.begin(reading, None, id, 0) if sealed is None else streams.resume(reading, sealed, client)
    deltas = stream.deltas
    choices = []
    choice = only_choice(chunk)
    if choice is not None:
        assert reading.model.vocabulary is not None
        offset = deltas.characters
        events = stream.feed(choice.token_ids or (), choice.finish_reason)
        text = "".join(event.text for event in events if isinstance(event, Content))
        deltas.characters += len(text)
        choices.append(
            {
                "index": choice.index,
                "text": text,
                "logprobs": text_logprobs(choice.logprobs, reading.model.vocabulary, offset),
                "finish_reason": choice.finish_reason,
                "stop_reason": choice.stop_reason,
                "prompt_token_ids": None,
                "token_ids": None,
            }
        )
    reply: TextChunk = {
        "id": id,
        "object": "text_completion",
        "created": int(time.time()),
        "model": request.model or served.names[0],
        "choices": choices,
        "usage": None if chunk.usage is None else chunk_usage(chunk.usage, request.prompt_tokens),
        "system_fingerprint": None,
        "metrics": chunk.metrics,
    }
    return _encode(ToldTextChunk(reply, told_state(streams, stream, client)))


class DerenderedText(TypedDict):
    """A whole completion, with vLLM's fields."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[dict[str, Any]]
    service_tier: None
    system_fingerprint: None
    usage: dict[str, Any]
    kv_transfer_params: dict[str, Any] | None
    ec_transfer_params: None
    metrics: dict[str, Any] | None


def _derender(models: Mapping[str, Model], body: bytes) -> bytes:
    request = decoded(_decode, body)
    model = chosen(models, request.model)
    if not request.generate_responses:
        message = "generate_responses is missing or empty: it has one response for each prompt"
        raise ApiError(400, message, param="generate_responses")
    responses, counts = request.generate_responses, request.prompt_tokens
    if counts is not None and (isinstance(counts, int) or len(counts) != len(responses)):
        message = f"prompt_tokens: a list of one count for each of the {len(responses)} generate_responses"
        raise ApiError(400, message, param="prompt_tokens")
    reading = Readings(model).text(field_bytes(request.completion_request) or b"{}")
    outputs = [_text(choice, reading) for response in responses for choice in response.choices]
    completion = sum(len(choice.token_ids or ()) for response in responses for choice in response.choices)
    first = responses[0]
    same = all(response.kv_transfer_params == first.kv_transfer_params for response in responses)
    reply: DerenderedText = {
        "id": first.request_id or secrets.token_hex(8),
        "object": "text_completion",
        "created": int(time.time()),
        "model": request.model or next(iter(models)),
        "choices": [{"index": index, **choice} for index, choice in enumerate(outputs)],
        "service_tier": None,
        "system_fingerprint": None,
        "usage": usage_of(sum(counts or ()), completion),
        "kv_transfer_params": first.kv_transfer_params if same else None,
        "ec_transfer_params": None,
        "metrics": first.metrics if len(responses) == 1 else None,
    }
    return _encode(reply)


def _text(choice: TokenChoice, reading: Reading) -> dict[str, Any]:
    ids = sampled(choice)
    parser = reading.parser(None, 0, keep_message=True)
    for part in parts(ids):
        parser.feed_tokens(part)
    parser.finish()
    assert reading.model.vocabulary is not None
    return {
        "text": parser.message.content,
        "logprobs": text_logprobs(choice.logprobs, reading.model.vocabulary, 0),
        "finish_reason": choice.finish_reason,
        "stop_reason": choice.stop_reason,
        "token_ids": None,
        "prompt_logprobs": None,
        "prompt_token_ids": None,
        "routed_experts": None,
    }
