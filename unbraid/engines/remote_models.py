"""Discovery: which model a remote server has loaded, and the tokenizer that belongs to it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ..errors import UnbraidError
from ..templates import TokenizerFiles, load_tokenizer
from . import EngineError
from .http.address import Address

_ABOUT = {"sglang": "/model_info", "vllm": "/v1/models", "llama_cpp": "/props"}
_PATIENCE = 10.0
"""Seconds that a server has to answer."""


async def ask(kind: str, url: str, key: str | None, flag: str) -> Mapping[str, Any]:
    """What a server says about its model. Errors advise to give `flag` instead."""
    try:
        return await _ask(kind, url, key)
    except EngineError as error:
        raise UnbraidError(f"which model has {url}? {error}. Start it first, or give {flag}") from error


async def remote_tokenizer(kind: str, url: str, key: str | None, flag: str) -> TokenizerFiles:
    """The tokenizer that a server says it has loaded: a folder that both can see, or a name on the hub."""
    found = await ask(kind, url, key, flag)
    place = found.get("tokenizer_path") or found.get("model_path") or found.get("root")
    if not isinstance(place, str):
        raise UnbraidError(f"{url} does not say where its model is: give {flag}")
    try:
        return await asyncio.to_thread(load_tokenizer, place)
    except UnbraidError as error:
        raise UnbraidError(f"the tokenizer of {url} cannot be had: {error}. Give {flag}") from error


async def _ask(kind: str, url: str, key: str | None) -> Mapping[str, Any]:
    address = Address(url, api_key=key)
    try:
        found = await address.get(_ABOUT[kind], _PATIENCE)
    except EngineError as error:
        if kind != "sglang" or error.status != 404:
            raise
        found = await address.get("/get_model_info", _PATIENCE)  # its older name
    finally:
        await address.close()
    if kind == "vllm":
        found = next(iter((found or {}).get("data") or []), None)
    return found if isinstance(found, Mapping) else {}
