"""`POST /v1/parse`: a model's raw output in, the message out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Literal, TypedDict, TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from ...formats import find
from ...metering import spend
from ...parsing import Parser
from ..errors import ApiError
from ..http import while_connected
from ..limits import check_limits
from ..model import Model, chosen
from ..service import Service
from .bodies import read, read_json_body
from .fields import ToolList

_PART = 1_000
"""Characters or tokens that are parsed at a time."""


class ParseRequest(Struct, kw_only=True):
    """The body of `POST /v1/parse`: raw output as `text` or as `ids`."""

    model: str | None = None
    text: str | None = None
    ids: list[int] | None = None
    format: str | None = None
    prompt: str | list[int] | None = None
    tools: ToolList | None = None
    unknown_tools: Literal["text", "emit"] | None = None
    separate_reasoning: bool | None = None
    calls_in_reasoning: bool | None = None


class ParsedOutput(TypedDict):
    format: str
    message: dict[str, Any]
    complete: list[bool]
    """Of each call, whether it is complete."""
    diagnostics: list[dict[str, Any]]


async def parse(service: Service, request: Request) -> Response:
    body = await read_json_body(request, service.max_body)
    work = service.planned(_parse, service.models_by_name(), body)
    return Response(await while_connected(request.receive, work), media_type="application/json")


def _parse(models: Mapping[str, Model], body: bytes) -> bytes:
    """The reply. All of it is made here: outputs may be large."""
    request = read(body, ParseRequest)
    check_limits(tools=request.tools)
    model = chosen(models, request.model)
    if (request.text is None) == (request.ids is None):
        raise ApiError(400, "give the output as `text` or as `ids`, one of them", param="text")
    by_ids = request.ids is not None or isinstance(request.prompt, list)
    if by_ids and model.vocabulary is None:
        raise ApiError(400, "ids: only the engine knows the tokens; give text", param="ids")
    vocabulary = model.vocabulary if by_ids else None
    format = model.format if request.format is None else find(request.format)
    if vocabulary is not None:
        format = format.for_version(vocabulary.version)
    parser = Parser(
        format,
        tools=request.tools,
        unknown_tools=request.unknown_tools or model.unknown_tools,
        tokenizer=vocabulary,
        prompt=request.prompt,
        separate_reasoning=request.separate_reasoning is not False,
        calls_in_reasoning=request.calls_in_reasoning,
    )
    for part in parts(request.ids or []):
        parser.feed_tokens(part)
    for text in parts(request.text or ""):
        parser.feed(text)
    parser.finish()
    message = parser.message
    reply: ParsedOutput = {
        "format": format.name,
        "message": message.to_openai(),
        "complete": [call.complete for call in message.tool_calls],
        "diagnostics": [asdict(diagnostic) for diagnostic in message.diagnostics],
    }
    return msgspec.json.encode(reply)


Output = TypeVar("Output", str, list[int])


def parts(output: Output) -> Iterator[Output]:
    """An output in parts, so that its cost can be counted in between. Chunks do not matter to a parser."""
    for begin in range(0, len(output), _PART):
        spend(_PART)
        yield output[begin : begin + _PART]
