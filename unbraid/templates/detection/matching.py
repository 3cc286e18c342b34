"""Matching: how well a format parses what a template renders, and which format does it best.

Each rendered probe is parsed with the format and compared with the probe. A difference is either a loss (a part did not
come back) or a remark (a part came back in another form). A template does not say where a turn ends, so several ends
are tried, and the best result counts.

Many formats read each other's output. So matches are ranked by a list of defects, the gravest first (`_rank`). The keys
of that list are the words with which the verdict explains its choice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import repeat

from ...core import diagnostics
from ...core.grammar import Calls, Format, SpeechMarkup
from ...core.message import Message, Text, ToolCall
from ...core.render import render
from ...core.tools import Tools
from ...errors import InvalidFormat, UnbraidError
from ...formats import all_formats, find
from ...parsing import Parser
from .affixes import boundaries
from .evidence import Evidence
from .probes import TOOLS, ProbeCall, ProbeTurn, RenderedTurn, Strand

_TOOLS = Tools(TOOLS)
_WHITESPACE = "whitespace around the text"
_HARMLESS = {diagnostics.UNEXPECTED_KEY, diagnostics.EMPTY_CALL, _WHITESPACE}
_REASONING_LAST = "the template writes the reasoning after the answer, where models do not"
_PROMPT_END = 500
"""How many characters of a prompt's end the parser is given."""


@dataclass(frozen=True)
class TurnResult:
    """What a format made of one rendered probe."""

    rendered: RenderedTurn
    lost: tuple[str, ...]
    """The parts that did not come back."""
    remarks: tuple[str, ...]
    """Differences that lose nothing, and diagnostics of the parser."""
    exact: int
    """Whether the format renders the turn exactly as the template does: 2, or 1 but for whitespace around it."""
    with_ids: bool
    """Whether the ids of calls came back. Some templates put them where a parser cannot wait for them."""
    cut_short: bool = False
    """Whether the template goes on after the format's end token. What comes there is no part of the turn."""

    @property
    def clear(self) -> bool:
        """Whether everything came back as it was, and there is nothing to say about it."""
        return not self.lost and not self.remarks

    @property
    def faultless(self) -> bool:
        """Whether everything came back as it was. An extra key in a call does not count, nor does whitespace around a
        text, which some templates write and few models do."""
        return not self.lost and set(self.remarks) <= _HARMLESS


@dataclass(frozen=True)
class Match:
    """What a format made of all probes."""

    format: Format
    usual: tuple[TurnResult, ...]
    written: tuple[Strand, ...]
    """The strands that the template writes."""
    variants: tuple[TurnResult, ...] = ()
    """What it made of them in other circumstances; not tried if it loses something as it is."""

    @property
    def results(self) -> tuple[TurnResult, ...]:
        return (*self.usual, *self.variants)

    @property
    def verified(self) -> bool:
        """Whether everything that the template writes comes back, each strand in its own, and each strand in at least
        one turn without a fault. A template may forget a marker in one turn, but not in all."""
        faultless = {strand for each in self.results if each.faultless for strand in each.rendered.turn.strands}
        return bool(self.results) and not any(each.lost for each in self.results) and set(self.written) <= faultless

    @property
    def sound(self) -> bool:
        """Whether no turn shows more than a missing marker, or reasoning in another place. Required of derived formats:
        they could be wrong in ways that a registered format is not."""
        sound = {*_HARMLESS, diagnostics.UNCLOSED, _REASONING_LAST}
        return all(set(each.remarks) <= sound for each in self.results)

    @property
    def reads_calls(self) -> bool:
        """Whether the calls of every probe come back, at least their names."""
        return all("calls" not in each.lost for each in self.results)

    @property
    def lost(self) -> int:
        return sum(len(each.lost) for each in self.usual)

    @property
    def remarks(self) -> int:
        return sum(len(each.remarks) for each in self.usual)

    @property
    def exact(self) -> int:
        return sum(each.exact for each in self.usual)


