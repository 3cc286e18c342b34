"""The API's deployment: the server's ASGI application, with engines that are elsewhere in the cluster.

The server is what it is without Ray: the same routes, plans, limits and laws. Only the port is Ray's: its proxy takes
connections, and calls the application in one of this deployment's processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..engines import Engine
from ..server.access.gate import is_loopback, read_origins
from ..server.app import create_app
from ..server.loading.engine import load_engine, timeouts_of
from ..server.loading.service import Loader, load
from ..server.running.garbage import spare_what_is_loaded
from ..server.running.run import make_tracer
from ..server.settings import Settings
from ..templates import encoder
from ..templates.tokenizer_files import TokenizerFiles, load_tokenizer
from .engine import RayEngine, RayListener
from .replicas import Described, log_as
from .wire import answer

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

    from ..speech.listening import Listener
    from ..speech.loading import ListenerSettings

_LOADING = 3600.0
"""Seconds that the first replica of an engine may take to load its model, which may have to be fetched first."""
_LEAST_CONTEXT = 64
"""Tokens of context for a model that only tokenizes."""


class Api:
    """The API. `engines` has the handle of each model whose engine is a deployment, by the first of its names."""

    async def __init__(  # type: ignore[misc]  # Ray waits for it
        self,
        settings: Settings,
        engines: Mapping[str, DeploymentHandle[Any]],
        listener: DeploymentHandle[Any] | None,
        secret: bytes,
    ) -> None:
        self._stack = log_as(settings)
        self._settings = settings
        self._service = await load(settings, secret, _Elsewhere(settings, engines, listener))

    async def __serve_build_asgi_app__(self) -> Any:
        settings = self._settings
        spare_what_is_loaded()
        self._service.planner.warm()
        origins = read_origins(settings.allow_origin)
        tracer = make_tracer() if settings.otel else None
        return create_app(
            self._service, origins, tracer, hosts=settings.allow_host, check_host=is_loopback(settings.host)
        )


class _Elsewhere(Loader):
    """Engines that are deployments. Others are as without Ray: they are servers, or there is none."""

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
        vocabulary = None if files.tokenizer is None else encoder(files.tokenizer).vocabulary
        return RayEngine(
            handle,
            await _described(handle, key_of(settings)),
            vocabulary=vocabulary,
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
    found: Described = await answer(handle.describe.remote(), name, _LOADING)
    return found


def key_of(settings: Settings) -> str:
    """What the engine of a model is called among those of all."""
    return settings.served_model_name[0] if settings.served_model_name else ""


async def tokens_of(settings: Settings) -> tuple[TokenizerFiles, Engine | None]:
    """What is known of a model's tokens, without the engine that runs it. Only llama.cpp can tokenize for a GGUF: it
    reads the file here too, with hardly any memory of its own, unless `--tokenizer` names another place."""
    if settings.replay is None and (settings.tokenizer or settings.vllm_local):
        return load_tokenizer(settings.tokenizer or settings.model or ""), None
    small = replace(settings, context=_LEAST_CONTEXT, parallel=1, queue=0, threads=1, gpu_layers=0)
    engine, files = await load_engine(small)
    return files, engine
