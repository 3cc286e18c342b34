"""Text streams: one response as SGLang's two kinds of detectors take it apart.

SGLang first separates reasoning from the rest, then calls from the content, both on text. SGLang is not imported here.
"""

from __future__ import annotations

import json
import marshal
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from ...caching import LruCache
from ...core.events import (
    LINE_BREAK,
    Content,
    Event,
    Markup,
    Reasoning,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    is_line_break,
)
from ...core.grammar import Format
from ...core.machine.driver import Driver, driver
from ...core.tools import Tools
from ...errors import InvalidTools
from ...parsing import UnknownTools
from ..checked_calls import checks_calls, parser_for
from ..common import LONGEST, ReasoningBlocks, cached_by_content, is_closed, is_of_speech, settled


def known_tools(definitions: Sequence[Any]) -> Tools:
    """The request's tools. SGLang has accepted them, so a broken schema must not end the reply: it is dropped."""
    return _read_tools(_said(definitions))


def _said(definitions: Sequence[Any]) -> list[tuple[str, Any, bool]]:
    return [(it.name, it.parameters, bool(it.strict)) for one in definitions if (it := one.function).name]


def said(definitions: Sequence[Any]) -> bytes | None:
    """All that tools say, if they are plain values, and short enough to be kept."""
    try:
        text = marshal.dumps(_said(definitions), 2)
    except ValueError:
        return None
    return text if len(text) <= LONGEST else None


@cached_by_content
def _read_tools(said: Sequence[tuple[str, Any, bool]]) -> Tools:
    of_each: dict[str, dict[str, Any]] = {}
    for name, parameters, strict in said:
        of_each.setdefault(name, {"name": name, "parameters": parameters, "strict": strict})
    tools = list(of_each.values())
    try:
        return Tools(tools)
    except InvalidTools:
        return Tools(map(_sound, tools))


def _sound(tool: dict[str, Any]) -> dict[str, Any]:
    try:
        Tools([tool])
    except InvalidTools:
        return {"name": tool["name"]}
    return tool


CallPiece = tuple[int, str | None, str]
"""The beginning of a call (with a name), or what comes next of it (without): the number of the call (0, 1,
2…), the name, the arguments."""


@dataclass(slots=True)
class StreamedCall:
    """A call as far as it was sent."""

    name: str
    pieces: list[str] = field(default_factory=list)
    complete: bool | None = None
    """None while it is being written."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def arguments(self) -> Any:
        """The parsed JSON; the text itself if it is incomplete, or more than Python's `json` takes."""
        try:
            return json.loads(self.text) if self.complete else self.text
        except (ValueError, RecursionError):
            return self.text


class ToolStream:
    """The calls of one response and the text around them. Reasoning and speech that were left in are text."""

    def __init__(
        self, format: Format, tools: Tools | None, unknown_tools: UnknownTools = "text", *, whole: bool = False
    ) -> None:
        """whole: True for a reply that is not streamed."""
        self.machine: Driver | None = None
        """The machine, where its events are all that comes of text; its fast path may be tried before `parse`."""
        self.parse: Callable[[str], list[Event]]
        """The events of the next piece of text. They go to `sort` next."""
        self._finish: Callable[[], list[Event]]
        if whole or checks_calls():
            parser = parser_for(format, tools, unknown_tools=unknown_tools, keep_message=whole)
            self.parse, self._finish = parser.feed, parser.finish
        else:
            self.machine = machine = driver(format, tools, unknown_tools=unknown_tools, keep_raw=False)
            self.parse, self._finish = machine.feed, machine.finish
        self.calls: list[StreamedCall] = []
        self.cut_off: set[int] = set()
        """The calls that the end of the output cut off."""

    def anew(self) -> ToolStream:
        """The same for another response. This one has had no text, and is not for a whole reply."""
        assert self.machine is not None
        other = object.__new__(ToolStream)
        other.machine = machine = self.machine.anew("", self.machine.tools, None)
        other.parse, other._finish = machine.feed, machine.finish
        other.calls, other.cut_off = [], set()
        return other

    def feed(self, text: str) -> tuple[str, list[CallPiece]]:
        """The content and the pieces of calls in the next piece of text."""
        return self.sort(self.parse(text))

    def skip(self, text: str) -> None:
        """Go on after this text, which is content (`begins_plainly`)."""
        if self.machine is None:
            self.parse(text)
        else:
            self.machine.skip(text)

    def ends(self, event: Event) -> bool:
        """Whether an event is the end of a call, which is noted then."""
        if type(event) is not ToolCallEnd:
            return False
        self.calls[event.index].complete = event.complete
        return True

    def finish(self) -> tuple[str, list[CallPiece]]:
        """What was held back, at the end of the text."""
        last = self._finish()
        if not last:
            return "", []
        ends = (event.index for event in last if isinstance(event, ToolCallEnd) and not event.complete)
        sorted = self.sort(last)
        self.cut_off = {index for index in ends if not is_closed(self.calls[index].text)}
        return sorted

    def whole(self, text: str) -> tuple[str, list[CallPiece]]:
        """The content and the calls of a whole reply, of which each is one piece."""
        return self.sort(settled(self.parse(text), self._finish(), ended=False))

    def sort(self, events: list[Event]) -> tuple[str, list[CallPiece]]:
        """The content and the pieces of calls in events, which are noted."""
        content: list[str] = []
        pieces: list[CallPiece] = []
        for event in events:  # (`match` looks at each class in turn, and takes three times as long)
            if type(event) is Content:
                content.append(event.text)
            elif type(event) is ToolCallArguments:
                self.calls[event.index].pieces.append(event.fragment)
                name, before = None, ""
                if pieces and pieces[-1][0] == event.index:
                    _, name, before = pieces.pop()
                pieces.append((event.index, name, before + event.fragment))
            elif type(event) is ToolCallStart:
                self.calls.append(StreamedCall(event.name))
                pieces.append((event.index, event.name, ""))
            elif type(event) is ToolCallEnd:
                self.calls[event.index].complete = event.complete
        return "".join(content), pieces