def match(format: Format, evidence: Evidence, *, registered: bool = True) -> Match:
    """Try the format on all probes. Raises `InvalidFormat` if the format contradicts itself.

    registered: the format's end tokens are known to end turns. Those of a derived format are guesses.
    """
    result = Match(
        format,
        tuple(_parse(format, rendered, evidence, registered) for rendered in evidence.rendered),
        evidence.strands,
    )
    if result.lost:
        return result
    variants = (_parse(format, rendered, evidence, registered) for rendered in evidence.variants)
    return replace(result, variants=tuple(variants))


def may_read(format: Format, evidence: Evidence) -> bool:
    """A quick test: whether the text has any of the markers that open the format's calls."""
    texts = [each.text for each in evidence.rendered if each.turn.calls]
    if format.transcript is not None or not texts:
        return format.transcript is None and format.tools is None
    if format.headers is not None:
        # The prompt may have written the first header.
        texts += evidence.prompts
        return any(open in text for open in format.headers.opens for text in texts)
    return any(_opens(node, texts) for node in _ways_to_call(format))


def opens_calls(format: Format, evidence: Evidence) -> bool:
    """Whether calls begin as the format writes them, where both have calls."""
    texts = [each.text for each in evidence.rendered if each.turn.calls]
    return format.tools is None or format.headers is not None or not texts or _opens(format.tools, texts)


def _ways_to_call(format: Format) -> Iterator[Calls]:
    if format.tools is not None:
        yield format.tools
    yield from format.other_tools


def _opens(node: Calls, texts: list[str]) -> bool:
    return any(open.strip() in text for open in (node.open, *node.also) for text in texts)


def _parse(format: Format, rendered: RenderedTurn, evidence: Evidence, registered: bool) -> TurnResult:
    """The best result over all places where the turn may end."""
    results = []
    for prompt in _prompts(rendered, evidence):
        for end in _ends(format, rendered, evidence):
            results.append(_parse_up_to(end, format, rendered, prompt))
            if results[-1].clear:
                return results[-1]
    best = min(results, key=lambda each: (len(each.lost), len(each.remarks)))
    if best.lost and registered and (ended := _ended(format, rendered)) is not None:
        cut = _parse_up_to(len(ended.text), format, ended, ended.prompt)
        return replace(cut, cut_short=True) if cut.clear else best
    return best


def _prompts(rendered: RenderedTurn, evidence: Evidence) -> list[str]:
    """What the model may have been given. Some templates open the reasoning in the prompt, and not in a turn."""
    others = evidence.prompts if rendered.turn.reasoning else ()
    return list(dict.fromkeys(prompt[-_PROMPT_END:] for prompt in (rendered.prompt, *others)))


def _parse_up_to(end: int, format: Format, rendered: RenderedTurn, prompt: str) -> TurnResult:
    turn = rendered.turn
    text = rendered.text[:end]
    message = _message(format, text, prompt)
    lost, remarks = _differences(turn, message)
    if "reasoning" in lost and (moved := _reasoning_first(format, turn, text)):
        as_models_write = _message(format, moved, prompt)
        lost_then, remarks_then = _differences(turn, as_models_write)
        if not lost_then:
            message, lost, remarks = as_models_write, [], [*remarks_then, _REASONING_LAST]
    if lost and (fault := _fault_of_template(format, rendered, message, set(lost))):
        lost, remarks = [], [*remarks, fault]
    remarks += [diagnostic.kind for diagnostic in message.diagnostics]
    with_ids = not rendered.ids or [call.id for call in message.tool_calls] == list(rendered.ids)
    ours, theirs = _rendered_by(format, rendered), _whole(format, prompt, text)
    exact = 0 if lost or ours is None else (ours == theirs) + (ours.strip() == theirs.strip())
    return TurnResult(rendered, tuple(lost), tuple(remarks), exact, with_ids)


