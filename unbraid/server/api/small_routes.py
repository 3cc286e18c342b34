"""The small routes: models, parsing, tokens, health."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ... import __version__
from ...engines import EngineDown, EngineError
from ...formats import find
from ...parsing import Parser
from ..errors import ApiError
from ..http import json_response, while_connected
from ..service import Service
from .bodies import ParseRequest, TokenizeRequest, read_request


async def models(service: Service, request: Request) -> Response:
    cards = [_card(service, name) for name in service.names]
    return json_response(
        {"object": "list", "data": cards + [_listener_card(service, n) for n in service.listener_names]}
    )


async def model(service: Service, request: Request) -> Response:
    name = request.path_params["model"]
    if name in service.listener_names:
        return json_response(_listener_card(service, name))
    return json_response(_card(service, service.check_model(name)))


def _card(service: Service, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": service.created,
        "owned_by": "unbraid",
        "root": service.engine.model,
        "max_model_len": service.engine.context,
        "format": service.format.name,
    }


def _listener_card(service: Service, name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": service.created, "owned_by": "unbraid", "format": "whisper"}


async def health(service: Service, request: Request) -> Response:
    """The process is alive."""
    return json_response({"status": "ok"})


async def ready(service: Service, request: Request) -> Response:
    """The engine takes requests."""
    if service.draining:
        raise ApiError(503, "the server is about to end", retry_after=1.0)
    try:
        await service.engine.check()
    except EngineDown:
        raise
    except EngineError as error:
        raise EngineDown(str(error)) from error
    return json_response({"status": "ready"})


async def version(service: Service, request: Request) -> Response:
    return json_response({"version": __version__})


async def metrics(service: Service, request: Request) -> Response:
    return Response(service.metrics.text(), media_type=service.metrics.content_type)


async def parse(service: Service, request: Request) -> Response:
    """Raw output in, message out."""
    asked = await read_request(request, ParseRequest, service.max_body)
    return json_response(await while_connected(request.receive, service.planned(_parse, service, asked)))


def _parse(service: Service, asked: ParseRequest) -> dict[str, Any]:
    if (asked.text is None) == (asked.ids is None):
        raise ApiError(400, "give the output as `text` or as `ids`, one of them", param="text")
    by_ids = asked.ids is not None or isinstance(asked.prompt, list)
    if by_ids and service.vocabulary is None:
        raise ApiError(400, "ids: only the engine knows the tokens; give text", param="ids")
    vocabulary = service.vocabulary if by_ids else None
    format = service.format if asked.format is None else find(asked.format)
    if vocabulary is not None:
        format = format.for_version(vocabulary.version)
    parser = Parser(
        format,
        tools=asked.tools,
        unknown_tools=asked.unknown_tools or service.unknown_tools,
        tokenizer=vocabulary,
        prompt=asked.prompt,
        separate_reasoning=asked.separate_reasoning is not False,
    )
    if asked.ids is not None:
        parser.feed_tokens(asked.ids)
    else:
        parser.feed(asked.text or "")
    parser.finish()
    message = parser.message
    return {
        "format": format.name,
        "message": message.to_openai(),
        "complete": [call.complete for call in message.tool_calls],
        "diagnostics": [asdict(diagnostic) for diagnostic in message.diagnostics],
    }


async def tokenize(service: Service, request: Request) -> Response:
    """The tokens of a raw prompt, or of what a chat's template makes of its messages."""
    asked = await read_request(request, TokenizeRequest, service.max_body)
    service.check_model(asked.model)
    return json_response(await while_connected(request.receive, service.planned(_tokenize, service, asked)))


def _tokenize(service: Service, asked: TokenizeRequest) -> dict[str, Any]:
    if (asked.prompt is None) == (asked.messages is None):
        raise ApiError(400, "give a `prompt` or `messages`, one of them", param="prompt")
    vocabulary = service.vocabulary
    if vocabulary is None:
        raise ApiError(400, "only the engine knows the model's tokens: start the server with --tokenizer")
    ids: Any
    if asked.prompt is not None:
        ids = service.raw_prompt(asked.prompt)
    else:
        ids = (
            service.chat_builder()
            .build(
                asked.messages or [],
                tools=asked.tools,
                documents=asked.documents,
                add_generation_prompt=asked.add_generation_prompt is not False,
                continue_final_message=bool(asked.continue_final_message),
                tts_output=bool(asked.tts_output),
                template_kwargs=asked.chat_template_kwargs,
            )
            .ids
        )
    found = {"tokens": list(ids), "count": len(ids), "max_model_len": service.engine.context}
    if asked.return_token_strs:
        found["token_strs"] = [(vocabulary.token_bytes(id) or b"").decode("utf-8", "replace") for id in ids]
    return found
