"""The shapes of replies, for the description of the API.

Replies are written from templates and dictionaries, field by field, as they come. These types say what comes of it;
`tests/server/test_openapi.py` holds one against the other, with random requests. A field with a default may be missing.
"""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from ..fields import Object


class ErrorFields(Struct):
    message: str
    type: str
    param: str | None
    code: str | None


class Error(Struct):
    """OpenAI's error object."""

    error: ErrorFields


class AnthropicErrorFields(Struct):
    type: str
    message: str
    details: Object | UnsetType = UNSET


class AnthropicError(Struct):
    type: Literal["error"]
    error: AnthropicErrorFields
    request_id: str


# Chat and completions


class TokenUsage(Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int]
    completion_tokens_details: dict[str, int] | UnsetType = UNSET


class SpeechContent(Struct):
    tts_text: str
    tts_audio: str


class ChatMessage(Struct):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: str | UnsetType | None = UNSET
    reasoning: str | UnsetType | None = UNSET
    tool_calls: list[Object] | UnsetType = UNSET
    tts_content: SpeechContent | UnsetType = UNSET
    audio: Object | UnsetType = UNSET


class ChatChoice(Struct):
    index: int
    message: ChatMessage
    logprobs: Object | None
    finish_reason: Literal["stop", "length", "tool_calls"]
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletion(Struct):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: TokenUsage
    prompt_token_ids: list[int] | UnsetType = UNSET


class TextChoice(Struct):
    index: int
    text: str
    logprobs: Object | None
    finish_reason: Literal["stop", "length"]
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class Completion(Struct):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: TokenUsage


# Anthropic's dialect


class MessageUsage(Struct):
    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: dict[str, int] | UnsetType = UNSET


class AnthropicMessage(Struct):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[Object]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"]
    stop_sequence: str | None
    usage: MessageUsage


class TokenCount(Struct):
    input_tokens: int


# The Responses dialect


class ResponseObject(Struct):
    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    error: Object | None
    incomplete_details: Object | None
    model: str
    output: list[Object]
    usage: Object | None
    instructions: str | list[Object] | None
    metadata: dict[str, str]
    previous_response_id: str | None
    tools: list[Object]
    background: bool
    store: bool


class DeletedResponse(Struct):
    id: str
    object: Literal["response"]
    deleted: Literal[True]


class ItemList(Struct):
    object: Literal["list"]
    data: list[Object]
    first_id: str | None
    last_id: str | None
    has_more: bool


# The rest


class Parsed(Struct):
    format: str
    message: Object
    complete: list[bool]
    diagnostics: list[Object]


class Tokens(Struct):
    tokens: list[int]
    count: int
    max_model_len: int | None
    token_strs: list[str] | UnsetType = UNSET


class ModelCard(Struct):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    format: str
    root: str | UnsetType = UNSET
    max_model_len: int | UnsetType | None = UNSET


class ModelCards(Struct):
    object: Literal["list"]
    data: list[ModelCard]


class AnthropicModel(Struct):
    """For clients that send `anthropic-version`."""

    type: Literal["model"]
    id: str
    display_name: str
    created_at: str
    max_input_tokens: int | None
    max_tokens: int | None


class AnthropicModels(Struct):
    data: list[AnthropicModel]
    has_more: bool
    first_id: str | None
    last_id: str | None


class Transcription(Struct):
    text: str
    language: str | None
    usage: Object


class Status(Struct):
    status: str


class Ready(Struct):
    status: str
    models: dict[str, str] | UnsetType = UNSET


class Version(Struct):
    version: str


class Voices(Struct, kw_only=True):
    voices: list[str]
