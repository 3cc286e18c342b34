"""Reasoning in token ids and in text: where it ends, and how many tokens it has.

vLLM's engine asks at every step whether the reasoning is over, with all ids so far. So the markers are looked up as
tokens, from the end, and nothing is parsed (`ReasoningMarkers`). Only a marker that is no single token is searched in
the text. `ReasoningCounter` counts the tokens. `ReasoningPrefix` splits the reasoning off as text, for the tool parsers
of others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal

from ...core.events import Content, Diagnostic, Event, Markup, Reasoning, is_line_break
from ...core.grammar import Format
from ...core.machine.driver import Driver
from ...core.vocabulary import Vocabulary
from ...parsing import Parser, parse

Marker = Literal["open", "close", "end"]


def decoded(tokenizer: Any, ids: Sequence[int]) -> str:
    """The text of tokens, special ones too."""
    try:
        return str(tokenizer.decode(list(ids), skip_special_tokens=False))
    except TypeError:  # it knows of no special ones
        return str(tokenizer.decode(list(ids)))


class DecodedTokens:
    """The vocabulary of a tokenizer of an unknown kind, by the methods that all tokenizers of vLLM have. Characters
    that span several tokens are lost, so it serves to find markers and for nothing else."""

    version = None
    dummy_prefix = False

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def token_id(self, text: str) -> int | None:
        vocabulary: dict[str, int] = getattr(self._tokenizer, "get_vocab", dict)()
        return vocabulary.get(text)

    def token_bytes(self, token: int) -> bytes | None:
        return decoded(self._tokenizer, [token]).encode("utf-8", "replace")


class ReasoningMarkers:
    """Finds the markers of a format's reasoning in ids: as tokens or, if they are no single tokens, in the text."""

    def __init__(self, format: Format, vocabulary: Vocabulary) -> None:
        assert format.reasoning is not None
        node = format.reasoning
        self.open, self.close = node.open.removesuffix(node.label).strip(), node.close.strip()
        self._bytes = vocabulary.token_bytes
        ends = (vocabulary.token_id(text) for text in format.ends)
        self._markers: dict[int, Marker] = {token: "end" for token in ends if token is not None}
        open, close = vocabulary.token_id(self.open), vocabulary.token_id(self.close)
        self.spelled = format.spelled_markers or open is None or close is None
        """Whether a marker may be written in several tokens."""
        if open is not None and close is not None:
            self._markers |= {open: "open", close: "close"}

    def turn(self, ids: Sequence[int]) -> int:
        """Where the last turn begins."""
        at = self._stop(ids)
        while at and self._markers.get(ids[at - 1]) != "end":
            at -= 1
        return at

    def _stop(self, ids: Sequence[int]) -> int:
        """Where the last turn ends, without what ends it."""
        stop = len(ids)
        while stop and self._markers.get(ids[stop - 1]) == "end":
            stop -= 1
        return stop

    def last(self, ids: Sequence[int]) -> tuple[Marker | None, int]:
        """The last marker in `ids`, and the position after it. "end" is the end of an earlier turn; the end of the last
        turn is ignored."""
        stop = self._stop(ids)
        at = next((at for at in range(stop - 1, -1, -1) if ids[at] in self._markers), -1)
        if self.spelled:
            marker, inside = self._last_spelled(ids[at + 1 : stop])
            if marker is not None:
                return marker, at + 1 + inside
        return (None, 0) if at < 0 else (self._markers[ids[at]], at + 1)

    def _last_spelled(self, ids: Sequence[int]) -> tuple[Marker | None, int]:
        pieces = [self._bytes(token) or b"" for token in ids]
        data, open, close = b"".join(pieces), self.open.encode(), self.close.encode()
        opened, closed = data.rfind(open), data.rfind(close)
        if max(opened, closed) < 0:
            return None, 0
        behind = opened + len(open) if opened > closed else closed + len(close)
        tokens = bisect_left(list(accumulate(map(len, pieces))), behind) + 1
        return "open" if opened > closed else "close", tokens

    def closed_at(self, ids: Sequence[int], new: int) -> int | None:
        """The position where the last `new` ids close the reasoning; None where they do not. The cost does not depend
        on how many there are before."""
        start = max(0, len(ids) - new - self._reach)
        marker, after = self.last(ids[start:])
        return start + after if marker == "close" and start + after > len(ids) - new else None

    def is_closed_at(self, ids: Sequence[int], position: int) -> bool:
        """Whether the reasoning closes right before a position."""
        start = max(0, position - 1 - self._reach)
        return position <= len(ids) and self.last(ids[start:position]) == ("close", position - start)

    @property
    def _reach(self) -> int:
        """How many tokens before its last one a marker may begin: it has at most as many tokens as bytes."""
        return len(self.close.encode()) if self.spelled else 0

    def begins_open(self, output: Sequence[int]) -> bool:
        """Whether the output itself opens the reasoning at once."""
        text = b"".join(self._bytes(token) or b"" for token in output).decode("utf-8", "replace")
        return text.lstrip().startswith(self.open)

    def begins_otherwise(self, output: Sequence[int]) -> bool:
        """Whether the output begins with something that is not reasoning."""
        text = b"".join(self._bytes(token) or b"" for token in output).decode("utf-8", "replace").lstrip()
        markers = (self.open, self.close)
        return bool(text) and not text.startswith(markers) and not any(marker.startswith(text) for marker in markers)


