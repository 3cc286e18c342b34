"""`GET /openapi.json`: the API described, from the same types that requests are checked with."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ...version import __version__
from ..http import json_response
from ..service import Service
from .chat import ChatRequest
from .completions import CompletionRequest
from .messages.request import MessagesRequest, PromptFields
from .parse import ParseRequest
from .responses.request import ResponsesRequest
from .tokenize import TokenizeRequest

_POSTS = {
    "/v1/chat/completions": ("Answer a conversation", ChatRequest),
    "/v1/completions": ("Go on with a raw prompt", CompletionRequest),
    "/v1/messages": ("Answer a conversation, in Anthropic's dialect", MessagesRequest),
    "/v1/messages/count_tokens": ("How many tokens the prompt of such a conversation has", PromptFields),
    "/v1/responses": ("Answer a conversation, in the Responses dialect", ResponsesRequest),
    "/v1/parse": ("Take a model's raw output apart", ParseRequest),
    "/v1/tokenize": ("The tokens of a prompt or a conversation", TokenizeRequest),
}
_FORMS = {
    "/v1/audio/transcriptions": "Transcribe a recording; the language is detected unless it is given",
    "/v1/audio/translations": "Translate a recording to English",
}
_WITHOUT_BODY = {
    ("get", "/v1/responses/{id}"): "A stored response",
    ("delete", "/v1/responses/{id}"): "Forget it",
    ("post", "/v1/responses/{id}/cancel"): "End it, if it runs in the background",
    ("get", "/v1/responses/{id}/input_items"): "What it answers",
    ("get", "/v1/models"): "The models that are served",
    ("get", "/v1/models/{model}"): "One of them",
    ("get", "/health"): "Whether the process is alive",
    ("get", "/ready"): "Whether the engine takes requests",
    ("get", "/metrics"): "Counts and times, for Prometheus",
    ("get", "/version"): "The version of unbraid",
    ("get", "/openapi.json"): "This description",
}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


_ANTHROPIC_ERROR = {
    "type": "object",
    "required": ["type", "error", "request_id"],
    "properties": {
        "type": {"const": "error"},
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
        },
        "request_id": {"type": "string"},
    },
}


async def openapi(service: Service, request: Request) -> Response:
    return json_response(description())


@cache
def description() -> dict[str, Any]:
    kinds = [kind for _, kind in _POSTS.values()]
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {}
    for (path, (summary, _)), schema in zip(_POSTS.items(), schemas, strict=True):
        body = {"required": True, "content": _json(schema)}
        paths[path] = {"post": {"summary": summary, "requestBody": body, "responses": _responses(path)}}
    for path, summary in _FORMS.items():
        body = {"required": True, "content": {"multipart/form-data": {"schema": _form()}}}
        paths[path] = {"post": {"summary": summary, "requestBody": body, "responses": _responses(path)}}
    for (method, path), summary in _WITHOUT_BODY.items():
        operation: dict[str, Any] = {"summary": summary, "responses": _responses(path)}
        for name in re.findall(r"\{(\w+)\}", path):
            parameter = {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            operation["parameters"] = [parameter]
        paths.setdefault(path, {})[method] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "unbraid", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {**components, "Error": _ERROR, "AnthropicError": _ANTHROPIC_ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}, {}],
    }


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
            "response_format": {"enum": list(RESPONSE_FORMATS)},
            "temperature": {"type": "number", "minimum": 0, "maximum": 1},
            "timestamp_granularities[]": {"type": "array", "items": {"enum": ["segment", "word"]}},
            "beam_size": {"type": "integer", "minimum": 1},
            "seed": {"type": "integer", "minimum": 0},
            "stream": {"type": "boolean"},
            "stream_format": {"enum": ["events", "chunks"]},
        },
    }


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _responses(path: str) -> dict[str, Any]:
    streamed = path.endswith(("completions", "messages", "responses", "transcriptions", "translations"))
    content: dict[str, Any] = {"text/plain": {}} if path == "/metrics" else _json({"type": "object"})
    if streamed:
        content["text/event-stream"] = {}
    shape = "AnthropicError" if path.startswith("/v1/messages") else "Error"
    refused = {"description": "Why not", "content": _json({"$ref": f"#/components/schemas/{shape}"})}
    return {"200": {"description": "Done", "content": content}, "default": refused}
