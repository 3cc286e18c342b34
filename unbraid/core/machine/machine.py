"""The parser: raw output in, events out. No I/O, no chunk boundaries, no second code path.

What the parser is doing is a stack of frames. At the bottom is the content; on top of it stand the scopes that markers
have opened (reasoning, speech), and the states of a call (`calls`, `values`). `feed` adds text to the buffer and lets
the frame on top work until it needs more. All input passes through `take`, which says what becomes of each piece; so
every character is emitted once or is markup (law 3).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...errors import UnbraidError
from .. import diagnostics
from ..events import (
    Content,
    Diagnostic,
    Event,
    Language,
    Markup,
    Reasoning,
    SpeechAudio,
    SpeechText,
    Timestamp,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from ..grammar import Format
from ..limits import Limits
from ..tools import Tools
from ..vocabulary import Vocabulary
from .call_ids import IdSource
from .calls import CallsFrame, PendingCall
from .compiler import compile_format
from .detokenizer import Detokenizer
from .frames import ARGUMENTS, MARKUP, NAME, PENDING, TEXT, Frame, Malformed
from .headers import HeaderFrame
from .markers import Marker
from .program import Code, Program, ScopeRule
from .scopes import RepeatedOpenerFrame, ScopeFrame

_space = re.compile(r"\s*").match
_placeholders = re.compile("[\ud800-\udfff]")

_LIMITS = Limits()


class Machine:
    """Reads one response. `unbraid.Parser` is the door to it, and explains the options."""

    def __init__(
        self,
        format: Format,
        *,
        tools: Tools | None = None,
        emit_unknown: bool = False,
        vocabulary: Vocabulary | None = None,
        prompt: str | Sequence[int] | None = None,
        separate_reasoning: bool = True,
        keep_raw: bool = True,
        markup: bool = False,
        limits: Limits = _LIMITS,
        seed: int | None = None,
    ) -> None:
        """keep_raw: whether a call that does not become complete is told with its raw text."""
        if vocabulary is not None:
            format = format.for_version(vocabulary.version)
        self._prompt = format.prompt if prompt is None else prompt
        self._whole_format = format
        self.format = format if separate_reasoning else format.without_reasoning()
        self.limits = limits
        self.keep_raw = keep_raw
        self._vocabulary = vocabulary
        self._tools = tools
        self._emit_unknown = emit_unknown
        self._show_markup = markup
        self._ids = IdSource(format.call_ids, seed)
        self._finished = False

        # The input that is not taken yet: buffer[position:]. What is taken is dropped at the next feed.
        self.buffer = ""
        self.position = 0
        self.at_end = False
        self.trail = ""
        """Whitespace that belongs to the marker just taken, if it comes."""
        self.offset = 0
        """Where buffer[position] stands in the raw output."""
        self._gaps: list[list[int]] = []
        """Audio that came while text before it was held back: start and length. The text goes on after it."""
        self._code_tail = ""
        """The beginning of what may become an audio code, in text."""

        self.stack: list[Frame] = []
        self.text_event: Callable[[str, int, int], Event] = Content
        """What text of the innermost scope becomes."""
        self._calls: CallsFrame | None = None
        self.call: PendingCall = PendingCall()
        self.reading_call = False
        self._call_count = 0
        self._speech_count = 0
        self._stray_audio = False
        self._out: list[Event] = []
        self.fast_path: Callable[[Machine, str], Event | None] | None = None
        """What may take the next text at once, where nothing waits; see `Frame.fast_path`."""
        self._started = False
        self.set_up(vocabulary)

    def set_up(self, vocabulary: Vocabulary | None) -> None:
        """Get ready for the ids of a vocabulary, or for text."""
        self._program: Program = compile_format(self.format, vocabulary)
        self._code_search = self._program.code_search
        self._detokenizer = None if vocabulary is None else Detokenizer(vocabulary)
        self._speech_count = 0
        self.stack = []
        self.push(ScopeFrame(self._program.content))
        # The prompt may end with a marker of the reasoning even where that is left in the content.
        same = self.format is self._whole_format
        self._start(self._program if same else compile_format(self._whole_format, vocabulary))
        self.choose_fast_path()

    # --- What the parser calls ---------------------------------------------------------------------------------------

    def feed(self, text: str) -> list[Event]:
        """Parse the next piece of text, cut anywhere."""
        if self._finished:
            self._refuse()
        if not isinstance(text, str):
            raise UnbraidError(f"feed takes text, not {type(text).__name__}; token ids go to feed_tokens")
        if self._detokenizer is not None:
            self._turn_to_text()
        self._started = True
        if self._code_search is None:
            self._push(text)
        else:
            self._push_with_codes(text)
        return self._collect()

    def feed_tokens(self, ids: Iterable[int]) -> list[Event]:
        """Parse the next token ids."""
        if self._finished:
            self._refuse()
        detokenizer = self._detokenizer
        if detokenizer is None:
            if self._vocabulary is not None:
                raise UnbraidError("this parser has been fed text: it cannot go on with token ids")
            raise UnbraidError("feed_tokens needs a tokenizer: make the parser with tokenizer=…, or feed text")
        program = self._program
        token_placeholders, codes = program.token_placeholders, program.codes
        text: list[str] = []
        for token in ids:
            self._started = True
            if token in codes:
                self._push("".join(text))
                text.clear()
                if self._in_json_string():
                    self._push(detokenizer.flush() + codes[token][1])
                else:
                    self._out_of_band(*codes[token])
            elif token in token_placeholders:
                # A marker ends a character that was cut off; audio does not.
                text.append(detokenizer.flush())
                if token in program.ends:
                    self._push("".join(text))
                    text.clear()
                    self._close_all()
                text.append(token_placeholders[token])
            else:
                piece = detokenizer.decode(token)
                if piece is None:
                    self._push("".join(text))
                    text.clear()
                    self.report(diagnostics.UNKNOWN_TOKEN, f"token {token} is not in the vocabulary")
                    piece = detokenizer.flush() + "\ufffd"
                text.append(piece)
        self._push("".join(text))
        return self._collect()

    def finish(self) -> list[Event]:
        """The output is over: emit what is still held back and close what is open."""
        if self._finished:
            self._refuse()
        if self._detokenizer is not None:
            self._push(self._detokenizer.flush())
        self._push(self._code_tail)
        self._code_tail = ""
        self._close_all()
        self._finished = True
        return self._collect()

    # --- Taking input ----------------------------------------------------------------------------------------------

    def take(self, size: int, role: int, value: str | None = None) -> None:
        """Take `size` characters from the buffer. `value` is what they stand for, where that is not themselves."""
        start = self.position
        self.position = stop = start + size
        text = self.buffer[start:stop]
        if self._gaps or (self._detokenizer is not None and _placeholders.search(text)):
            for piece, begin, end in self._pieces(text):
                self._emit(role, piece, piece if value is None else value, begin, end)
                if value is not None or role == NAME:
                    # Said once: what audio cuts off from it is no more than markup.
                    role, value = MARKUP, None
            return
        begin = self.offset
        self.offset = end = begin + size
        self._emit(role, text, text if value is None else value, begin, end)

    def pass_arguments(self, text: str, fragment: str) -> Event:
        """Take a delta that is all arguments, past the buffer: what `Frame.fast_path` is for."""
        start, self.offset = self.offset, self.offset + len(text)
        if self.keep_raw:
            self.call.raw.append(text)
        return ToolCallArguments(self.call.index, fragment, start, self.offset)

    def take_name(self, size: int) -> None:
        """Take the call's name; of size 0 where it stands in the prompt."""
        if size:
            self.take(size, NAME)
        else:
            self._emit(NAME, "", "", self.offset, self.offset)

    def skip_space(self) -> None:
        end = _space(self.buffer, self.position).end()  # type: ignore[union-attr]  # an empty match always exists
        if end > self.position:
            self.take(end - self.position, MARKUP)

    def spell(self, text: str) -> str:
        """`text` with the tokens in it written out."""
        spellings = self._program.spellings
        return "".join([spellings.get(char, char) for char in text]) if spellings else text

    def _pieces(self, text: str) -> Iterable[tuple[str, int, int]]:
        """`text`, just taken, as it stands in the raw output: tokens written out, cut where audio stands in it."""
        spellings, gaps = self._program.spellings, self._gaps
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

    def _emit(self, role: int, text: str, value: str, start: int, end: int) -> None:
        if self.reading_call:
            call = self.call
            if call.rejected:
                role, value = TEXT, text
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
        elif role == MARKUP and self._calls is not None and not self._calls.accepted:
            role = TEXT
        self._say(role, value, start, end)

    def _say(self, role: int, text: str, start: int, end: int) -> None:
        out = self._out
        if role == TEXT:
            out.append(self.text_event(text, start, end))
        elif role == ARGUMENTS:
            out.append(ToolCallArguments(self.call.index, text, start, end))
        elif role == NAME:
            out.append(ToolCallStart(self.call.index, self.call.id, self.call.name, start, end))
        elif self._show_markup:
            out.append(Markup(text, start, end, self._calls is not None))

    def report(self, kind: str, message: str, at: int | None = None) -> None:
        at = self.offset if at is None else at
        self._out.append(Diagnostic(kind, self.spell(message), at, at))

    # --- The stack -------------------------------------------------------------------------------------------------

    def push(self, frame: Frame) -> None:
        self.stack.append(frame)
        if isinstance(frame, ScopeFrame):
            self.text_event = self._event_of(frame.rule.strand)
        elif isinstance(frame, CallsFrame):
            self._calls = frame

    def pop(self) -> None:
        frame = self.stack.pop()
        if isinstance(frame, ScopeFrame):
            self.text_event = self._event_of(self.scope().strand)
        elif isinstance(frame, CallsFrame):
            self._calls = None

    def _event_of(self, strand: str) -> Callable[[str, int, int], Event]:
        if strand == "content":
            return Content
        return Reasoning if strand == "reasoning" else self._speech_text

    def _speech_text(self, text: str, start: int, end: int) -> Event:
        return SpeechText(text, self._speech_count - 1, start, end)

    def on_marker(self, marker: Marker, size: int) -> None:
        """A marker in the text: it opens something, closes something, ends the turn, or says nothing."""
        if marker.role == "open":
            self._open(marker, size)
            return
        if marker.role == "header":
            assert self._program.headers is not None
            self.push(HeaderFrame(self._program.headers))
            return
        if marker.role == "answer":
            # What opens the answer ends the reasoning.
            while len(self.stack) > 1:
                self._pop_unclosed()
        elif marker.role == "close":
            while not (isinstance(scope := self.stack[-1], ScopeFrame) and scope.rule.strand == marker.strand):
                self._pop_unclosed()
        self.take(size, MARKUP)
        self.trail = marker.trail
        if marker.role == "close":
            self.pop()

    def begin_message(self, strand: str) -> None:
        """A header says what comes. What came before is over."""
        while len(self.stack) > 1:
            self._pop_unclosed()
        calls = self._program.calls.get(strand)
        if calls is not None:
            self.push(CallsFrame(calls, self.scope().calls_markers[strand]))
            self.begin_call()
        elif strand in self.scope().inner:
            self._enter(strand)

    def end_scope(self) -> bool:
        """The output ends in the scope on top. False at the bottom of the stack: then all is done."""
        if len(self.stack) == 1:
            return False
        self._pop_unclosed()
        return True

    def leave_calls(self) -> None:
        self.end_call()
        self.pop()

    def _open(self, marker: Marker, size: int) -> None:
        calls = self._program.calls.get(marker.strand)
        if calls is not None:
            self.push(CallsFrame(calls, self.scope().calls_markers[marker.strand]))
            self.begin_call()
            if calls.bare:
                return
        self.take(size, MARKUP)
        if calls is None:
            self._enter(marker.strand)
        self.trail = marker.trail

    def _enter(self, strand: str) -> None:
        self.push(ScopeFrame(self.scope().inner[strand]))
        if strand == "speech":
            self._speech_count += 1

    def expect_orphan_closer(self, close: Marker) -> None:
        """A closing marker will come that closes nothing, because what it closes was taken for text."""
        self._scope_frame().orphan_closer = close.key

    def scope(self) -> ScopeRule:
        """The innermost scope."""
        return self._scope_frame().rule

    def _scope_frame(self) -> ScopeFrame:
        return next(frame for frame in reversed(self.stack) if isinstance(frame, ScopeFrame))

    def _pop_unclosed(self) -> None:
        frame = self.stack[-1]
        if isinstance(frame, ScopeFrame) and frame.rule.close_required:
            self.report(diagnostics.UNCLOSED, f"{frame.rule.strand} without '{frame.rule.closes[0].key}'")
        self.pop()

    def _start(self, program: Program) -> None:
        """Begin where the prompt leaves off."""
        prompt = self._prompt
        inside: list[str] = []
        if not isinstance(prompt, str) and program.vocabulary is None and self._vocabulary is not None:
            # Ids could have come, and text does: then the prompt's markers are text as well.
            inside, _ = compile_format(self.format, self._vocabulary).open_after(prompt)
            prompt = Detokenizer(self._vocabulary).text(prompt, {})
        header = program.header_after(prompt)
        if header:
            assert self._program.headers is not None
            self.push(HeaderFrame(self._program.headers, header))
            return
        strands, trail = program.open_after(prompt)
        strands = strands or inside
        for strand in strands:
            if strand in self.scope().inner:
                self._enter(strand)
        if not strands or strands[-1] == self.scope().strand:
            self.trail = trail
            if strands:
                self.push(RepeatedOpenerFrame(self.scope().again))

    def _turn_to_text(self) -> None:
        """Text comes although ids could: then the tokenizer only told the version."""
        if self._started:
            raise UnbraidError("this parser has been fed token ids: it cannot go on with text")
        self.set_up(None)

    # --- Calls -----------------------------------------------------------------------------------------------------

    def begin_call(self) -> None:
        self.end_call()
        self.call = PendingCall()
        self.reading_call = True

    def accept_call(self) -> None:
        """The call's name is known: it starts, or it is no call of this request."""
        call = self.call
        if not call.name:
            raise Malformed(diagnostics.MALFORMED_CALL, "a tool call without a name")
        if call.rejected:
            return
        if not self.may_call(call.name):
            if not self.is_guess:
                self.report(diagnostics.UNKNOWN_TOOL, f"{call.name!r} is not among the tools: kept as text")
            self._reject_call()
            return
        if self._tools is not None and call.name not in self._tools:
            self.report(diagnostics.UNKNOWN_TOOL, f"{call.name!r} is not among the tools")
        if call.id in self._ids:
            self.report(diagnostics.DUPLICATE_ID, f"a second tool call with the id {call.id!r}")
            call.id = ""
        call.id = self._ids.claim(call.id)
        call.index = self._call_count
        self._call_count += 1
        call.accepted = True
        assert self._calls is not None
        self._calls.accepted = True
        held, call.held = call.held, []
        if self.keep_raw:
            call.raw = [text for _, text, _, _, _ in held]
        # The name comes first, even where the model wrote the arguments first.
        for role, _, value, start, end in sorted(held, key=lambda piece: piece[0] == ARGUMENTS):
            self._say(role, value, start, end)

    def knows(self, name: str) -> bool:
        """Whether a function is among the tools that were given."""
        return self._tools is not None and name in self._tools

    def may_call(self, name: str) -> bool:
        """Whether a call to this function is one."""
        return self._tools is None or self._emit_unknown or self.knows(name)

    @property
    def is_guess(self) -> bool:
        """Whether what is read has no marker, and has not shown to be a call."""
        return self._calls is not None and self._calls.rule.bare and not self._calls.accepted

    def no_arguments(self) -> None:
        """A call without arguments is a call with none."""
        call = self.call
        call.has_arguments = call.complete = True
        if call.rejected:
            return
        self.report(diagnostics.MALFORMED_CALL, "a tool call without arguments: taken as {}")
        self.add_arguments("{}")

    def add_arguments(self, text: str) -> None:
        """Arguments that follow from the format, and no text of the model stands for."""
        if not self.call.rejected:
            self._emit(ARGUMENTS, "", text, self.offset, self.offset)

    def resolve_pending(self, write: Callable[[str], str]) -> None:
        """What was taken as undecided is arguments, written so."""
        call = self.call
        text, call.pending = "".join(call.pending), []
        if text:
            self._say(ARGUMENTS, write(text), call.pending_at, call.pending_at + len(text))

    def parameters(self) -> Mapping[str, Any]:
        """The schema of the parameters of the tool that is called; empty where it is not known."""
        return {} if self._tools is None else self._tools.get(self.call.name, {})

    def end_call(self) -> None:
        """The call is over; if it never was one, its text is text."""
        if not self.reading_call:
            return
        call = self.call
        if call.accepted:
            raw = "" if call.complete else "".join(call.raw)
            call.raw = []
            self._out.append(ToolCallEnd(call.index, call.complete, raw, self.offset, self.offset))
        elif not call.rejected:
            self._reject_call()
        self.reading_call = False

    def _reject_call(self) -> None:
        self.call.rejected = True
        held, self.call.held = self.call.held, []
        for _, text, _, start, end in held:
            if text:
                self._say(TEXT, text, start, end)

    def _malformed(self, problem: Malformed) -> None:
        """Keep what was read of a call that breaks, and go on at the next marker."""
        calls = self._calls
        assert calls is not None
        if self.at_end and not self.is_guess:
            self.report(diagnostics.UNFINISHED_CALL, "the output ends inside a tool call")
        elif not self.is_guess:
            self.report(problem.kind, problem.message)
        while self.stack[-1] is not calls:
            self.pop()
        if self.call.complete or not self.call.accepted:
            self.end_call()
        calls.give_up(self)

    # --- Out of band -----------------------------------------------------------------------------------------------

    def _push_with_codes(self, text: str) -> None:
        """Text that may have codes in it. What is text and what is a code depends on where it stands, so the text
        before a code is parsed first."""
        search = self._code_search
        assert search is not None
        text = self._code_tail + text
        at = 0
        while found := search.find(text, at):
            self._push(text[at : found.start()])
            is_code, code = search.code(found.group())
            if is_code and (search.everywhere or self._in_speech()) and not self._in_json_string():
                self._out_of_band(code, found.group())
            else:
                self._push(found.group())
            at = found.end()
        held = search.unfinished(text, at)
        self._push(text[at:held])
        self._code_tail = text[held:]
        if self._code_tail and (self._in_json_string() or not (search.everywhere or self._in_speech())):
            self._push(self._code_tail)
            self._code_tail = ""

    def _in_json_string(self) -> bool:
        """Where a code is data."""
        return self.stack[-1].in_string

    def _in_speech(self) -> bool:
        return any(isinstance(frame, ScopeFrame) and frame.rule.strand == "speech" for frame in self.stack)

    def _out_of_band(self, code: Code, text: str) -> None:
        """An audio code, a tag, or padding. Text before it that is held back goes on after it."""
        held = len(self.spell(self.buffer[self.position :]))
        start = self.offset + held + sum(length for _, length in self._gaps)
        end = start + len(text)
        if not held and not self._gaps:
            self.offset = end
        elif self._gaps and sum(self._gaps[-1]) == start:
            self._gaps[-1][1] += len(text)
        else:
            self._gaps.append([start, len(text)])
        if code is None:
            if self._show_markup:
                self._out.append(Markup(text, start, end))
        elif isinstance(code, str):
            self._out.append(Language(code, start, end))
        elif isinstance(code, float):
            self._out.append(Timestamp(code, start, end))
        else:
            self._audio(code, start, end)

    def _audio(self, code: int, start: int, end: int) -> None:
        if not self._in_speech():
            if not self._stray_audio:
                self._stray_audio = True
                self._out.append(Diagnostic(diagnostics.STRAY_AUDIO, "audio outside speech", start, start))
            self._speech_count = self._speech_count or 1
        self._out.append(SpeechAudio((code,), self._speech_count - 1, start, end))

    # --- Running ---------------------------------------------------------------------------------------------------

    def _push(self, text: str) -> None:
        if not text:
            return
        if self.position < len(self.buffer):
            text = self.buffer[self.position :] + text
        self.buffer = text
        self.position = 0
        self._run()

    def _close_all(self) -> None:
        """Nothing more comes, or nothing more that could belong to what is open."""
        self.at_end = True
        self._run()
        self.at_end = False

    def _run(self) -> None:
        while True:
            try:
                while (not self.trail or self._skip_trail()) and self.stack[-1].step(self):
                    pass
                return
            except Malformed as problem:
                self._malformed(problem)

    def _skip_trail(self) -> bool:
        """Take the whitespace that belongs to the marker before it. False when more of it may come."""
        while self.trail:
            rest = self.buffer[self.position : self.position + 1]
            if not rest and not self.at_end:
                return False
            if rest != self.trail[0]:
                self.trail = ""
            else:
                self.take(1, MARKUP)
                self.trail = self.trail[1:]
        return True

    def _collect(self) -> list[Event]:
        events, self._out = self._out, []
        if self._speech_count:
            events = _join_audio(events)
        self.choose_fast_path()
        return events

    def choose_fast_path(self) -> None:
        """Whether the next text can be looked at on its own: nothing waits, and no tokens or codes are to be found."""
        text_only = self._detokenizer is None and self._code_search is None
        on_its_own = not self.trail and self.position == len(self.buffer) and not self._finished
        self.fast_path = self.stack[-1].fast_path if text_only and on_its_own else None

    def _refuse(self) -> None:
        raise UnbraidError("the parser is finished: make a new one for the next response")


def _join_audio(events: list[Event]) -> list[Event]:
    """One event for a run of codes."""
    joined: list[Event] = []
    run: list[SpeechAudio] = []

    def end_run() -> None:
        if run:
            codes = tuple(code for event in run for code in event.codes)
            joined.append(SpeechAudio(codes, run[0].section, run[0].start, run[-1].end))
            run.clear()

    for event in events:
        if not isinstance(event, SpeechAudio):
            end_run()
            joined.append(event)
            continue
        if run and (run[-1].section, run[-1].end) != (event.section, event.start):
            end_run()
        run.append(event)
    end_run()
    return joined