class ReasoningCounter:
    """Counts the tokens of the reasoning without its markers."""

    def __init__(self, format: Format, vocabulary: Vocabulary, prompt: str | Sequence[int] | None) -> None:
        """vocabulary: `DecodedTokens` will do."""
        apart = replace(format, reasoning_in_content=False)
        self._machine = Driver(apart, vocabulary=vocabulary, prompt=prompt, keep_raw=False)
        self._seen = self._count = 0
        self._undecided: deque[_Token] = deque()
        """Tokens that may be of a marker."""

    def count(self, ids: Sequence[int]) -> int:
        """The count for all ids so far. vLLM asks again as they grow; each id is parsed once. What may be the beginning
        of a marker counts as long as it is none."""
        machine, undecided = self._machine, self._undecided
        for token in ids[self._seen :]:
            begin = self._end
            events = machine.feed_tokens((token,))
            undecided.append(_Token(begin, self._end))
            for event in events:
                if isinstance(event, Reasoning):
                    for one in undecided:
                        one.counts |= one.begin < event.end and event.start < max(one.end, one.begin + 1)
            while undecided and undecided[0].begin < machine.offset >= undecided[0].end:
                self._count += undecided.popleft().counts
        self._seen = len(ids)
        return self._count + (len(undecided) if machine.strands[-1] == "reasoning" else 0)

    @property
    def _end(self) -> int:
        """Where the text ends that was fed."""
        machine = self._machine
        return machine.offset + len(machine.spell(machine.buffer[machine.position :]))


@dataclass(slots=True)
class _Token:
    """A token, and where its text stands. One that ends inside a character has none."""

    begin: int
    end: int
    counts: bool = False


class ReasoningPrefix:
    """Parses text as long as it is reasoning. From the first words of content on, text is passed on unread.

    Only for our reasoning parser beside a tool parser of vLLM's own. That parser reads the rest as the model wrote it,
    so nothing after the reasoning may be parsed or dropped. What it takes for a call, nobody here knows. So the mark
    that opens calls ends the reasoning, even where our format would not find a call behind it: otherwise a call in
    reasoning that is not closed would be lost.
    """

    def __init__(self, format: Format, prompt: str | None) -> None:
        assert format.reasoning is not None
        self.over = False
        """Whether content or a call has begun."""
        self._calls = "" if format.tools is None else format.tools.open.strip()
        reasoning_only = replace(format, tools=None, other_tools=(), versions=())
        self._parser = Parser(reasoning_only, prompt=prompt, keep_message=False, markup=True)
        node = format.reasoning
        open = node.open.removesuffix(node.label)
        self._markers = tuple(text.strip() for text in ("", node.open, open, node.label, node.close))
        self._header = "" if format.headers is None else node.open.strip()
        """What opens it, of which the prompt may have the beginning."""
        self._held = ""
        """Text that was not passed on."""
        self._done = 0
        """The position of its first character."""
        self._waiting: list[Event] = []
        """Events of that text."""

    def feed(self, text: str) -> tuple[str, str]:
        """The reasoning in the next piece of text, and the content."""
        if self.over:
            return "", text
        self._held += text
        return self._split(self._parser.feed(text), over=False)

    def finish(self) -> tuple[str, str]:
        """What is left at the end of the output."""
        return ("", "") if self.over else self._split(self._parser.finish(), over=True)

    def _split(self, events: list[Event], *, over: bool) -> tuple[str, str]:
        begins = self._held.find(self._calls) if self._calls else -1
        if begins < 0:
            begins = len(self._held) if over else len(self._held) - _beginning(self._held, self._calls)
        limit = self._done + begins
        """What follows may be a call."""
        reasoning: list[str] = []
        content: list[str] = []
        self._waiting += events
        while self._waiting:
            event = self._waiting[0]
            if isinstance(event, Reasoning):
                reasoning.append(self._take(min(event.end, limit)))
                if event.end > limit:
                    self._waiting[0] = Reasoning(event.text[limit - event.start :], limit, event.end)
                    break
            elif isinstance(event, Content) and event.start == event.end:  # the marker of the prompt, put back
                content.append("" if is_line_break(event) else event.text)
            elif isinstance(event, Content) and event.text.isspace():
                content.append(self._take(event.end))
            elif isinstance(event, Markup) and self._is_of_reasoning(event.text.strip()):
                self._take(event.end)
            elif not isinstance(event, Diagnostic):
                self.over = True
                content.append(self._held)
                return "".join(reasoning), "".join(content)
            del self._waiting[0]
        if self._calls and self._held.startswith(self._calls):
            self.over = True
            content.append(self._held)
        return "".join(reasoning), "".join(content)

    def _is_of_reasoning(self, markup: str) -> bool:
        return markup in self._markers or self._header.endswith(markup)

    def _take(self, to: int) -> str:
        """The held text up to a position."""
        taken, self._held = self._held[: to - self._done], self._held[to - self._done :]
        self._done = to
        return taken


def without_answer_markers(format: Format, content: str) -> str:
    """A whole answer without the markers around it. (Where there are headers, the tool parser needs them.)"""
    if format.answer is None or format.headers is not None:
        return content
    return parse(Format("answer", answer=format.answer), content).content


def _beginning(text: str, mark: str) -> int:
    """How many characters at the end of `text` may be the beginning of `mark`."""
    return next((size for size in range(min(len(mark) - 1, len(text)), 0, -1) if text.endswith(mark[:size])), 0)
