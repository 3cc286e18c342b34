"""Routes for those who run the server: `/health`, `/ready`, `/version`, `/metrics`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ...engines import EngineDown, EngineError
from ...version import __version__
from ..errors import ApiError
from ..http import json_response
from ..service import Service


async def health(service: Service, request: Request) -> Response:
    """The process is alive."""
    return json_response({"status": "ok"})


async def ready(service: Service, request: Request) -> Response:
    """The engines take requests."""
    if service.leaving or service.draining:
        raise ApiError(503, "the server is about to end", retry_after=1.0)
    try:
        for served in service.models:
            await served.engine.check()
    except EngineDown:
        raise
    except EngineError as error:
        raise EngineDown(str(error)) from error
    return json_response({"status": "ready"})


async def version(service: Service, request: Request) -> Response:
    return json_response({"version": __version__})


async def metrics(service: Service, request: Request) -> Response:
    text = service.metrics.text() if service.metrics_of_all is None else await service.metrics_of_all()
    return Response(text, media_type=service.metrics.content_type)
