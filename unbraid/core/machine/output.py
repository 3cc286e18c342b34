"""The output of a machine: events in the order of the text, and the call that is being read.

Until the name of a call is known, nothing of it goes out: it may turn out to be no call at all. Its pieces wait in
`PendingCall.held`, each with its role. `accept_call` emits them, `end_call` gives them back as text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ...schema.kinds import ANY_KIND
from .. import diagnostics
from ..call_ids import IdSource
from ..events import (
    LINE_BREAK,
    Content,
    Diagnostic,
    Event,
    Markup,
    Reasoning,
    SpeechText,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from ..grammar import CallIds
from ..limits import Limits
from ..tally import Tally
from ..tools import Tools
from . import prose
from .markers import is_control

TEXT, MARKUP, NAME, ARGUMENTS, PENDING, KEPT = range(6)
"""The role of a piece of input:

TEXT is text of the strand around it. MARKUP, NAME and ARGUMENTS are parts of a call. PENDING is an argument that can be
read in two ways, until `Machine.resolve_pending`. KEPT is the text of a call that was none: it is never spoken.
"""

_PLACES = ("content", "reasoning", "speech")

Held = tuple[int, str, str, int, int]
"""A piece that waits: its role, its text, the value it stands for, and its span."""


_unmade: Callable[[type[Any]], Any] = object.__new__
"""Makes an event without its fields. To run `__init__` takes as long as all else that a piece of arguments costs."""


class PendingCall:
    """State of one call. Plain values only, so that a snapshot can hold it."""

    __slots__ = (
        "accepted",
        "announced",
        "begin",
        "complete",
        "end",
        "fault",
        "flawed",
        "has_arguments",
        "held",
        "held_size",
        "id",
        "in_code",
        "index",
        "left_out",
        "may_be_named",
        "name",
        "pending",
        "pending_at",
        "raw",
        "rejected",
        "unnamed",
    )

    def __init__(self) -> None:
        self.index = 0
        self.name = ""
        self.id = ""
        self.announced = False
        """Whether a header says that a call follows, whatever that looks like: code, for one."""
        self.unnamed = False
        """Whether the model left its name out. Its arguments may tell which tool it is for."""
        self.accepted = False
        self.rejected = False
        self.left_out = False
        """Whether it was rejected, and nobody wants to read it: all of it is markup."""
        self.may_be_named = False
        """Whether it stands where an answer may name markup: in the middle of a line."""
        self.in_code = False
        """Whether it stands in code, where answers show markup."""
        self.begin = 0
        """Where it begins, once it is accepted or rejected; before, where what opens a list of calls ends."""
        self.end: int | None = None
        """Where it ends, once all of it has come."""
        self.fault = ""
        """The first diagnostic that says what is wrong with it."""
        self.has_arguments = False
        self.complete = False
        self.flawed = False
        """Whether one of its arguments, where they come one by one, is not sound JSON."""
        self.pending: list[str] = []
        """The pieces of an argument that can still be read in two ways. They follow each other without a gap."""
        self.pending_at = 0
        self.held: list[Held] = []
        self.held_size = 0
        self.raw: list[str] = []
        """What the model wrote for it, where that is kept."""


class Malformed(Exception):
    """A call does not follow the grammar. It never leaves the machine: what was read is kept, and reading goes on at
    the next marker."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        self.message = message


class CallsPlace(Protocol):
    """The frame between the markers of calls, as the output sees it."""

    accepted: bool
    """Whether a call has been accepted here. If not, none of the markup here was markup."""

    @property
    def bare(self) -> bool:
        """Whether these calls begin without a marker."""

    @property
    def echo(self) -> bool:
        """Whether they are others once more."""