MOST_SKIPPED, _LONGEST_SKIPPED = 1_000, 64
"""So many characters may go past a stream, and a piece of so many: they are kept until there is something to parse."""
_plain: LruCache[int, tuple[Callable[[str], object], Format]] = LruCache(64)
"""By the identity of the format, which is kept with it."""


def begins_plainly(format: Format) -> Callable[[str], object]:
    """Tells whether a text that a response begins with is content, whatever comes: nothing in it may begin a marker.
    Many a response is no more than that."""
    kept = _plain.get(id(format))
    if kept is None:
        signs = driver(format, None).signs
        others = f"[^{re.escape(''.join(signs))}]" if signs else "(?s:.)"
        pattern = "(?!)" if signs is None else f"{others}{{0,{_LONGEST_SKIPPED}}}"
        kept = _plain[id(format)] = re.compile(pattern).fullmatch, format
    return kept[0]


class RawOrder:
    """Events in the order of the raw text, without gaps. A parser may emit audio before text that it still holds back;
    here such events wait."""

    def __init__(self, at: int = 0) -> None:
        self.at = at
        """The position up to which all events were returned."""
        self._ahead: list[tuple[int, int, Event]] = []

    @property
    def waits(self) -> bool:
        """Whether there are events that came before their turn."""
        return bool(self._ahead)

    def add(self, events: Iterable[Event]) -> list[Event]:
        """The events that are next in order."""
        ordered: list[Event] = []
        for event in events:
            if event.end > event.start:
                if event.start == self.at:
                    self.at = event.end
                    ordered.append(event)
                else:
                    heappush(self._ahead, (event.start, event.end, event))
            while self._ahead and self._ahead[0][0] == self.at:
                _, self.at, event = heappop(self._ahead)
                ordered.append(event)
        return ordered