def _message(format: Format, text: str, prompt: str) -> Message:
    parser = Parser(format, tools=_TOOLS, prompt=prompt)
    parser.feed(text)
    parser.finish(end_of_turn=True)
    return parser.message


def _reasoning_first(format: Format, turn: ProbeTurn, text: str) -> str:
    """The text with the reasoning before the answer, if it stands after it; else empty. In an answer, what opens
    reasoning is text: law 15 (docs/laws.md#law-15)."""
    answer = text.find(turn.content) if turn.content and turn.reasoning else -1
    if answer < 0 or format.reasoning is None:
        return ""
    for open, close in ((format.reasoning.open, format.reasoning.close), *format.reasoning.also):
        pattern = rf"{re.escape(open.strip())}\s*{re.escape(turn.reasoning or '')}\s*{re.escape(close.strip())}"
        if reasoning := re.compile(pattern).search(text, answer):
            return reasoning.group() + text[: reasoning.start()] + text[reasoning.end() :]
    return ""


def _differences(turn: ProbeTurn, message: Message) -> tuple[list[str], list[str]]:
    lost: list[str] = []
    remarks: list[str] = []
    calls = message.tool_calls
    if [call.name for call in calls] != [call.name for call in turn.calls]:
        lost.append("calls")
    else:
        pairs = [(_arguments(call), dict(probe.arguments)) for call, probe in zip(calls, turn.calls, strict=True)]
        if not all(call.complete for call in calls) or not all(_same_text(here, there) for here, there in pairs):
            lost.append("arguments")
        elif any(here != there for here, there in pairs):
            remarks.append("numbers and the like come back as text")
    for strand, read, expected in (
        ("content", message.content, turn.content),
        ("reasoning", message.reasoning, turn.reasoning or ""),
    ):
        if read.strip() != expected:
            lost.append(strand)
        elif read != expected:
            remarks.append(_WHITESPACE)
    if message.speech:
        lost.append("speech")
    return lost, remarks


def _fault_of_template(format: Format, rendered: RenderedTurn, message: Message, lost: set[str]) -> str:
    """What the template itself does to a turn that cannot be read back for it; empty if it does nothing of the kind."""
    turn, text = rendered.turn, rendered.text
    if lost == {"content"}:
        label = message.content.strip().removesuffix(turn.content)
        if label and label != message.content.strip() and label.endswith((":", "：")):
            return f"the template writes `{label}` before answers, and not in the prompt"
        opens = [open.strip() for node in _ways_to_call(format) for open in (node.open, *node.also)]
        if turn.calls and any(open + turn.content in text for open in opens):
            return "the template writes the content between the markers of calls"
    if lost <= {"calls", "arguments", "content"} and (one := next(map(_unreadable, turn.calls, repeat(text)), "")):
        return one
    return ""


def _unreadable(call: ProbeCall, text: str) -> str:
    """What makes a call unreadable as the template writes it."""
    names, values = list(call.arguments), list(call.arguments.values())
    for value, name in zip(values, names[1:], strict=False):
        if any(spelled + name in text for spelled in (json.dumps(value), str(value))):
            return "the template writes arguments with nothing between them"
    words = [value for value in values if isinstance(value, str)]
    if words and not any(quote + word in text for word in words for quote in "\"'`>|"):
        return "the template writes strings without quotes"
    return ""


def _arguments(call: ToolCall) -> object:
    try:
        return json.loads(call.arguments)
    except (ValueError, RecursionError):
        return None


def _same_text(here: object, there: object) -> bool:
    """Whether two values are written with the same text: some templates quote all values, or print them as Python
    does."""
    if isinstance(here, dict) and isinstance(there, dict):
        return here.keys() == there.keys() and all(_same_text(here[key], there[key]) for key in here)
    if isinstance(here, list) and isinstance(there, list):
        return len(here) == len(there) and all(map(_same_text, here, there))
    return str(here).lower() in (str(there).lower(), json.dumps(there).lower())


