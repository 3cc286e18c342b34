"""A model's tokenizer, templates and generation defaults, read from its files.

For engines that run in another process or on another machine: the server then needs the tokenizer itself, from a
folder, a file or a repository on the Hugging Face hub.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UnbraidError
from ..models.hub import hub_download, hub_files
from .errors import TemplateNotFound
from .sources import load_templates
from .template import ChatTemplate

_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json"),
    *("chat_template.jinja", "chat_template.json", "tekken.json", "tokenizer.model.v3"),
)
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


@dataclass(frozen=True)
class TokenizerFiles:
    """What a model's folder says about its tokens and templates."""

    tokenizer: object
    templates: dict[str, ChatTemplate] = field(default_factory=dict)
    bos: int | None = None
    ends: tuple[str, ...] = ()
    """The tokens that end an output."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """The sampling options that the model's makers recommend."""
    response_template: object = None
    """Hugging Face's `response_template`, if the tokenizer has one."""
    generation_config: Mapping[str, Any] = field(default_factory=dict)
    """All of `generation_config.json`."""


def load_tokenizer(spec: str) -> TokenizerFiles:
    """Load from a folder, a tokenizer's file, or ORG/REPO on the hub."""
    path = Path(spec).expanduser()
    if not path.exists():
        path = _from_hub(spec)
    folder = path if path.is_dir() else path.parent
    tokenizer = _tokenizer(path)
    try:
        templates = load_templates(folder)
    except TemplateNotFound:
        templates = {}
    config, generation = _json(folder / "tokenizer_config.json"), _json(folder / "generation_config.json")
    ends = [_content(config.get("eos_token")), *_named(tokenizer, generation.get("eos_token_id"))]
    sampling = {name: generation[name] for name in _SAMPLING if isinstance(generation.get(name), int | float)}
    stated = config.get("response_template")
    return TokenizerFiles(
        tokenizer, templates, _bos(tokenizer), tuple(filter(None, ends)), sampling, stated, generation
    )


def _from_hub(spec: str) -> Path:
    if spec.startswith("/") or spec.count("/") != 1:
        raise UnbraidError(f"there is no tokenizer {spec!r}: give a folder, a file or ORG/REPO on the hub")
    there = [name for name in hub_files(spec) if name in _FILES]
    if not there:
        raise UnbraidError(f"{spec} has no tokenizer: give another place with --tokenizer")
    for name in there:
        found = hub_download(spec, name, None)
    return found.parent


def _tokenizer(path: Path) -> object:
    files = [path] if path.is_file() else [path / name for name in ("tokenizer.json", "tekken.json")]
    files += sorted(path.glob("tokenizer.model*")) if path.is_dir() else []
    found = next((file for file in files if file.is_file()), None)
    if found is None:
        raise UnbraidError(f"{path} has no tokenizer.json, tekken.json or tokenizer.model")
    if found.suffix == ".json" and found.name != "tekken.json":
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise UnbraidError(f"{found} needs tokenizers: pip install 'unbraid[huggingface]'") from error
        return Tokenizer.from_file(str(found))
    try:
        from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
    except ImportError as error:
        raise UnbraidError(f"{found} needs mistral-common: pip install 'unbraid[mistral]'") from error
    return MistralTokenizer.from_file(str(found))


def _bos(tokenizer: Any) -> int | None:
    """The token that the tokenizer puts before a text by itself."""
    held = tokenizer
    for name in ("instruct_tokenizer", "tokenizer"):
        held = getattr(held, name, held)
    if hasattr(held, "bos_id"):
        return int(held.bos_id)
    ids = tokenizer.encode("", add_special_tokens=True).ids
    return int(ids[0]) if ids else None


def _named(tokenizer: Any, ids: Any) -> list[str]:
    if not hasattr(tokenizer, "id_to_token"):
        return []
    known = ids if isinstance(ids, list) else [ids]
    return [tokenizer.id_to_token(id) or "" for id in known if isinstance(id, int)]


def _content(token: Any) -> str:
    found = token.get("content") if isinstance(token, Mapping) else token
    return found if isinstance(found, str) else ""


def _json(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise UnbraidError(f"{path} cannot be read: {error}") from error
    return found if isinstance(found, Mapping) else {}
