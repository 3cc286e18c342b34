"""A format for a template that no registered one reads: made of what the template itself writes around the probes.

What comes out is only a proposal. It is a format if it reads the template, and that is for `matching` to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ....core.grammar import Between, Call, CallList, CallPart, Calls, Format, Ordinal
from ....core.notations import JsonCall
from ....formats import all_formats
from ..affixes import first_mark, first_tag, last_tag, shared_end, shared_start
from ..evidence import Evidence, Shown
from ..matching import known_ends, turn_borders
from ..probes import ANSWER, CALL, CALL_OF_ALL_KINDS, CALL_WITH_CONTENT, CALLS, REASONED, REASONED_CALL
from .locate_call import find_call

NAME = "derived"
_LONGEST_MARKER = 200
_tag_start = re.compile(r"<|\[(?=[A-Z/])").findall
_last_number = re.compile(r".*?(\d{1,9})(\D*)", re.DOTALL).fullmatch


@dataclass(frozen=True)
class Proposal:
    format: Format
    like: str = ""
    """The registered format whose calls it has."""


def proposals(evidence: Evidence) -> Iterator[Proposal]:
    """Formats that may read the template, the likeliest first."""
    known = known_ends()
    # What ends the user's turn mostly ends the assistant's; but it may also be part of what stands around the text, and
    # so may what ends the turns of others.
    for stops in ({*known, *turn_borders(evidence)}, known, set[str]()):
        yield from _proposals(evidence, _Around(evidence, stops))


def _proposals(evidence: Evidence, around: _Around) -> Iterator[Proposal]:
    reasoning = _reasoning(evidence, around) or _reasoning_of_prompts(evidence)
    prompt = _prompt(evidence, reasoning)
    if reasoning is not None:
        # Calls as they are known, with reasoning of its own.
        for format in all_formats():
            if format.tools is not None and format.headers is None and format.reasoning != reasoning:
                ends = tuple(dict.fromkeys((*around.ends, *format.ends)))
                changed = replace(format, name=NAME, reasoning=reasoning, ends=ends, prompt=prompt, versions=())
                yield Proposal(changed, format.name)
    base = Format(NAME, reasoning=reasoning, answer=around.answer, ends=around.ends, prompt=prompt)
    if not evidence.shows_calls:
        yield Proposal(base)
        return
    frame = _frame(evidence, around)
    if frame is None or not _is_short(frame.before, frame.between or "", frame.after):
        return
    ends = (*base.ends, frame.end) if frame.end not in ("", *base.ends) else base.ends
    for tools in _calls(evidence, frame):
        yield Proposal(replace(base, tools=tools, ends=ends))


def _is_short(*texts: str) -> bool:
    """Whether these may be markers. A prefix of each is looked for all the time, so what is endless costs too much."""
    return all(len(text) <= _LONGEST_MARKER for text in texts)


class _Around:
    """What stands around a turn that is only an answer."""

    def __init__(self, evidence: Evidence, stops: set[str]) -> None:
        self._evidence = evidence
        self._eos = str(evidence.template.special_tokens.get("eos_token") or "")
        self._stops = stops | ({self._eos} - {""})
        answer, call = evidence.of(ANSWER), evidence.of(CALL)
        self.before, self.after = "", ""
        if answer is not None and answer.turn.content:
            self.before, _, self.after = self.turn(answer).partition(answer.turn.content)
        opens = self.before.strip()
        wraps = bool(opens) and call is not None and not call.text.lstrip().startswith(opens)
        wraps = wraps and bool(self.after.strip()) and _is_short(self.before, self.after)
        self.answer = Between(self.before, self.after) if wraps else None
        rests = [each.text[len(self.turn(each)) :] for each in (answer, call) if each is not None]
        ends = [first_mark(rest) for rest in rests]
        ends += [self._eos] if any(self._eos in rest for rest in rests) else []
        self.ends = tuple(dict.fromkeys(end for end in ends if end))

    def turn(self, shown: Shown) -> str:
        """The text of a turn, up to the token that ends it."""
        tail, inside = shown.tail, shown.text[: shown.last]
        found = [at for stop in self._stops if (at := tail.find(stop)) >= 0 and stop not in inside]
        if found:
            return shown.text[: shown.last + min(found)]
        return shown.text.removesuffix(self._evidence.ending)


# Reasoning


def _reasoning(evidence: Evidence, around: _Around) -> Between | None:
    """What stands before the reasoning and after it."""
    for turn in (REASONED, REASONED_CALL):
        shown = evidence.of(turn)
        if shown is None or not shown.turn.reasoning:
            continue
        text = around.turn(shown)
        before, _, after = text.partition(shown.turn.reasoning)
        open = before.removeprefix(shared_start(before, around.before)) or before
        if not open.strip():
            open = "" if _answers_after(evidence, shown.prompt) else last_tag(shown.prompt + before).lstrip()
        if shown.turn.content:
            close, _, _ = after.partition(shown.turn.content)
            close = close.removesuffix(around.answer.open) if around.answer is not None else close
        else:
            call = evidence.of(CALL)
            lead = "" if call is None else around.turn(call).partition(call.turn.calls[0].name)[0]
            close = after[: after.find(lead.strip())] if lead.strip() and lead.strip() in after else ""
        if open.strip() and close.strip() and _is_short(open, close):
            return Between(open, close)
    return None


def _reasoning_of_prompts(evidence: Evidence) -> Between | None:
    """Where no turn shows any: a tag that a prompt ends with, and that no answer follows, if the template closes it."""
    for prompt in evidence.prompts:
        open = last_tag(prompt).lstrip()
        close = open.strip().replace("<", "</", 1).replace("[", "[/", 1)
        closed = close != open.strip() and close in evidence.template.source
        if open and closed and not _answers_after(evidence, prompt):
            return Between(open, close)
    return None


def _answers_after(evidence: Evidence, prompt: str) -> bool:
    """Whether an answer without reasoning follows such a prompt: then it does not open any."""
    answer = evidence.of(ANSWER)
    return answer is None or answer.prompt.rstrip() == prompt.rstrip()


def _prompt(evidence: Evidence, reasoning: Between | None) -> str:
    """What the prompt ends with, where it opens the reasoning."""
    opened = reasoning is not None and evidence.prompts[0].rstrip().endswith(reasoning.open.strip())
    return reasoning.open if reasoning is not None and opened else ""


# Calls


@dataclass(frozen=True)
class _Frame:
    """What stands around the calls of a turn."""

    before: str
    between: str | None
    """Between two calls, where the template writes two."""
    after: str
    parts: tuple[CallPart, ...]
    end: str = ""
    """What ends the turn."""


def _calls(evidence: Evidence, frame: _Frame) -> Iterator[Calls]:
    parts = frame.parts
    between = frame.between
    if between is None or _squeezed(between) == _squeezed(frame.after + frame.before):
        yield from _each_by_itself(evidence, frame, parts)
        return
    opening = shared_end(frame.before, between).lstrip()
    closing = shared_start(frame.after, between.removesuffix(opening)).rstrip()
    separator = between.removesuffix(opening)[len(closing) :]
    section = frame.before.removesuffix(opening), frame.after[len(closing) :]
    call = Call((*_text(opening), *parts, *_text(closing)))
    if not section[0].strip() and not section[1].strip():
        if opening.strip():
            yield Calls(opening, Call((*parts, *_text(closing))))
        yield from _bare(parts, separator)
        return
    start, end = section
    if start.rstrip().endswith("[") and end.lstrip().startswith("]"):
        yield from _listed(evidence, start, CallList(call, separator=separator), end)
        return
    yield Calls(_after_content(evidence, start), CallList(call, separator=separator), end if end.strip() else "")


def _listed(evidence: Evidence, before: str, calls: CallList, after: str) -> Iterator[Calls]:
    """Calls in a JSON array."""
    at, end = before.rindex("["), after.index("]") + 1
    whole = replace(calls, open=before[at:], close=after[:end])
    open, close = before[:at], after[end:]
    if not open.strip():
        yield Calls("[", whole, bare=True)
        return
    open = _after_content(evidence, open)
    yield Calls(open, whole, close if close.strip() else "")
    # A fence closes with what it opens with: then it is part of the list.
    yield Calls(open, replace(whole, close=after.rstrip()))


def _each_by_itself(evidence: Evidence, frame: _Frame, parts: tuple[CallPart, ...]) -> Iterator[Calls]:
    """Every call with markers of its own."""
    before, after = frame.before, frame.after
    if not before.strip():
        yield from _bare(parts, "; ")
        return
    if before.rstrip().endswith("[") and after.lstrip().startswith("]"):
        yield from _listed(evidence, before, CallList(Call(parts), separator=", "), after)
        return
    lead = (frame.between or "").removesuffix(before.lstrip())
    before = lead[len(lead.rstrip()) :] + before.lstrip()
    # The outermost tags open and close; the others are part of the call.
    open, close = first_tag(before) or before, last_tag(after) or after
    inner = Call((*_text(before[len(open) :]), *parts, *_text(after[: len(after) - len(close)])))
    yield Calls(open, inner, close if close.strip() else "")


def _bare(parts: tuple[CallPart, ...], separator: str) -> Iterator[Calls]:
    """Nothing but the object itself says that a call comes."""
    if isinstance(parts[0], JsonCall):
        yield Calls("{", CallList(Call(parts), separator=separator), bare=True)


def _frame(evidence: Evidence, around: _Around) -> _Frame | None:
    one, two, kinds = evidence.of(CALL), evidence.of(CALLS), evidence.of(CALL_OF_ALL_KINDS)
    if one is None or not one.turn.calls:
        return None
    text = around.turn(one)
    all_kinds = "" if kinds is None else around.turn(kinds)
    unit = find_call(text, one.turn.calls[0], _id(one, 0), 0, all_kinds)
    if unit is None:
        return None
    start = len(shared_start(text[: unit.start], around.before)) if around.before.strip() else 0
    if two is not None and len(two.turn.calls) == 2:
        text_of_two = around.turn(two)
        first = find_call(text_of_two, two.turn.calls[0], _id(two, 0), 0, all_kinds)
        second = first and find_call(text_of_two, two.turn.calls[1], _id(two, 1), first.end, all_kinds)
        if first is None or second is None:
            return None
        between = text_of_two[first.end : second.start]
        # A template was seen to forget what closes a single call.
        return _ended(_numbered(_Frame(text[start : unit.start], between, text_of_two[second.end :], unit.parts)))
    return _ended(_Frame(text[start : unit.start], None, text[unit.end :], unit.parts))


def _ended(frame: _Frame) -> _Frame:
    """More tags close than open: the last one closes nothing, and ends the turn."""
    last = last_tag(frame.after)
    if not last or _count_tags(frame.after) <= _count_tags(frame.before):
        return frame
    return replace(frame, after=frame.after[: -len(last)], end=last.strip())


def _numbered(frame: _Frame) -> _Frame:
    """Where calls are numbered, the number is part of the call, with what stands between it and the rest."""
    before, between = _last_number(frame.before), _last_number(frame.between or "")
    if before is None or between is None or int(between[1]) != int(before[1]) + 1 or before[2] != between[2]:
        return frame
    number: tuple[CallPart, ...] = (Ordinal(int(before[1])), *((before[2],) if before[2] else ()))
    return replace(
        frame,
        before=frame.before[: before.start(1)],
        between=between.string[: between.start(1)],
        parts=(*number, *frame.parts),
    )


def _id(shown: Shown, number: int) -> str | None:
    return shown.ids[number] if number < len(shown.ids) else None


def _after_content(evidence: Evidence, marker: str) -> str:
    """A marker with the whitespace that the template puts between content and it."""
    shown = evidence.of(CALL_WITH_CONTENT)
    if shown is None or not shown.turn.content:
        return marker
    after = shown.text.partition(shown.turn.content)[2]
    space = after[: len(after) - len(after.lstrip())]
    return space + marker.lstrip() if after.lstrip().startswith(marker.strip()) else marker


def _count_tags(text: str) -> int:
    """How many tags there are, whole or broken off: a name may stand in one."""
    return len(_tag_start(text))


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _text(text: str) -> tuple[CallPart, ...]:
    return (text,) if text.strip() else ()
