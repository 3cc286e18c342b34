"""Proposals: formats made from what a template writes around the probes.

The affixes of the rendered turns become markers: what comes before and after an answer, around the reasoning, and
before, between and after calls. Where two readings are possible, both are proposed. A proposal proves nothing;
`matching` decides whether it reads the template.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from dataclasses import dataclass, replace

from ...core.grammar import Between, Call, CallList, CallPart, Calls, Format, Ordinal
from ...core.notations import JsonCall
from ...formats import all_formats
from .affixes import first_tag, first_tag_or_word, last_tag, shared_end, shared_length, shared_start
from .evidence import Evidence
from .locate_call import find_call
from .probes import ANSWER, CALL, CALL_OF_ALL_KINDS, CALL_WITH_CONTENT, CALLS, REASONED, REASONED_CALL, RenderedTurn

NAME = "derived"
_LONGEST_MARKER = 200
_tag_start = re.compile(r"<|\[(?=[A-Z/])").findall
_last_number = re.compile(r".*?(\d{1,9})(\D*)", re.DOTALL).fullmatch


@dataclass(frozen=True)
class Proposal:
    format: Format
    like: str = ""
    """The registered format whose calls it uses."""


def proposals(evidence: Evidence) -> Iterator[Proposal]:
    """Formats that may read the template, the likeliest first."""
    # The tag that ends the user's turn usually ends the assistant's. But it may also be a marker around the text, and
    # so may the end tokens of other formats: try with fewer and fewer of them.
    for stops in ({*evidence.known_ends, *evidence.borders}, evidence.known_ends, frozenset[str]()):
        yield from _proposals(evidence, _AnswerAffixes(evidence, stops))


def _proposals(evidence: Evidence, around: _AnswerAffixes) -> Iterator[Proposal]:
    reasoning = _reasoning(evidence, around) or _reasoning_of_prompts(evidence)
    ignored: tuple[str, ...] = ()
    if reasoning is not None and around.answer is not None and reasoning.close.startswith(around.answer.close):
        # Messages: each ends with the same marker, and words between two of them say nothing.
        between = reasoning.close[len(around.answer.close) :]
        reasoning, ignored = replace(reasoning, close=around.answer.close), (between,) if between.strip() else ()
    prompt = _prompt(evidence, reasoning)
    if reasoning is not None:
        # Calls of a registered format, with reasoning of its own.
        for format in all_formats():
            if format.tools is not None and format.headers is None and format.reasoning != reasoning:
                ends = tuple(dict.fromkeys((*around.ends, *format.ends)))
                changed = replace(format, name=NAME, reasoning=reasoning, ends=ends, prompt=prompt, versions=())
                yield Proposal(changed, format.name)
    base = Format(NAME, reasoning=reasoning, answer=around.answer, ignored=ignored, ends=around.ends, prompt=prompt)
    if not evidence.shows_calls:
        yield Proposal(base)
        return
    affixes = _call_affixes(evidence, around)
    if affixes is None or not _is_short(affixes.before, affixes.between or "", affixes.after):
        return
    ends = (*base.ends, affixes.end) if affixes.end not in ("", *base.ends) else base.ends
    for tools in _calls(evidence, affixes):
        yield Proposal(replace(base, tools=tools, ends=ends))


def _is_short(*texts: str) -> bool:
    """Whether these texts are short enough for markers. A parser looks for every prefix of a marker."""
    return all(len(text) <= _LONGEST_MARKER for text in texts)


class _AnswerAffixes:
    """What the template writes before and after an answer, and what ends a turn."""

    def __init__(self, evidence: Evidence, stops: Set[str]) -> None:
        self._evidence = evidence
        self._eos = str(evidence.template.special_tokens.get("eos_token") or "")
        self._stops = stops | ({self._eos} - {""})
        answer, call = evidence.rendering_of(ANSWER), evidence.rendering_of(CALL)
        self.before, self.after = "", ""
        if answer is not None and answer.turn.content:
            self.before, _, self.after = self.turn(answer).partition(answer.turn.content)
        opens = self.before.strip()
        wraps = bool(opens) and call is not None and not call.text.lstrip().startswith(opens)
        wraps = wraps and bool(self.after.strip()) and _is_short(self.before, self.after)
        self.answer = Between(self.before, self.after) if wraps else None
        rests = [each.text[len(self.turn(each)) :] for each in (answer, call) if each is not None]
        ends = [first_tag_or_word(rest) for rest in rests]
        ends += [self._eos] if any(self._eos in rest for rest in rests) else []
        self.ends = tuple(dict.fromkeys(end for end in ends if end))

    def turn(self, shown: RenderedTurn) -> str:
        """The text of a turn, up to its end token."""
        tail, inside = shown.tail, shown.text[: shown.last]
        stops = [at for stop in self._stops if (at := tail.find(stop)) >= 0 and stop not in inside]
        if stops:
            return shown.text[: shown.last + min(stops)]
        return shown.text.removesuffix(self._evidence.ending)


# Reasoning


def _reasoning(evidence: Evidence, around: _AnswerAffixes) -> Between | None:
    """The markers around the reasoning."""
    for turn in (REASONED, REASONED_CALL):
        shown = evidence.rendering_of(turn)
        if shown is None or not shown.turn.reasoning:
            continue
        text = around.turn(shown)
        before, _, after = text.partition(shown.turn.reasoning)
        if shown.turn.content and shown.turn.content in before:
            continue  # reasoning after the answer: the turn with a call shows its markers
        open = before.removeprefix(shared_start(before, around.before)) or before
        if not open.strip():
            open = "" if _answers_after(evidence, shown.prompt) else last_tag(shown.prompt + before).lstrip()
        if shown.turn.content:
            close, _, _ = after.partition(shown.turn.content)
            close = close.removesuffix(around.answer.open) if around.answer is not None else close
        else:
            call = evidence.rendering_of(CALL)
            lead = (
                "" if call is None or not call.turn.calls else around.turn(call).partition(call.turn.calls[0].name)[0]
            )
            close = after[: after.find(lead.strip())] if lead.strip() and lead.strip() in after else ""
        if open.strip() and close.strip() and _is_short(open, close):
            return Between(open, close)
    return None


def _reasoning_of_prompts(evidence: Evidence) -> Between | None:
    """The markers, if no turn shows reasoning: a tag at the end of a prompt that the template closes elsewhere, and
    after which no answer comes."""
    for prompt in evidence.prompts:
        open = last_tag(prompt).lstrip()
        close = open.strip().replace("<", "</", 1).replace("[", "[/", 1)
        closed = close != open.strip() and close in evidence.template.source
        if open and closed and not _answers_after(evidence, prompt):
            return Between(open, close)
    return None


def _answers_after(evidence: Evidence, prompt: str) -> bool:
    """Whether an answer without reasoning follows this prompt. Then the prompt opens no reasoning."""
    answer = evidence.rendering_of(ANSWER)
    return answer is None or answer.prompt.rstrip() == prompt.rstrip()


def _prompt(evidence: Evidence, reasoning: Between | None) -> str:
    """The end of the prompt, if it opens the reasoning."""
    opened = reasoning is not None and evidence.prompts[0].rstrip().endswith(reasoning.open.strip())
    return reasoning.open if reasoning is not None and opened else ""


# Calls


@dataclass(frozen=True)
class _CallAffixes:
    """What the template writes before, between and after the calls of a turn."""

    before: str
    between: str | None
    """None if the template shows only one call."""
    after: str
    parts: tuple[CallPart, ...]
    end: str = ""
    """A tag that ends the turn."""


def _calls(evidence: Evidence, affixes: _CallAffixes) -> Iterator[Calls]:
    parts = affixes.parts
    between = affixes.between
    if between is None or _squeezed(between) == _squeezed(affixes.after + affixes.before):
        yield from _each_by_itself(evidence, affixes, parts)
        return
    opening = shared_end(affixes.before, between).lstrip()
    closing = shared_start(affixes.after, between.removesuffix(opening)).rstrip()
    separator = between.removesuffix(opening)[len(closing) :]
    section = affixes.before.removesuffix(opening), affixes.after[len(closing) :]
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
    # A code fence closes with what it opens with. Then it is part of the list.
    yield Calls(open, replace(whole, close=after.rstrip()))


def _each_by_itself(evidence: Evidence, affixes: _CallAffixes, parts: tuple[CallPart, ...]) -> Iterator[Calls]:
    """Calls that each have their own markers."""
    before, after = affixes.before, affixes.after
    if not before.strip():
        yield from _bare(parts, "; ")
        return
    if before.rstrip().endswith("[") and after.lstrip().startswith("]"):
        yield from _listed(evidence, before, CallList(Call(parts), separator=", "), after)
        return
    if affixes.between is not None:
        # The whitespace between two calls belongs to the first as far as it also stands after the last. A call at the
        # beginning of a turn may have none before it.
        after = affixes.between[: shared_length(affixes.between, after)]
        before = affixes.between[len(after) :]
    # The outermost tags open and close; the others are part of the call.
    open, close = first_tag(before) or before, last_tag(after) or after
    inner = Call((*_text(before[len(open) :]), *parts, *_text(after[: len(after) - len(close)])))
    yield Calls(open, inner, close if close.strip() else "")


def _bare(parts: tuple[CallPart, ...], separator: str) -> Iterator[Calls]:
    """Calls without markers: the JSON object itself shows that a call begins."""
    if isinstance(parts[0], JsonCall):
        yield Calls("{", CallList(Call(parts), separator=separator), bare=True)


def _call_affixes(evidence: Evidence, around: _AnswerAffixes) -> _CallAffixes | None:
    one, two, kinds = map(evidence.rendering_of, (CALL, CALLS, CALL_OF_ALL_KINDS))
    if one is None or not one.turn.calls:
        return None
    text = around.turn(one)
    all_kinds = "" if kinds is None else around.turn(kinds)
    call = find_call(text, one.turn.calls[0], _id(one, 0), 0, all_kinds)
    if call is None:
        return None
    start = len(shared_start(text[: call.start], around.before)) if around.before.strip() else 0
    if two is not None and len(two.turn.calls) == 2:
        text_of_two = around.turn(two)
        first = find_call(text_of_two, two.turn.calls[0], _id(two, 0), 0, all_kinds)
        second = first and find_call(text_of_two, two.turn.calls[1], _id(two, 1), first.end, all_kinds)
        if first is None or second is None:
            return None
        between = text_of_two[first.end : second.start]
        # From the turn with two calls: a template was seen to forget the closing marker of a single call.
        return _ended(_numbered(_CallAffixes(text[start : call.start], between, text_of_two[second.end :], call.parts)))
    return _ended(_CallAffixes(text[start : call.start], None, text[call.end :], call.parts))


def _ended(affixes: _CallAffixes) -> _CallAffixes:
    """If more tags close than open, the last one closes nothing: it ends the turn."""
    last = last_tag(affixes.after)
    if not last or _count_tags(affixes.after) <= _count_tags(affixes.before):
        return affixes
    return replace(affixes, after=affixes.after[: -len(last)], end=last.strip())


def _numbered(affixes: _CallAffixes) -> _CallAffixes:
    """If calls are numbered, the number and the text after it become part of the call."""
    before, between = _last_number(affixes.before), _last_number(affixes.between or "")
    if before is None or between is None or int(between[1]) != int(before[1]) + 1 or before[2] != between[2]:
        return affixes
    number: tuple[CallPart, ...] = (Ordinal(int(before[1])), *((before[2],) if before[2] else ()))
    return replace(
        affixes,
        before=affixes.before[: before.start(1)],
        between=between.string[: between.start(1)],
        parts=(*number, *affixes.parts),
    )


def _id(shown: RenderedTurn, number: int) -> str | None:
    return shown.ids[number] if number < len(shown.ids) else None


def _after_content(evidence: Evidence, marker: str) -> str:
    """A marker with the whitespace that the template writes between content and it."""
    shown = evidence.rendering_of(CALL_WITH_CONTENT)
    if shown is None or not shown.turn.content:
        return marker
    after = shown.text.partition(shown.turn.content)[2]
    space = after[: len(after) - len(after.lstrip())]
    return space + marker.lstrip() if after.lstrip().startswith(marker.strip()) else marker


def _count_tags(text: str) -> int:
    """The number of tags, complete or not: a name may be part of one."""
    return len(_tag_start(text))


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _text(text: str) -> tuple[CallPart, ...]:
    return (text,) if text.strip() else ()
