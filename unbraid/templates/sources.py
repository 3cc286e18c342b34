"""A model's templates, tokenizer and defaults, read from wherever they are.

The place is a folder, a file, a tokenizer's configuration, a GGUF file or a repository of the Hugging Face hub. The
layout of folders and configurations is Hugging Face's. A model may have several templates; `default` and `tool_use` are
the names that count. Some templates are built in, for models without one.

    load_templates(folder)["default"]     the templates alone
    load_tokenizer("ORG/REPO")            the tokenizer with its templates, for engines that run elsewhere
    read_input(Path("model.gguf"))        all that detection goes by
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from ..errors import UnbraidError
from ..models.gguf import Gguf
from ..models.hub import hub_download, hub_files
from ..models.model_files import CATALOG, looks_like_hub, resolve
from .errors import DetectionError, TemplateNotFound
from .template import ChatTemplate

BUILT_IN = ("chatml", "step-audio-2")
_CONFIG = "tokenizer_config.json"
_LARGEST_FILE = 64_000_000
_LONGEST_PATH = 1_000
_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json"),
    *("chat_template.jinja", "chat_template.json", "tekken.json", "tokenizer.model.v3"),
)
_TEMPLATE_FILES = (_CONFIG, "chat_template.jinja", "chat_template.json", "special_tokens_map.json")
_FILE_ENDINGS = (".gguf", ".j2", ".jinja", ".json", ".jsonl", ".txt")
"""What a file ends with, and no repository does."""
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


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
    return {name: from_source(text, tokens, f"{path.name} ({name})") for name, text in sources.items()}


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
    templates = config.get("chat_template")
    if isinstance(templates, str):
        yield "default", templates
    elif isinstance(templates, Mapping):
        yield from ((str(name), str(text)) for name, text in templates.items())
    elif isinstance(templates, list):
        for entry in templates:
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
    named = ((key, _content(value)) for key, value in config.items() if key.endswith("_token"))
    return {key: text for key, text in named if text is not None}


def _content(token: object) -> str | None:
    """The text of a token, which may be given as an object. None if there is none."""
    text = token.get("content") if isinstance(token, Mapping) else token
    return text if isinstance(text, str) else None


def load_config(path: Path) -> Mapping[str, Any]:
    """A JSON object in a file, such as `tokenizer_config.json`."""
    try:
        config = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise TemplateNotFound(f"{path} is not JSON: {error}") from error
    if not isinstance(config, Mapping):
        raise TemplateNotFound(f"{path} is not a JSON object")
    return config


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise TemplateNotFound(f"{path} is too large to hold a template")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateNotFound(f"{path} cannot be read: {error}") from error


# For detection


@dataclass(frozen=True)
class DetectionInput:
    """Everything that is known about a model's format."""

    templates: Mapping[str, ChatTemplate] = field(default_factory=dict)
    response_template: object = None
    eos_token: str = ""


def read_input(source: object, bos_token: str = "", eos_token: str = "") -> DetectionInput:
    """Find the templates in whatever was given. Raises `DetectionError` or `TemplateNotFound` if there are none."""
    if isinstance(source, ChatTemplate):
        return DetectionInput({"default": source})
    if isinstance(source, str):
        # `os.path`: what can be no path is none there, and an error in `pathlib`.
        if source.strip() and "{" not in source and len(source) < _LONGEST_PATH and os.path.exists(source):
            raise DetectionError(
                f"{source!r} is a path: give it as Path({source!r}); text is taken for the template itself"
            )
        tokens = {"bos_token": bos_token, "eos_token": eos_token}
        return DetectionInput({"default": from_source(source, tokens)}, None, eos_token)
    if isinstance(source, Path):
        return _from_path(source)
    if isinstance(source, Mapping):
        if source and all(isinstance(value, ChatTemplate) for value in source.values()):
            return DetectionInput(source)
        return _from_config(source)
    raise DetectionError(
        f"detect takes a template's text, a ChatTemplate, a Path or a tokenizer's configuration, not "
        f"{type(source).__name__}"
    )


def _from_path(path: Path) -> DetectionInput:
    if path.suffix == ".gguf":
        return _from_gguf(path)
    config_file = path / _CONFIG if path.is_dir() else path
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
    return DetectionInput(templates, stated, _content(config.get("eos_token")) or "")


def _from_config(config: Mapping[str, Any]) -> DetectionInput:
    stated = config.get("response_template")
    templates = from_config(config)
    if not templates and stated is None:
        raise TemplateNotFound("the tokenizer's configuration holds neither a chat_template nor a response_template")
    return DetectionInput(templates, stated, _content(config.get("eos_token")) or "")


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


def template_path(spec: str) -> Path:
    """Where a model's template is: a path that is there, or a model as `unbraid serve --model` names it, downloaded if
    necessary. Of ORG/REPO on the hub, only the files with templates are fetched, if it has any."""
    path = Path(spec).expanduser()
    if path.exists():
        return path
    repository = spec.removeprefix("hf:")
    if looks_like_hub(repository) and ":" not in repository and path.suffix.lower() not in _FILE_ENDINGS:
        names = [name for name in hub_files(repository) if name in _TEMPLATE_FILES]
        for name in names:
            path = hub_download(repository, name, None, quiet=True)
        if names:
            return path.parent
    elif (":" not in spec and spec not in CATALOG) or path.suffix.lower() in _FILE_ENDINGS:
        raise TemplateNotFound(f"there is no file or folder {spec}")
    return resolve(spec).gguf


# Tokenizers


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
    config, generation = _json(folder / _CONFIG), _json(folder / "generation_config.json")
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
        path = hub_download(spec, name, None)
    return path.parent


def _tokenizer(path: Path) -> object:
    files = [path] if path.is_file() else [path / name for name in ("tokenizer.json", "tekken.json")]
    files += sorted(path.glob("tokenizer.model*")) if path.is_dir() else []
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        raise UnbraidError(f"{path} has no tokenizer.json, tekken.json or tokenizer.model")
    if file.suffix == ".json" and file.name != "tekken.json":
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise UnbraidError(f"{file} needs tokenizers: pip install 'unbraid[huggingface]'") from error
        return _from_file(Tokenizer, file)
    try:
        from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
    except ImportError as error:
        raise UnbraidError(f"{file} needs mistral-common: pip install 'unbraid[mistral]'") from error
    return _from_file(MistralTokenizer, file)


def _from_file(kind: Any, file: Path) -> object:
    try:
        return kind.from_file(str(file))
    except Exception as error:  # whatever the libraries raise
        raise UnbraidError(
            f"{file} is no tokenizer that can be read: {error}. Give a tokenizer.json, tekken.json or tokenizer.model"
        ) from error


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
    listed = ids if isinstance(ids, list) else [ids]
    return [tokenizer.id_to_token(id) or "" for id in listed if isinstance(id, int)]


def _json(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise UnbraidError(f"{path} cannot be read: {error}") from error
    return value if isinstance(value, Mapping) else {}
