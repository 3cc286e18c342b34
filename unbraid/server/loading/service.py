"""From settings to a service: models (each with its engine, chat template and format), transcriber, speaker, store."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.grammar import Format
from ...core.vocabulary import is_whole
from ...engines import Engine, EngineError, Sampling
from ...engines.recording import Recorder
from ...engines.table import engine_of
from ...errors import UnbraidError, UnknownFormat
from ...fairness import FairQueue
from ...formats import compose, find
from ...models import cache_folder
from ...templates import (
    BUILT_IN,
    ChatTemplate,
    Encoder,
    PromptBuilder,
    TokenizerFiles,
    built_in,
    encoder,
    load_templates,
)
from ...templates.detection import DetectionInput, detect_in
from ..access.addresses import proxies_of
from ..access.rates import Rates, RedisLedger
from ..audio_input import placeholder_hook
from ..model import Model, Served
from ..planning.planner import Planner
from ..service import Service
from ..settings import Settings
from ..storage.seal import Seal
from ..storage.store import Store
from ..vocoder import load_vocoder
from .engine import load_engine, routing_of, timeouts_of

if TYPE_CHECKING:
    from ...speech.listening import Listener
    from ...speech.loading import ListenerSettings
    from ...speech.synthesis.speaker import Speaker
    from ...speech.transcriber import Transcriber

_log = logging.getLogger(__name__)

_CALLS_IN_REASONING = {"auto": None, "yes": True, "no": False}
_SPEAKER_NAMES = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
"""OpenAI's names, which clients ask for unless they are told otherwise."""
_PLAIN = Format("plain")
_NAME_IT = "--format names another, --tool-call-parser and --reasoning-parser parts of one"
_PLACEHOLDERS = {"step-audio-2": "<audio_start><audio_patch><audio_end>"}


_MOST_CHOICES = 128
"""Most choices of one request."""


class Loader:
    """Makes engines and listeners from their settings. Ray overrides both methods: its engines are deployments."""

    async def engine(self, settings: Settings) -> tuple[Engine, TokenizerFiles]:
        """The engine of one model, and its tokenizer and templates."""
        return await load_engine(settings)

    async def listener(self, settings: ListenerSettings) -> Listener:
        """The model that transcribes."""
        from ...speech.loading import load_listener

        return await load_listener(settings)


_LOADER = Loader()


async def load(settings: Settings, secret: bytes | None = None, loader: Loader = _LOADER) -> Service:
    """The service that the settings describe. Fetches and loads the models that run in this process. `secret` seals
    what clients keep, where there is no store that has one."""
    models = [await load_model(each, loader) for each in settings.each_model()]
    transcriber = await _transcriber(settings, loader)
    speaker = await _speaker(settings)
    store = await asyncio.to_thread(_store, settings)
    planner = Planner(settings.plan_workers, settings.plan_seconds)
    for served in models:
        planner.add(served.model)
    return Service(
        models=tuple(models),
        reasoning_field=settings.reasoning_field,
        shutdown_seconds=settings.shutdown_seconds,
        transcriber=transcriber,
        listener_names=()
        if transcriber is None
        else _offered(transcriber.listener.model, settings.transcription_model, "whisper-1"),
        speaker=speaker,
        speaker_names=() if speaker is None else _offered(speaker.model, settings.speech_model, *_SPEAKER_NAMES),
        max_speech=settings.max_speech,
        planner=planner,
        max_audio=settings.max_audio,
        max_audio_seconds=settings.max_audio_seconds,
        api_keys=settings.api_key,
        rates=Rates(
            requests=settings.requests_per_minute,
            tokens=settings.tokens_per_minute,
            ledger=None if settings.redis is None else RedisLedger(settings.redis),
        ),
        proxies=proxies_of(settings.trusted_proxy),
        body_seconds=settings.body_seconds,
        max_body=settings.max_body,
        store=store,
        requests=FairQueue(settings.connections or sys.maxsize, 0, shared=True),
        seal=Seal(_secret(settings, store) or secret),
    )


def _offered(model: str, setting: str | None, *others: str) -> tuple[str, ...]:
    """The names that clients may use for a model of speech: its own, the one that the server was started with, unless
    that is a folder, and OpenAI's."""
    is_name = setting is not None and not Path(setting).expanduser().exists()
    return tuple(dict.fromkeys(filter(None, (model, setting if is_name else None, *others))))


