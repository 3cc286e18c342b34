"""Outputs to begin with, for every format: recorded ones, and those that the format's own grammar writes.

`recorded.json` holds what vendors' templates write for an assistant's turn, and the examples of the repository; tests
write it (`python -m tests.server.playground.write_recorded`). What the grammar writes is made here, so that a format
that somebody has pasted as a template has samples as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from ...core.grammar import Format
from ...core.message import Message, Part, Speech, Tag, Text, ToolCall
from ...core.render import render
from ...errors import UnbraidError
from ...formats import all_formats
from .asked import Question

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city.",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "write_note",
            "description": "Keeps a note.",
            "parameters": {
                "type": "object",
                "properties": {"title": {"type": "string"}, "lines": {"type": "array", "items": {"type": "string"}}},
                "required": ["title"],
            },
        },
    },
]
_THOUGHT = Text("reasoning", "They ask about Paris. I look up the weather, and keep a note of it.")
_ANSWER = Text("content", "Let me look that up.")
_WEATHER = ToolCall("get_weather", '{"city": "Paris", "days": 3}', id="call_0")
_NOTE = ToolCall("write_note", '{"title": "Paris", "lines": ["Rain.", "Take an <umbrella>."]}', id="call_1")
_OTHER = ToolCall("launch", '{"target": "moon"}', id="call_0")


def listed(asked: Question) -> dict[str, Any]:
    """Every format, with what it can say."""
    formats = [{"name": one.name, "aliases": names, "strands": _strands(one)} for one, names in all_formats().items()]
    return {"formats": sorted(formats, key=lambda one: str(one["name"])), "tools": TOOLS}


def detected(asked: Question) -> dict[str, Any]:
    """The format of a template that was pasted, with the reasons."""
    from .detecting import detection_of  # loads Jinja

    template = asked.text("template", 1_000_000)
    if not template.strip():
        raise UnbraidError("paste a chat template or a tokenizer_config.json", field="template")
    return detection_of(template).to_json()


def samples(asked: Question) -> dict[str, Any]:
    """Outputs of one format."""
    format = asked.format
    tools = TOOLS if format.tools is not None else None
    found = [{"title": title, "source": "grammar", "text": text, "tools": tools} for title, text in _written(format)]
    return {"format": format.name, "samples": [*_recorded().get(format.name, []), *found]}


@cache
def _recorded() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = json.loads(
        files(__package__).joinpath("recorded.json").read_text(encoding="utf-8")
    )
    return found


def _strands(format: Format) -> list[str]:
    parts = {"reasoning": format.reasoning, "calls": format.tools, "speech": format.speech, "tags": format.transcript}
    return [name for name, part in parts.items() if part is not None]


def _written(format: Format) -> Iterator[tuple[str, str]]:
    """What the grammar writes, with a title; what it cannot write is left out."""
    for title, parts in _messages(format):
        try:
            yield title, render(format, Message(parts))
        except UnbraidError:
            continue
    if format.tools is not None:
        whole = render(format, Message((_WEATHER,)))
        yield "A call that was cut off", whole[: whole.find("Paris") + 3]


def _messages(format: Format) -> Iterator[tuple[str, tuple[Part, ...]]]:
    thought: tuple[Part, ...] = (_THOUGHT,) if format.reasoning is not None and not format.reasoning_in_content else ()
    if format.transcript is not None:
        language = format.transcript.languages[0]
        yield "A transcript", (Tag(language), Tag(0.0), Text("content", " It rains in Paris."), Tag(2.0))
        return
    answer: Part = _ANSWER
    if format.speech is not None:
        spoken = (1499, 2187, 3054, 6211) if format.speech.code else ()
        answer = Speech("Let me look that up.", tuple(code % (format.speech.codes or 4096) for code in spoken))
    if format.tools is not None:
        yield "An answer and two calls", (*thought, answer, _WEATHER, _NOTE)
        yield "One call", (*thought, _WEATHER)
    yield "An answer", (*thought, answer)
    if format.tools is not None:
        yield "A call to an unknown tool", (*thought, _OTHER)
