"""Settings to an application of Ray Serve: the API is the ingress, and each engine that runs in a process a deployment.

The API is the server's ASGI application, with the same routes, plans, limits and laws as without Ray. Only the port is
Ray's: its proxy takes connections, and calls the application in one of the processes of the API's deployment. Engines
that are servers elsewhere (`--vllm URL`) are no deployments: the API asks them itself, with our own routing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ray
from ray import serve

from ..engines import Engine
from ..engines.table import EMBEDDED, engine_of
from ..engines.tokenizers import vocabulary_of
from ..errors import UnbraidError
from ..server.access.gate import is_loopback, read_origins
from ..server.app import create_app
from ..server.loading.engine import load_engine, timeouts_of
from ..server.loading.service import Loader, load
from ..server.running.run import make_tracer, spare_what_is_loaded
from ..server.settings import Settings
from ..templates.sources import TokenizerFiles, load_tokenizer
from .engine import RayEngine, RayListener
from .replicas import Described, EngineReplica, ListenerReplica, log_as
from .wire import answer

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

    from ..speech.listening import Listener
    from ..speech.loading import ListenerSettings

API = "api"
"""The name of the API's deployment."""
GRACE = 2.0
"""Seconds for streams to say that they were cut off."""
_MOST_STREAMS = 10_000
"""Most requests at once in one process of the API. Ray would let further ones wait unseen."""
_MOST_ANYWHERE = 256
"""Most requests at once in a replica of an engine that schedules them itself."""
_ROOM = 4
"""Cores of a cluster that has room for a second process of the API."""
_LOADING = 3600.0
"""Seconds for the first replica of an engine to load its model, including the download."""
_LEAST_CONTEXT = 64
"""Tokens of context of a model that only tokenizes."""


def build(settings: Settings) -> serve.Application:
    """The application. Raises `UnbraidError` for settings that Ray cannot serve."""
    replicas = api_replicas(settings)
    if replicas > 1 and any(each.record for each in settings.each_model()):
        raise UnbraidError("--record writes one file, which several processes would spoil: give --ray-api-replicas 1")
    engines = {
        key_of(each): _engine(each, settings.shutdown_seconds)
        for each in settings.each_model()
        if (kind := engine_of(each)[1]).place == "here" and kind.replicas
    }
    listens = settings.transcribes and settings.transcription_engine in ("embedded", "vllm-local")
    listener = _listener(settings) if listens else None
    api = serve.deployment(
        serve.ingress()(Api),
        name=API,
        num_replicas=replicas,
        max_ongoing_requests=_MOST_STREAMS,
        # So that it finds a place where engines have taken all cores, like Ray's proxy and controller.
        ray_actor_options={"num_cpus": 0},
        graceful_shutdown_timeout_s=settings.shutdown_seconds + GRACE,
        **{name: value for name, value in _further(settings).items() if name.startswith("health_check_")},
    )
    return api.bind(settings, engines, listener, os.urandom(32))


def api_replicas(settings: Settings) -> int:
    """How many processes of the API there are. Two by default, so that one answers while Ray replaces the other. One if
    cores are few, if one file is recorded, or if the store would be on the disk of one of several machines."""
    if settings.ray_api_replicas is not None:
        return settings.ray_api_replicas
    if not ray.is_initialized() or any(each.record for each in settings.each_model()):
        return 1
    machines = [node for node in ray.nodes() if node["Alive"]]
    has_room = ray.cluster_resources().get("CPU", 0) >= _ROOM
    return 2 if has_room and (len(machines) == 1 or settings.store is not None) else 1


def _engine(settings: Settings, patience: float) -> serve.Application:
    queues = engine_of(settings)[1].queues
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", f"engine-{key_of(settings)}".rstrip("-"))
    most = settings.parallel if queues else _MOST_ANYWHERE
    waiting = settings.queue if queues else -1
    options = _options(settings, most, waiting, patience)
    return _deployed(EngineReplica, name, options).bind(settings)


def _listener(settings: Settings) -> serve.Application:
    options = _options(settings, _MOST_ANYWHERE, -1, settings.shutdown_seconds)
    return _deployed(ListenerReplica, "listener", options).bind(settings)


