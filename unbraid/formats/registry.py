"""The formats, under every name that people know them by."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from typing import Any

from ..core.grammar import Format
from ..errors import UnbraidError, UnknownFormat

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
    _formats[format.name] = format
    _aliases[format.name] = aliases
    return format


def find(name: str) -> Format:
    """The format of that name. Case does not matter, nor how its words are joined (`glm-4.5`, `glm45`).

    Some checkpoints have a suffix to each of their tags (`<tool_calls:opensource>`): `hunyuan-3:opensource` is such a
    format."""
    if not isinstance(name, str):
        raise UnknownFormat(f"a format is a name or a Format, not {type(name).__name__}")
    name, _, suffix = name.partition(":")
    key = _key(name)
    if key in _names:
        format = _formats[_names[key]]
        return replace(_with_suffix(format, suffix), name=f"{format.name}:{suffix}") if suffix else format
    import difflib  # only needed here, and slow to load

    near = [_formats[_names[one]].name for one in difflib.get_close_matches(key, _names, n=5, cutoff=0.5)]
    near = list(dict.fromkeys(near))
    hint = f"did you mean {', '.join(near)}? " if near else ""
    raise UnknownFormat(
        f"no format named {name!r}: {hint}`unbraid formats` lists all that are known, `unbraid detect` finds the one "
        "that a chat template speaks, and `unbraid.register` takes a Format of your own."
    )


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


def compose(*, reasoning: str | None = None, tools: str | None = None, audio: str | None = None) -> Format:
    """One format out of parts that are named apart, as servers name them (`--reasoning-parser`, `--tool-call-parser`,
    `--audio-parser`). Their order means nothing: what is nested in what, the text decides."""
    format = Format("+".join(name for name in (reasoning, tools, audio) if name) or "plain")
    ends: dict[str, None] = {}
    for strand, name in (("reasoning", reasoning), ("tools", tools), ("speech", audio)):
        if name is None:
            continue
        source = find(name)
        if getattr(source, strand) is None:
            raise UnbraidError(f"the format {name!r} has no {strand}; it cannot serve as the parser for that")
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
        format = replace(format, reasoning=find(tools).reasoning, reasoning_in_content=True)
    format = replace(format, ends=tuple(ends))
    versions = tuple(
        (since, replace(format, name=f"{format.name}@{since}", tools=version.tools, versions=()))
        for since, version in format.versions
    )
    return replace(format, versions=versions)


def _key(name: str) -> str:
    return re.sub(r"[\s_.-]+", "", name.lower())