async def load_model(settings: Settings, loader: Loader = _LOADER) -> Served:
    """One model, with the engine that the settings name."""
    engine, files = await loader.engine(settings)
    if settings.record is not None:
        engine = Recorder(engine, settings.record)
    templates = _templates(settings, files)
    format = _with_ends(_format(settings, templates, files.response_template), files.ends)
    format = format.with_calls_in_reasoning(_CALLS_IN_REASONING[settings.calls_in_reasoning])
    if not templates and settings.replay is not None:
        templates = {"default": built_in("step-audio-2" if format.speech is not None else "chatml")}
    texts = None if files.tokenizer is None else encoder(files.tokenizer)
    if texts is None:
        _log.warning("the tokenizer is not known: prompts are text, in which users can spell control tokens")
    placeholder = settings.audio_placeholder or _PLACEHOLDERS.get(format.name)
    longest = _longest(engine, texts)
    hook = placeholder_hook(placeholder)
    builder = PromptBuilder(templates, texts, format, part_hook=hook, longest=longest) if templates else None
    if builder is None:
        _log.warning("the model has no chat template: there are only completions; --chat-template gives it one")
    else:
        await asyncio.to_thread(builder.prepare)
    _, kind = engine_of(settings)
    model = Model(
        format=format,
        builder=builder,
        encoder=texts,
        own_ends=_ids(files.ends, texts),
        bos=files.bos,
        longest=longest,
        sampling={**files.sampling, **_sampling(settings.sampling)},
        syntax=kind.syntax,
        constrain_auto=kind.syntax == "gbnf",
        unconstrained=kind.refuses_constraints,
        loose_schemas=settings.loose_schemas,
        hears=placeholder is not None,
        unknown_tools=settings.unknown_tools,
        most_choices=min(_MOST_CHOICES, settings.parallel + settings.queue) if kind.queues else _MOST_CHOICES,
    )
    vocoder = None if settings.vocoder is None else load_vocoder(settings.vocoder)
    return Served(model=model, engine=engine, names=await _names(settings, engine), vocoder=vocoder)


async def _transcriber(settings: Settings, loader: Loader) -> Transcriber | None:
    """The transcriber, if the settings name one. Speech is imported only then."""
    if not settings.transcribes:
        return None
    from ...speech.loading import load_transcriber

    return await load_transcriber(listener_settings(settings), loader.listener)


def listener_settings(settings: Settings) -> ListenerSettings:
    """The settings of the model that transcribes."""
    from ...speech.loading import ListenerSettings

    return ListenerSettings(
        model=settings.transcription_model,
        engine=settings.transcription_engine,
        urls=settings.transcription_url,
        api_key=settings.transcription_api_key,
        threads=settings.threads,
        timeouts=timeouts_of(settings),
        routing=routing_of(settings),
        device=settings.transcription_device,
        vad=settings.transcription_vad,
        full_window=settings.transcription_full_window,
        speakers=settings.transcription_speakers,
        stream_beams=settings.transcription_stream_beams,
        flag_prefix="--transcription-",
    )


async def _speaker(settings: Settings) -> Speaker | None:
    """The model that speaks, if the settings name one. Speech is imported only then."""
    if settings.speech_model is None:
        return None
    from ...speech.loading import load_speaker

    return await load_speaker(settings.speech_model, queue_size=settings.speech_queue, threads=settings.threads)


def _secret(settings: Settings, store: Store | None) -> bytes | None:
    """The secret of the seals: the one that replicas share, or the store's."""
    if settings.secret is not None:
        return hashlib.sha256(settings.secret.encode()).digest()
    return None if store is None else store.secret()


def _store(settings: Settings) -> Store | None:
    """The store. Where none is named and the usual one cannot be made, the server does without."""
    if settings.store == "none":
        return None
    path = Path(settings.store) if settings.store else cache_folder() / "responses.sqlite"
    try:
        return Store(path, settings.store_days)
    except UnbraidError as error:
        if settings.store is not None:
            raise
        _log.warning("responses are not stored: %s", error)
        return None