def _deployed(kind: type, name: str, options: Mapping[str, Any]) -> Any:
    """A deployment. What Ray does not take of the options comes from `--ray-options`."""
    try:
        return serve.deployment(kind, name=name, **options)
    except (TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UnbraidError(f"--ray-options: Ray Serve does not take them for a deployment: {reason}") from error


def _options(settings: Settings, most: int, waiting: int, patience: float) -> dict[str, Any]:
    """The options of an engine's deployment. `--ray-options` wins over the settings."""
    least_replicas, most_replicas = settings.ray_replicas
    if not (least_replicas.is_integer() and most_replicas.is_integer() and 1 <= most_replicas >= least_replicas):
        pair = f"{least_replicas:g},{most_replicas:g}"
        raise UnbraidError(f"--ray-replicas must be one whole number or two, the smaller first, not {pair}")
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
    return settings.json_object("ray_options", '{"ray_actor_options": {"num_gpus": 1}}')


class Api:
    """The API. `engines` has the handle of each model whose engine is a deployment, by `key_of`."""

    async def __init__(  # type: ignore[misc]  # Ray waits for it
        self,
        settings: Settings,
        engines: Mapping[str, DeploymentHandle[Any]],
        listener: DeploymentHandle[Any] | None,
        secret: bytes,
    ) -> None:
        self._stack = log_as(settings)
        self._settings = settings
        self._service = await load(settings, secret, _DeployedEngines(settings, engines, listener))

    async def __serve_build_asgi_app__(self) -> Any:
        settings = self._settings
        spare_what_is_loaded()
        self._service.planner.warm()
        origins = read_origins(settings.allow_origin)
        tracer = make_tracer() if settings.otel else None
        return create_app(
            self._service, origins, tracer, hosts=settings.allow_host, check_host=is_loopback(settings.host)
        )


class _DeployedEngines(Loader):
    """Loads engines that are deployments. All others are loaded as without Ray."""

    def __init__(
        self, settings: Settings, engines: Mapping[str, DeploymentHandle[Any]], listener: DeploymentHandle[Any] | None
    ) -> None:
        self._settings = settings
        self._engines = engines
        self._listener = listener

    async def engine(self, settings: Settings) -> tuple[Engine, TokenizerFiles]:
        handle = self._engines.get(key_of(settings))
        if handle is None:
            return await load_engine(settings)
        files, tokenizer = await tokens_of(settings)
        return RayEngine(
            handle,
            await _described(handle, key_of(settings)),
            vocabulary=vocabulary_of(files),
            timeouts=timeouts_of(settings),
            retries=settings.upstream_retries,
            tokenizer=tokenizer,
        ), files

    async def listener(self, settings: ListenerSettings) -> Listener:
        if self._listener is None:
            return await super().listener(settings)
        described = await _described(self._listener, "the model that transcribes")
        timeouts = timeouts_of(self._settings)
        return RayListener(self._listener, described, timeouts=timeouts, retries=self._settings.upstream_retries)


async def _described(handle: DeploymentHandle[Any], name: str) -> Described:
    described: Described = await answer(handle.describe.remote(), name, _LOADING)
    return described


def key_of(settings: Settings) -> str:
    """The key of a model's engine: the first name of the model, or "" if it is the only one."""
    return settings.served_model_name[0] if settings.served_model_name else ""


async def tokens_of(settings: Settings) -> tuple[TokenizerFiles, Engine | None]:
    """A model's tokenizer, without the engine that runs it. Only llama.cpp can tokenize for a GGUF: unless
    `--tokenizer` names another place, it reads the file here too, with hardly any memory of its own."""
    _, kind = engine_of(settings)
    if kind.tokenizer_in_files or (kind is EMBEDDED and settings.tokenizer):
        return load_tokenizer(settings.tokenizer or settings.model or ""), None
    small = replace(settings, context=_LEAST_CONTEXT, parallel=1, queue=0, threads=1, gpu_layers=0)
    engine, files = await load_engine(small)
    return files, engine
