"""The formats, under every name that people know them by."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from functools import cache, lru_cache
from typing import Any

from ..core.grammar import Format
from ..errors import UnbraidError, UnknownFormat
from .hub_names import ENGINES_NAMES, HUB_NAMES, family_names, is_size

_formats: dict[str, Format] = {}
_names: dict[str, str] = {}
_aliases: dict[str, tuple[str, ...]] = {}


def add(format: Format, *aliases: str) -> Format:
    """Make a format known by its name and by others, without checking it: `unbraid.register` does that. The formats of
    this package are checked by the tests, so that importing them stays fast."""
    keys = {_key(name): name for name in (format.name, *aliases)}
    for key, name in keys.items():
        if _names.get(key, format.name) != format.name:
            raise UnbraidError(f"the name {name!r} is taken by the format {_names[key]!r}")
    _names.update(dict.fromkeys(keys, format.name))
    _find.cache_clear()
    _formats[format.name] = format
    _aliases[format.name] = aliases
    return format


def find(name: str) -> Format:
    """The format of that name. Case does not matter, nor how its words are joined (`glm-4.5`, `glm45`).

    A name on the Hugging Face hub will do (`Qwen/Qwen3-8B`): its organisation and its size do not matter.

    Some checkpoints have a suffix to each of their tags (`<tool_calls:opensource>`): `hunyuan-3:opensource` is such a
    format."""
    if not isinstance(name, str):
        raise UnknownFormat(f"a format is a name or a Format, not {type(name).__name__}")
    return _find(name)


@lru_cache(maxsize=256)
def _find(name: str) -> Format:
    name, _, suffix = name.partition(":")
    suffix = "" if is_size(suffix) else suffix
    registered = _names.get(_key(name)) or _on_hub(name)
    if registered is not None:
        format = _formats[registered]
        return replace(_with_suffix(format, suffix), name=f"{format.name}:{suffix}") if suffix else format
    near = near_names(name)
    hint = f"did you mean {', '.join(near)}? " if near else ""
    raise UnknownFormat(
        f"no format named {name!r}: {hint}`unbraid formats` lists all that are known, `unbraid detect` finds the one "
        "that a chat template speaks, and `unbraid.register` takes a Format of your own."
    )


def near_names(name: str) -> list[str]:
    """Formats whose names are like this one, the most similar first."""
    import difflib  # only needed here, and slow to load

    key = _key(family_names(name)[-1]) or _key(name)
    near = difflib.get_close_matches(key, _names, n=5, cutoff=0.5)
    # A hub name that begins as a format's does is of that family more likely than one that is spelled alike.
    near = sorted(near, key=lambda one: not key.startswith(one))
    return list(dict.fromkeys(_names[one] for one in near))


def _on_hub(name: str) -> str | None:
    """The format of a model's name on the hub; None if that is not known. A family without a number has had several
    formats, so its bare name says nothing: `Hunyuan-7B` is not `hunyuan`."""
    for key in map(_key, family_names(name)):
        if key in _hub_keys():
            return _hub_keys()[key]
        if key in _names and key not in ENGINES_NAMES and re.search(r"\d", key):
            return _names[key]
    return None


@cache
def _hub_keys() -> dict[str, str]:
    return {_key(family_names(name)[-1]): format for format, names in HUB_NAMES.items() for name in names}


def resolve(format: str | Format) -> Format:
    """A format, or the one of that name."""
    return format if isinstance(format, Format) else find(format)


def _with_suffix(node: Any, suffix: str) -> Any:
    """The same grammar, with the suffix in each tag. (`(?P<name>…)` in a pattern is no tag.)"""
    if isinstance(node, str):
        return re.sub(r"(?<!\?P)<(/?｜?\w+)(｜?)>", rf"<\1:{suffix}\2>", node)
    if isinstance(node, tuple):
        return tuple(_with_suffix(item, suffix) for item in node)
    if is_dataclass(node) and not isinstance(node, type):
        return replace(node, **{field.name: _with_suffix(getattr(node, field.name), suffix) for field in fields(node)})
    return node


def all_formats() -> dict[Format, list[str]]:
    """Every registered format with its other names."""
    return {format: list(_aliases[name]) for name, format in _formats.items()}


def compose(
    *, reasoning: str | Format | None = None, tools: str | Format | None = None, audio: str | Format | None = None
) -> Format:
    """One format out of parts that are named apart, as servers name them (`--reasoning-parser`, `--tool-call-parser`,
    `--audio-parser`). Their order means nothing: what is nested in what, the text decides."""
    names = [part.name if isinstance(part, Format) else part for part in (reasoning, tools, audio)]
    format = Format("+".join(filter(None, names)) or "plain")
    ends: dict[str, None] = {}
    for strand, part in (("reasoning", reasoning), ("tools", tools), ("speech", audio)):
        if part is None:
            continue
        source = resolve(part)
        if getattr(source, strand) is None:
            raise UnbraidError(f"the format {source.name!r} has no {strand}; it cannot serve as the parser for that")
        ends.update(dict.fromkeys(source.ends))
        # What stands around the strands, too.
        format = replace(
            format,
            answer=format.answer or source.answer,
            headers=format.headers or source.headers,
            prompt=format.prompt or (source.prompt if source.headers is not None else ""),
            ignored=tuple(dict.fromkeys((*format.ignored, *source.ignored))),
            spelled_markers=format.spelled_markers or source.spelled_markers,
            citations=format.citations or source.citations,
            optional_end=format.optional_end or source.optional_end,
        )
        if strand == "reasoning":
            format = replace(
                format,
                reasoning=source.reasoning,
                prompt=source.prompt,
                reasoning_in_content=source.reasoning_in_content,
                calls_in_reasoning=source.calls_in_reasoning,
                reasoning_again=source.reasoning_again,
            )
        elif strand == "tools":
            # Headers are read by their patterns. Without them, one way to write calls is left.
            headed = source.headers is not None and format.headers != source.headers
            format = replace(format, tools=source.tools, other_tools=() if headed else source.other_tools)
            format = replace(format, call_ids=source.call_ids, versions=source.versions)
        else:
            format = replace(format, speech=source.speech)
    if format.headers is not None and format.reasoning is None and tools is not None:
        # The headers tell reasoning from the answer. Nobody asked for it apart: so it stays in place, with them.
        format = replace(format, reasoning=resolve(tools).reasoning, reasoning_in_content=True)
    format = replace(format, ends=tuple(ends))
    versions = tuple(
        (since, replace(format, name=f"{format.name}@{since}", tools=version.tools, versions=()))
        for since, version in format.versions
    )
    return replace(format, versions=versions)


def _key(name: str) -> str:
    return re.sub(r"[\s_.-]+", "", name.lower())
