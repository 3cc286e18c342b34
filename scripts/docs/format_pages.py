"""One page for each format, made from its grammar: what the model writes, how that parses, its names elsewhere, and its
constraint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import unbraid
from unbraid import Constraint, Format, Markup, NotRegular, all_formats
from unbraid.constraints.printers import GrammarSyntax
from unbraid.core.notations import (
    Arguments,
    BareArguments,
    ElementArguments,
    JsonCall,
    PythonArguments,
    PythonDict,
    TaggedArguments,
)
from unbraid.templates.detection.result import format_source

from .engine_names import FLAGS, names_of
from .markdown import code, fence, indented, table
from .samples import TOOLS, coloured, legend, sample

FOLDER = "formats"
_HEADED, _NONE, _SPOKEN = "Messages with headers", "No calls", "No calls, but speech"
_NOTATIONS: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("Calls as JSON", (JsonCall,)),
    ("A name, then JSON", (Arguments,)),
    ("Arguments between tags", (TaggedArguments, ElementArguments)),
    ("Python's notation, or one like it", (PythonArguments, PythonDict, BareArguments)),
)
GROUPS = (*(name for name, _ in _NOTATIONS), _HEADED, _SPOKEN, _NONE)
"""The ways in which formats write calls, in the order of the navigation."""
_SYNTAXES: dict[GrammarSyntax, tuple[str, str, str]] = {
    "gbnf": ("GBNF", "llama.cpp", "text"),
    "structural_tag": ("Structural tag", "SGLang and vLLM, by xgrammar", "json"),
    "ebnf": ("EBNF", "xgrammar", "text"),
    "lark": ("Lark", "llguidance", "text"),
    "regex": ("Regular expression", "anything that has them", "text"),
}
_LONGEST = 20_000
"""How many characters of a constraint a page shows."""


def path_of(format: Format) -> str:
    return f"{FOLDER}/{format.name}.md"


def grouped() -> dict[str, list[Format]]:
    """Every format, by how it writes calls."""
    found: dict[str, list[Format]] = {group: [] for group in GROUPS}
    for format in all_formats():
        found[_group(format)].append(format)
    return {group: sorted(formats, key=attrgetter("name")) for group, formats in found.items() if formats}


def _group(format: Format) -> str:
    if format.headers is not None:
        return _HEADED
    if format.tools is None:
        return _NONE if format.speech is None else _SPOKEN
    kinds = {type(node) for node in _nodes(format.tools)}
    return next(name for name, nodes in _NOTATIONS if any(issubclass(kind, nodes) for kind in kinds))


def _nodes(value: Any) -> Iterator[Any]:
    """A node of a grammar and all that it is made of."""
    yield value
    parts = value if isinstance(value, tuple) else [getattr(value, name) for name in getattr(value, "__slots__", ())]
    for part in parts:
        yield from _nodes(part)


def page(format: Format) -> str:
    """The page of a format, as Markdown."""
    return "\n\n".join([f"# {format.name}", *_about(format), *_written(format), *_names(format), *_constraint(format)])


def _about(format: Format) -> Iterator[str]:
    strands = [name for name in ("reasoning", "tools", "speech") if getattr(format, name) is not None]
    words = {"tools": "tool calls"}
    others = all_formats()[format]
    yield (
        f"A format with {' and '.join(words.get(name, name) for name in strands) or 'content only'}. "
        + (f"Other names: {', '.join(map(code, others))}. " if others else "")
        + "How the words of a name are joined does not matter."
    )
    if format.prompt:
        yield (
            f"The prompt usually ends with {code(format.prompt)}, so the output begins inside the reasoning. Without a "
            "`prompt`, the parser assumes that."
        )
    if not format.calls_in_reasoning:
        yield "A call inside the reasoning is only a draft: it stays text."


def _written(format: Format) -> Iterator[str]:
    made = sample(format)
    yield "## What the model writes"
    yield coloured(made)
    yield legend(made)
    if format.speech is not None and not format.speech.code:
        yield "The audio codes are not in the text: they have ids of their own, or come beside the tokens."
    yield "## How it parses"
    shown = [event for event in made.events if not isinstance(event, Markup)]
    yield fence("text", "\n".join(map(repr, shown)))
    yield "In the form of OpenAI's API:"
    yield fence("json", json.dumps(made.message.to_openai(), ensure_ascii=False, indent=2))
    yield "The grammar, from which the parser, the renderer and the constraint are derived:"
    yield fence("python", format_source(format))


def _names(format: Format) -> Iterator[str]:
    yield "## Names in vLLM and SGLang"
    found = names_of(format)
    if found:
        by_flag: dict[tuple[str, str], list[str]] = {}
        for each in found:
            by_flag.setdefault((each.engine, code(FLAGS[each.strand])), []).append(code(each.name))
        yield table(("engine", "flag", "name"), [(*key, ", ".join(names)) for key, names in by_flag.items()])
    else:
        yield "Neither engine has a parser of its own for it."
    flags = " ".join(f"{flag} unbraid-{format.name}" for strand, flag in FLAGS.items() if getattr(format, strand))
    if flags:
        yield f"With the [plug-ins](../vllm.md), in both engines: {code(flags)}."
    commands = (f"unbraid {command} --format {format.name}" for command in ("parse", "serve"))
    yield f"With `unbraid`: {', '.join(map(code, commands))}."


def _constraint(format: Format) -> Iterator[str]:
    yield "## Its constraint"
    if format.tools is not None:
        made = unbraid.constraint(format, tools=TOOLS, tool_choice="required")
        yield 'For the tool of the sample, with `tool_choice="required"`. The arguments follow its schema.'
    else:
        made = unbraid.constraint(format)
        yield "For a request without tools."
    for syntax, (name, used_by, language) in _SYNTAXES.items():
        yield f'??? note "{name}, for {used_by}"'
        yield indented(_in_syntax(made, syntax, language))


def _in_syntax(made: Constraint, syntax: GrammarSyntax, language: str) -> str:
    try:
        written = getattr(made, f"to_{syntax}")()
    except NotRegular as error:
        return f"There is none: {error}."
    text = written if isinstance(written, str) else json.dumps(written, ensure_ascii=False, indent=2)
    parts = [fence(language, text[:_LONGEST])]
    if len(text) > _LONGEST:
        parts.append(f"The first {_LONGEST:,} of {len(text):,} characters.")
    missing = made.unenforced(syntax)
    if missing:
        parts.append("Not enforced: " + "; ".join(f"{each.where}: {each.what}" for each in missing) + ".")
    return "\n\n".join(parts)
