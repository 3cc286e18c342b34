"""`POST /v1/parse`: a model's raw output in, the message out."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from ...formats import find
from ...parsing import Parser
from ..errors import ApiError
from ..http import json_response, while_connected
from ..model import Model
from ..service import Service
from .bodies import read_request
from .fields import Object


class ParseRequest(Struct, kw_only=True):
    """The body of `POST /v1/parse`: raw output as `text` or as `ids`."""

    model: str | None = None
    text: str | None = None
    ids: list[int] | None = None
    format: str | None = None
    prompt: str | list[int] | None = None
    tools: list[Object] | None = None
    unknown_tools: Literal["text", "emit"] | None = None
    separate_reasoning: bool | None = None
    calls_in_reasoning: bool | None = None


async def parse(service: Service, request: Request) -> Response:
    asked = await read_request(request, ParseRequest, service.max_body)
    model = service.served(asked.model).current()
    return json_response(await while_connected(request.receive, service.planned(_parse, model, asked)))


def _parse(model: Model, asked: ParseRequest) -> dict[str, Any]:
    if (asked.text is None) == (asked.ids is None):
        raise ApiError(400, "give the output as `text` or as `ids`, one of them", param="text")
    by_ids = asked.ids is not None or isinstance(asked.prompt, list)
    if by_ids and model.vocabulary is None:
        raise ApiError(400, "ids: only the engine knows the tokens; give text", param="ids")
    vocabulary = model.vocabulary if by_ids else None
    format = model.format if asked.format is None else find(asked.format)
    if vocabulary is not None:
        format = format.for_version(vocabulary.version)
    parser = Parser(
        format,
        tools=asked.tools,
        unknown_tools=asked.unknown_tools or model.unknown_tools,
        tokenizer=vocabulary,
        prompt=asked.prompt,
        separate_reasoning=asked.separate_reasoning is not False,
        calls_in_reasoning=asked.calls_in_reasoning,
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
