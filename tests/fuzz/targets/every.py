"""All targets, by name. Each is imported when it is asked for, and what it needs with it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

TARGETS = {
    "text": "outputs.text",
    "tokens": "outputs.tokens",
    "schema": "requests.schema",
    "grammar": "requests.grammar",
    "template": "files.template",
    "recording": "files.recording",
    "gguf": "files.gguf",
    "audio": "files.audio",
    "body": "http.body",
    "api": "api.described",
    "events": "streams.events",
    "laws": "properties.laws",
    "token-laws": "properties.token_laws",
}
"""The module and the function of each."""


def target(name: str) -> Callable[[bytes], None]:
    module, _, function = TARGETS[name].partition(".")
    found: Callable[[bytes], None] = getattr(import_module(f"{__package__}.{module}"), function)
    return found
