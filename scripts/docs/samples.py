"""What a model of a format writes, for one and the same answer; and that text coloured by where each character goes.

The text is what the format's own grammar renders, so nothing here knows a format.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

import unbraid
from unbraid import (
    Content,
    Event,
    Format,
    Language,
    Markup,
    Message,
    Parser,
    Part,
    Reasoning,
    Speech,
    SpeechAudio,
    SpeechText,
    Tag,
    Text,
    Timestamp,
    ToolCall,
    ToolCallArguments,
    ToolCallStart,
)

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city", "days"],
                "additionalProperties": False,
            },
        },
    }
]
"""The tools of the request that the sample answers."""

_REASONING = Text("reasoning", "They ask for Paris.")
_CONTENT = Text("content", "Let me look.")
_CALLS = (
    ToolCall("get_weather", '{"city": "Paris", "days": 3}', id="call_0"),
    ToolCall("get_weather", '{"city": "Rome", "days": 1}', id="call_1"),
)

STRANDS: dict[type[object], tuple[str, str]] = {
    Content: ("content", "content"),
    Reasoning: ("reasoning", "reasoning"),
    ToolCallStart: ("name", "name of a call"),
    ToolCallArguments: ("arguments", "arguments"),
    SpeechText: ("speech", "spoken text"),
    SpeechAudio: ("audio", "audio codes"),
    Language: ("tag", "language"),
    Timestamp: ("tag", "time"),
    Markup: ("markup", "markup"),
}
"""The class and the words for what an event's characters are."""


@dataclass(frozen=True)
class Sample:
    """A text of a format, and what becomes of it."""

    text: str
    events: tuple[Event, ...]
    message: Message


def sample(format: Format) -> Sample:
    """What a model writes that reasons, says a word and calls a tool twice, as far as the format has these."""
    for parts in _candidates(format):
        text = unbraid.render(format, Message(parts))
        made = taken_apart(format, text)
        if made.message.parts == parts and not made.message.diagnostics:
            return made
    raise AssertionError(f"no sample of {format.name} reads back: its renderer and its parser disagree")


def taken_apart(format: Format, text: str) -> Sample:
    """A text with all its events, markup too."""
    # Where the reasoning stays in the content, the prompt's part of it would be content as well.
    prompt = "" if format.reasoning_in_content else None
    parser = Parser(format, tools=TOOLS, seed=0, markup=True, prompt=prompt)
    events = [*parser.feed(text), *parser.finish(end_of_turn=True)]
    return Sample(text, tuple(events), parser.message)


def _candidates(format: Format) -> Iterator[tuple[Part, ...]]:
    """Messages that say as much as the format can; those that say less come later."""
    if format.transcript is not None:
        yield (Tag(format.transcript.languages[0]), Tag(0.0), Text("content", " Let me look."), Tag(2.0))
        return
    thought: tuple[Part, ...] = ()
    if format.reasoning is not None and not format.reasoning_in_content:
        thought = (_REASONING,)
    words: Part = _CONTENT
    if format.speech is not None:
        words = Speech("Let me look.", (12, 345, 6) if format.speech.code else ())
    calls = _CALLS if format.tools is not None else ()
    yield (*thought, words, *calls)
    yield (*thought, words, *calls[:1])
    yield (*thought, *calls)
    yield (*thought, *calls[:1])


def coloured(made: Sample) -> str:
    """The text as HTML: a `span` for each stretch, with a class for its strand."""
    spans = sorted(
        ((event.start, event.end, type(event)) for event in made.events if event.end > event.start),
        key=lambda span: span[:2],
    )
    written, at = [], 0
    for start, end, kind in spans:
        if kind not in STRANDS or start < at:
            continue
        written.append(escape(made.text[at:start], quote=False))
        name, words = STRANDS[kind]
        written.append(
            f'<span class="strand-{name}" title="{words}">{escape(made.text[start:end], quote=False)}</span>'
        )
        at = end
    written.append(escape(made.text[at:], quote=False))
    return f'<pre class="strands"><code>{"".join(written)}</code></pre>'


def legend(made: Sample) -> str:
    """The strands that occur, each in its colour."""
    found = {STRANDS[type(event)]: None for event in made.events if type(event) in STRANDS and event.end > event.start}
    spans = (f'<span class="strand-{name}">{words}</span>' for name, words in found)
    return f'<p class="strands-legend">{" ".join(spans)}</p>'
