"""The formats, and outputs to begin with for each: recorded ones, and those that the format's own grammar writes.

`recorded.json` holds what vendors' templates write for an assistant's turn, and the examples of the repository; tests
write it (`python -m tests.server.playground.write_recorded`). What the grammar writes is made here, so that a format
that somebody has pasted as a template has samples as well.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any

from ...core import diagnostics
from ...core.events import Diagnostic
from ...core.grammar import Format
from ...core.message import Message, Part, Speech, Tag, Text, ToolCall
from ...core.render import render
from ...errors import UnbraidError
from ...formats import all_formats
from ...metering import spend
from ...parsing import Parser
from .apart import STRANDS
from .question import Question, detection_of

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
_MOST_GUESSES = 6
_THOUGHT = Text("reasoning", "They ask about Paris. I look up the weather, and keep a note of it.")
_ANSWER = Text("content", "Let me look that up.")
_WEATHER = ToolCall("get_weather", '{"city": "Paris", "days": 3}', id="call_0")
_NOTE = ToolCall("write_note", '{"title": "Paris", "lines": ["Rain.", "Take an <umbrella>."]}', id="call_1")
_OTHER = ToolCall("launch", '{"target": "moon"}', id="call_0")


def listed(question: Question) -> dict[str, Any]:
    """Every format, with its strands."""
    formats = [{"name": one.name, "aliases": names, "strands": _strands(one)} for one, names in all_formats().items()]
    return {"formats": sorted(formats, key=lambda one: str(one["name"])), "tools": TOOLS}


def detected(question: Question) -> dict[str, Any]:
    """The format of a pasted template, with the reasons."""
    template = question.text("template", 1_000_000)
    if not template.strip():
        raise UnbraidError("paste a chat template or a tokenizer_config.json", field="template")
    return detection_of(template).to_json()


def guessed(question: Question) -> dict[str, Any]:
    """The formats that explain an output, the best first."""
    from ...guessing import guess

    text = question.text("text")
    spend(1 + len(text))
    return {"guesses": [one.to_json() for one in guess(text)[:_MOST_GUESSES]]}


def samples(question: Question) -> dict[str, Any]:
    """Outputs of one format."""
    format = question.format
    tools = TOOLS if format.tools is not None else None
    rendered = [
        {"title": title, "source": "grammar", "text": text, "tools": tools} for title, text in _rendered(format)
    ]
    return {"format": format.name, "samples": [*_recorded().get(format.name, []), *rendered]}


def reference(question: Question) -> dict[str, Any]:
    """How the format writes each strand, piece by piece, and what each kind of diagnostic means."""
    _, text = next(_rendered(question.format), ("", ""))
    parser = Parser(question.format, markup=True, seed=0)
    pieces = [
        [STRANDS[type(event)], text[event.start : event.end]]
        for event in [*parser.feed(text), *parser.finish()]
        if event.end > event.start and not isinstance(event, Diagnostic)
    ]
    return {"format": question.format.name, "pieces": pieces, "diagnostics": _diagnostics()}


@cache
def _diagnostics() -> list[list[str]]:
    """The kinds of diagnostics, each with the sentence that stands below it in the module."""
    body = ast.parse(inspect.getsource(diagnostics)).body
    return [
        [ast.literal_eval(constant.value), " ".join(ast.literal_eval(sentence.value).split())]
        for constant, sentence in pairwise(body)
        if isinstance(constant, ast.Assign) and isinstance(constant.value, ast.Constant)
        if isinstance(sentence, ast.Expr)
    ]


def exported(question: Question) -> dict[str, Any]:
    """A format as `unbraid export` prints it, as a file: `kind` is `format`, `cases` or `response_template`. Raises
    `UnbraidError` for what a response_template cannot say."""
    from ...format_cases import cases
    from ...formats.documents import export
    from ...templates.detection.response_template_export import response_template

    format, kind = question.format, question.text("kind")
    if kind == "cases":
        lines = [json.dumps(case, ensure_ascii=False) + "\n" for case in cases(format)]
        return {"file": f"{format.name}.jsonl", "text": "".join(lines), "unread": []}
    if kind == "response_template":
        template = response_template(format)
        return {"file": "response_template.json", "text": _indented(template.document), "unread": [*template.unread]}
    if kind != "format":
        raise UnbraidError("kind must be format, cases or response_template", field="kind")
    return {"file": f"{format.name}.json", "text": _indented(export(format)), "unread": []}


def _indented(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def saved(question: Question) -> dict[str, Any]:
    """A transcript that the page has, as the file that somebody saves: SRT or WebVTT, as the API itself writes them."""
    from ...speech.outputs import as_srt, as_vtt  # the static site has no speech
    from ...speech.transcript import Segment, Transcript

    writers = {"srt": as_srt, "vtt": as_vtt}
    writer = writers.get(question.text("kind"))
    if writer is None:
        raise UnbraidError(f"kind is one of {', '.join(writers)}", field="kind")
    try:
        segments = [
            Segment(float(one["start"]), float(one["end"]), str(one["text"]), None) for one in question.json("segments")
        ]
    except (TypeError, KeyError, ValueError) as error:
        raise UnbraidError("segments must be a list of objects with start, end and text", field="segments") from error
    return {"text": writer(Transcript("", None, None, 0.0, tuple(segments)))}


@cache
def _recorded() -> dict[str, list[dict[str, Any]]]:
    recorded: dict[str, list[dict[str, Any]]] = json.loads(
        files(__package__).joinpath("recorded.json").read_text(encoding="utf-8")
    )
    return recorded


def _strands(format: Format) -> list[str]:
    parts = {"reasoning": format.reasoning, "calls": format.tools, "speech": format.speech, "tags": format.transcript}
    return [name for name, part in parts.items() if part is not None]


def _rendered(format: Format) -> Iterator[tuple[str, str]]:
    """Messages as the grammar writes them, with a title. Those that it cannot write are left out."""
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
