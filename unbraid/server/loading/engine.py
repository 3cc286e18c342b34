"""From settings to an engine, and its model's tokenizer and templates.

The table of engines (`unbraid.engines.table`) has how each is made. Engines in this process bring their tokenizer.
Servers are asked what they have loaded, unless `--tokenizer` names it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from ...engines import Engine, EngineError
from ...engines.http.sources import first_server
from ...engines.http.timeouts import Timeouts
from ...engines.routing import AffinityRules, RetryRules, Routing
from ...engines.table import EngineKind, engine_of
from ...engines.tokenizers import ollama_template, remote_template, remote_tokenizer, vocabulary_of
from ...templates.sources import TokenizerFiles, load_tokenizer
from ..settings import Settings


async def load_engine(settings: Settings) -> tuple[Engine, TokenizerFiles]:
    """The engine, and its model's tokenizer and templates, as far as they are known."""
    name, kind = engine_of(settings)
    if kind.load is not None:
        return await asyncio.to_thread(kind.load, settings)
    assert name is not None
    return await _remote(kind, getattr(settings, name), settings)


async def _remote(kind: EngineKind, urls: Sequence[str], settings: Settings) -> tuple[Engine, TokenizerFiles]:
    assert kind.servers is not None
    files = await _remote_files(kind, urls, settings)
    make = kind.servers()
    return make(
        list(urls),
        model=settings.model,
        vocabulary=vocabulary_of(files),
        context=settings.context,
        api_key=settings.engine_api_key,
        timeouts=timeouts_of(settings),
        routing=routing_of(settings),
    ), files


async def _remote_files(kind: EngineKind, urls: Sequence[str], settings: Settings) -> TokenizerFiles:
    """The tokenizer and templates that `--tokenizer` names, or those that the first server says it has loaded."""
    if settings.tokenizer is not None:
        if kind.may_be_ollama:  # to refuse it, if it has a template of its own
            with suppress(EngineError):
                url = await first_server(urls, "--tokenizer")
                await ollama_template(url, settings.engine_api_key, settings.model)
        return await asyncio.to_thread(load_tokenizer, settings.tokenizer)
    url = await first_server(urls, "--tokenizer")
    if kind.tokenizer_at:
        return await remote_tokenizer(kind.tokenizer_at, url, settings.engine_api_key, "--tokenizer")
    if kind.template_at is not None:
        return await remote_template(kind.template_at, url, settings.engine_api_key, "--tokenizer")
    if kind.may_be_ollama:
        return await ollama_template(url, settings.engine_api_key, settings.model)
    return TokenizerFiles(None)


def timeouts_of(settings: Settings) -> Timeouts:
    """How long the engine's servers may take."""
    connect = settings.upstream_connect_timeout
    if settings.upstream_timeout is None:
        return Timeouts(connect=connect, follows=True)
    first, piece = settings.upstream_timeout
    return Timeouts(connect=connect, first=first, piece=piece)


def routing_of(settings: Settings) -> Routing:
    """How requests are spread over the engine's servers."""
    return Routing(
        parallel=settings.upstream_parallel,
        retries=RetryRules(most=settings.upstream_retries),
        affinity=AffinityRules(factor=settings.upstream_bound),
    )
