"""Sources of chat templates: a model's folder, a file, a tokenizer's configuration, or the built-in ones.

The layout of folders and configurations is Hugging Face's. A model may have several templates; `default` and `tool_use`
are the names that count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from .errors import TemplateNotFound
from .template import ChatTemplate

BUILT_IN = ("chatml", "step-audio-2")
_CONFIG = "tokenizer_config.json"
_LARGEST_FILE = 64_000_000


def built_in(name: str) -> ChatTemplate:
    """A template that comes with unbraid, for models without one: `chatml` or `step-audio-2`."""
    if name not in BUILT_IN:
        raise TemplateNotFound(f"no built-in template {name!r}: there are {', '.join(BUILT_IN)}")
    source = resources.files(__package__).joinpath("builtin", f"{name}.jinja").read_text(encoding="utf-8")
    return ChatTemplate(source, name=f"the built-in template {name}")


def load_templates(path: str | Path) -> dict[str, ChatTemplate]:
    """The templates of a model, by name (`default`, `tool_use`).

    path: the model's folder, or one file: a template, a `tokenizer_config.json` or a `chat_template.json`.
    """
    path = Path(path)
    if path.is_dir():
        sources, tokens = dict(_in_folder(path)), _special_tokens(path)
    elif path.is_file():
        sources = dict(_in_file(path))
        tokens = _special_tokens(path.parent)
    else:
        raise TemplateNotFound(f"no file or folder {path}")
    if not sources:
        raise TemplateNotFound(f"{path} holds no chat template: name another file, or one of {', '.join(BUILT_IN)}")
    return {name: from_source(text, tokens, f"{path} ({name})") for name, text in sources.items()}


def from_config(config: Mapping[str, Any], name: str = "the tokenizer's configuration") -> dict[str, ChatTemplate]:
    """The templates in a tokenizer's configuration; empty if it has none."""
    tokens = _tokens_in(config)
    return {kind: from_source(text, tokens, f"{name} ({kind})") for kind, text in _in_config(config)}


def from_source(source: object, special_tokens: Mapping[str, Any] | None = None, name: str = "") -> ChatTemplate:
    """A template given as text, as in the metadata of a GGUF file."""
    if not isinstance(source, str):
        raise TemplateNotFound(f"a chat template is text, not {type(source).__name__}")
    tokens = dict(special_tokens or {})
    bos, eos = tokens.pop("bos_token", ""), tokens.pop("eos_token", "")
    return ChatTemplate(source, bos_token=bos, eos_token=eos, special_tokens=tokens, name=name or "the chat template")


def _in_folder(folder: Path) -> Iterator[tuple[str, str]]:
    """In the order in which Hugging Face looks for them: later files win."""
    for name in (_CONFIG, "chat_template.json", "chat_template.jinja"):
        if (folder / name).is_file():
            yield from _in_file(folder / name)
    for file in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        yield file.stem, _text(file)


def _in_file(path: Path) -> Iterator[tuple[str, str]]:
    if path.suffix != ".json":
        yield "default", _text(path)
        return
    yield from _in_config(load_config(path))


def _in_config(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    found = config.get("chat_template")
    if isinstance(found, str):
        yield "default", found
    elif isinstance(found, Mapping):
        yield from ((str(name), str(text)) for name, text in found.items())
    elif isinstance(found, list):
        for entry in found:
            if isinstance(entry, Mapping) and isinstance(entry.get("template"), str):
                yield str(entry.get("name", "default")), entry["template"]


def _special_tokens(folder: Path) -> dict[str, Any]:
    """`bos_token` and the like, as the tokenizer's configuration has them."""
    tokens: dict[str, Any] = {}
    for name in ("special_tokens_map.json", _CONFIG):
        if (folder / name).is_file():
            tokens |= _tokens_in(load_config(folder / name))
    return tokens


def _tokens_in(config: Mapping[str, Any]) -> dict[str, Any]:
    named = ((key, value.get("content") if isinstance(value, Mapping) else value) for key, value in config.items())
    return {key: text for key, text in named if key.endswith("_token") and isinstance(text, str)}


def load_config(path: Path) -> Mapping[str, Any]:
    """A JSON object in a file, such as `tokenizer_config.json`."""
    try:
        found = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise TemplateNotFound(f"{path} is not JSON: {error}") from error
    if not isinstance(found, Mapping):
        raise TemplateNotFound(f"{path} is not a JSON object")
    return found


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise TemplateNotFound(f"{path} is too large to hold a template")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateNotFound(f"{path} cannot be read: {error}") from error