# Where a turn ends


def _ends(format: Format, rendered: RenderedTurn, evidence: Evidence) -> list[int]:
    """Where the turn may end: at an end token of the format, at the beginning of the next turn, at the text with which
    all turns end, at an end token of another format, at a tag of the prompt, or where the text does."""
    tail, inside = rendered.tail, rendered.text[: rendered.last]
    borders = [tag for tag in evidence.borders if tag not in inside]
    places = [_first(format.ends, tail), _first(borders, tail)]
    if evidence.ending and tail.endswith(evidence.ending):
        places.append(len(tail) - len(evidence.ending))
    places += [_first(evidence.known_ends, tail), _first(evidence.prompt_tags, tail)]
    ends = [rendered.last + at for at in places if at is not None]
    return list(dict.fromkeys((*ends, *rendered.ends, len(rendered.text))))


def _first(markers: Iterable[str], text: str) -> int | None:
    """Where the first of several markers stands in a text; None if none does."""
    return min((at for marker in markers if (at := text.find(marker)) >= 0), default=None)


def _ended(format: Format, rendered: RenderedTurn) -> RenderedTurn | None:
    """The turn up to the format's end token, if the template writes more of it after that. The model has stopped
    there."""
    end = _first(format.ends, rendered.text)
    return rendered.up_to(end) if end is not None and end < rendered.last else None


def _rendered_by(format: Format, rendered: RenderedTurn) -> str | None:
    """The turn as the format renders it; None if it cannot."""
    turn = rendered.turn
    texts = [Text("reasoning", turn.reasoning or ""), Text("content", turn.content)]
    ids = dict(enumerate(rendered.ids))
    calls = [ToolCall(call.name, json.dumps(call.arguments), ids.get(n, "")) for n, call in enumerate(turn.calls)]
    try:
        return render(format, Message((*(text for text in texts if text.text), *calls)))
    except UnbraidError:
        return None


def _whole(format: Format, prompt: str, text: str) -> str:
    """The turn as the template writes it, with the reasoning's opening marker where the prompt has written that. Empty
    reasoning says nothing."""
    if format.reasoning is None:
        return text
    open, close = format.reasoning.open.strip(), format.reasoning.close.strip()
    if prompt.rstrip().endswith(open):
        text = prompt[prompt.rindex(open) :] + text
        rest = text[len(open) :].lstrip()
        text = rest.removeprefix(close) if rest.startswith(close) else text
    return text


_suffixes = re.compile(r"<\w+:(\w+)>").findall


def ranked_matches(evidence: Evidence, formats: Iterable[Format] | None = None) -> list[Match]:
    """The matches of all formats that may read the template, the best first. Equal ones stay in the order in which they
    were registered."""
    matches = []
    for format in _registered(evidence) if formats is None else formats:
        if may_read(format, evidence):
            try:
                matches.append(match(format, evidence, registered=formats is None))
            except InvalidFormat:  # a derived one that contradicts itself
                continue
    return sorted(matches, key=lambda each: tuple(_rank(each, evidence).values()))


def _registered(evidence: Evidence) -> Iterator[Format]:
    """The registered formats, also with a suffix to their tags that this template has (`<tool_calls:opensource>`)."""
    yield from all_formats()
    texts = [each.text for each in evidence.rendered]
    for suffix in dict.fromkeys(suffix for text in texts for suffix in _suffixes(text)):
        for format in all_formats():
            changed = find(f"{format.name}:{suffix}")
            if replace(changed, name=format.name) != format:
                yield changed


def what_decided(best: Match, other: Match, evidence: Evidence) -> str:
    """The first criterion in which one match is better than the other."""
    ours, theirs = _rank(best, evidence), _rank(other, evidence)
    return next((why for why in ours if ours[why] != theirs[why]), "it is the first of them")


