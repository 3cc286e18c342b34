"""From settings to a transcriber: which engine runs the speech model, and how it is loaded.

`unbraid serve` and `unbraid transcribe` share these settings, under flags with different prefixes. Importing this
module needs only the standard library: the packages of the extra `speech` are imported by `load_transcriber`, which
says what to install where one is missing.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ..engines.base import EngineDown
from ..engines.routing import Routing
from ..engines.timeouts import Timeouts
from ..errors import MissingTokens, UnbraidError
from ..models.errors import ModelError
from .moonshine.files import KNOWN_MOONSHINE
from .onnx import Device
from .whisper.files import DEFAULT_WHISPER

if TYPE_CHECKING:
    from .engines.endpoint import EndpointListener
    from .engines.sglang import SGLangWhisper
    from .listening import Listener
    from .transcriber import Transcriber
    from .vad.detector import VoiceDetector

_log = logging.getLogger(__name__)

ListenerEngine = Literal["embedded", "vllm-local", "vllm", "sglang", "openai"]
"""`embedded` is ONNX Runtime in this process, `vllm-local` is vLLM in this process, the others are servers."""

_REMOTE: tuple[ListenerEngine, ...] = ("vllm", "sglang", "openai")
_PACKAGES = ("numpy", "av")
_EMBEDDED_PACKAGES = ("onnxruntime", "tokenizers")


@dataclass(frozen=True, kw_only=True)
class ListenerSettings:
    """Which model transcribes, and what runs it."""

    model: str | None = None
    engine: ListenerEngine = "embedded"
    urls: tuple[str, ...] = ()
    """The servers, where the engine is one: replicas of the same model."""
    api_key: str | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    routing: Routing = field(default_factory=Routing)
    threads: int | None = None
    device: Device = "auto"
    """Where the embedded engine computes."""
    vad: bool = True
    """Whether a voice activity detector says what is decoded."""
    flag_prefix: str = "--"
    """What the flags of the command begin with, for messages."""

    def check(self) -> None:
        """Raise `UnbraidError` for settings that contradict each other."""
        flag = self.flag_prefix
        if self.engine in _REMOTE and not self.urls:
            raise UnbraidError(f"{flag}engine {self.engine} needs {flag}url: where the server is")
        if self.engine not in _REMOTE and self.urls:
            raise UnbraidError(f"{flag}url is for servers: give {flag}engine {' or '.join(_REMOTE)} with it")
        if self.engine == "vllm-local" and self.model is None:
            wanted = "a folder with a Whisper, or ORG/REPO on the hub"
            raise UnbraidError(f"{flag}engine vllm-local needs {flag}model: {wanted}")


async def load_transcriber(settings: ListenerSettings) -> Transcriber:
    """A transcriber with the model of the settings. Raises `UnbraidError`, also for packages that are missing."""
    settings.check()
    await asyncio.to_thread(_import_packages, settings.engine)
    from .transcriber import Transcriber

    detector = await asyncio.to_thread(_detector) if settings.vad else None
    return Transcriber(await load_listener(settings), detector=detector)


def _detector() -> VoiceDetector | None:
    """The voice activity detector. Where it cannot be had, the server does without, and says so."""
    from .vad.detector import VoiceDetector

    try:
        return VoiceDetector()
    except (EngineDown, ModelError) as error:
        _log.warning("no voice activity detector: all of a recording is decoded, noise too (%s)", error)
        return None


async def load_listener(settings: ListenerSettings) -> Listener:
    """The model alone; fetched and loaded, where it runs in this process.

    A server need not be up yet. Only SGLang's must: its tokenizer has to be known.
    """
    settings.check()
    if settings.engine == "vllm-local":
        from .engines.vllm import VLLMWhisper

        return await asyncio.to_thread(VLLMWhisper, settings.model or "")
    if settings.engine == "sglang":
        return await _sglang(settings)
    if settings.engine in _REMOTE:
        return await _endpoint(settings)
    model = settings.model or DEFAULT_WHISPER
    return await asyncio.to_thread(load_embedded, model, threads=settings.threads, device=settings.device)


def load_embedded(model: str, *, threads: int | None = None, device: Device = "auto") -> Listener:
    """A model on ONNX Runtime in this process: a Moonshine where `model` names one, or else a Whisper."""
    if model in KNOWN_MOONSHINE:
        from .moonshine.listener import MoonshineEngine

        return MoonshineEngine(model, threads=threads, device=device)
    from .whisper.listener import WhisperEngine

    return WhisperEngine(model, threads=threads, device=device)


def _import_packages(engine: ListenerEngine) -> None:
    """Import what transcription needs, all at once: a missing package is reported before anything is downloaded."""
    missing: list[str] = []
    for name in _PACKAGES + (_EMBEDDED_PACKAGES if engine == "embedded" else ()):
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing.append(error.name or name)
    if missing:
        raise UnbraidError(
            f"transcription needs {', '.join(missing)}, which cannot be imported: pip install 'unbraid[speech]'"
        )
    if engine in _REMOTE:
        try:
            importlib.import_module("httpx")
        except ImportError as error:
            raise UnbraidError(f"engines behind HTTP need httpx ({error}): pip install 'unbraid[http]'") from error


async def _endpoint(settings: ListenerSettings) -> EndpointListener:
    from .engines.endpoint import EndpointListener

    # OpenAI lists many models, and the first is not the one that transcribes; whisper-1 is its name for that one.
    model = "whisper-1" if settings.model is None and settings.engine == "openai" else await _served_name(settings)
    return EndpointListener(
        settings.urls,
        model=model,
        api_key=settings.api_key,
        timeouts=settings.timeouts,
        routing=settings.routing,
    )


async def _served_name(settings: ListenerSettings) -> str | None:
    """The server's name for its model; None if the server does not answer now."""
    from ..engines.remote_models import ask

    if settings.model is not None:
        return settings.model
    try:
        found = (await ask("vllm", settings.urls[0], settings.api_key, f"{settings.flag_prefix}model")).get("id")
    except UnbraidError as error:
        _log.warning("the engine that transcribes does not answer yet: %s", error)
        return None
    return found if isinstance(found, str) else None


async def _sglang(settings: ListenerSettings) -> SGLangWhisper:
    from ..engines.remote_models import remote_tokenizer
    from ..templates import load_tokenizer
    from .engines.sglang import SGLangWhisper

    url = settings.urls[0]
    try:
        files = await remote_tokenizer("sglang", url, settings.api_key, f"{settings.flag_prefix}model")
    except UnbraidError as problem:
        if settings.model is None:
            raise
        try:
            files = await asyncio.to_thread(load_tokenizer, settings.model)
        except UnbraidError as error:
            raise UnbraidError(f"{problem}; and {error}") from error
    try:
        return SGLangWhisper(
            settings.urls,
            files.tokenizer,
            generation_config=files.generation_config,
            model=await _served_name(settings),
            api_key=settings.api_key,
            timeouts=settings.timeouts,
            routing=settings.routing,
        )
    except MissingTokens as error:
        raise UnbraidError(
            f"{url}: {error}; for models other than Whisper, give {settings.flag_prefix}engine openai, which uses the "
            "server's own transcription endpoint"
        ) from error
