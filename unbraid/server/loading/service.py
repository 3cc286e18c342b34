"""From settings to a service: the engine, the tokenizer, the template and the format that belong together."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ... import compose, find
from ...constraints.constraint import Dialect
from ...core.grammar import Format
from ...engines import Engine, EngineError, Sampling
from ...engines.remote_models import ask, remote_tokenizer
from ...engines.replay.recording import Recorder, read_recording
from ...engines.replay.replay import ReplayEngine
from ...engines.retokenize import is_whole
from ...errors import UnbraidError
from ...models import DEFAULT
from ...templates import ChatTemplate, Encoder, PromptBuilder, built_in, encoder, from_source, load_templates
from ...templates.sources import BUILT_IN
from ...templates.tokenizer_files import TokenizerFiles, load_tokenizer
from ..audio_input import placeholder_hook
from ..service import Service
from ..settings import Options
from ..vocoder import load_vocoder
from .default_format import default_format

if TYPE_CHECKING:
    from ...speech.transcriber import Transcriber

_log = logging.getLogger(__name__)

_REMOTE = ("sglang", "vllm", "llama_cpp", "openai")
_PLACEHOLDERS = {"step-audio-2": "<audio_start><audio_patch><audio_end>"}


async def load(options: Options) -> Service:
    """A service as the settings say. Fetches and loads the model, where it runs here."""
    engine, files = await _engine(options)
    if options.record is not None:
        engine = Recorder(engine, options.record)
    templates = _templates(options, files)
    format = _with_ends(_format(options, templates, files.response_template), files.ends)
    if not templates and options.replay is not None:
        templates = {"default": built_in("step-audio-2" if format.speech is not None else "chatml")}
    texts = None if files.tokenizer is None else encoder(files.tokenizer)
    if texts is None:
        _log.warning("the tokenizer is not known: prompts are text, in which users can spell control tokens")
    placeholder = options.audio_placeholder or _PLACEHOLDERS.get(format.name)
    longest = _longest(engine, texts)
    hook = placeholder_hook(placeholder)
    builder = PromptBuilder(templates, texts, format, part_hook=hook, longest=longest) if templates else None
    if builder is None:
        _log.warning("the model has no chat template: there are only completions; --chat-template gives it one")
    else:
        await asyncio.to_thread(builder.prepare)
    dialect = _dialect(options)
    transcriber = await _transcriber(options)
    return Service(
        engine=engine,
        format=format,
        builder=builder,
        encoder=texts,
        bos=files.bos,
        longest=longest,
        names=await _names(options, engine),
        sampling={**files.sampling, **_sampling(options.sampling)},
        constrain_auto=dialect == "gbnf",
        dialect=dialect,
        most_choices=128 if dialect != "gbnf" or options.llama_cpp else min(128, options.parallel + options.queue),
        unknown_tools=options.unknown_tools,
        reasoning_field=options.reasoning_field,
        transcriber=transcriber,
        listener_names=() if transcriber is None else tuple(filter(None, (transcriber.listener.model, "whisper-1"))),
        max_audio=options.max_audio,
        max_audio_seconds=options.max_audio_seconds,
        vocoder=None if options.vocoder is None else load_vocoder(options.vocoder),
        api_keys=options.api_key,
        max_body=options.max_body,
    )


# Engines


async def _engine(options: Options) -> tuple[Engine, TokenizerFiles]:
    """The engine, and what is known of its model's tokens."""
    named = [name for name in (*_REMOTE, "vllm_local", "replay") if getattr(options, name)]
    if len(named) > 1:
        flags = " and ".join("--" + name.replace("_", "-") for name in named)
        raise UnbraidError(f"{flags} name different engines: give one")
    if not named:
        return await asyncio.to_thread(_embedded, options)
    if named[0] in _REMOTE:
        return await _remote(named[0], getattr(options, named[0]), options)
    if named[0] == "replay":
        return _replay(options)
    from ...engines.vllm.local import VLLMLocalEngine

    if options.model is None:
        raise UnbraidError("--vllm-local needs --model: a folder with the model, or ORG/REPO on the hub")
    files = load_tokenizer(options.tokenizer or options.model)
    arguments: dict[str, Any] = {} if options.context is None else {"max_model_len": options.context}
    return VLLMLocalEngine(options.model, vocabulary=_vocabulary(files), **arguments), files


def _embedded(options: Options) -> tuple[Engine, TokenizerFiles]:
    try:
        from ...engines.llama_cpp.embedded import EmbeddedEngine
    except ImportError as error:
        raise UnbraidError(f"the embedded engine is not installed ({error}): pip install 'unbraid[server]'") from error
    engine = EmbeddedEngine(
        options.model or DEFAULT,
        context=options.context,
        parallel=options.parallel,
        queue=options.queue,
        threads=options.threads,
        gpu_layers=options.gpu_layers,
    )
    vocabulary = engine.vocabulary
    ends = tuple(vocabulary.decode([token]) for token in sorted(vocabulary.ends))
    begin = "" if vocabulary.bos is None else vocabulary.decode([vocabulary.bos])
    tokens = {"eos_token": ends[0] if ends else "", "bos_token": begin}
    source = engine.chat_template
    templates = {} if source is None else {"default": from_source(source, tokens, f"the template of {engine.model}")}
    return engine, TokenizerFiles(vocabulary, templates, vocabulary.bos, ends)


