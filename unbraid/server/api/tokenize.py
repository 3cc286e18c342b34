"""`POST /v1/tokenize`: the tokens of a raw prompt, or of a chat as its template writes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from ..errors import ApiError
from ..http import while_connected
from ..limits import check_limits
from ..model import Model, chosen
from ..service import Service
from .bodies import read, read_json_body
from .fields import MessageList, Object, ToolList


class TokenizeRequest(Struct, kw_only=True):
    """The body of `POST /v1/tokenize`: a `prompt`, in which control tokens are recognised, or what a chat has."""

    model: str | None = None
    prompt: str | None = None
    messages: MessageList | None = None
    tools: ToolList | None = None
    documents: list[Object] | None = None
    chat_template_kwargs: Object | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    tts_output: bool | None = None
    return_token_strs: bool | None = None


class TokenizedPrompt(TypedDict):
    tokens: list[int]
    count: int
    max_model_len: int | None
    token_strs: NotRequired[list[str]]


async def tokenize(service: Service, request: Request) -> Response:
    body = await read_json_body(request, service.max_body)
    work = service.planned(_tokenize, service.models_by_name(), body)
    return Response(await while_connected(request.receive, work), media_type="application/json")


def _tokenize(models: Mapping[str, Model], body: bytes) -> bytes:
    """The reply. All of it is made here: prompts may be large."""
    request = read(body, TokenizeRequest)
    check_limits(messages=request.messages, tools=request.tools)
    model = chosen(models, request.model)
    if (request.prompt is None) == (request.messages is None):
        raise ApiError(400, "give a `prompt` or `messages`, one of them", param="prompt")
    vocabulary = model.vocabulary
    if vocabulary is None:
        raise ApiError(400, "only the engine knows the model's tokens: start the server with --tokenizer")
    ids: Any
    if request.prompt is not None:
        ids = model.raw_prompt(request.prompt)
    else:
        ids = (
            model.chat_builder()
            .build(
                request.messages or [],
                tools=request.tools,
                documents=request.documents,
                add_generation_prompt=request.add_generation_prompt is not False,
                continue_final_message=bool(request.continue_final_message),
                tts_output=bool(request.tts_output),
                allow_silence=True,
                template_kwargs=request.chat_template_kwargs,
            )
            .ids
        )
    reply: TokenizedPrompt = {"tokens": list(ids), "count": len(ids), "max_model_len": model.context}
    if request.return_token_strs:
        reply["token_strs"] = [(vocabulary.token_bytes(id) or b"").decode("utf-8", "replace") for id in ids]
    return msgspec.json.encode(reply)
