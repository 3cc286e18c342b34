"""From settings to a transcriber, and from a name to a speaker: which engine runs the model, and how it is loaded.

`unbraid serve` and `unbraid transcribe` share these settings, under flags with different prefixes. Importing this
module needs only the standard library: `load_transcriber` and `load_speaker` import the packages of their extras, and
say what to install where one is missing.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from ..engines.base import EngineDown
from ..engines.http.timeouts import Timeouts
from ..engines.routing import Routing
from ..errors import MissingTokens, UnbraidError
from ..models.errors import ModelError
from .onnx import Device
from .whisper.files import DEFAULT_WHISPER

if TYPE_CHECKING:
    from ..engines.server import ServerOptions
    from .audio.vad import SpeechDetector
    from .listening import Listener
    from .speakers.campplus import VoiceModel
    from .synthesis.speaker import Speaker
    from .transcriber import Transcriber

_log = logging.getLogger(__name__)

ListenerEngine = Literal["embedded", "vllm-local", "vllm", "sglang", "openai", "chat"]
"""`embedded` is ONNX Runtime in this process, `vllm-local` is vLLM in this process, the others are servers."""

_REMOTE: tuple[ListenerEngine, ...] = ("vllm", "sglang", "openai", "chat")


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
    full_window: bool = False
    """Whether the embedded Whisper reads thirty seconds of each chunk, also of short ones."""
    speakers: bool = False
    """Whether a model is loaded that tells speakers apart."""
    stream_beams: int | None = None
    """The width of the beam search for streams whose request names none."""
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
            accepted = "a folder with a Whisper, or ORG/REPO on the hub"
            raise UnbraidError(f"{flag}engine vllm-local needs {flag}model: {accepted}")


async def load_transcriber(
    settings: ListenerSettings, load: Callable[[ListenerSettings], Awaitable[Listener]] | None = None
) -> Transcriber:
    """A transcriber with the model of the settings. Raises `UnbraidError`, also for packages that are missing.

    load: gives the model; `load_listener`, unless somebody has it elsewhere.
    """
    settings.check()
    await asyncio.to_thread(_import_packages, settings.engine)
    from .transcriber import Transcriber

    detector = await asyncio.to_thread(_detector) if settings.vad else None
    voices = await asyncio.to_thread(_voices, settings) if settings.speakers else None
    listener = await (load or load_listener)(settings)
    return Transcriber(listener, detector=detector, stream_beams=settings.stream_beams, voices=voices)


def _voices(settings: ListenerSettings) -> VoiceModel:
    from .speakers.campplus import VoiceModel

    return VoiceModel(threads=settings.threads)


def _detector() -> SpeechDetector | None:
    """The voice activity detector. Where it cannot be had, the server does without, and says so."""
    from .audio.vad import SpeechDetector

    try:
        return SpeechDetector()
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
    if settings.engine == "embedded":
        model = settings.model or DEFAULT_WHISPER
        listener = await asyncio.to_thread(load_embedded, model, threads=settings.threads, device=settings.device)
        if settings.full_window and hasattr(listener, "full_window"):
            listener.full_window = True
        return listener
    if settings.engine == "sglang":
        return await _sglang(settings)
    return await (_chat(settings) if settings.engine == "chat" else _endpoint(settings))


def load_embedded(model: str, *, threads: int | None = None, device: Device = "auto") -> Listener:
    """A model in this process: `FAMILY:MODEL`, one that a family is known for, or else a Whisper."""
    from .families import family, known_families
    from .moonshine import KNOWN_MOONSHINE

    name, colon, rest = model.partition(":")
    if colon and name in known_families():
        load = family(name).load
        if load is None:
            raise UnbraidError(f"models of the family {name} do not run in this process: name an engine elsewhere")
        return load(rest, threads, device)
    load = family("moonshine" if model in KNOWN_MOONSHINE else "whisper").load
    assert load is not None
    return load(model, threads, device)


async def load_speaker(model: str, *, queue_size: int = 64, threads: int | None = None) -> Speaker:
    """The model that speaks: `kokoro`, or a folder with one. Fetched if need be. Raises `UnbraidError`, also for
    packages that are missing."""

    def load() -> Speaker:
        _import("speech", ("numpy", "av", "onnxruntime", "espeakng_loader"), "voice")
        from .synthesis.kokoro import KokoroSpeaker

        return KokoroSpeaker(model, queue_size=queue_size, threads=threads)

    return await asyncio.to_thread(load)


def _import_packages(engine: ListenerEngine) -> None:
    """Import what transcription needs, all at once: a missing package is reported before anything is downloaded."""
    embedded = ("onnxruntime", "tokenizers") if engine == "embedded" else ()
    _import("transcription", ("numpy", "av", *embedded), "speech")
    if engine in _REMOTE:
        try:
            importlib.import_module("httpx")
        except ImportError as error:
            raise UnbraidError(f"engines behind HTTP need httpx ({error}): pip install 'unbraid[http]'") from error


def _import(purpose: str, names: Iterable[str], extra: str) -> None:
    missing: list[str] = []
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing.append(error.name or name)
    if missing:
        packages = ", ".join(missing)
        raise UnbraidError(f"{purpose} needs {packages}, which cannot be imported: pip install 'unbraid[{extra}]'")


# Models on servers


async def _endpoint(settings: ListenerSettings) -> Listener:
    from .engines.endpoint import EndpointListener

    # OpenAI lists many models, and the first is not the one that transcribes; whisper-1 is its name for that one.
    model = "whisper-1" if settings.model is None and settings.engine == "openai" else await _served_name(settings)
    return EndpointListener(settings.urls, routing=settings.routing, **_options(settings, model))


async def _chat(settings: ListenerSettings) -> Listener:
    from .engines.chat import ChatListener
    from .families import known_families

    chatting = [family.name for family in known_families().values() if family.chats]
    name, colon, rest = (settings.model or "").partition(":")
    if colon and name in chatting:
        model = await _served_name(replace(settings, model=rest or None))
    else:
        model = await _served_name(settings)
        name = next((each for each in chatting if each in (model or "").lower()), "")
    if not name:
        flag = f"{settings.flag_prefix}model FAMILY:NAME"
        raise UnbraidError(f"which family {model or 'the model'} is of is not known: give {flag}, of {chatting}")
    return ChatListener(settings.urls, family=name, routing=settings.routing, **_options(settings, model))


async def _sglang(settings: ListenerSettings) -> Listener:
    from ..engines.http.sources import first_server
    from ..engines.table import ENGINES
    from ..engines.tokenizers import remote_tokenizer
    from ..templates import load_tokenizer
    from .engines.sglang import SGLangWhisper

    paths, flag = ENGINES["sglang"].tokenizer_at, f"{settings.flag_prefix}model"
    try:
        url = await first_server(settings.urls, flag)
        files = await remote_tokenizer(paths, url, settings.api_key, flag)
    except UnbraidError as problem:
        if settings.model is None:
            raise
        try:
            files = await asyncio.to_thread(load_tokenizer, settings.model)
        except UnbraidError as error:
            raise UnbraidError(f"{problem}; and {error}") from error
    options = _options(settings, await _served_name(settings))
    generation_config = files.generation_config
    try:
        return SGLangWhisper(
            settings.urls, files.tokenizer, generation_config=generation_config, routing=settings.routing, **options
        )
    except MissingTokens as error:
        raise UnbraidError(
            f"{settings.urls[0]}: {error}; for models other than Whisper, give {settings.flag_prefix}engine openai, "
            "which uses the server's own transcription endpoint"
        ) from error


def _options(settings: ListenerSettings, model: str | None) -> ServerOptions:
    return {"model": model, "api_key": settings.api_key, "timeouts": settings.timeouts}


async def _served_name(settings: ListenerSettings) -> str | None:
    """The server's name for its model; None if the server does not answer now."""
    from ..engines.http.sources import first_server
    from ..engines.table import ENGINES
    from ..engines.tokenizers import ask

    if settings.model is not None:
        return settings.model
    try:
        flag = f"{settings.flag_prefix}model"
        url = await first_server(settings.urls, flag)
        name = (await ask(ENGINES["vllm"].tokenizer_at, url, settings.api_key, flag)).get("id")
    except UnbraidError as error:
        _log.warning("the engine that transcribes does not answer yet: %s", error)
        return None
    return name if isinstance(name, str) else None
