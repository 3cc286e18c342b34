"""Cases for other implementations of a format: what a model wrote, how it was cut, and what comes of it.

    {"version": 2, "format": "qwen3", "number": 0, "tools": […], "text": "<think>\\nWhere…", "cuts": [3, 17],
     "events": [{"type": "Markup", …}, …], "message": {"role": "assistant", …}, "diagnostics": []}

The texts are those that `format_checks` renders and derives, and the same with something broken: cut off, with a
character missing, a marker missing or twice. Each comes whole, and cut somewhere. They are always the same, for the
same version of unbraid. An implementation that says the same for all of them agrees with this one. Markup is among the
events: so their spans tile the text, law 3 (docs/laws.md#law-3), and the message can be folded from them without a
parser.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any
from zlib import crc32

from .core.grammar import Format
from .core.message import Message
from .core.render import render
from .format_checks import TOOL_DEFINITIONS, TOOLS, derivation_of, messages_of
from .parsing import Parser
from .version import __version__

VERSION = 2
_DERIVED = 3
_DAMAGED = 2


def cases(format: Format) -> Iterator[dict[str, Any]]:
    """The cases of a format. All that is in them is JSON."""
    tools = TOOL_DEFINITIONS if format.tools is not None else []
    number = 0
    for text in dict.fromkeys(_texts(format)):
        for cuts in _cuts(text):
            yield {
                "version": VERSION,
                "unbraid": __version__,
                "format": format.name,
                "number": number,
                "tools": tools,
                "text": text,
                "cuts": cuts,
                **_parsed(format, text, cuts),
            }
            number += 1


def _texts(format: Format) -> Iterator[str]:
    chance = random.Random(crc32(format.name.encode()))
    whole = [render(format, Message(parts)) for parts in messages_of(format)]
    derivation = derivation_of(format, "none" if format.tools is None else "auto", chance)
    whole += [text for _ in range(_DERIVED) if (text := derivation.text()) is not None]
    for text in whole:
        yield text
        yield from _damaged(text, _markers(format), chance)


def _markers(format: Format) -> list[str]:
    strands = (format.reasoning, format.tools, format.speech)
    texts = [text for strand in strands if strand is not None for text in (strand.open, strand.close)]
    return [text.strip() for text in texts if text.strip()]


def _damaged(text: str, markers: Sequence[str], chance: random.Random) -> Iterator[str]:
    """The text with something broken."""
    for _ in range(_DAMAGED if text else 0):
        at = chance.randrange(len(text))
        yield text[:at]
        yield text[:at] + text[at + 1 :]
    for marker in markers:
        if marker in text:
            yield text.replace(marker, "", 1)
            yield text.replace(marker, marker * 2, 1)


def _cuts(text: str) -> Iterator[list[int]]:
    """Where the text is cut."""
    yield []
    if len(text) > 1:
        chance = random.Random(crc32(text.encode("utf-8", "replace")))
        yield sorted(chance.sample(range(1, len(text)), min(3, len(text) - 1)))


def _parsed(format: Format, text: str, cuts: Sequence[int]) -> dict[str, Any]:
    parser = Parser(format, tools=TOOLS if format.tools is not None else None, markup=True, seed=0)
    events: list[dict[str, Any]] = []
    for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        events += [{"type": type(event).__name__, **asdict(event)} for event in parser.feed(text[begin:end])]
    events += [{"type": type(event).__name__, **asdict(event)} for event in parser.finish()]
    message = parser.message
    return {
        "events": events,
        "message": message.to_openai(),
        "complete": [call.complete for call in message.tool_calls],
        "diagnostics": [each.kind for each in message.diagnostics],
    }
