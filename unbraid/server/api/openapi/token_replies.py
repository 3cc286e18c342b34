"""The shapes of replies of `api.tokens`, for the description of the API. They are vLLM's."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from ..fields import Object


class VllmErrorFields(Struct):
    message: str
    type: str
    param: str | None
    code: int


class VllmError(Struct):
    """vLLM's error object: the code is the HTTP status."""

    error: VllmErrorFields


class TokenMasks(Struct):
    """For each id: whose message it belongs to (-1: nobody's), whether it was sampled, whether it is content."""

    messages: list[int]
    sampled: list[bool]
    content: list[bool]


class GenerateRequest(Struct):
    """The body of `/inference/v1/generate`."""

    request_id: str
    token_ids: list[int]
    token_offsets: None
    features: None
    content_parts: None
    sampling_params: Object
    model: str | None
    reasoning_ended: bool | None
    reasoning_parser_kwargs: Object | None
    return_token_ids: None
    output_mode: Literal["tokens"]
    stream: bool
    stream_options: Object | None
    cache_salt: str | None
    priority: int
    kv_transfer_params: None
    ec_transfer_params: None
    masks: TokenMasks | UnsetType = UNSET


class DerenderedChat(Struct):
    """A whole chat completion."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Object]
    usage: Object


class DerenderedText(Struct):
    """A whole completion."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[Object]
    usage: Object


class Chunk(Struct):
    id: str
    object: Literal["chat.completion.chunk", "text_completion"]
    created: int
    model: str
    choices: list[Object]
    usage: Object | None


class NextState(Struct):
    """To be sent with the next chunk, as it is."""

    prev_tokens: list[str]


class DerenderedChatChunk(Struct):
    chunk: Chunk
    stream_state: NextState


class DerenderedTextChunk(Struct):
    chunk: Chunk
    stream_state: NextState