def _longest(engine: Engine, texts: Encoder | None) -> int | None:
    """A prompt of more characters cannot fit the context: that many tokens, each as long as the longest."""
    if engine.context is None or texts is None or not is_whole(texts.vocabulary):
        return None
    vocabulary = texts.vocabulary
    return engine.context * max(len(vocabulary.token_bytes(token) or b"") for token in range(vocabulary.size))


def _templates(settings: Settings, files: TokenizerFiles) -> dict[str, ChatTemplate]:
    if settings.chat_template is None:
        return files.templates
    if settings.chat_template in BUILT_IN:
        return {"default": built_in(settings.chat_template)}
    return load_templates(settings.chat_template)


def _format(settings: Settings, templates: Mapping[str, ChatTemplate], response_template: object) -> Format:
    parts = {"reasoning": settings.reasoning_parser, "tools": settings.tool_call_parser, "audio": settings.audio_parser}
    if settings.format is not None:
        if any(parts.values()):
            raise UnbraidError("give either --format or the parsers of its parts (--reasoning-parser, …), not both")
        return find(settings.format)
    if any(parts.values()):
        return compose(**parts)
    return default_format(templates, response_template, settings.model)


def default_format(
    templates: Mapping[str, ChatTemplate], response_template: object = None, model: str | None = None
) -> Format:
    """The format that the chat templates write, where no setting names one; without templates, the one that the model's
    name stands for. The log says why, as a warning if the format could not be verified. For templates without tools,
    calls are written as in Hermes, and the prompt explains them to the model."""
    if not templates and response_template is None:
        with suppress(UnknownFormat):
            if model is not None:
                format = find(model)
                _log.info("format %s, by the model's name: there is no chat template to tell it by", format.name)
                return format
        _log.info("format hermes, since there is no chat template to tell it by")
        return find("hermes")
    try:
        detection = detect_in(DetectionInput(templates, response_template))
    except UnbraidError as error:
        _log.warning("the format cannot be told (%s), so all output is content; %s", error, _NAME_IT)
        return _PLAIN
    why = "; ".join(detection.reasons)
    if detection.format is None:
        near = f"; nearest are {', '.join(detection.alternatives)}" if detection.alternatives else ""
        _log.warning("no format was found (%s%s), so all output is content; %s", why, near, _NAME_IT)
        return _PLAIN
    format = _with_calls(detection.format)
    if detection.format.tools is None:
        why += "; the server explains Hermes' calls to the model in the system message"
    if detection.verified:
        _log.info("format %s: %s", format.name, why)
    else:
        _log.warning("format %s, which could not be verified: %s; %s", format.name, why, _NAME_IT)
    return format


def _with_calls(format: Format) -> Format:
    """A format without calls, with those that the prompt will explain."""
    hermes = find("hermes")
    if format.tools is not None:
        return format
    if format.reasoning is None:
        return hermes
    return replace(format, name=f"{format.name}+{hermes.name}", tools=hermes.tools, ends=(*format.ends, *hermes.ends))


def _with_ends(format: Format, ends: Sequence[str]) -> Format:
    """The format, ended by the model's own end tokens too."""
    more = tuple(end for end in ends if end not in format.ends)
    return replace(
        format,
        ends=format.ends + more,
        versions=tuple((since, replace(each, ends=each.ends + more)) for since, each in format.versions),
    )


def _ids(tokens: Sequence[str], texts: Encoder | None) -> tuple[int, ...]:
    """The ids of tokens, as far as they are known."""
    ids = () if texts is None else (texts.vocabulary.token_id(each) for each in tokens)
    return tuple(id for id in ids if id is not None)


def _sampling(text: str | None) -> dict[str, Any]:
    try:
        defaults = {} if text is None else json.loads(text)
        Sampling(**defaults)
    except (ValueError, RecursionError, TypeError) as error:
        raise UnbraidError(f'--sampling must be JSON such as {{"temperature": 0.2}}: {error}') from error
    return dict(defaults)


async def _names(settings: Settings, engine: Engine) -> tuple[str, ...]:
    if settings.served_model_name:
        return settings.served_model_name
    if not engine.model:
        try:
            await engine.check()
        except EngineError as error:
            _log.warning("the engine does not answer yet: %s", error)
    return (engine.model or settings.model or "model",)