class MachineOutput:
    """Emits events. A piece of input comes in with its role, and goes out, or waits with the rest of its call."""

    __slots__ = (
        "_emit_unknown",
        "_left_out",
        "at_end",
        "awaits_end",
        "call",
        "call_count",
        "calls",
        "ids",
        "in_message",
        "keep_raw",
        "limits",
        "marks",
        "names_headers",
        "offset",
        "out",
        "place",
        "prose",
        "reading_call",
        "reasoning_apart",
        "sections",
        "show_markup",
        "spellings",
        "strands",
        "stray_audio",
        "tally",
        "text_event",
        "tools",
    )

    def __init__(
        self,
        call_ids: CallIds,
        tools: Tools | None,
        unknown: str,
        keep_raw: bool,
        markup: bool,
        reasoning_apart: bool,
        limits: Limits,
        seed: int | None,
    ) -> None:
        """What a parser emits; `unbraid.Parser` explains the options.

        unknown: what becomes of calls to other tools: "text", "emit" or "drop".
        keep_raw: whether a call that does not become complete is reported with its raw text.
        reasoning_apart: False puts the reasoning into the content, with its markers.
        """
        self.limits = limits
        self.keep_raw = keep_raw
        self.tools = tools
        self._emit_unknown = unknown == "emit"
        self._left_out = unknown == "drop"
        self.show_markup = markup
        self.reasoning_apart = reasoning_apart
        self.ids = IdSource(call_ids, seed, limits.ids)
        self.offset = 0
        """Where the next input stands in the raw output."""
        self.spellings: Mapping[str, str] = {}
        """The characters that stand for tokens in the buffer, and the text of each token."""
        self.strands: list[str] = []
        """The strands that are open, the innermost last."""
        self.text_event: Callable[[str, int, int], Event] = Content
        """What text of the innermost strand becomes."""
        self.sections = 0
        """How many speech sections have begun."""
        self.stray_audio = False
        """Whether audio has come outside speech, which is reported once."""
        self.calls: CallsPlace | None = None
        self.call = PendingCall()
        self.reading_call = False
        self.call_count = 0
        self.awaits_end = False
        """Whether a call has come, and what ends its message has not."""
        self.out: list[Event] = []
        self.tally: Tally | None = None
        """Counts tokens, where they are to be counted."""
        self.marks = ""
        """The strand whose marker is being taken, with its whitespace; empty elsewhere."""
        self.prose = [0, 0, 0]
        """Where the text of the content, of the reasoning and of the speech stands (`prose.py`)."""
        self.at_end = False
        """Whether no more input comes, or none that could belong to what is open."""
        self.place = 0
        """Which of these the text of the innermost strand belongs to."""
        self.in_message = False
        """Whether a header has begun an answer, and what ends it has not come."""
        self.names_headers = True
        """Whether text may name the beginning of a header: not the rest of one that broke off, nor a call."""

    def spell(self, text: str) -> str:
        """`text` with the tokens in it written out."""
        spellings = self.spellings
        if not spellings or text.isascii():  # no token stands for itself there
            return text
        return "".join([spellings.get(char, char) for char in text])

    def report(self, kind: str, message: str, at: int | None = None) -> None:
        """Emit a diagnostic."""
        at = self.offset if at is None else at
        if self.reading_call and kind in diagnostics.OF_BROKEN_CALLS and not self.call.fault:
            self.call.fault = kind
        self.out.append(Diagnostic(kind, self.spell(message), at, at))

    def _emit(self, role: int, text: str, value: str, start: int, end: int) -> None:
        """Emit a piece, or hold it until its role is known."""
        if self.reading_call:
            call = self.call
            if call.rejected:
                role, value = self.kept(role, text), text
            elif not call.accepted:
                call.held.append((role, text, value, start, end))
                call.held_size += len(text)
                if call.held_size > self.limits.held:
                    self.report(diagnostics.TOO_LONG, "a tool call whose name does not come", at=call.held[0][3])
                    self._reject_call()
                return
            else:
                if self.keep_raw:
                    call.raw.append(text)
                if role == PENDING:
                    if not call.pending:
                        call.pending_at = start
                    call.pending.append(text)
                    return
        elif role == MARKUP and self.calls is not None and not self.calls.accepted:
            role = self.kept(role, text)
        self._say(role, value, start, end)

    @property
    def markup_is_settled(self) -> bool:
        """Whether markup is markup for certain. That around a call that is not accepted may become text."""
        return self.call.accepted if self.reading_call else self.calls is None or self.calls.accepted

    def _say(self, role: int, text: str, start: int, end: int) -> None:
        out = self.out
        if role == MARKUP:
            if self.tally is not None:
                self._settle_markup(end)
            if self.show_markup:
                out.append(Markup(text, start, end, self.calls is not None or self.marks == "tool_calls"))
            return
        if self.tally is not None:
            strand = self.marks or ("tool_calls" if role in (ARGUMENTS, NAME) else self.strands[-1])
            self.tally.settle(strand, end, bool(self.marks), False)
        if role == TEXT:
            self._go_on(self.place, text, start)
            out.append(self.text_event(text, start, end))
        elif role == ARGUMENTS:
            out.append(ToolCallArguments(self.call.index, text, start, end))
        elif role == NAME:
            out.append(ToolCallStart(self.call.index, self.call.id, self.call.name, start, end))
        elif role == KEPT:
            # Speech is played: markup in it is not.
            spoken = self.strands[-1] == "speech"
            self._go_on(0 if spoken else self.place, text, start)
            out.append((Content if spoken else self.text_event)(text, start, end))

    def _settle_markup(self, end: int) -> None:
        """Count the tokens up to there, which are markup."""
        assert self.tally is not None
        strand = self.marks or ("tool_calls" if self.calls is not None else self.strands[-1])
        self.tally.settle(strand, end, bool(self.marks), True)

    def pass_arguments(self, text: str, fragment: str) -> list[Event]:
        """Take a delta that is all arguments, past the buffer: for `Frame.fast_path`."""
        event, call = _unmade(ToolCallArguments), self.call
        event.index, event.fragment, event.start = call.index, fragment, self.offset
        self.offset = event.end = event.start + len(text)
        if self.keep_raw:
            call.raw.append(text)
        return [event]

    # --- Strands ---------------------------------------------------------------------------------------------------

    def _go_on(self, place: int, text: str, start: int) -> None:
        """Text of a strand comes. What stands before a call and after it are two lines, whatever the markers took."""
        state = self.prose[place]
        if state & prose.AFTER_CALL and text:
            if prose.settled(state) & prose.IN_LINE and not text[0].isspace() and _PLACES[place] != "speech":
                self.out.append((Reasoning if place else Content)(LINE_BREAK, start, start))
                state = prose.after(state, LINE_BREAK)
            state &= ~prose.AFTER_CALL
        self.prose[place] = prose.after(state, text)

    @property
    def prose_state(self) -> int:
        """Where the next text stands."""
        return prose.settled(self.prose[self.place])

    def answer_ends(self) -> None:
        """What comes is as at the start: reasoning may open."""
        self.prose[0] &= ~prose.BEGUN

    def open_strand(self, strand: str) -> None:
        self.strands.append(strand)
        self._choose_text_event()
        if self.place:
            self.prose[self.place] = prose.settled(self.prose[self.place]) & ~prose.QUOTED

    def close_strand(self) -> None:
        self.strands.pop()
        if self.strands:
            self._choose_text_event()

    def _choose_text_event(self) -> None:
        strand = self.strands[-1]
        if strand == "content" or (strand == "reasoning" and not self.reasoning_apart):
            self.text_event, self.place = Content, 0
        elif strand == "reasoning":
            self.text_event, self.place = Reasoning, 1
        else:
            self.text_event, self.place = self._speech_text, 2

    def _speech_text(self, text: str, start: int, end: int) -> Event:
        return SpeechText(text, self.sections - 1, start, end)

    # --- Calls -----------------------------------------------------------------------------------------------------

    def begin_call(self) -> None:
        if self.reading_call:
            self.end_call()
        call, state = PendingCall(), prose.settled(self.prose[self.place])
        call.may_be_named = bool(state & prose.IN_LINE)
        call.in_code = bool(state & prose.QUOTED)
        self.call = call
        self.reading_call = self.awaits_end = True

    def accept_call(self) -> None:
        """The call's name is known: it starts, or it is no call of this request."""
        call = self.call
        if call.unnamed and not call.name:
            return
        if not call.name:
            raise Malformed(diagnostics.MALFORMED_CALL, "a tool call without a name")
        if call.rejected:
            return
        if self.calls is not None and self.calls.echo:
            self._leave_out_echo()
            return
        if not self.may_call(call.name):
            call.left_out = self._left_out or self.is_noise
            if not self.is_guess:
                fate = "left out" if call.left_out else "kept as text"
                self.report(diagnostics.UNKNOWN_TOOL, f"{call.name!r} is not among the tools: {fate}")
            self._reject_call()
            return
        if self.tools is not None and call.name not in self.tools:
            self.report(diagnostics.UNKNOWN_TOOL, f"{call.name!r} is not among the tools")
        if call.id and call.id in self.ids:
            self.report(diagnostics.DUPLICATE_ID, f"a second tool call with the id {call.id!r}")
            call.id = ""
        assert self.calls is not None
        self.calls.accepted = True
        call.index, call.id = self.call_count, self.number_call(call.id)
        call.accepted = True
        held, call.held = call.held, []
        call.begin = self._begin_of(held)
        if self.keep_raw:
            call.raw = [text for _, text, _, _, _ in held]
        # The name comes first, even where the model wrote the arguments first.
        late = []
        silent = not self.show_markup and self.tally is None
        for role, _, value, start, end in held:
            if role == ARGUMENTS:
                late.append((value, start, end))
            elif role != MARKUP or not silent:
                self._say(role, value, start, end)
        for value, start, end in late:
            self._say(ARGUMENTS, value, start, end)

    def number_call(self, id: str) -> str:
        """A call has come, with this id or none: the id that it gets. It is numbered by `call_count`."""
        self.call_count += 1
        content, reasoning, speech = self.prose
        keep, called = ~prose.BEGUN, prose.AFTER_CALL
        self.prose = [content & keep | called, reasoning & keep | called, speech & keep | called]
        return self.ids.claim(id)

    def _leave_out_echo(self) -> None:
        """The call is the one before it once more: nobody wants to read it."""
        if not self.may_call(self.call.name):
            raise Malformed(diagnostics.UNKNOWN_TOOL, "a list that is no call")
        self.call.left_out = True
        self.report(diagnostics.REPAIRED, f"{self.call.name!r} once more, without a marker: left out")
        self._reject_call()

    @property
    def is_noise(self) -> bool:
        """Whether the call that is being read is no text where it is no call: no answer has such a marker."""
        opening = next((text for role, text, _, _, _ in self.call.held if role == MARKUP and text.strip()), "")
        return not self.call.in_code and bool(is_control(opening))

    @property
    def begins_call(self) -> bool:
        """Whether more of the call has come than what opens it, once or twice."""
        return len({text.strip() for role, text, _, _, _ in self.call.held if role == MARKUP} - {""}) > 1

    def knows(self, name: str) -> bool:
        """Whether a function is among the tools that were given."""
        return self.tools is not None and name in self.tools

    def may_call(self, name: str) -> bool:
        """Whether a call to this function is one."""
        return self.tools is None or self._emit_unknown or self.knows(name)

    @property
    def is_guess(self) -> bool:
        """Whether the call began without a marker, and has not been accepted."""
        return self.calls is not None and self.calls.bare and not self.calls.accepted

    def no_arguments(self) -> None:
        """A call without arguments is a call with `{}`."""
        call = self.call
        call.has_arguments = call.complete = True
        if call.rejected:
            return
        self.report(diagnostics.MALFORMED_CALL, "a tool call without arguments: taken as {}")
        self.add_arguments("{}")

    def add_arguments(self, text: str) -> None:
        """Emit arguments that follow from the format, and that the model wrote no text for."""
        if not self.call.rejected:
            self._emit(ARGUMENTS, "", text, self.offset, self.offset)

    def resolve_pending(self, write: Callable[[str], str]) -> None:
        """Emit the pending text as arguments, as `write` writes it."""
        call = self.call
        text, call.pending = "".join(call.pending), []
        if text:
            self._say(ARGUMENTS, write(text), call.pending_at, call.pending_at + len(text))

    def parameters(self) -> Mapping[str, Any]:
        """The schema of the parameters of the tool that is called; empty where it is not known."""
        return {} if self.tools is None else self.tools.get(self.call.name, {})

    def kinds(self, key: str) -> frozenset[str]:
        """The kinds that an argument of this call may have, by that schema."""
        return ANY_KIND if self.tools is None else self.tools.kinds(self.call.name, key)

    def end_call(self) -> None:
        """End the call. If it was never accepted, its pieces are text."""
        if not self.reading_call:
            return
        call = self.call
        if call.accepted:
            raw = "" if call.complete else "".join(call.raw)
            call.raw = []
            self.out.append(ToolCallEnd(call.index, call.complete, raw, self.offset, self.offset))
        elif not call.rejected:
            self._reject_call()
        if self.tally is not None and (call.accepted or not self.is_guess):
            self._count_call(self.tally)
        self.reading_call = False

    def _count_call(self, tally: Tally) -> None:
        call = self.call
        sound = call.accepted and call.complete and call.fault != diagnostics.UNKNOWN_TOOL
        fault = "" if sound else call.fault or diagnostics.MALFORMED_CALL
        end = self.offset if call.end is None else call.end
        if call.accepted or call.begin < end:  # else nothing of it has come
            tally.call(call.begin, end, call.name, call.index if call.accepted else None, fault)

    def _begin_of(self, held: list[Held]) -> int:
        """Where the call of these pieces begins: what opens a list, and whitespace, left out."""
        for _, text, _, start, _ in held:
            if start >= self.call.begin and (rest := text.lstrip()):
                return start + len(text) - len(rest)
        return self.offset

    def _reject_call(self) -> None:
        self.call.rejected = True
        held, self.call.held = self.call.held, []
        self.call.begin = self._begin_of(held)
        for role, text, _, start, end in held:
            if text:
                self._say(self.kept(role, text), text, start, end)

    def kept(self, role: int, text: str) -> int:
        """What a piece of a call that is none is said as: as text, unless it is markup that no answer names."""
        call = self.call
        if call.left_out:
            return MARKUP
        # What the output ends with is a beginning, and no name.
        is_name = call.in_code or (call.may_be_named and not self.at_end)
        return MARKUP if role == MARKUP and not is_name and is_control(text) else KEPT

    def drop_call(self) -> None:
        """Nothing stands where a call should be: the held pieces are markup."""
        held, self.call.held = self.call.held, []
        self.reading_call = False
        at = held[0][3] if held else self.offset  # the prompt may have written all of its header
        self.report(diagnostics.EMPTY_CALL, "a tool call with nothing in it: left out", at=at)
        if self.tally is not None:
            self.tally.call(self._begin_of(held), self.offset, "", None, diagnostics.EMPTY_CALL)
        for _, text, _, start, end in held:
            if text:
                self._say(MARKUP, text, start, end)
