"""Settings to an application of Ray Serve: the API is the ingress, and each engine that runs in a process a deployment.

Engines that are servers elsewhere (`--vllm URL`) stay as they are: the API asks them itself, with our own routing.
"""

from __future__ import annotations

import os
import re
from typing import Any

from ray import serve

from ..errors import UnbraidError
from ..server.settings import Settings, json_object
from .ingress import Api, key_of
from .replicas import EngineReplica, ListenerReplica

API = "api"
"""What its deployment is called."""
GRACE = 2.0
"""Seconds that streams have to say that they were cut off."""
_MOST_STREAMS = 10_000
"""Requests at once in one process of the API. Ray would let the others wait unseen."""
_MOST_ANYWHERE = 256
"""Requests at once in a replica of an engine that schedules them itself."""
_ELSEWHERE = ("sglang", "vllm", "llama_cpp", "openai", "tokens_only")


def build(settings: Settings) -> serve.Application:
    """The application. Raises `UnbraidError` for settings that cannot be had on Ray."""
    if settings.ray_api_replicas > 1 and any(each.record for each in settings.each_model()):
        raise UnbraidError("--record writes one file, which several processes would spoil: give --ray-api-replicas 1")
    engines = {
        key_of(each): _engine(each, settings.shutdown_seconds)
        for each in settings.each_model()
        if not any(getattr(each, name) for name in _ELSEWHERE)
    }
    listens = settings.transcribes and settings.transcription_engine in ("embedded", "vllm-local")
    listener = _listener(settings) if listens else None
    api = serve.deployment(
        serve.ingress()(Api),
        name=API,
        num_replicas=settings.ray_api_replicas,
        max_ongoing_requests=_MOST_STREAMS,
        # It finds a place where engines have taken all cores, as Ray's proxy and controller do.
        ray_actor_options={"num_cpus": 0},
        graceful_shutdown_timeout_s=settings.shutdown_seconds + GRACE,
        **{name: value for name, value in _further(settings).items() if name.startswith("health_check_")},
    )
    return api.bind(settings, engines, listener, os.urandom(32))


def _engine(settings: Settings, patience: float) -> serve.Application:
    embedded = not settings.vllm_local and settings.replay is None
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", f"engine-{key_of(settings)}".rstrip("-"))
    most = settings.parallel if embedded else _MOST_ANYWHERE
    waiting = settings.queue if embedded else -1
    options = _options(settings, most, waiting, patience)
    return serve.deployment(EngineReplica, name=name, **options).bind(settings)


def _listener(settings: Settings) -> serve.Application:
    options = _options(settings, _MOST_ANYWHERE, -1, settings.shutdown_seconds)
    return serve.deployment(ListenerReplica, name="listener", **options).bind(settings)


def _options(settings: Settings, most: int, waiting: int, patience: float) -> dict[str, Any]:
    """The options of an engine's deployment: what the settings say, and above it what `--ray-options` says."""
    least_replicas, most_replicas = settings.ray_replicas
    if not (least_replicas.is_integer() and most_replicas.is_integer() and 1 <= most_replicas >= least_replicas):
        given = f"{least_replicas:g},{most_replicas:g}"
        raise UnbraidError(f"--ray-replicas must be one whole number or two, the smaller first, not {given}")
    options: dict[str, Any] = {
        "max_ongoing_requests": most,
        "max_queued_requests": waiting,
        "graceful_shutdown_timeout_s": patience + GRACE,
        "autoscaling_config": {
            "min_replicas": int(least_replicas),
            "max_replicas": int(most_replicas),
            "target_ongoing_requests": max(1.0, most / 2),
        },
        "ray_actor_options": {"num_cpus": settings.threads or 1},
    }
    further = _further(settings)
    if "num_replicas" in further:
        del options["autoscaling_config"]
    for name in ("autoscaling_config", "ray_actor_options"):
        own = further.get(name, {})
        if not isinstance(own, dict):
            raise UnbraidError(f"{name} in --ray-options must be a JSON object, not {own!r}")
        if own:
            further[name] = {**options.get(name, {}), **own}
    return {**options, **further}


def _further(settings: Settings) -> dict[str, Any]:
    return json_object(settings.ray_options, "--ray-options", '{"ray_actor_options": {"num_gpus": 1}}')
