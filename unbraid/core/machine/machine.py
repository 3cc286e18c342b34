"""The pushdown machine that frames run on: input and a stack, on top of `output.py`.

A response is read by a stack of frames (`Frame`). Each frame is one state: text of a strand, a header, a call, a value
inside a call. The frame on top works on the buffer until it needs more input. `__init__.py` has the theory; read it
first.

This module has what every frame needs and knows none of them by name:

- *Input.* `buffer[position:]` is the text that nobody has taken. All of it leaves through `take`, which says what it
  means and where it stood. So every character is emitted once or is markup: law 3 (docs/laws.md#law-3).
- *Output.* Events, in the order of the text (`MachineOutput`). Until a call is accepted its pieces are held in `call`.
- *The stack.* `push`, `pop`, and `run`, which also catches `Malformed`.

Rules for frames:

1. A frame either has all that it needs, or returns False and has changed nothing. Chunk boundaries are invisible for
   this reason alone.
2. What may push a frame is declared on that frame (`Frame.opened_by`). `push` asserts it.
3. A frame's state is plain values, or `snapshot` cannot save it.
4. What runs for every delta is `Frame.fast_path`, then `take`; a line more there can be measured.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, cast

from .. import diagnostics
from ..events import Event, Reasoning, ToolCallArguments, ToolCallEnd, ToolCallStart
from .markers import Markers, space_end
from .output import ARGUMENTS, KEPT, MARKUP, NAME, TEXT, MachineOutput, Malformed

_space = re.compile(r"\s*").match
_placeholders = re.compile("[\ud800-\udfff]")
_begins_arguments = re.compile(r"[<{\[(:\ud800-\udfff]").match
_MARKED = ("reasoning", "speech")
"""Strands between markers, but for calls."""


FastPath = Callable[["Machine", str], list[Event] | None]
"""Takes a whole delta and returns its events, or returns None and takes nothing. Then `Frame.step` gets the same text.
Where both could take it, both must return the same. The stack stays as it is, unless the fast path sets the next one. A
fast path that changes more than `offset` adds to `Machine.moves`."""

Places = tuple[int, int, int, int, int]
"""Where in the buffer the name of a call begins and ends, its arguments, and the call itself ends."""

START = "start"
"""In `Frame.opened_by`: a parser may start with this frame, by what its prompt ends with."""


@dataclass(frozen=True, slots=True)
class State:
    """One kind of frame in words: a row of the table in docs/machine.md."""

    reads: str
    ends: str
    """What ends it."""
    malformed: str
    """What malformed input does to it."""


class Frame(ABC):
    """One state on the stack."""

    __slots__ = ()
    kind: ClassVar[str]
    """Its name in snapshots, in `opened_by` and in docs/machine.md."""
    opened_by: ClassVar[tuple[str, ...]]
    """The kinds of frames that push this one, or give their place to it; START too."""
    about: ClassVar[State]
    saved: ClassVar[tuple[str, ...]] = ()
    """The attributes that make up its state. All others follow from what stands below it."""
    registry: ClassVar[dict[str, type[Frame]]] = {}
    """Every kind of frame there is."""

    def __init_subclass__(cls) -> None:
        if "kind" in vars(cls):
            Frame.registry[cls.kind] = cls

    @abstractmethod
    def step(self, machine: Machine) -> bool:
        """Do what can be done with the buffer. False when more input is needed; then nothing may have changed."""

    def fast_path(self, machine: Machine) -> FastPath | None:
        """The fast path for the state that the frame is in now, or None."""
        return None

    def held_path(self, machine: Machine) -> FastPath | None:
        """The fast path for text where some is held back, or where there is no other; or None. It gets what comes next,
        and takes the text before it too, or adds to that, if it is still not enough to tell."""
        return None

    @property
    def in_string(self) -> bool:
        """Whether what comes next stands inside a string argument, where all is data."""
        return False

    def entered(self, machine: Machine) -> None:  # noqa: B027  # most frames need nothing here
        """Called when the frame is pushed."""

    def left(self, machine: Machine) -> None:  # noqa: B027
        """Called when it is popped."""

    @classmethod
    def resume(cls, machine: Machine, saved: Mapping[str, Any]) -> Self:
        """A frame of this kind on top of `machine.stack`, whose saved attributes are yet to be set. Unless a frame says
        otherwise, it is the one that the latest step of the calls pushed."""
        assert machine.calls is not None
        return cast(Self, machine.calls.latest_frame())


class CallsState(Frame):
    """The frame between the markers of calls. Every state of a call stands on top of one."""

    __slots__ = ("accepted", "markers")
    markers: Markers
    """All that can end a malformed call here."""
    accepted: bool
    """Whether a call has been accepted here. If not, none of the markup here was markup."""

    @property
    @abstractmethod
    def bare(self) -> bool:
        """Whether these calls begin without a marker."""

    @property
    @abstractmethod
    def echo(self) -> bool:
        """Whether they are others once more."""

    @abstractmethod
    def give_up(self, machine: Machine) -> None:
        """The input that comes is no call."""

    @abstractmethod
    def latest_frame(self) -> Frame:
        """The frame that the latest step pushed, anew."""


class Machine(MachineOutput):
    """What frames see. `driver.Driver` feeds it."""

    __slots__ = (
        "buffer",
        "fast_path",
        "gaps",
        "moves",
        "position",
        "running",
        "stack",
        "trail",
        "turn_over",
    )

    def __init__(self, *options: Any) -> None:
        """Takes the options of `MachineOutput`."""
        super().__init__(*options)
        # The input that is not taken yet: buffer[position:]. What is taken is dropped at the next feed.
        self.buffer = ""
        self.position = 0
        self.turn_over = False
        """Whether that is so because the model has ended its turn. If not, the output was cut off, and what it ends
        inside of is not complete."""
        self.trail = ""
        """Whitespace that belongs to the marker just taken, if it comes."""
        self.moves = 0
        """Goes up whenever anything may have changed but `offset`."""
        self.gaps: list[list[int]] = []
        """Audio that came while text before it was held back: start and length. The text goes on after it."""
        self.stack: list[Frame] = []
        self.running: Frame | None = None
        """The frame whose step runs, for the assertion in `push`; None at the start."""
        self.calls: CallsState | None = None
        self.fast_path: FastPath | None = None
        """The fast path for the next text, or None; see `Frame.fast_path`."""

    def choose_fast_path(self) -> None:
        """Set the fast path for the state that the machine is in now."""
        raise NotImplementedError

    # --- Taking input ----------------------------------------------------------------------------------------------

    def take(self, size: int, role: int, value: str | None = None) -> None:
        """Take `size` characters from the buffer. `value` is what they stand for, where that is not themselves."""
        start = self.position
        self.position = stop = start + size
        text = self.buffer[start:stop]
        if self.gaps:
            for piece, begin, end in self._pieces(text):
                self._emit(role, piece, piece if value is None else value, begin, end)
                if value is not None or role == NAME:
                    # Said once: what audio cuts off from it is no more than markup.
                    role, value = MARKUP, None
            return
        if not text.isascii() and self.spellings and (role == MARKUP or _placeholders.search(text)):
            text = self.spell(text)
        begin = self.offset
        self.offset = end = begin + len(text)
        if role == MARKUP and not self.show_markup and self.markup_is_settled:
            # As in `_emit`, where no event comes of it.
            if self.keep_raw and self.reading_call:
                self.call.raw.append(text)
            if self.tally is not None:
                self._settle_markup(end)
            return
        if not self.reading_call and (role == TEXT or (role == MARKUP and self.calls is None)):
            self._say(role, text if value is None else value, begin, end)
            return
        self._emit(role, text, text if value is None else value, begin, end)

    def take_name(self, size: int) -> None:
        """Take the call's name; of size 0 where it stands in the prompt."""
        if size:
            self.take(size, NAME)
        else:
            self._emit(NAME, "", "", self.offset, self.offset)

    def take_reasoning(self, text: str) -> None:
        """Take a text of the reasoning that comes next, which is apart and has no tokens in it."""
        start = self.offset
        self.position += len(text)
        self.offset = end = start + len(text)
        if self.tally is not None:
            self.tally.settle("reasoning", end, False, False)
        self._go_on(1, text, start)
        self.out.append(Reasoning(text, start, end))

    def can_begin(self, name: str, id: str) -> bool:
        """Whether a call of that name and id is as most are: to a tool that there is."""
        if (self.tools is not None and name not in self.tools) or (id and id in self.ids):
            return False
        return len(name) <= self.limits.name >= len(id)

    def take_call(self, name: str, id: str, places: Places, arguments: str) -> None:
        """Take all of a call."""
        buffer, start, begin = self.buffer, self.position, self.offset
        self.position = places[4]
        name_at, name_end, at, end, stop = places
        shift = begin - start
        token = _placeholders.search(buffer, start, stop) if self.spellings else None
        if token is not None and not _placeholders.search(buffer, token.end(), stop) and token.end() <= name_at:
            shift += len(self.spellings[token.group()]) - 1  # what opens the call, as nearly always
            token = None
        if token is not None:
            name_at, name_end, at, end, stop = [begin + len(self.spell(buffer[start:place])) for place in places]
        else:
            name_at, name_end, at, end, stop = name_at + shift, name_end + shift, at + shift, end + shift, stop + shift
        self.offset = stop
        index, id = self.call_count, self.number_call(id)
        if self.tally is not None:
            self.tally.settle_call(name_at, name_end, at, end, stop)
            self.tally.call(begin + space_end(buffer, start) - start, stop, name, index, "")
        self.out += (
            ToolCallStart(index, id, name, name_at, name_end),
            ToolCallArguments(index, arguments, at, end),
            ToolCallEnd(index, True, "", stop, stop),
        )

    def take_begun(self, name: str, id: str, name_at: int, name_end: int, stop: int) -> bool:
        """Take the beginning of a call up to a place of the buffer, and accept the call. False where what came before
        it is more than markup; then nothing is taken."""
        buffer, start, call = self.buffer, self.position, self.call
        for held in call.held:
            if held[0] != MARKUP:
                return False
        self.position = stop
        text = buffer[start:stop]
        if self.spellings and _placeholders.search(text):
            name_at, name_end = (self.offset + len(self.spell(buffer[start:place])) for place in (name_at, name_end))
            text = self.spell(text)
        else:
            shift = self.offset - start
            name_at, name_end = name_at + shift, name_end + shift
        self.offset += len(text)
        assert self.calls is not None
        self.calls.accepted = call.accepted = True
        call.index, call.name, call.id = self.call_count, name, self.number_call(id)
        if self.keep_raw:
            call.raw = [*(held for _, held, *_ in call.held), text]
        call.held = []
        self.out.append(ToolCallStart(call.index, call.id, name, name_at, name_end))
        return True

    def skip_space(self) -> None:
        end = _space(self.buffer, self.position).end()  # type: ignore[union-attr]  # an empty match always exists
        if end > self.position:
            self.take(end - self.position, MARKUP)

    def find(self, markers: Markers) -> tuple[re.Match[str] | None, int]:
        """The nearest marker, and where the text before it ends; or the end of the text that no marker can begin in."""
        match = markers.find(self.buffer, self.position)
        if match is not None:
            return match, match.start()
        return None, len(self.buffer) if self.at_end else markers.safe_end(self.buffer, self.position)

    @property
    def cut_off(self) -> bool:
        """Whether the output ends here, and the model did not end it."""
        return self.at_end and not self.turn_over

    def hold(self, text: str) -> list[Event]:
        """Nothing comes of what is held back and goes on like this: for `Frame.held_path`."""
        self.buffer, self.position = text, 0
        self.moves += 1
        return []

    @property
    def reads_whole(self) -> bool:
        """Whether what has come whole may be read at once: no call is being read, nobody asks for markup, and no audio
        stands in between."""
        return not self.reading_call and not self.show_markup and not self.gaps

    @property
    def in_short(self) -> bool:
        """Whether fast paths may take markup: nobody asks for its pieces."""
        return not self.show_markup and self.tally is None and not self.gaps

    def pass_space(self, text: str) -> list[Event]:
        """Take whitespace that says nothing past the buffer."""
        self.offset += len(text)
        self.buffer, self.position = "", 0
        self.moves += 1
        if self.keep_raw and self.reading_call:
            self.call.raw.append(text)
        return []

    def pass_trail(self, text: str) -> list[Event] | None:
        """The fast path where the whitespace that belongs to the marker before it may come (`trail`)."""
        size = len(self.trail)
        if not text.startswith(self.trail):
            return None
        self.buffer, self.position = text, 0
        self.take(size, MARKUP)
        self.trail = self.marks = ""
        return self.go_on()

    def go_on(self) -> list[Event]:
        """For a fast path that has taken a part of the buffer, perhaps all: the events of it and of the rest, and the
        next fast path."""
        frame, rest = self.stack[-1], self.buffer[self.position :]
        if rest and not self.trail and (path := frame.fast_path(self) or frame.held_path(self)) is not None:
            self.buffer, self.position, self.fast_path = "", 0, path
            events = path(self, rest)
            if events is not None:
                self.out += events
                rest = ""
            else:
                self.buffer = rest
        if rest:
            self.run()
        events, self.out = self.out, []
        self.moves += 1
        self.choose_fast_path()
        return events

    def pass_markup(self, text: str, fragment: str, size: int) -> list[Event]:
        """Take all of `text`, which stands for a fragment of arguments with its first `size` characters, past the
        buffer: for a fast path that then chooses the next one."""
        start = self.offset
        self.offset = start + len(text)
        self.buffer, self.position = "", 0
        self.moves += 1
        if self.keep_raw:
            self.call.raw.append(text)
        return [ToolCallArguments(self.call.index, fragment, start, start + size)]

    def needs_more(self) -> bool:
        """False, for a step that needs more input. Where none comes, the call is not finished: raises `Malformed`."""
        if self.at_end:
            raise Malformed(diagnostics.UNFINISHED_CALL, "")
        return False

    def pass_to_marker(self, markers: Markers) -> bool:
        """The step of a frame whose text is passed on as arguments, as it is, up to a marker."""
        match, end = self.find(markers)
        if end > self.position:
            self.take(end - self.position, ARGUMENTS)
        if match is None:
            return self.needs_more()
        self.pop()
        self.call.has_arguments = True
        return True

    def _pieces(self, text: str) -> Iterable[tuple[str, int, int]]:
        """`text`, just taken, as it stands in the raw output: tokens written out, cut where audio stands in it."""
        spellings, gaps = self.spellings, self.gaps
        piece: list[str] = []
        begin = end = self.offset
        for char in text:
            if gaps and gaps[0][0] == end:
                if piece:
                    yield "".join(piece), begin, end
                    piece.clear()
                end += gaps.pop(0)[1]
                begin = end
            spelled = spellings.get(char, char)
            piece.append(spelled)
            end += len(spelled)
        self.offset = end
        if piece:
            yield "".join(piece), begin, end

    # --- The stack -------------------------------------------------------------------------------------------------

    def push(self, frame: Frame) -> None:
        assert (self.running.kind if self.running else START) in frame.opened_by, f"{self.running} opens {frame}"
        self.stack.append(frame)
        frame.entered(self)

    def pop(self) -> None:
        self.stack.pop().left(self)

    def take_marker(self, size: int, strand: str, trail: str) -> None:
        """Take a marker that opens or closes a strand, with the whitespace after it that belongs to it. It is text
        where it marks the reasoning and that is left where it stands."""
        if strand == "reasoning" and not self.reasoning_apart:
            self.marks = strand
            self.take(size, KEPT)
            self.marks = ""
        else:
            self.take_markup(size, strand, trail)

    def take_markup(self, size: int, strand: str, trail: str) -> None:
        """Take such a marker where it is never text."""
        self.marks = strand if strand in _MARKED else ""
        joined = trail and not self.show_markup and self.buffer.startswith(trail, self.position + size)
        if joined and self.markup_is_settled:
            size, trail = size + len(trail), ""
        self.take(size, MARKUP)
        self.trail = trail
        if not trail:
            self.marks = ""

    def run(self) -> None:
        """Let the frame on top work until it needs more input."""
        while True:
            try:
                while not self.trail or self._skip_trail():
                    frame = self.running = self.stack[-1]
                    if not frame.step(self):
                        break
                return
            except Malformed as problem:
                self._recover(problem)

    def _skip_trail(self) -> bool:
        """Take the whitespace that belongs to the marker before it. False when more of it may come."""
        if self.buffer.startswith(self.trail, self.position):
            self.take(len(self.trail), MARKUP)
            self.trail = ""
        while self.trail:
            rest = self.buffer[self.position : self.position + 1]
            if not rest and not self.at_end:
                return False
            if rest != self.trail[0]:
                self.trail = ""
            else:
                self.take(1, MARKUP)
                self.trail = self.trail[1:]
        self.marks = ""
        return True

    def _recover(self, problem: Malformed) -> None:
        """Keep the input of a call that breaks, and go on at the next marker."""
        calls = self.calls
        assert calls is not None
        between = self.at_end and not self.reading_call and self.call.complete
        if self.turn_over and self.call.accepted and self.call.complete:
            self.report(diagnostics.UNCLOSED, "the turn ends before a tool call does, and after its arguments")
        elif between:
            self.report(diagnostics.UNCLOSED, "the output ends after a tool call, and before what closes the calls")
        elif self.at_end and not self.is_guess:
            self.report(diagnostics.UNFINISHED_CALL, "the output ends inside a tool call")
            self.call.complete = False
        elif not self.is_guess:
            self.report(problem.kind, problem.message)
        while self.stack[-1] is not calls:
            self.pop()
        if not self.call.accepted and not self.call.rejected:
            self.call.left_out = self._is_cut_off_call() if self.at_end else self.is_noise and self._is_broken_call()
            if self.is_guess and self.call.left_out:
                self.report(diagnostics.UNFINISHED_CALL, "the output ends inside a tool call")
        if self.at_end and (between or self.call.left_out or (self.call.accepted and not self.call.complete)):
            # What was held back belongs to the call: nobody wants the beginning of a tag for an answer.
            self.take(len(self.buffer) - self.position, MARKUP)
        if self.call.complete or not self.call.accepted:
            self.end_call()
        calls.give_up(self)

    def _is_cut_off_call(self) -> bool:
        """Whether the call that the output ends in, before its name, is no text: it stands in no code, and no line
        names it. Without a marker, only the beginning of a tool's name shows that it is one."""
        if self.is_guess:
            begun = self.call.name or self.buffer[self.position :].lstrip(" \"'")
            return bool(begun) and self.cut_off and any(name.startswith(begun) for name in self.tools or ())
        call = self.call
        return self.is_noise or not (call.in_code or (call.may_be_named and self.turn_over))

    def _is_broken_call(self) -> bool:
        """Whether what breaks is a call, and not text after a marker that means nothing, or that a line names."""
        begun = self.begins_call or bool(_begins_arguments(self.buffer, self.position))
        return begun and not self.call.may_be_named

    @property
    def begin_of_unnamed_call(self) -> int | None:
        """Where the call begins, or the header of one, of whose name more may come; None where there is none."""
        if self.stack[-1].kind == "header":
            return self.offset
        if self.calls is None or self.call.accepted or self.call.rejected:
            return None
        return self.call.held[0][3] if self.call.held else self.offset

    def leave_calls(self) -> None:
        if self.reading_call:
            self.end_call()
        self.pop()
