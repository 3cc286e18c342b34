"""From settings to a model that listens: `unbraid serve` and `unbraid transcribe` have the same, under other flags."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import MissingTokens, UnbraidError
from .listeners import ListenerKind, load_listener
from .whisper.files import DEFAULT_WHISPER

if TYPE_CHECKING:
    from .engines.endpoint import EndpointListener
    from .engines.sglang import SGLangWhisper
    from .listening import Listener

_log = logging.getLogger(__name__)

_REMOTE: tuple[ListenerKind, ...] = ("vllm", "sglang", "openai")


@dataclass(frozen=True, kw_only=True)
class ChosenListener:
    """The settings."""

    model: str | None = None
    engine: ListenerKind = "embedded"
    urls: tuple[str, ...] = ()
    api_key: str | None = None
    threads: int | None = None
    flags: str = "--"
    """What the names of the flags begin with, for messages."""

    def check(self) -> None:
        """Raise `UnbraidError` where they do not fit together."""
        if self.engine in _REMOTE and not self.urls:
            raise UnbraidError(f"{self.flags}engine {self.engine} needs {self.flags}url: where the server is")
        if self.engine not in _REMOTE and self.urls:
            raise UnbraidError(
                f"{self.flags}url is for servers: give {self.flags}engine {' or '.join(_REMOTE)} with it"
            )
        if self.engine == "vllm-local" and self.model is None:
            wanted = "a folder with a Whisper, or ORG/REPO on the hub"
            raise UnbraidError(f"{self.flags}engine vllm-local needs {self.flags}model: {wanted}")


async def load_chosen(chosen: ChosenListener) -> Listener:
    """The model, fetched and loaded where it runs here. A server need not be up yet; only of SGLang's it must be known
    which tokens its model has."""
    chosen.check()
    if chosen.engine == "vllm-local":
        from .engines.vllm import VLLMWhisper

        return await asyncio.to_thread(VLLMWhisper, chosen.model or "")
    if chosen.engine == "sglang":
        return await _sglang(chosen)
    if chosen.engine in _REMOTE:
        return await _endpoint(chosen)
    return await asyncio.to_thread(load_listener, chosen.model or DEFAULT_WHISPER, threads=chosen.threads)


async def _endpoint(chosen: ChosenListener) -> EndpointListener:
    from .engines.endpoint import EndpointListener

    # OpenAI's name for it: a server of many models has others before it.
    model = "whisper-1" if chosen.model is None and chosen.engine == "openai" else await _name(chosen)
    return EndpointListener(chosen.urls, model=model, api_key=chosen.api_key)


async def _name(chosen: ChosenListener) -> str | None:
    """What the server calls its model, if it says so now."""
    from ..engines.remote_models import ask

    if chosen.model is not None:
        return chosen.model
    try:
        found = (await ask("vllm", chosen.urls[0], chosen.api_key, f"{chosen.flags}model")).get("id")
    except UnbraidError as error:
        _log.warning("the engine that transcribes does not answer yet: %s", error)
        return None
    return found if isinstance(found, str) else None


async def _sglang(chosen: ChosenListener) -> SGLangWhisper:
    from ..engines.remote_models import remote_tokenizer
    from ..templates import load_tokenizer
    from .engines.sglang import SGLangWhisper

    url = chosen.urls[0]
    try:
        files = await remote_tokenizer("sglang", url, chosen.api_key, f"{chosen.flags}model")
    except UnbraidError as problem:
        if chosen.model is None:
            raise
        try:
            files = await asyncio.to_thread(load_tokenizer, chosen.model)
        except UnbraidError as error:
            raise UnbraidError(f"{problem}; and {error}") from error
    try:
        return SGLangWhisper(
            chosen.urls,
            files.tokenizer,
            generation_config=files.generation_config,
            model=await _name(chosen),
            api_key=chosen.api_key,
        )
    except MissingTokens as error:
        raise UnbraidError(
            f"{url}: {error}; give {chosen.flags}engine openai, which asks the server's own endpoint, for other models"
        ) from error
