"""Inputs of a detection: a template's text, a model's folder, a file, or a tokenizer's configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...models.gguf import Gguf
from ..errors import DetectionError, TemplateNotFound
from ..sources import from_config, from_source, load_config, load_templates
from ..template import ChatTemplate

_LONGEST_PATH = 1_000


@dataclass(frozen=True)
class DetectionInput:
    """Everything that is known about a model's format."""

    templates: Mapping[str, ChatTemplate] = field(default_factory=dict)
    response_template: object = None
    eos_token: str = ""


def read_input(given: object, bos_token: str = "", eos_token: str = "") -> DetectionInput:
    """Find the templates in whatever was given. Raises `DetectionError` or `TemplateNotFound` if there are none."""
    if isinstance(given, ChatTemplate):
        return DetectionInput({"default": given})
    if isinstance(given, str):
        # `os.path`: what can be no path is none there, and an error in `pathlib`.
        if given.strip() and "{" not in given and len(given) < _LONGEST_PATH and os.path.exists(given):
            raise DetectionError(
                f"{given!r} is a path: give it as Path({given!r}); text is taken for the template itself"
            )
        tokens = {"bos_token": bos_token, "eos_token": eos_token}
        return DetectionInput({"default": from_source(given, tokens)}, None, eos_token)
    if isinstance(given, Path):
        return _from_path(given)
    if isinstance(given, Mapping):
        if given and all(isinstance(value, ChatTemplate) for value in given.values()):
            return DetectionInput(given)
        return _from_config(given)
    raise DetectionError(
        f"detect takes a template's text, a ChatTemplate, a Path or a tokenizer's configuration, not "
        f"{type(given).__name__}"
    )


def _from_path(path: Path) -> DetectionInput:
    if path.suffix == ".gguf":
        return _from_gguf(path)
    config_file = path / "tokenizer_config.json" if path.is_dir() else path
    config = load_config(config_file) if config_file.suffix == ".json" and config_file.is_file() else {}
    stated = config.get("response_template")
    try:
        templates = load_templates(path)
    except TemplateNotFound:
        files = sorted(path.glob("*.gguf")) if path.is_dir() else []
        if files:
            return _from_gguf(files[0])
        if stated is None:
            raise
        templates = {}
    return DetectionInput(templates, stated, _token(config.get("eos_token")))


def _from_config(config: Mapping[str, Any]) -> DetectionInput:
    stated = config.get("response_template")
    templates = from_config(config)
    if not templates and stated is None:
        raise TemplateNotFound("the tokenizer's configuration holds neither a chat_template nor a response_template")
    return DetectionInput(templates, stated, _token(config.get("eos_token")))


def _from_gguf(path: Path) -> DetectionInput:
    header = Gguf(path)
    if header.chat_template is None:
        raise TemplateNotFound(f"{path} holds no chat template")
    spelled = header.get("tokenizer.ggml.tokens") or []

    def token(kind: str) -> str:
        number = header.get(f"tokenizer.ggml.{kind}_token_id")
        return str(spelled[number]) if isinstance(number, int) and number < len(spelled) else ""

    tokens = {"bos_token": token("bos"), "eos_token": token("eos")}
    return DetectionInput(
        {"default": from_source(header.chat_template, tokens, f"the template of {path}")}, None, token("eos")
    )


def _token(value: object) -> str:
    found = value.get("content") if isinstance(value, Mapping) else value
    return found if isinstance(found, str) else ""
