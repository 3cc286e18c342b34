"""The laws that hold for any output, checked on one: docs/laws.md says them in full.

`check_stream` is for a recorded output (`unbraid check`). The tests try the single laws on thousands of texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from .core.events import Content, Event, Markup, Reasoning, SpeechText, is_line_break
from .core.grammar import Format
from .core.message import Message
from .parsing import Parser

Pieces = Sequence[str] | Sequence[Sequence[int]]
"""An output in the pieces in which it came, as text or as ids."""
Options = dict[str, Any]
"""Those of the parser."""
_MOST_CUTS = 200
"""How many places of a long output are tried as its end."""


class LawBroken(AssertionError):
    """An output for which a law does not hold: a fault of unbraid's. Report it with the output."""


def run(
    format: Format, pieces: Iterable[str] | Iterable[Sequence[int]], *, end_of_turn: bool = False, **options: Any
) -> tuple[Message, list[Event]]:
    """What a parser makes of the pieces."""
    parser = Parser(format, **{"seed": 7, "markup": True, **options})
    events: list[Event] = []
    for piece in pieces:
        events += parser.feed(piece) if isinstance(piece, str) else parser.feed_tokens(piece)
    events += parser.finish(end_of_turn=end_of_turn)
    return parser.message, events


def said(message: Message) -> tuple[object, ...]:
    """All that a message says, ids and diagnostics included."""
    return message.parts, [(call.id, call.raw) for call in message.tool_calls], message.diagnostics


def chunks_do_not_matter(format: Format, whole: Pieces, ways: Iterable[Pieces], options: Options) -> None:
    """Law 1 (docs/laws.md#law-1): however an output is cut, the message is the same."""
    expected, _ = run(format, whole, **options)
    for pieces in ways:
        message, _ = run(format, pieces, **options)
        _require(said(message) == said(expected), f"cut into {len(pieces)} pieces, it says something else")


def nothing_is_lost(format: Format, pieces: Sequence[str], options: Options) -> None:
    """Law 3 (docs/laws.md#law-3): every character is in exactly one event."""
    _, events = run(format, pieces, **options)
    text = "".join(pieces)
    _require(in_a_row(events) == len(text), "the end of the text is in no event")
    for event in events:
        if isinstance(event, Content | Reasoning | SpeechText | Markup):
            # Where the reasoning belongs to the content, the marker in the prompt that opens it does, too.
            put_back = format.reasoning_in_content and event is events[0] and event.end == 0
            put_back = put_back or (isinstance(event, Content | Reasoning) and is_line_break(event))
            there = text[event.start : event.end]
            _require(there == event.text or put_back, f"{event!r} is not what stands there: {there!r}")


def in_a_row(events: Iterable[Event]) -> int:
    """The spans of the events tile the input. Returns where they end."""
    at = 0
    for start, end in sorted((event.start, event.end) for event in events if event.end > event.start):
        _require(start == at, f"a gap or an overlap at {at}")
        at = end
    return at


def cut_off_is_not_complete(format: Format, text: str, sizes: Iterable[int], options: Options) -> None:
    """Law 12 (docs/laws.md#law-12): no prefix has a complete call that the whole text has not, in the same form."""
    whole = complete_calls(run(format, [text], **options)[0])
    for size in sizes:
        part = complete_calls(run(format, [text[:size]], **options)[0])
        _require(part == whole[: len(part)], f"the first {size} characters have a complete call that is another later")


def complete_calls(message: Message) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in message.tool_calls if call.complete]


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise LawBroken(otherwise)


def check_stream(format: Format, pieces: Pieces, **options: Any) -> tuple[Message, list[str]]:
    """The message of an output that came in `pieces`, and what is wrong: a line for each law that does not hold."""
    message, _ = run(format, pieces, **options)
    broken_laws: list[str] = []
    for name, check in _checks(format, pieces, options):
        try:
            check()
        except LawBroken as broken:
            broken_laws.append(f"{name}: {broken}")
    return message, broken_laws


def _checks(format: Format, pieces: Pieces, options: Options) -> Iterator[tuple[str, Callable[[], None]]]:
    def cuts() -> None:
        if all(isinstance(piece, str) for piece in pieces):
            text = "".join(pieces)  # type: ignore[arg-type]
            chunks_do_not_matter(format, [text], [pieces, list(text)], options)
        else:
            ids = [token for piece in pieces for token in piece if isinstance(token, int)]
            chunks_do_not_matter(format, [ids], [pieces, [[token] for token in ids]], options)

    yield "chunks do not matter", cuts
    texts = [piece for piece in pieces if isinstance(piece, str)]
    if len(texts) == len(pieces):
        text = "".join(texts)
        step = max(1, len(text) // _MOST_CUTS)
        yield "nothing is lost", lambda: nothing_is_lost(format, texts, options)
        sizes = range(0, len(text), step)
        yield "what is cut off is not complete", lambda: cut_off_is_not_complete(format, text, sizes, options)