def _rank(match: Match, evidence: Evidence) -> dict[str, int]:
    """The defects of a match, the gravest first. Each key says what a format with less of it does better."""
    format = match.format
    return {
        "it reads what matters": not match.verified,
        "it loses less": match.lost,
        "it reads without a complaint": match.remarks,
        "it is its own way to write calls, and not another that it reads": not opens_calls(format, evidence),
        "it has the strands that the template has, and no other": _foreign_strands(format, evidence),
        "it starts in no reasoning that no prompt opens": _starts_alone(format, evidence),
        "its turns end as the template's do": not _ends_alike(format, evidence),
        "it writes more of it just as the template does": -match.exact,
        "it starts where the template's prompt ends": _starts_elsewhere(format, evidence),
        "it gets the ids back": sum(not each.with_ids for each in match.results),
    }


def _foreign_strands(format: Format, evidence: Evidence) -> int:
    """How many strands either the format or the template has, but not both."""
    reasoning = evidence.shows_reasoning or names_reasoning(format, evidence)
    return (
        (reasoning != (format.reasoning is not None))
        + (evidence.shows_calls != (format.tools is not None))
        + (format.speech is not None and not _names_speech(format.speech, evidence))
    )


def _names_speech(speech: SpeechMarkup, evidence: Evidence) -> bool:
    """Whether the template mentions the marker that opens speech."""
    return bool(speech.open) and speech.open.strip() in evidence.template.source


def names_reasoning(format: Format, evidence: Evidence) -> bool:
    """Whether the template mentions the marker that closes the format's reasoning; for a format without reasoning,
    `</think>`."""
    close = "</think>" if format.reasoning is None else format.reasoning.close.strip()
    return close in evidence.template.source or any(prompt.rstrip().endswith(close) for prompt in evidence.prompts)


def _ends_alike(format: Format, evidence: Evidence) -> bool:
    """Whether a rendered turn ends with one of the format's end tokens."""
    tails = [each.tail for each in evidence.rendered]
    return any(end in tail for end in format.ends for tail in tails)


# Where the output starts


def _starts_alone(format: Format, evidence: Evidence) -> bool:
    """Whether the format starts in its reasoning, and no prompt of the template opens that, with whatever settings."""
    starts = {_start(format, prompt) for prompt in evidence.prompts}
    return Parser(format).strand == "reasoning" and "reasoning" not in starts


def _starts_elsewhere(format: Format, evidence: Evidence) -> bool:
    """Whether the template's prompt opens the reasoning by default, and the format does not start there."""
    return _start(format, evidence.prompts[0]) == "reasoning" != Parser(format).strand


def with_start(format: Format, evidence: Evidence) -> Format:
    """The format, made to start where the template's own prompt ends, by default. That is assumed of an output whose
    prompt is not given. Of the prompt the shortest end is kept that says so."""
    prompt = evidence.prompts[0][-_PROMPT_END:]
    start = _start(format, prompt)
    if Parser(format).strand == start:
        return format
    ends = (prompt[at:] for at in sorted(boundaries(prompt, 0, len(prompt)), reverse=True))
    return replace(format, prompt=next(end for end in ends if Parser(replace(format, prompt=end)).strand == start))


def prompt_shows_reasoning(format: Format, evidence: Evidence) -> bool:
    """Whether a prompt of the template opens the format's reasoning, or opens and closes it. So the template writes its
    markers, even if it writes no reasoning of earlier turns."""
    if format.reasoning is None:
        return False
    close = format.reasoning.close.strip()
    return any(_start(format, prompt) == "reasoning" or prompt.rstrip().endswith(close) for prompt in evidence.prompts)


def _start(format: Format, prompt: str) -> str:
    """The strand in which an output starts after this prompt."""
    return Parser(format, prompt=prompt[-_PROMPT_END:]).strand
