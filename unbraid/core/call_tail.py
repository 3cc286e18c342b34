"""What comes after the arguments of a call: its closings, and the beginning of a further call.

A value between tags may hold any text but its own closing (law 14, docs/laws.md#law-14). Models forget that closing: so
a closing of something further out ends a value as well, but only where all that a template writes after it comes, up to
the name of a further call or the end of the turn. The parser looks for that, the constraint forbids it in values, and
the renderer refuses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from . import grammar


def next_argument(parameters: Mapping[str, Any], key: str | None) -> str | None:
    """The argument that a tool's schema lists next after one."""
    keys = list(parameters.get("properties", ()))
    return keys[keys.index(key) + 1] if key in keys[:-1] else None


@dataclass(frozen=True, slots=True)
class Closing:
    """What closes something further out than a value: `</function>`."""

    text: str
    """The closing without the whitespace around it."""
    needed: bool
    """Whether a call that lacks it is not closed."""
    further: str = ""
    """What comes before the name of a further call, where one may follow this closing: from the closing on, as the
    template writes it."""
    after_name: tuple[str, ...] = ()
    """What may come after that name."""

    def calls(self, names: Iterable[str]) -> list[str]:
        """What shows that a further call to one of these tools comes."""
        return [self.further + name + after for name in names for after in self.after_name] if self.further else []


def call_tail(
    calls: grammar.Calls, call: grammar.Call, of: grammar.CallList | None, ends: tuple[str, ...] = ()
) -> tuple[Closing, ...]:
    """The closings of a call after its arguments, innermost first. `of` is the list that it stands in. `ends` are
    closings that end the turn as well."""
    at = next((at for at, part in enumerate(call.parts) if isinstance(part, grammar.Notation)), len(call.parts))
    own = [part for part in call.parts[at + 1 :] if isinstance(part, str | grammar.Maybe)]
    pieces = [(part, True) if isinstance(part, str) else (part.marker, part.due) for part in own]
    last = len(pieces) - 1
    if of is not None and of.close.strip():
        pieces.append((of.close, True))
    if calls.close:
        pieces.append((calls.close, calls.close_written))
    # In a list the next call comes right after a call. Otherwise what opens calls comes once more.
    between = of.separator if of is not None else calls.open
    ends_call = {last} if of is not None else {*range(len(pieces))} - {*range(_last_needed(pieces))}
    closings = []
    for number, (text, needed) in enumerate(pieces):
        further = ""
        if number in ends_call and (of is not None or calls.open):
            further = _joined(text, between, *_up_to_name(call))
        after_name = _after_name(call, pieces[0][0].strip())
        closings.append(Closing(text.strip(), needed and text.strip() not in ends, further, after_name))
    return tuple(closings)


def _last_needed(pieces: list[tuple[str, bool]]) -> int:
    """Which closing is the last that must come; 0 where none must."""
    return max((number for number, (_, needed) in enumerate(pieces) if needed), default=0)


def _after_name(call: grammar.Call, close: str) -> tuple[str, ...]:
    """What may come after the name of a call: the next literal, or an argument or `close`."""
    names = [at for at, part in enumerate(call.parts) if isinstance(part, grammar.Name | grammar.NameInId)]
    for part in call.parts[names[0] + 1 :] if names else ():
        if isinstance(part, grammar.Notation):
            return (part.first_word, close)
        if isinstance(part, str):
            return (part.strip() or part,)
        if isinstance(part, grammar.Maybe) and part.due:
            return (part.marker.strip(),)
    return ("",)


def _up_to_name(call: grammar.Call) -> Iterable[str]:
    """The literals of a call before its name."""
    for part in call.parts:
        if isinstance(part, grammar.Maybe) and part.due:
            yield part.marker
        elif isinstance(part, str):
            yield part
        elif not isinstance(part, grammar.Maybe):
            return


def _joined(*pieces: str) -> str:
    """The pieces as the renderer writes them: after whitespace, without the whitespace that a piece begins with."""
    text = ""
    for piece in pieces:
        text += piece.lstrip() if text[-1:].isspace() else piece
    return text.strip()