async def _remote(kind: str, urls: Sequence[str], options: Options) -> tuple[Engine, TokenizerFiles]:
    from ...engines.llama_cpp.server import LlamaCppServerEngine
    from ...engines.openai import OpenAIEngine
    from ...engines.sglang import SGLangEngine
    from ...engines.vllm.server import VLLMEngine

    kinds: dict[str, Any] = {
        "sglang": SGLangEngine,
        "vllm": VLLMEngine,
        "llama_cpp": LlamaCppServerEngine,
        "openai": OpenAIEngine,
    }
    files = await _remote_files(kind, urls[0], options)
    return kinds[kind](
        list(urls),
        model=options.model,
        vocabulary=_vocabulary(files),
        context=options.context,
        api_key=options.engine_api_key,
    ), files


async def _remote_files(kind: str, url: str, options: Options) -> TokenizerFiles:
    """What the settings name, or else what the server says that it has loaded."""
    if options.tokenizer is not None:
        return await asyncio.to_thread(load_tokenizer, options.tokenizer)
    if kind == "openai":
        return TokenizerFiles(None)
    if kind == "llama_cpp":
        found = await ask(kind, url, options.engine_api_key, "--tokenizer")
        source = found.get("chat_template")
        tokens = {name: found.get(name) or "" for name in ("bos_token", "eos_token")}
        ends = (tokens["eos_token"],) if tokens["eos_token"] else ()
        templates = {"default": from_source(source, tokens, f"the template of {url}")} if source else {}
        return TokenizerFiles(None, templates, None, ends)
    return await remote_tokenizer(kind, url, options.engine_api_key, "--tokenizer")


def _replay(options: Options) -> tuple[Engine, TokenizerFiles]:
    recording = read_recording(options.replay or "")
    files = TokenizerFiles(None) if options.tokenizer is None else load_tokenizer(options.tokenizer)
    model = options.model or recording.model
    engine = ReplayEngine(
        recording.scripts, vocabulary=_vocabulary(files), model=model, context=recording.context, repeat=True
    )
    return engine, files


def _vocabulary(files: TokenizerFiles) -> Any:
    return None if files.tokenizer is None else encoder(files.tokenizer).vocabulary


async def _transcriber(options: Options) -> Transcriber | None:
    """The transcriber, if the settings name one. Speech is imported only then."""
    urls = options.transcription_url
    if options.transcription_model is None and options.transcription_engine == "embedded" and not urls:
        return None
    from ...speech.loading import ListenerSettings, load_transcriber

    return await load_transcriber(
        ListenerSettings(
            model=options.transcription_model,
            engine=options.transcription_engine,
            urls=urls,
            api_key=options.transcription_api_key,
            threads=options.threads,
            flag_prefix="--transcription-",
        )
    )


# What goes with them


def _dialect(options: Options) -> Dialect | None:
    """What the engine is told constraints in."""
    if options.sglang or options.vllm or options.vllm_local:
        return "structural_tag"
    return None if options.openai or options.replay else "gbnf"


def _longest(engine: Engine, texts: Encoder | None) -> int | None:
    """How many characters no prompt can have that fits the context: as many tokens, all of them the longest."""
    if engine.context is None or texts is None or not is_whole(texts.vocabulary):
        return None
    vocabulary = texts.vocabulary
    return engine.context * max(len(vocabulary.token_bytes(token) or b"") for token in range(vocabulary.size))


def _templates(options: Options, files: TokenizerFiles) -> dict[str, ChatTemplate]:
    if options.chat_template is None:
        return files.templates
    if options.chat_template in BUILT_IN:
        return {"default": built_in(options.chat_template)}
    return load_templates(options.chat_template)


def _format(options: Options, templates: Mapping[str, ChatTemplate], response_template: object) -> Format:
    parts = {"reasoning": options.reasoning_parser, "tools": options.tool_call_parser, "audio": options.audio_parser}
    if options.format is not None:
        if any(parts.values()):
            raise UnbraidError("give either --format or the parsers of its parts (--reasoning-parser, …), not both")
        return find(options.format)
    if any(parts.values()):
        return compose(**parts)
    return default_format(templates, response_template)


def _with_ends(format: Format, ends: Sequence[str]) -> Format:
    """The format, with the model's own end tokens besides its own."""
    more = tuple(end for end in ends if end not in format.ends)
    return replace(
        format,
        ends=format.ends + more,
        versions=tuple((since, replace(each, ends=each.ends + more)) for since, each in format.versions),
    )


def _sampling(text: str | None) -> dict[str, Any]:
    try:
        given = {} if text is None else json.loads(text)
        Sampling(**given)
    except (ValueError, TypeError) as error:
        raise UnbraidError(f'--sampling must be JSON such as {{"temperature": 0.2}}: {error}') from error
    return dict(given)


async def _names(options: Options, engine: Engine) -> tuple[str, ...]:
    if options.served_model_name:
        return options.served_model_name
    if not engine.model:
        try:
            await engine.check()
        except EngineError as error:
            _log.warning("the engine does not answer yet: %s", error)
    return (engine.model or options.model or "model",)
