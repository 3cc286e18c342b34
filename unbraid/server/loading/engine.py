"""From settings to an engine, and its model's tokenizer and templates.

Engines in this process bring their tokenizer. Servers are asked what they have loaded, unless `--tokenizer` names it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from ...core.vocabulary import Vocabulary
from ...engines import Engine, Finish, Generation, Load, Piece, Unsupported
from ...engines.http.timeouts import Timeouts
from ...engines.recording import read_recording
from ...engines.remote_models import ask, remote_tokenizer
from ...engines.replay import ReplayEngine
from ...engines.routing import AffinityRules, RetryRules, Routing
from ...errors import UnbraidError
from ...models import CATALOG, DEFAULT, offer
from ...templates import encoder, from_source
from ...templates.sources import TokenizerFiles, load_tokenizer
from ..settings import Settings, json_object

_log = logging.getLogger(__name__)
_REMOTE = ("sglang", "vllm", "llama_cpp", "openai")


class NoEngine:
    """The engine of a server that only tokenizes and parses for others (`--tokens-only`). It generates nothing."""

    def __init__(self, model: str, vocabulary: Vocabulary | None, context: int | None) -> None:
        self.model = model
        self.vocabulary = vocabulary
        self.context = context
        self.load = Load()

    async def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        raise Unsupported("this server has no engine (--tokens-only): it renders, derenders, parses and tokenizes")
        yield  # makes this a generator

    async def check(self) -> None:
        """Always able to tokenize and parse."""

    async def close(self) -> None:
        """Nothing to free."""


async def load_engine(settings: Settings) -> tuple[Engine, TokenizerFiles]:
    """The engine, and its model's tokenizer and templates, as far as they are known."""
    named = [name for name in (*_REMOTE, "vllm_local", "replay", "tokens_only") if getattr(settings, name)]
    if len(named) > 1:
        flags = " and ".join("--" + name.replace("_", "-") for name in named)
        raise UnbraidError(f"{flags} name different engines: give one")
    if not named:
        return await asyncio.to_thread(_embedded, settings)
    if named[0] in _REMOTE:
        return await _remote(named[0], getattr(settings, named[0]), settings)
    if named[0] == "replay":
        return _replay(settings)
    if named[0] == "tokens_only":
        return await asyncio.to_thread(_tokens_only, settings)
    return await asyncio.to_thread(_vllm_local, settings)


def _embedded(settings: Settings) -> tuple[Engine, TokenizerFiles]:
    try:
        from ...engines.llama_cpp.embedded import EmbeddedEngine
    except ImportError as error:
        raise UnbraidError(f"the embedded engine is not installed ({error}): pip install 'unbraid[server]'") from error
    if settings.model is None and (offered := offer(CATALOG[DEFAULT].size)) is not None:
        _log.info("%s is very small, and %s", DEFAULT, offered)
    engine = EmbeddedEngine(
        settings.model or DEFAULT,
        context=settings.context,
        parallel=settings.parallel,
        queue=settings.queue,
        threads=settings.threads,
        gpu_layers=settings.gpu_layers,
    )
    vocabulary = engine.vocabulary
    ends = tuple(vocabulary.decode([token]) for token in sorted(vocabulary.ends))
    begin = "" if vocabulary.bos is None else vocabulary.decode([vocabulary.bos])
    tokens = {"eos_token": ends[0] if ends else "", "bos_token": begin}
    source = engine.chat_template
    templates = {} if source is None else {"default": from_source(source, tokens, f"the template of {engine.model}")}
    return engine, TokenizerFiles(vocabulary, templates, vocabulary.bos, ends)


def _vllm_local(settings: Settings) -> tuple[Engine, TokenizerFiles]:
    from ...engines.vllm.local import VLLMLocalEngine

    if settings.model is None:
        raise UnbraidError("--vllm-local needs --model: a folder with the model, or ORG/REPO on the hub")
    arguments: dict[str, Any] = {} if settings.context is None else {"max_model_len": settings.context}
    arguments |= json_object(settings.vllm_options, "--vllm-options", '{"tensor_parallel_size": 2}')
    files = load_tokenizer(settings.tokenizer or settings.model)
    try:
        return VLLMLocalEngine(settings.model, vocabulary=_vocabulary(files), **arguments), files
    except (TypeError, ValueError) as error:  # an argument that vLLM does not know, or does not take
        raise UnbraidError(f"vLLM does not start so: {error}") from error


async def _remote(kind: str, urls: Sequence[str], settings: Settings) -> tuple[Engine, TokenizerFiles]:
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
    files = await _remote_files(kind, urls[0], settings)
    return kinds[kind](
        list(urls),
        model=settings.model,
        vocabulary=_vocabulary(files),
        context=settings.context,
        api_key=settings.engine_api_key,
        timeouts=timeouts_of(settings),
        routing=routing_of(settings),
    ), files


def timeouts_of(settings: Settings) -> Timeouts:
    """How long the engine's servers may take."""
    first, piece = settings.upstream_timeout
    return Timeouts(connect=settings.upstream_connect_timeout, first=first, piece=piece)


def routing_of(settings: Settings) -> Routing:
    """How requests are spread over the engine's servers."""
    return Routing(
        retries=RetryRules(most=settings.upstream_retries), affinity=AffinityRules(factor=settings.upstream_bound)
    )


async def _remote_files(kind: str, url: str, settings: Settings) -> TokenizerFiles:
    """The tokenizer and templates that `--tokenizer` names, or those that the server says it has loaded."""
    if settings.tokenizer is not None:
        return await asyncio.to_thread(load_tokenizer, settings.tokenizer)
    if kind == "openai":
        return TokenizerFiles(None)
    if kind == "llama_cpp":
        properties = await ask(kind, url, settings.engine_api_key, "--tokenizer")
        source = properties.get("chat_template")
        tokens = {name: properties.get(name) or "" for name in ("bos_token", "eos_token")}
        ends = (tokens["eos_token"],) if tokens["eos_token"] else ()
        templates = {"default": from_source(source, tokens, f"the template of {url}")} if source else {}
        return TokenizerFiles(None, templates, None, ends)
    return await remote_tokenizer(kind, url, settings.engine_api_key, "--tokenizer")


def _replay(settings: Settings) -> tuple[Engine, TokenizerFiles]:
    try:
        recording = read_recording(settings.replay or "")
    except OSError as error:
        raise UnbraidError(f"--replay {settings.replay} cannot be read: {error.strerror}") from error
    if settings.tokenizer is None and recording.has_ids:
        raise UnbraidError(
            f"--replay {settings.replay} holds the ids of tokens: give --tokenizer, with the tokenizer of the model "
            f"that was recorded ({recording.model})"
        )
    files = TokenizerFiles(None) if settings.tokenizer is None else load_tokenizer(settings.tokenizer)
    model = settings.model or recording.model
    engine = ReplayEngine(
        recording.scripts, vocabulary=_vocabulary(files), model=model, context=recording.context, repeat=True
    )
    return engine, files


def _tokens_only(settings: Settings) -> tuple[Engine, TokenizerFiles]:
    source = settings.tokenizer or settings.model
    if source is None:
        raise UnbraidError("--tokens-only needs --model: a folder with the model's tokenizer, or ORG/REPO on the hub")
    files = load_tokenizer(source)
    return NoEngine(settings.model or source, _vocabulary(files), settings.context), files


def _vocabulary(files: TokenizerFiles) -> Vocabulary | None:
    return None if files.tokenizer is None else encoder(files.tokenizer).vocabulary
