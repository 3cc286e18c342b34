"""Compiles the grammar of calls to steps.

Jumps are absolute, so the state of a call in progress is one number. Notations compile themselves
(`CallNotation.step`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from .. import grammar
from ..machine import steps
from ..machine.calls import Step
from ..machine.markers import Pieces, check_ends_word, marked_parts, space_end, word_end, words_of
from ..machine.whole_calls import SPACE, WholeCall
from ..notations.base import CallNotation, Closing, NotationPlace
from ..notations.value_ends import call_tail

_BRACKETS = ("]", "}", ")")
_NEVER = "\x00"
"""What no text has."""
_WORDS = grammar.Name | grammar.CallId | grammar.NameInId


class CallSteps:
    """The steps of one grammar of calls."""

    def __init__(
        self,
        key: Callable[[str], str],
        node: grammar.Calls,
        ends: tuple[str, ...],
        headed: grammar.Calls | None,
    ) -> None:
        """key: what to look for to find a text. ends: what ends the turn. headed: the same calls with what a header has
        said of them, where there are headers."""
        self._key, self._ends, self._headed = key, ends, headed
        self._whole = node if headed is None else replace(node, open=headed.open)
        self._close = self._key(node.close.strip()) if node.close else ""
        """What closes the calls, as it is looked for."""
        self.steps: list[Step] = []
        self.listed = False
        """Whether several calls may stand between the markers."""
        self.again: int | None = None
        """The step that a further call in a list begins with."""
        self.first = ""
        """The opening literal of that call."""
        self.lasts: list[str] = []
        """What a call ends with, after arguments that are JSON."""
        self._marked = not node.bare
        self._empty_lists: list[steps.EmptyList] = []
        if self._marked and node.close:
            self.steps.append(steps.Empty())
        self._early_ends: list[steps.Jump | steps.NoMoreOfCall] = []
        """The steps that end a call before its other parts. They jump to its end, which is set with its last part."""
        self._before = node.open.strip()
        """The literal right before the next part, or ""."""
        self._after_name = False
        """Whether only what may be missing stands between the name and the next part."""
        self._body(node.body)
        for step in self._empty_lists:
            step.at = len(self.steps)
        if self._empty_lists:
            self.steps.append(steps.Empty(after_list=True))
        self.steps.append(steps.Close())
        first = self.steps[0]
        self.whole = first if isinstance(first, WholeCall) and first.next == len(self.steps) - 1 else None
        """What reads all that stands between the markers at once, where that is one call."""

    def _body(self, body: grammar.CallsBody) -> None:
        if not isinstance(body, grammar.Either):
            self._calls(body)
            return
        branch = len(self.steps)
        self.steps.append(steps.Jump(0))
        self._body(body.second)
        leave = len(self.steps)
        self.steps.append(steps.Jump(0))
        self.steps[branch] = steps.Branch(tuple(map(self._key, body.opening.split())), len(self.steps))
        self._calls(body.first)
        self.steps[leave] = steps.Jump(len(self.steps))
        if self.again in (branch + 1, leave + 1):
            self.again = branch  # a further call tells again which of the two it is

    def _calls(self, node: grammar.Call | grammar.CallList) -> None:
        if isinstance(node, grammar.Call):
            self._call(node, None)
            return
        if node.open.strip():
            self.steps.append(self._literal(node.open))
        first, separator, close = node.call.parts[0], node.separator.strip(), node.close.strip()
        # A bracket, and what may come after it on a line of its own: ``]```.
        parts = (close[:1], close[1:].strip()) if close[:1] in _BRACKETS else (close,)
        closes = tuple(self._key(part) if any(map(str.isalnum, part)) else part for part in parts if part)
        if self._marked and close:
            self._empty_lists.append(steps.EmptyList(closes))
            self.steps.append(self._empty_lists[-1])
        again = len(self.steps)
        self.steps.append(steps.BeginInList())
        self.listed = True
        self._call(node.call, node)
        whole = first.begins if isinstance(first, CallNotation) else ""
        begins: tuple[str, ...] = (whole,) if whole else ()
        if isinstance(first, str):
            mark_and_tag = words_of(first)[: len(marked_parts(first.split()[0]))]
            begins, whole = tuple(map(self._key, mark_and_tag)), self._key(first.strip())
        last = node.call.parts[-1]
        ends = tuple(map(self._key, words_of(last))) if isinstance(last, str) and any(map(str.isalnum, last)) else ()
        self.steps.append(steps.NextInList(separator, closes, begins, whole, ends, again))
        if not separator and isinstance(first, str):
            self.again, self.first = again, whole

    def _call(self, node: grammar.Call, of: grammar.CallList | None) -> None:
        """of: the list that the call stands in."""
        headed = self._headed.body if self._headed is not None else None
        named = headed if isinstance(headed, grammar.Call) else node
        self._tail = tuple(
            Closing(
                self._key(closing.text),
                closing.needed,
                self._key(closing.further),
                tuple(map(self._key, closing.after_name)),
            )
            for closing in call_tail(self._whole, named, of, self._ends)
        )
        whole = self._whole_call(node) if self._marked else None
        if whole is not None:
            # What comes whole is not empty.
            first = len(self.steps) == 1 and isinstance(self.steps[0], steps.Empty)
            self.steps.insert(0 if first else len(self.steps), whole)
        at_notation = 0
        for part, following in zip(node.parts, (*node.parts[1:], ""), strict=True):
            literal = following.marker if isinstance(following, grammar.Maybe) else following
            if isinstance(part, _WORDS) and isinstance(literal, str) and not literal[:1].isspace():
                check_ends_word(literal)
            if isinstance(part, CallNotation):
                at_notation = len(self.steps)
            self._part(part, literal.strip() if isinstance(literal, str) else "")
        last = node.parts[-1]
        if isinstance(last, str) and any(isinstance(part, CallNotation) and part.is_json for part in node.parts):
            self.lasts.append(self._key(last.strip()))
        for step in self._early_ends:
            step.at = len(self.steps)
        self._early_ends.clear()
        self.steps.append(steps.EndCall())
        if whole is not None:
            whole.next = len(self.steps)
            notation = self.steps[at_notation]
            if isinstance(notation, steps.BeginNotation) and not notation.after_name and self._is_sure(node):
                at = next(at for at, part in enumerate(node.parts) if isinstance(part, CallNotation))
                whole.arguments, whole.settled = at_notation, isinstance(node.parts[at - 1], str)
            elif isinstance(notation, steps.ReadObject) and type(notation).run is steps.ReadObject.run:
                whole.starts_with(at_notation, notation.opens)

    def _whole_call(self, node: grammar.Call) -> WholeCall | None:
        """The step that reads such a call at once; None where its notation does not know how, or it has no name."""
        at = next((at for at, part in enumerate(node.parts) if isinstance(part, CallNotation)), None)
        if at is None:
            return None
        before, notation, after = node.parts[:at], node.parts[at], node.parts[at + 1 :]
        assert isinstance(notation, CallNotation)
        following = next((part for part in after if isinstance(part, str)), "").strip()
        place = NotationPlace(self._key, self._key(following) if following else "", self._close, self._tail)
        arguments = notation.whole(place)
        begin = "".join(map(self._pattern, before))
        if arguments is None or "(?P<name>" not in begin + arguments.before:
            return None
        return WholeCall(begin, self._pieces(before), arguments, "".join(map(self._pattern, after)))

    @staticmethod
    def _is_sure(node: grammar.Call) -> bool:
        """Whether what comes before the arguments can be told without them."""
        sure = named = False
        for part in node.parts:
            if isinstance(part, CallNotation):
                break
            if isinstance(part, grammar.Maybe) and not part.due:
                return False
            sure = not isinstance(part, grammar.Instead) and (sure or not named)
            sure = sure or (isinstance(part, str) and bool(part.strip()))
            named = named or isinstance(part, grammar.Name | grammar.NameInId)
        return sure and named

    def _pieces(self, parts: tuple[grammar.CallPart, ...]) -> Pieces:
        """These parts as templates write them, as far as nothing else may come."""
        pieces: list[str | Callable[[str, int], int]] = []
        for part in parts:
            if isinstance(part, grammar.Maybe) and part.due and not part.then:
                part = part.marker
            if isinstance(part, grammar.Maybe | grammar.Instead):
                return (*pieces, _NEVER)
            if not isinstance(part, str):
                pieces += (space_end, word_end)
            elif part.strip():
                pieces += (space_end, self._key(part.strip()))
        return tuple(pieces)

    def _pattern(self, part: grammar.CallPart) -> str:
        """A pattern for a part of a call as templates write it."""
        match part:
            case str():
                return SPACE + re.escape(self._key(part.strip())) if part.strip() else ""
            case grammar.Name():
                others = "." if part.namespaced else "".join(escape[:1] for _, escape in part.escapes)
                return rf"{SPACE}(?P<name>{_word(others)})"
            case grammar.CallId():
                return rf"{SPACE}(?P<id>{_word()})"
            case grammar.NameInId():
                name = _word(part.after)
                return rf"{SPACE}(?P<id>{re.escape(part.before)}(?P<name>{name}){re.escape(part.after)}[0-9]++)"
            case grammar.Ordinal():
                return SPACE + _word()
            case grammar.Maybe():
                whole = "".join(map(self._pattern, (part.marker, *part.then)))
                return whole if part.due else f"(?:{whole})?+"
            case _:
                return ""  # `Instead`: templates do not write it

    def _part(self, part: grammar.CallPart, following: str = "") -> None:
        if isinstance(part, str):
            self._text(part.strip())
        elif isinstance(part, CallNotation):
            place = NotationPlace(self._key, self._key(following) if following else "", self._close, self._tail)
            step = part.step(place)
            if isinstance(step, steps.BeginNotation):
                step.after_name = step.named and self._after_name and bool(part.first_word)
            self.steps.append(step)
        elif isinstance(part, grammar.Maybe):
            at = len(self.steps)
            self.steps.append(steps.Jump(0))
            marker = part.marker
            if marker.endswith('="'):
                marker = marker[:-1]
                self.steps.append(steps.OpenQuote())
            for inner in part.then:
                self._part(inner)
            self.steps[at] = self._literal(marker, len(self.steps), part.due)
        elif isinstance(part, grammar.Instead):
            at = len(self.steps)
            self.steps.append(steps.Jump(0))
            for inner in part.then:
                self._part(inner)
            self._early_ends.append(steps.Jump(0) if part.then else steps.NoMoreOfCall(0))
            self.steps.append(self._early_ends[-1])
            self.steps[at] = self._literal(part.marker, len(self.steps))
        else:
            self.steps.append(_read_word(part))
        self._before = part.strip() if isinstance(part, str) else ""
        if isinstance(part, _WORDS) or (isinstance(part, str) and part.strip()):
            self._after_name = isinstance(part, _WORDS)

    def _text(self, text: str) -> None:
        """Text of a call. The quotes around the value of an attribute are steps of their own."""
        before, value = ([None, None, *self.steps])[-2:]
        if text.startswith('"') and isinstance(before, steps.OpenQuote) and isinstance(value, steps.ReadWord):
            before.value = value
            self.steps.append(steps.CloseQuote())
            text = text[1:]
        opens = text.endswith('"') and (self._before + text).endswith('="')
        if literal := text[:-1] if opens else text:
            step = self._literal(literal)
            step.whole = self._key(text)
            self.steps.append(step)
        if opens:
            self.steps.append(steps.OpenQuote())

    def _literal(self, text: str, otherwise: int | None = None, due: bool = False) -> steps.Literal:
        return steps.Literal(self._key(text.strip()), tuple(map(self._key, words_of(text))), otherwise, due)


def _word(others: str = "") -> str:
    """A pattern for a name that holds none of these other characters, either."""
    return rf"[^\s\\\"'`{{}}\[\]()<>,\x00-\x1f\ud800-\udfff{re.escape(others)}]++"


def _read_word(part: grammar.CallPart) -> Step:
    """The step that reads a name, an id or a number."""
    match part:
        case grammar.Name(namespaced=True):
            return steps.ReadNamespaced("name")
        case grammar.Name():
            return steps.ReadEscaped("name", part.escapes) if part.escapes else steps.ReadWord("name")
        case grammar.CallId():
            return steps.ReadWord("id")
        case grammar.NameInId():
            return steps.ReadNameInId("name", part)
        case grammar.Ordinal():
            return steps.ReadOrdinal("number")
    raise AssertionError(part)
