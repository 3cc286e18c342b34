"""`GET /v1/models`: the models that are served, in the shape that the client knows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..http import ANTHROPIC_VERSION, json_response
from ..service import Service


async def models(service: Service, request: Request) -> Response:
    if ANTHROPIC_VERSION in request.headers:
        return json_response(model_list(service, service.names))
    cards = [_card(service, name) for name in service.names]
    cards += [_other_card(service, name, "whisper") for name in service.listener_names]
    cards += [_other_card(service, name, "speech") for name in service.speaker_names]
    return json_response({"object": "list", "data": cards})


async def model(service: Service, request: Request) -> Response:
    name = request.path_params["model"]
    if name in service.listener_names:
        return json_response(_other_card(service, name, "whisper"))
    if name in service.speaker_names:
        return json_response(_other_card(service, name, "speech"))
    if ANTHROPIC_VERSION in request.headers:
        return json_response(model_info(service, name))
    return json_response(_card(service, name))


def _card(service: Service, name: str) -> dict[str, Any]:
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


def _other_card(service: Service, name: str, format: str) -> dict[str, Any]:
    """A model that transcribes or speaks."""
    return {"id": name, "object": "model", "created": service.created, "owned_by": "unbraid", "format": format}


def model_info(service: Service, name: str) -> dict[str, Any]:
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


def model_list(service: Service, names: Sequence[str]) -> dict[str, Any]:
    """All of them: there are few, and so there are no pages."""
    found = [model_info(service, name) for name in names]
    first, last = (names[0], names[-1]) if names else (None, None)
    return {"data": found, "has_more": False, "first_id": first, "last_id": last}
