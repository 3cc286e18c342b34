"""The tokenizer of an engine's model: as a vocabulary, and as far as a server tells it.

The paths at which servers describe their model are in the table of engines (`tokenizer_at`, `template_at`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.vocabulary import Vocabulary
from ..errors import UnbraidError
from ..templates import TokenizerFiles, encoder, from_source, load_tokenizer
from .base import EngineError
from .http.address import Address

_PATIENCE = 10.0
"""Seconds that a server has to answer."""


def vocabulary_of(files: TokenizerFiles) -> Vocabulary | None:
    """The vocabulary of a tokenizer, if there is one."""
    return None if files.tokenizer is None else encoder(files.tokenizer).vocabulary


async def remote_tokenizer(paths: Sequence[str], url: str, key: str | None, flag: str) -> TokenizerFiles:
    """The tokenizer that a server has loaded: from a folder that both can see, or from the hub."""
    reply = await ask(paths, url, key, flag)
    place = reply.get("tokenizer_path") or reply.get("model_path") or reply.get("root")
    if not isinstance(place, str):
        raise UnbraidError(f"{url} does not say where its model is: give {flag}")
    try:
        return await asyncio.to_thread(load_tokenizer, place)
    except UnbraidError as error:
        raise UnbraidError(f"the tokenizer of {url} cannot be had: {error}. Give {flag}") from error


async def remote_template(path: str, url: str, key: str | None, flag: str) -> TokenizerFiles:
    """The chat template and the end token that a server shows, of a model whose tokenizer only the server has."""
    reply = await ask([path], url, key, flag)
    source = reply.get("chat_template")
    tokens = {name: reply.get(name) or "" for name in ("bos_token", "eos_token")}
    ends = (tokens["eos_token"],) if tokens["eos_token"] else ()
    templates = {"default": from_source(source, tokens, f"the template of {url}")} if source else {}
    return TokenizerFiles(None, templates, None, ends)


async def ollama_template(url: str, key: str | None, model: str | None) -> TokenizerFiles:
    """What Ollama says of a model, if `url` is Ollama; nothing is known of other servers. Ollama puts a template of its
    own around every prompt, so chats would be templated twice: raises `UnbraidError`, unless the model has none."""
    address = Address(url, api_key=key)
    try:
        await address.get("/api/version", _PATIENCE)
        name = model or (await address.get("/v1/models", _PATIENCE))["data"][0]["id"]
        shown = await address.post("/api/show", {"model": name}, _PATIENCE)
        template, info = shown["template"], shown.get("model_info") or {}
    except (EngineError, LookupError, TypeError):  # it is another server, or does not run yet
        return TokenizerFiles(None)
    finally:
        await address.close()
    if re.sub(r"\s", "", template) not in ("", "{{.Prompt}}"):
        raise UnbraidError(
            f"{url} is Ollama, which puts its own template around every prompt of {name}: chats would be templated "
            f"twice. Run the same file here with --model ollama:{name}; or give Ollama a model that takes prompts as "
            f"they are: printf 'FROM {name}\\nTEMPLATE \"{{{{ .Prompt }}}}\"' > Modelfile && "
            f"ollama create {name}-raw -f Modelfile"
        )
    source = info.get("tokenizer.chat_template")
    return TokenizerFiles(None, {"default": from_source(source, {}, f"the template of {name}")} if source else {})


async def ask(paths: Sequence[str], url: str, key: str | None, flag: str) -> Mapping[str, Any]:
    """The server's description of its model, at the first of the paths that it has. Errors advise to give `flag`
    instead."""
    try:
        return await _ask(paths, url, key)
    except EngineError as error:
        raise UnbraidError(f"which model has {url}? {error}. Start it first, or give {flag}") from error


async def _ask(paths: Sequence[str], url: str, key: str | None) -> Mapping[str, Any]:
    address = Address(url, api_key=key)
    try:
        for path in paths:
            try:
                reply = await address.get(path, _PATIENCE)
                break
            except EngineError as error:
                if error.status != 404 or path == paths[-1]:
                    raise
    finally:
        await address.close()
    if isinstance(reply, Mapping) and isinstance(reply.get("data"), list):  # a list of models
        reply = next(iter(reply["data"]), None)
    return reply if isinstance(reply, Mapping) else {}
