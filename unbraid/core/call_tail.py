"""What comes after the arguments of a call: its closings, and the beginning of a further call.

A value between tags may hold any text but its own closing (law 14, docs/laws.md#law-14). Models forget that closing: so
a closing of something further out ends a value as well, but only where all that a template writes after it comes, up to
the name of a further call or the end of the turn. The parser looks for that, the constraint forbids it in values, and
the renderer refuses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from . import grammar


@dataclass(frozen=True, slots=True)
class Closing:
    """What closes something further out than a value: `</function>`."""

    text: str
    """The closing without the whitespace around it."""
    needed: bool
    """Whether a call that lacks it is not closed."""
    further: tuple[str, ...] = ()
    """What comes before the name of a further call, from this closing on: as the template writes it, and without
    whitespace."""
    after_name: tuple[str, ...] = ()
    """What may come after that name."""

    def calls(self, names: Iterable[str]) -> Iterator[str]:
        """What shows that a further call to one of these tools comes."""
        for name in names:
            for before in self.further:
                for after in self.after_name:
                    yield before + name + after


def call_tail(
    calls: grammar.Calls, call: grammar.Call, of: grammar.CallList | None, ends: tuple[str, ...] = ()
) -> tuple[Closing, ...]:
    """The closings of a call after its arguments, innermost first. `of` is the list that it stands in. `ends` are
    closings that end the turn as well."""
    at = next((at for at, part in enumerate(call.parts) if isinstance(part, grammar.Notation)), len(call.parts))
    own = [part for part in call.parts[at + 1 :] if isinstance(part, str | grammar.Maybe)]
    pieces = [
        *((part, True) if isinstance(part, str) else (part.marker, part.due) for part in own),
        *(((of.close, True),) if of is not None and of.close.strip() else ()),
        *(((calls.close, calls.close_written),) if calls.close else ()),
    ]
    begins = [calls.open, of.open if of is not None else "", *_up_to_name(call)] if calls.open else []
    closings = []
    for start, (text, _) in enumerate(pieces):
        ways = []
        if begins:
            ways.append([text, *(piece for piece, needed in pieces[start + 1 :] if needed), *begins])
        if of is not None and start < len(own):
            rest = [piece for piece, needed in pieces[start + 1 : len(own)] if needed]
            ways.append([text, *rest, of.separator, *_up_to_name(call)])
        further = dict.fromkeys(spelled for way in ways for spelled in (_as_templates_do(way), _tight(way)))
        needed = pieces[start][1] and text.strip() not in ends
        closings.append(Closing(text.strip(), needed, tuple(further), _after_name(call, pieces[0][0].strip())))
    return tuple(closings)


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


def _as_templates_do(pieces: list[str]) -> str:
    """The pieces as the renderer writes them: after whitespace, without the whitespace that a piece begins with."""
    text = ""
    for piece in pieces:
        text += piece.lstrip() if text[-1:].isspace() else piece
    return text.strip()


def _tight(pieces: list[str]) -> str:
    return "".join(piece.strip() for piece in pieces)
