"""Where a renderer comes from: a template or a model's folder, a tokenizer, and the format that the template tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..core.grammar import Format
from ..errors import UnbraidError
from ..formats import resolve
from ..templates.detection import detect
from ..templates.prompt.builder import PromptBuilder
from ..templates.prompt.messages import PartHook
from ..templates.sources import BUILT_IN, built_in, from_source, load_templates, load_tokenizer
from ..templates.template import ChatTemplate
from .renderer import Renderer


def renderer(
    template: object,
    tokenizer: object | None = None,
    format: str | Format | None = None,
    *,
    stop: Iterable[str] = (),
    part_hook: PartHook | None = None,
    **variables: Any,
) -> Renderer:
    """See `unbraid.renderer`."""
    if not isinstance(template, str | Path | ChatTemplate | Mapping):
        tokenizer = template if tokenizer is None else tokenizer
        template = _own_templates(template)
    ends = [*stop, *_named(tokenizer, "eos_token")]
    if isinstance(template, str) and "{" not in template and template not in BUILT_IN and not Path(template).is_file():
        template = Path(template)
    if isinstance(template, Path) and tokenizer is None:
        files = load_tokenizer(str(template))
        tokenizer, ends = files.tokenizer, [*ends, *files.ends]
        template = files.templates or template
    if tokenizer is None:
        raise UnbraidError("a renderer needs a tokenizer: its prompts are token ids")
    templates = _templates(template, tokenizer)
    chosen = templates.get("tool_use") or templates.get("default") or next(iter(templates.values()))
    chosen_format = resolve(format) if format is not None else detect(chosen).required()
    ends += [text for each in templates.values() if (text := each.special_tokens.get("eos_token"))]
    sources = {name: (each.source, dict(each.special_tokens), each.name) for name, each in templates.items()}
    return _renderer(sources, chosen.name, tokenizer, chosen_format, tuple(ends), part_hook, variables)


def _renderer(
    sources: dict[str, tuple[str, dict[str, Any], str]],
    name: str,
    tokenizer: object,
    format: Format,
    ends: tuple[str, ...],
    part_hook: PartHook | None,
    variables: dict[str, Any],
) -> Renderer:
    """A renderer of plain values, which can be sent to another process."""
    templates = {each: from_source(*source) for each, source in sources.items()}
    builder = PromptBuilder(templates, tokenizer, format, part_hook=part_hook)
    recipe = (_renderer, (sources, name, tokenizer, format, ends, part_hook, variables))
    return Renderer(builder, format, name=name, ends=ends, variables=variables, recipe=recipe)


def _templates(
    source: str | Path | ChatTemplate | Mapping[str, ChatTemplate], tokenizer: object
) -> dict[str, ChatTemplate]:
    if isinstance(source, ChatTemplate):
        return {"default": source}
    if isinstance(source, Mapping):
        return dict(source)
    if isinstance(source, Path):
        return load_templates(source)
    if source in BUILT_IN:
        return {"default": built_in(source)}
    if "{" not in source:
        return load_templates(source)
    tokens = {name: text for name in ("bos_token", "eos_token") for text in _named(tokenizer, name)}
    return {"default": from_source(source, tokens)}


def _own_templates(tokenizer: object) -> dict[str, ChatTemplate]:
    """The templates that a loaded tokenizer of `transformers` has."""
    own = getattr(tokenizer, "chat_template", None)
    if not own:
        raise UnbraidError(
            f"{type(tokenizer).__name__} has no chat_template: give the template, or a model's folder, and then the "
            "tokenizer"
        )
    tokens = {name: text for name in ("bos_token", "eos_token") for text in _named(tokenizer, name)}
    sources = own if isinstance(own, Mapping) else {"default": own}
    return {name: from_source(source, tokens) for name, source in sources.items()}


def _named(tokenizer: object, name: str) -> list[str]:
    """A token that a tokenizer of `transformers` knows by name."""
    text = getattr(tokenizer, name, None)
    return [text] if isinstance(text, str) else []
