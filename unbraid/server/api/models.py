"""`GET /v1/models`: the models that are served, in the shape that the client knows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal, NotRequired, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from ..http import ANTHROPIC_VERSION, json_response
from ..service import Service


class ModelCard(TypedDict):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    format: str
    root: NotRequired[str]
    max_model_len: NotRequired[int | None]


class ModelCards(TypedDict):
    object: Literal["list"]
    data: list[ModelCard]


class AnthropicModel(TypedDict):
    """For clients that send `anthropic-version`."""

    type: Literal["model"]
    id: str
    display_name: str
    created_at: str
    lifecycle: str
    max_input_tokens: int | None
    max_tokens: int | None


class AnthropicModels(TypedDict):
    data: list[AnthropicModel]
    has_more: bool
    first_id: str | None
    last_id: str | None


async def models(service: Service, request: Request) -> Response:
    if ANTHROPIC_VERSION in request.headers:
        return json_response(model_list(service, service.names))
    cards = [_card(service, name) for name in service.names]
    cards += [_other_card(service, name, "whisper") for name in service.listener_names]
    cards += [_other_card(service, name, "speech") for name in service.speaker_names]
    return json_response(ModelCards(object="list", data=cards))


async def model(service: Service, request: Request) -> Response:
    name = request.path_params["model"]
    if name in service.listener_names:
        return json_response(_other_card(service, name, "whisper"))
    if name in service.speaker_names:
        return json_response(_other_card(service, name, "speech"))
    if ANTHROPIC_VERSION in request.headers:
        return json_response(model_info(service, name))
    return json_response(_card(service, name))


def _card(service: Service, name: str) -> ModelCard:
    served = service.served(name)
    return {
        "id": name,
        "object": "model",
        "created": service.created,
        "owned_by": "unbraid",
        "root": served.engine.model,
        "max_model_len": served.engine.context,
        "format": served.model.format.name,
    }


def _other_card(service: Service, name: str, format: str) -> ModelCard:
    """A model that transcribes or speaks."""
    return {"id": name, "object": "model", "created": service.created, "owned_by": "unbraid", "format": format}


def model_info(service: Service, name: str) -> AnthropicModel:
    context = service.served(name).engine.context
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": datetime.fromtimestamp(service.created, UTC).isoformat().replace("+00:00", "Z"),
        "lifecycle": "active",
        "max_input_tokens": context,
        "max_tokens": context,
    }


def model_list(service: Service, names: Sequence[str]) -> AnthropicModels:
    """All of them: there are few, and so there are no pages."""
    data = [model_info(service, name) for name in names]
    first, last = (names[0], names[-1]) if names else (None, None)
    return {"data": data, "has_more": False, "first_id": first, "last_id": last}
