"""`GET /openapi.json`: every route with what it takes, what it answers and how it refuses.

To add a route, give it a line in `_OPERATIONS`: the types that its body is read into and that its reply is written from
say the rest. `tests/server/test_openapi.py` fails for a route without a line, and for a reply that is not as described.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ...version import __version__
from ..audio.speech import SpeechRequest, VoiceNames
from ..errors import ErrorBody
from ..generation.enforcing import HEADER
from ..http import json_response
from ..messages.errors import REQUEST_ID, AnthropicError
from ..messages.reply import AnthropicMessage
from ..messages.request import MessagesRequest, PromptFields
from ..messages.routes import TokenCount
from ..responses.request import ResponsesRequest
from ..responses.routes import DeletedResponse, ItemList
from ..responses.writer import ResponseObject
from ..service import Service
from ..tokens.derender import DerenderedChat
from ..tokens.derender_text import DerenderedText
from ..tokens.render import GenerateRequest, RenderRequest, RenderTextRequest
from ..tokens.wire import DerenderChatRequest, DerenderCompletionRequest, ToldChunk, ToldTextChunk, VllmError
from .chat import ChatRequest
from .chat_reply import ChatCompletion
from .completions import CompletionRequest, TextCompletion
from .health import Readiness, Status, Version
from .models import AnthropicModel, AnthropicModels, ModelCard, ModelCards
from .parse import ParsedOutput, ParseRequest
from .tokenize import TokenizedPrompt, TokenizeRequest


@dataclass(frozen=True)
class _Operation:
    summary: str
    reply: Any
    """The type of the reply. None where it is text, and for transcriptions."""
    body: Any = None
    """The type of the body, where it is JSON."""
    other: Any = None
    """The type of the reply to a client that sends `anthropic-version`, where it is another."""
    chunk: Any = None
    """The type of the reply to one chunk of a stream, where those are requests of their own."""
    form: bool = False
    """Whether the body is the form of a transcription."""
    sound: bool = False
    """Whether the reply is sound."""
    streams: bool = False
    public: bool = False
    """Whether it needs no API key."""
    socket: bool = False
    """Whether it is a WebSocket."""
    query: Mapping[str, Any] = field(default_factory=dict)
    """The schemas of what may stand behind `?`."""

    def reply_type(self) -> Any:
        if not self.form:
            return self.reply
        from ...speech.outputs import TranscriptJson  # few servers transcribe

        return TranscriptJson


_ORDER, _TEXT, _SWITCH = {"enum": ["asc", "desc"]}, {"type": "string"}, {"enum": ["true", "false"]}
_PAGES = {"order": _ORDER, "after": _TEXT, "limit": {"type": "integer", "minimum": 1, "maximum": 100}}

_OPERATIONS: dict[tuple[str, str], _Operation] = {
    ("post", "/v1/chat/completions"): _Operation("Answer a conversation", ChatCompletion, ChatRequest, streams=True),
    ("post", "/v1/chat/completions/render"): _Operation(
        "A conversation as token ids, and what vLLM's engine needs beside them",
        GenerateRequest,
        RenderRequest,
    ),
    ("post", "/v1/chat/completions/derender"): _Operation(
        "The token ids of a reply, whole or a chunk of it, as a chat completion",
        DerenderedChat,
        DerenderChatRequest,
        chunk=ToldChunk,
    ),
    ("post", "/v1/completions/render"): _Operation(
        "Raw prompts as token ids, and what vLLM's engine needs beside them",
        list[GenerateRequest],
        RenderTextRequest,
    ),
    ("post", "/v1/completions/derender"): _Operation(
        "The token ids of replies, whole or a chunk of one, as a completion",
        DerenderedText,
        DerenderCompletionRequest,
        chunk=ToldTextChunk,
    ),
    ("post", "/v1/completions"): _Operation("Go on with a raw prompt", TextCompletion, CompletionRequest, streams=True),
    ("post", "/v1/messages"): _Operation(
        "Answer a conversation, in Anthropic's dialect", AnthropicMessage, MessagesRequest, streams=True
    ),
    ("post", "/v1/messages/count_tokens"): _Operation(
        "How many tokens the prompt of such a conversation has", TokenCount, PromptFields
    ),
    ("post", "/v1/responses"): _Operation(
        "Answer a conversation, in the Responses dialect", ResponseObject, ResponsesRequest, streams=True
    ),
    ("get", "/v1/responses/{id}"): _Operation("A stored response", ResponseObject, query={"stream": _SWITCH}),
    ("delete", "/v1/responses/{id}"): _Operation("Forget it", DeletedResponse),
    ("post", "/v1/responses/{id}/cancel"): _Operation("End it, if it runs in the background", ResponseObject),
    ("get", "/v1/responses/{id}/input_items"): _Operation("What it answers", ItemList, query=_PAGES),
    ("post", "/v1/audio/transcriptions"): _Operation(
        "Transcribe a recording; the language is detected unless it is given",
        None,
        form=True,
        streams=True,
    ),
    ("post", "/v1/audio/translations"): _Operation("Translate a recording to English", None, form=True, streams=True),
    ("post", "/v1/audio/speech"): _Operation("Speak a text", None, SpeechRequest, sound=True, streams=True),
    ("get", "/v1/audio/voices"): _Operation("The voices that texts are spoken with", VoiceNames),
    ("get", "/v1/realtime"): _Operation(
        "Transcribe or converse live, over a WebSocket with the events of OpenAI's realtime API, or vLLM's",
        None,
        socket=True,
        query={"model": _TEXT, "intent": {"enum": ["transcription"]}},
    ),
    ("post", "/v1/parse"): _Operation("Take a model's raw output apart", ParsedOutput, ParseRequest),
    ("post", "/v1/tokenize"): _Operation("The tokens of a prompt or a conversation", TokenizedPrompt, TokenizeRequest),
    ("get", "/v1/models"): _Operation("The models that are served", ModelCards, other=AnthropicModels),
    ("get", "/v1/models/{model}"): _Operation("One of them", ModelCard, other=AnthropicModel),
    ("get", "/"): _Operation("The version of unbraid", Version, public=True),
    ("get", "/health"): _Operation("Whether the process is alive", Status, public=True),
    ("get", "/ready"): _Operation("Whether the engine takes requests", Readiness, public=True),
    ("get", "/metrics"): _Operation("Counts and times, for Prometheus", None, public=True),
    ("get", "/version"): _Operation("The version of unbraid", Version, public=True),
    ("get", "/openapi.json"): _Operation("This description", dict[str, Any], public=True),
}

_REFUSALS = {
    "400": "The request is not right: the message says what to change",
    "401": "The API key is missing or wrong",
    "403": "A web page of this origin may not ask",
    "404": "There is no such model or response",
    "408": "The request came too slowly",
    "413": "The body is too large",
    "415": "The body is not of this content type",
    "421": "The server does not go by this name",
    "429": "Too many requests or tokens for now",
    "500": "The server made a mistake",
    "502": "The engine failed",
    "503": "The engine or the server takes no requests now",
}
_OF_BODIES = frozenset({"408", "413", "415"})
"""Statuses of errors that only a request with a body can cause."""
_LATER = frozenset({"429", "503"})
"""Statuses of errors with a `Retry-After`."""


async def openapi(service: Service, request: Request) -> Response:
    return json_response(description())


@cache
def description() -> dict[str, Any]:
    every = [kind for one in _OPERATIONS.values() for kind in (one.body, one.reply_type(), one.other, one.chunk)]
    errors = [ErrorBody, AnthropicError, VllmError]
    kinds = list(dict.fromkeys([*(kind for kind in every if kind is not None), *errors]))
    references, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schemas = dict(zip(kinds, references, strict=True))
    paths: dict[str, Any] = {}
    for (method, path), operation in _OPERATIONS.items():
        paths.setdefault(path, {})[method] = _described(path, operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "unbraid", "version": __version__},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{"key": []}, {}],
    }


def _described(path: str, operation: _Operation, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    description: dict[str, Any] = {"summary": operation.summary, "responses": _responses(path, operation, schemas)}
    parameters = [_parameter(name, "path", _NAME) for name in re.findall(r"\{(\w+)\}", path)]
    parameters += [_parameter(name, "query", schema) for name, schema in operation.query.items()]
    if parameters:
        description["parameters"] = parameters
    if operation.body is not None:
        description["requestBody"] = {"required": True, "content": _json(schemas[operation.body])}
    if operation.form:
        description["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": _form()}}}
    if operation.public:
        description["security"] = []
    return description


_NAME = {"type": "string", "minLength": 1}


def _parameter(name: str, place: str, schema: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


def _responses(path: str, operation: _Operation, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    reply = operation.reply_type()
    content = {"text/plain": {"schema": _TEXT}} if reply is None else _json(schemas[reply])
    if operation.sound:
        content = _sound()
    if operation.other is not None:
        content = _json({"anyOf": [schemas[reply], schemas[operation.other]]})
    if operation.chunk is not None:
        content = _json({"anyOf": [schemas[reply], schemas[operation.chunk]]})
    if operation.form:
        content |= {kind: {"schema": _TEXT} for kind in ("text/plain", "text/vtt", "application/x-subrip")}
    if operation.streams:
        content["text/event-stream"] = {}
    done: dict[str, Any] = {"description": "Done", "content": content}
    if operation.body is not None and operation.streams and not operation.sound:
        done["headers"] = {HEADER: _header("What the engine does not enforce of the schemas")}
    anthropic = path.startswith("/v1/messages")
    of_tokens = path.endswith("render")
    error = schemas[AnthropicError if anthropic else VllmError if of_tokens else ErrorBody]
    if operation.other is not None:
        error = {"anyOf": [error, schemas[AnthropicError]]}
    responses: dict[str, Any] = {"101": {"description": "A WebSocket"}} if operation.socket else {"200": done}
    if operation.socket:
        responses["426"] = {"description": "The request asks for no WebSocket", "content": _json(error)}
    has_body = operation.body is not None or operation.form
    for status, why in _REFUSALS.items():
        if status in _OF_BODIES and not has_body:
            continue
        responses[status] = {"description": why, "content": _json(error)}
        if status in _LATER:
            responses[status]["headers"] = {"Retry-After": _header("Seconds", {"type": "integer"})}
    if anthropic:
        for reply in responses.values():
            reply.setdefault("headers", {})[REQUEST_ID] = _header("Names the request")
    return responses


def _header(description: str, schema: Any = _TEXT) -> dict[str, Any]:
    return {"description": description, "schema": schema}


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _sound() -> dict[str, Any]:
    """The kinds of sound that a reply may have."""
    from ...speech.synthesis import MEDIA_TYPES

    return {kind: {"schema": {"type": "string", "contentMediaType": kind}} for kind in MEDIA_TYPES.values()}


def _form() -> dict[str, Any]:
    """The form of a transcription request. Speech is imported here and not above: few servers transcribe."""
    from ...speech.outputs import RESPONSE_FORMATS

    return {
        "type": "object",
        "required": ["file"],
        "properties": {
            "file": {"type": "string", "contentMediaType": "application/octet-stream"},
            "model": {"type": "string"},
            "language": {"type": "string"},
            "languages": {"type": "array", "items": {"type": "string"}},
            "prompt": {"type": "string"},
            "hotwords": {"type": "string"},
            "response_format": {"enum": list(RESPONSE_FORMATS)},
            "temperature": {"type": "number", "minimum": 0, "maximum": 1},
            "timestamp_granularities[]": {"type": "array", "items": {"enum": ["segment", "word"]}},
            "beam_size": {"type": "integer", "minimum": 1},
            "seed": {"type": "integer", "minimum": 0},
            "stream": {"type": "boolean"},
            "stream_format": {"enum": ["events", "chunks"]},
            "include[]": {"type": "array", "items": {"enum": ["logprobs"]}},
            "vad_filter": {"type": "boolean"},
            "chunking_strategy": {"type": "string"},
        },
    }
