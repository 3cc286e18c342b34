"""`GET /v1/models`: the models that are served."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..http import json_response
from ..service import Service


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
