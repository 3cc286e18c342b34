"""Routes for those who run the server: `/health`, `/ready`, `/version`, `/metrics`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, NotRequired, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from ...engines import EngineDown, EngineError
from ...patience import patient
from ...version import __version__
from ..access.keys import client_by_key
from ..errors import ApiError
from ..http import json_response
from ..observing.metrics import without_secrets
from ..service import Service

_PATIENCE = 1.0
"""Seconds that an engine has to say that it takes requests: as long as Kubernetes waits for `/ready`."""
Check = Callable[[], Awaitable[None]]
"""Returns if an engine takes requests; raises `EngineError` if not."""


class Status(TypedDict):
    status: Literal["ok"]


class Readiness(TypedDict):
    status: Literal["ready"]
    models: NotRequired[dict[str, str]]


class Version(TypedDict):
    version: str


async def health(service: Service, request: Request) -> Response:
    """The process is alive."""
    return json_response(Status(status="ok"))


async def ready(service: Service, request: Request) -> Response:
    """Whether at least one engine takes requests. With several models one is enough, so that a failed engine does not
    take the others out of service. The reply lists each model's state."""
    if service.leaving or service.draining:
        raise ApiError(503, "the server is about to end", retry_after=1.0)
    names = [served.names[0] for served in service.models]
    checks: list[Check] = [served.engine.check for served in service.models]
    if not checks and service.transcriber is not None:
        names, checks = list(service.listener_names[:1]), [_check_of(service.transcriber.listener)]
    if not checks and service.speaker is not None:
        names, checks = list(service.speaker_names[:1]), [_check_of(service.speaker)]
    states = await asyncio.gather(*map(_trouble, checks))
    trouble = [error for error in states if error is not None]
    if len(trouble) == len(states):
        raise trouble[0]
    reply: Readiness = {"status": "ready"}
    if len(states) > 1:
        reply["models"] = {name: "down" if error else "ready" for name, error in zip(names, states, strict=True)}
    return json_response(reply)


def _check_of(model: object) -> Check:
    """How to ask a model that transcribes or speaks whether it takes requests. One in this process always does."""

    async def always() -> None: ...

    check: Check = getattr(model, "check", always)
    return check


async def _trouble(check: Check) -> EngineDown | None:
    """Why the engine of a model takes no requests, or None."""
    try:
        async with patient(_PATIENCE):
            await check()
    except TimeoutError:
        return EngineDown(f"the engine does not say within {_PATIENCE:g} s whether it takes requests")
    except EngineDown as error:
        return error
    except EngineError as error:
        return EngineDown(str(error))
    return None


async def version(service: Service, request: Request) -> Response:
    return json_response(Version(version=__version__))


async def metrics(service: Service, request: Request) -> Response:
    text = service.metrics.text() if service.metrics_of_all is None else await service.metrics_of_all()
    if client_by_key(service.api_keys, request) is None:
        return Response(without_secrets(text.decode()), media_type=service.metrics.content_type)
    return Response(text, media_type=service.metrics.content_type)
