"""The description: every route with what it takes, what it answers and how it refuses.

To add a route, give it a line in `_OPERATIONS`. `tests/server/test_openapi.py` fails for a route without one, and for
a reply that is not as described.
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

from ....version import __version__
from ...audio.speech import SpeechRequest
from ...generation.enforcing import HEADER
from ...http import json_response
from ...messages.errors import REQUEST_ID
from ...messages.request import MessagesRequest, PromptFields
from ...responses.request import ResponsesRequest
from ...service import Service
from ...tokens.render import RenderRequest, RenderTextRequest
from ...tokens.wire import DerenderChatRequest, DerenderCompletionRequest
from ..chat import ChatRequest
from ..completions import CompletionRequest
from ..parse import ParseRequest
from ..tokenize import TokenizeRequest
from . import replies, token_replies


@dataclass(frozen=True)
class _Operation:
    summary: str
    reply: Any
    """The type of the reply. None where it is text."""
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


_ORDER, _TEXT, _SWITCH = {"enum": ["asc", "desc"]}, {"type": "string"}, {"enum": ["true", "false"]}
_PAGES = {"order": _ORDER, "after": _TEXT, "limit": {"type": "integer", "minimum": 1, "maximum": 100}}

_OPERATIONS: dict[tuple[str, str], _Operation] = {
    ("post", "/v1/chat/completions"): _Operation(
        "Answer a conversation", replies.ChatCompletion, ChatRequest, streams=True
    ),
    ("post", "/v1/chat/completions/render"): _Operation(
        "A conversation as token ids, and what vLLM's engine needs beside them",
        token_replies.GenerateRequest,
        RenderRequest,
    ),
    ("post", "/v1/chat/completions/derender"): _Operation(
        "The token ids of a reply, whole or a chunk of it, as a chat completion",
        token_replies.DerenderedChat,
        DerenderChatRequest,
        chunk=token_replies.DerenderedChatChunk,
    ),
    ("post", "/v1/completions/render"): _Operation(
        "Raw prompts as token ids, and what vLLM's engine needs beside them",
        list[token_replies.GenerateRequest],
        RenderTextRequest,
    ),
    ("post", "/v1/completions/derender"): _Operation(
        "The token ids of replies, whole or a chunk of one, as a completion",
        token_replies.DerenderedText,
        DerenderCompletionRequest,
        chunk=token_replies.DerenderedTextChunk,
    ),
    ("post", "/v1/completions"): _Operation(
        "Go on with a raw prompt", replies.Completion, CompletionRequest, streams=True
    ),
    ("post", "/v1/messages"): _Operation(
        "Answer a conversation, in Anthropic's dialect", replies.AnthropicMessage, MessagesRequest, streams=True
    ),
    ("post", "/v1/messages/count_tokens"): _Operation(
        "How many tokens the prompt of such a conversation has", replies.TokenCount, PromptFields
    ),
    ("post", "/v1/responses"): _Operation(
        "Answer a conversation, in the Responses dialect", replies.ResponseObject, ResponsesRequest, streams=True
    ),
    ("get", "/v1/responses/{id}"): _Operation("A stored response", replies.ResponseObject, query={"stream": _SWITCH}),
    ("delete", "/v1/responses/{id}"): _Operation("Forget it", replies.DeletedResponse),
    ("post", "/v1/responses/{id}/cancel"): _Operation("End it, if it runs in the background", replies.ResponseObject),
    ("get", "/v1/responses/{id}/input_items"): _Operation("What it answers", replies.ItemList, query=_PAGES),
    ("post", "/v1/audio/transcriptions"): _Operation(
        "Transcribe a recording; the language is detected unless it is given",
        replies.Transcription,
        form=True,
        streams=True,
    ),
    ("post", "/v1/audio/translations"): _Operation(
        "Translate a recording to English", replies.Transcription, form=True, streams=True
    ),
    ("post", "/v1/audio/speech"): _Operation("Speak a text", None, SpeechRequest, sound=True, streams=True),
    ("get", "/v1/audio/voices"): _Operation("The voices that texts are spoken with", replies.Voices),
    ("get", "/v1/realtime"): _Operation(
        "Transcribe or converse live, over a WebSocket with the events of OpenAI's realtime API, or vLLM's",
        None,
        socket=True,
        query={"model": _TEXT, "intent": {"enum": ["transcription"]}},
    ),
    ("post", "/v1/parse"): _Operation("Take a model's raw output apart", replies.Parsed, ParseRequest),
    ("post", "/v1/tokenize"): _Operation("The tokens of a prompt or a conversation", replies.Tokens, TokenizeRequest),
    ("get", "/v1/models"): _Operation("The models that are served", replies.ModelCards, other=replies.AnthropicModels),
    ("get", "/v1/models/{model}"): _Operation("One of them", replies.ModelCard, other=replies.AnthropicModel),
    ("get", "/"): _Operation("The version of unbraid", replies.Version, public=True),
    ("get", "/health"): _Operation("Whether the process is alive", replies.Status, public=True),
    ("get", "/ready"): _Operation("Whether the engine takes requests", replies.Ready, public=True),
    ("get", "/metrics"): _Operation("Counts and times, for Prometheus", None, public=True),
    ("get", "/version"): _Operation("The version of unbraid", replies.Version, public=True),
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
"""Those that only a body can cause."""
_LATER = frozenset({"429", "503"})
"""Those that say when to ask again."""


async def openapi(service: Service, request: Request) -> Response:
    return json_response(description())


@cache
def description() -> dict[str, Any]:
    every = [kind for one in _OPERATIONS.values() for kind in (one.body, one.reply, one.other, one.chunk)]
    errors = [replies.Error, replies.AnthropicError, token_replies.VllmError]
    kinds = list(dict.fromkeys([*(kind for kind in every if kind is not None), *errors]))
    made, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schemas = dict(zip(kinds, made, strict=True))
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
    said: dict[str, Any] = {"summary": operation.summary, "responses": _responses(path, operation, schemas)}
    parameters = [_parameter(name, "path", _NAME) for name in re.findall(r"\{(\w+)\}", path)]
    parameters += [_parameter(name, "query", schema) for name, schema in operation.query.items()]
    if parameters:
        said["parameters"] = parameters
    if operation.body is not None:
        said["requestBody"] = {"required": True, "content": _json(schemas[operation.body])}
    if operation.form:
        said["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": _form()}}}
    if operation.public:
        said["security"] = []
    return said


_NAME = {"type": "string", "minLength": 1}


def _parameter(name: str, place: str, schema: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


def _responses(path: str, operation: _Operation, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    content = {"text/plain": {"schema": _TEXT}} if operation.reply is None else _json(schemas[operation.reply])
    if operation.sound:
        content = _sound()
    if operation.other is not None:
        content = _json({"anyOf": [schemas[operation.reply], schemas[operation.other]]})
    if operation.chunk is not None:
        content = _json({"anyOf": [schemas[operation.reply], schemas[operation.chunk]]})
    if operation.form:
        content |= {kind: {"schema": _TEXT} for kind in ("text/plain", "text/vtt", "application/x-subrip")}
    if operation.streams:
        content["text/event-stream"] = {}
    done: dict[str, Any] = {"description": "Done", "content": content}
    if operation.body is not None and operation.streams and not operation.sound:
        done["headers"] = {HEADER: _header("What the engine does not enforce of the schemas")}
    anthropic = path.startswith("/v1/messages")
    of_tokens = path.endswith("render")
    error = schemas[replies.AnthropicError if anthropic else token_replies.VllmError if of_tokens else replies.Error]
    if operation.other is not None:
        error = {"anyOf": [error, schemas[replies.AnthropicError]]}
    found: dict[str, Any] = {"101": {"description": "A WebSocket"}} if operation.socket else {"200": done}
    if operation.socket:
        found["426"] = {"description": "The request asks for no WebSocket", "content": _json(error)}
    has_body = operation.body is not None or operation.form
    for status, why in _REFUSALS.items():
        if status in _OF_BODIES and not has_body:
            continue
        found[status] = {"description": why, "content": _json(error)}
        if status in _LATER:
            found[status]["headers"] = {"Retry-After": _header("Seconds", {"type": "integer"})}
    if anthropic:
        for reply in found.values():
            reply.setdefault("headers", {})[REQUEST_ID] = _header("Names the request")
    return found


def _header(description: str, schema: Any = _TEXT) -> dict[str, Any]:
    return {"description": description, "schema": schema}


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _sound() -> dict[str, Any]:
    """The kinds of sound that a reply may have."""
    from ....speech.synthesis import MEDIA_TYPES

    return {kind: {"schema": {"type": "string", "contentMediaType": kind}} for kind in MEDIA_TYPES.values()}


def _form() -> dict[str, Any]:
    """The form of a transcription request. Speech is imported here and not above: few servers transcribe."""
    from ....speech.outputs import RESPONSE_FORMATS

    return {
        "type": "object",
        "required": ["file"],
        "properties": {
            "file": {"type": "string", "contentMediaType": "application/octet-stream"},
            "model": {"type": "string"},
            "language": {"type": "string"},
            "languages": {"type": "array", "items": {"type": "string"}},
            "prompt": {"type": "string"},
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