class ReasoningStream:
    """The reasoning of one response, and the rest: content, and calls as the model wrote them, since the tool-call
    detector reads them next.

    The format includes calls: a `<think>` in an argument is no reasoning, and a call inside the reasoning is a call.
    The tool-call detector may be one that reads other calls than these. So what begins like a call and is none, or
    breaks off, is passed on to it, with the rest of that reasoning.
    """

    def __init__(self, format: Format, *, inside: bool, opens_calls: str = "", prompt: str = "") -> None:
        """inside: the prompt has opened the reasoning. opens_calls: what ends the reasoning, even if no call that we
        know comes after it. prompt: where it is known; it may have begun a header."""
        assert format.reasoning is not None
        if format.headers is None:
            prompt = format.reasoning.open if inside else ""
        else:
            prompt = prompt or format.prompt
        self._machine = driver(format, None, prompt, keep_raw=False, markup=True)
        self._order = RawOrder()
        self._held: list[str] = []
        """The raw text after that position."""
        self._in_calls = False
        """Whether the last markup was that of calls."""
        self._opens_calls = opens_calls if format.calls_in_reasoning else ""
        self._interrupted = False
        """Whether something that is no call, and begins like one, has ended the reasoning."""
        self._speech = format.speech
        """Its markup is passed on: the audio parser reads it next."""
        self._blocks = ReasoningBlocks(format)
        self._splits = "" if self._blocks.joins else self._opens_calls or None
        """What is in each piece of reasoning that `_split` must look at; None where there is no such piece."""
        self._breaks: set[int] = set()
        """Where a line of the reasoning ends that a call interrupts."""
        self._broken: list[int] = []
        """Where calls broke off, as far as the text up to there was not passed on."""

    @property
    def can_be_copied(self) -> bool:
        """Whether `anew` may be called: before the first text, and after a marker."""
        held = self._held or self._breaks or self._broken or self._order.waits
        return self._machine.can_be_copied and not held

    def anew(self) -> ReasoningStream:
        """The same for another response."""
        other = object.__new__(ReasoningStream)
        vars(other).update(vars(self))
        other._machine = self._machine.anew("", None, None)
        other._order, other._blocks = RawOrder(self._order.at), ReasoningBlocks(self._machine.format)
        other._held, other._breaks, other._broken = [], set(), []
        return other

    def feed(self, text: str) -> tuple[str, str]:
        """The reasoning in the next piece of text, and the rest."""
        machine, events = self._machine, None
        if machine.fast_path is not None and text:
            events = machine.fast_path(machine, text)
        if events is None:
            events = machine.feed(text)
        if not events:
            self._held.append(text)
            return "", ""
        order = self._order
        if len(events) == 1 and events[0].end > events[0].start == order.at and not (self._broken or order.waits):
            # What most deltas are: a piece of one kind, of which nothing is held back, or its end.
            event = events[0]
            if self._held:
                text, self._held = "".join((*self._held, text)), []
            order.at = event.end
            size = event.end - event.start
            if size < len(text):
                self._held, text = [text[size:]], text[:size]
            if type(event) is not Reasoning:
                return "", text if self._is_passed_on(event) else ""
            if self._splits is not None and (self._interrupted or self._splits in text):
                return self._split(event, text)
            return text, ""
        self._held.append(text)
        return self._sort(events)

    def finish(self) -> tuple[str, str]:
        """What was held back, at the end of the text."""
        return self._sort(self._machine.finish())

    def _sort(self, events: list[Event]) -> tuple[str, str]:
        begin = self._order.at
        self._broken += [event.end for event in events if isinstance(event, ToolCallEnd) and not event.complete]
        # They have no width, and no place in the order.
        self._breaks |= {event.start for event in events if isinstance(event, Reasoning) and is_line_break(event)}
        ordered = self._order.add(events)
        if not ordered:
            return "", ""
        raw = "".join(self._held)
        reasoning: list[str] = []
        rest: list[str] = []
        for event in ordered:
            text = raw[event.start - begin : event.end - begin]
            while self._broken and self._broken[0] <= event.start:
                del self._broken[0]
                self._interrupted = bool(self._opens_calls)
            if isinstance(event, Reasoning):
                thought, other = self._split(event, text)
                if event.start in self._breaks:
                    self._breaks.discard(event.start)
                    if thought:
                        reasoning.append(LINE_BREAK)
                reasoning.append(thought)
                rest.append(other)
                continue
            if self._is_passed_on(event):
                rest.append(text)
        left = raw[self._order.at - begin :]
        self._held = [left] if left else []
        return "".join(reasoning), "".join(rest)

    def _is_passed_on(self, event: Event) -> bool:
        """Whether the text of an event that is no reasoning belongs to the rest."""
        if type(event) is not Markup:
            return True
        # Whitespace after a call is passed on as well.
        self._in_calls = event.of_calls or (self._in_calls and event.text.isspace())
        self._interrupted = self._interrupted and self._in_calls
        return self._in_calls or is_of_speech(event.text, self._speech)

    def _split(self, event: Reasoning, text: str) -> tuple[str, str]:
        """Text of the reasoning: what stays there, and what is passed on."""
        at = 0 if self._interrupted else text.find(self._opens_calls) if self._opens_calls else -1
        self._interrupted = at >= 0
        if self._interrupted:
            return text[:at], text[at:]
        return self._blocks.before(event) + text, ""


_LONGEST_BEGINNING = 32
_begun: LruCache[tuple[int, bool, str, str], tuple[ReasoningStream, Format]] = LruCache(64)
"""Streams that have had no text, or a marker: by the identity of the format, which is kept with them, what they were
made with, and the text."""


def begun(
    format: Format, text: str, *, inside: bool, opens_calls: str = "", prompt: str = ""
) -> tuple[ReasoningStream, tuple[str, str]]:
    """A stream, and what comes of its first piece. Most are copied from one that was made before, and most begin with
    the same marker."""
    kind = id(format), inside, opens_calls
    if prompt or len(text) > _LONGEST_BEGINNING:
        stream = ReasoningStream(format, inside=inside, opens_calls=opens_calls, prompt=prompt)
        return stream, stream.feed(text)
    kept = _begun.get((*kind, text))
    if kept is not None:
        return kept[0].anew(), ("", "")
    kept = _begun.get((*kind, ""))
    if kept is None:
        stream = ReasoningStream(format, inside=inside, opens_calls=opens_calls)
        if stream.can_be_copied:
            _begun[(*kind, "")] = stream.anew(), format
    else:
        stream = kept[0].anew()
    parts = stream.feed(text)
    if not any(parts) and stream.can_be_copied:
        _begun[(*kind, text)] = stream.anew(), format
    return stream, parts
