"""Checks a new format the way the laws check the built-in ones, in a fraction of a second.

A format is one value, and three things are derived from it: the parser, the renderer and the constraint. They must
agree. So a few messages are rendered and must parse back however they are cut, and a few texts are derived from the
constraint and must parse without a diagnostic. Formats with headers have patterns beside their markers; these checks
show that the two describe the same thing.

The tests do the same with thousands of random texts. Here it is a handful, always the same ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from .constraints import constraint
from .constraints.derive import Derivation
from .core import diagnostics
from .core.compiler.compiler import compile_format
from .core.grammar import Format
from .core.message import Message, Part, Speech, Tag, Text, ToolCall
from .core.render import render
from .core.tools import Tools
from .errors import InvalidFormat
from .parsing import Parser

TOOL_DEFINITIONS: list[dict[str, Any]] = [
    {
        "name": "get_weather",
        "strict": True,
        "parameters": {
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
    {"name": "stop", "parameters": {"properties": {}}},
]
TOOLS = Tools(TOOL_DEFINITIONS)
_WEATHER = ToolCall("get_weather", '{"city": "Paris", "days": 3}', id="call_0")
_STOP = ToolCall("stop", "{}", id="call_1")
NOT_ENFORCED = (diagnostics.DUPLICATE_ID, diagnostics.DUPLICATE_KEY)
"""No grammar can say that two ids must differ, or two keys."""
_TEXTS = 12
"""How many texts are derived for each request."""


def check(format: Format) -> None:
    """Raise `InvalidFormat`, with the text that shows why, if parser, renderer and constraint do not agree."""
    for variant in (format, *(variant for _, variant in format.versions)):
        compile_format(variant, None)
        _check_rendered(variant)
        _check_derived(variant)


def _check_rendered(format: Format) -> None:
    for parts in messages_of(format):
        text = render(format, Message(parts))
        for pieces in _cuts(text):
            # What a prompt wrote may belong to the content.
            message = _parsed(format, pieces, "" if format.reasoning_in_content else None)
            if message.parts != parts:
                raise InvalidFormat(
                    f"format {format.name!r}: what it renders does not parse back. {text!r}, cut {_shown(pieces)}, "
                    f"should be {_described(parts)}; it is read as {_described(message.parts)}"
                )
            _check_quiet(format, text, message)


def derivation_of(format: Format, tool_choice: str, chance: random.Random) -> Derivation:
    """Random texts that the constraint of a format allows, with `TOOLS`."""
    language = constraint(
        format,
        tools=TOOLS,
        tool_choice=tool_choice,
        parallel_tool_calls=None,
        reasoning=None,
        response_format=None,
        vocabulary=None,
        prompt=None,
    ).language
    return Derivation(language, chance)


def _check_derived(format: Format) -> None:
    choices = ["none"] if format.tools is None else ["none", "auto", "required"]
    for choice in choices:
        derivation = derivation_of(format, choice, random.Random(0))
        for _ in range(_TEXTS):
            text = derivation.text()
            if text is None:
                continue
            message = _parsed(format, [text])
            _check_quiet(format, text, message)
            if choice == "required" and not any(call.complete for call in message.tool_calls):
                raise InvalidFormat(
                    f"format {format.name!r}: its constraint allows {text!r} where a call is required, and the parser "
                    f"reads no call in it: {_described(message.parts)}"
                )
            if choice == "none" and message.tool_calls:
                raise InvalidFormat(
                    f"format {format.name!r}: its constraint allows {text!r} where no call may come, and the parser "
                    "reads one in it"
                )


def messages_of(format: Format) -> Iterator[tuple[Part, ...]]:
    """Messages that a format must be able to say."""
    answer = Text("content", "It rains.\n\nTake an umbrella.")
    apart = format.reasoning is not None and not format.reasoning_in_content
    before: tuple[Part, ...] = (Text("reasoning", "Where is it?\nIn Paris."),) if apart else ()
    if format.transcript is not None:
        language, time = format.transcript.languages[0], format.transcript.step
        begin, end = (Tag(0.0),), (Tag(round(100 * time, 2)),)
        timed = bool(format.transcript.times)
        yield (Tag(language), *begin * timed, Text("content", " It rains."), *end * timed)
        return
    if format.speech is not None:
        codes = (1, 2, 0) if format.speech.code else ()
        if format.speech.implied:
            yield (*before, Speech("It rains.", codes))
            if format.tools is not None:
                yield (*before, Speech("It rains.", codes), _WEATHER, Speech("Or not.", codes))
            return
        yield (*before, Speech("It rains.", codes), answer)
    if not format.prompt or not before:
        yield (answer,)
    yield (*before, answer)
    if format.tools is not None:
        yield (*before, _WEATHER)
        yield (*before, _WEATHER, _STOP)


def _cuts(text: str) -> Iterator[Sequence[str]]:
    """The text whole, in single characters, and in two pieces."""
    yield [text]
    yield list(text)
    for share in (3, 2, 1.5):
        at = int(len(text) / share)
        yield [text[:at], text[at:]]


def _parsed(format: Format, pieces: Sequence[str], prompt: str | None = None) -> Message:
    parser = Parser(format, tools=TOOLS, prompt=prompt)
    for piece in pieces:
        parser.feed(piece)
    parser.finish(end_of_turn=True)
    return parser.message


def _check_quiet(format: Format, text: str, message: Message) -> None:
    faults = [one for one in message.diagnostics if one.kind not in NOT_ENFORCED]
    if faults:
        problems = "; ".join(f"{one.message} (at {one.start})" for one in faults[:3])
        raise InvalidFormat(f"format {format.name!r}: the parser finds fault with its own {text!r}: {problems}")


def _shown(pieces: Sequence[str]) -> str:
    if len(pieces) == 1:
        return "nowhere"
    return f"after character {len(pieces[0])}" if len(pieces) == 2 else "after every character"


def _described(parts: Sequence[Part]) -> str:
    return ", ".join(map(repr, parts)) or "nothing"
