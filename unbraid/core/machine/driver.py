"""Feeds the machine: text, token ids and audio codes in, events out.

The driver compiles the format, starts the machine where the prompt leaves off, and turns each kind of input into
characters of the buffer: text as it is, a token that is a marker into its placeholder, other tokens into their text
once a character is whole. Codes go past the buffer (`out_of_band.py`).

A parser with a vocabulary may still be fed text: then the tokenizer only told the version of the format, and markers
are found in the text. That is decided by the first input, and cannot change.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from ...caching import LruCache
from ...errors import UnbraidError
from .. import diagnostics
from ..call_ids import IdSource
from ..compiler.compiler import Program, compile_format
from ..compiler.prompt_end import EndKey, read_end, with_speech
from ..events import Event
from ..grammar import Format
from ..limits import Limits
from ..tally import LabelledTally, Tally
from ..tools import Tools
from ..vocabulary import Detokenizer, Vocabulary
from . import prose
from .headers import HeaderFrame
from .machine import FastPath, Frame, Machine
from .out_of_band import emit_code, join_audio
from .output import PendingCall
from .scopes import LeadingMarkerFrame, ScopeFrame, enter

_LIMITS = Limits()
_SEVERAL = 8
"""More tokens than these are worth a look at all of them at once."""


class Driver(Machine):
    """Reads one response. `unbraid.Parser` is the door to it, and explains the options."""

    __slots__ = (
        "_program",
        "_prompt",
        "_vocabulary",
        "code_tail",
        "detokenizer",
        "fast_tokens",
        "finished",
        "format",
        "put_back",
        "started",
        "texts",
    )

    def __init__(
        self,
        format: Format,
        *,
        tools: Tools | None = None,
        unknown_tools: str = "text",
        vocabulary: Vocabulary | None = None,
        prompt: str | Sequence[int] | None = None,
        separate_reasoning: bool = True,
        calls_in_reasoning: bool | None = None,
        keep_raw: bool = True,
        markup: bool = False,
        count_tokens: bool = False,
        label_tokens: bool = False,
        limits: Limits = _LIMITS,
        seed: int | None = None,
    ) -> None:
        if vocabulary is not None:
            format = format.for_version(vocabulary.version)
        if calls_in_reasoning is not None:
            format = format.with_calls_in_reasoning(calls_in_reasoning)
        reasoning_apart = separate_reasoning and not format.reasoning_in_content
        super().__init__(format.call_ids, tools, unknown_tools, keep_raw, markup, reasoning_apart, limits, seed)
        if label_tokens or count_tokens:
            self.tally = LabelledTally() if label_tokens else Tally()
        self._prompt = format.prompt if prompt is None else prompt
        self.format = format
        self._vocabulary = vocabulary
        self.code_tail = ""
        """The beginning of what may become a code, in text."""
        self.started = False
        """Whether there is nothing left to do for the first input."""
        self.put_back = ""
        """The opening marker that the prompt wrote, where it belongs to the content."""
        self.finished = False
        self.fast_tokens: FastPath | None = None
        """The fast path where token ids are fed: it takes their text."""
        self.texts: Mapping[int, str] = {}
        """The text of the tokens that may take it."""
        self.set_up(vocabulary)

    def set_up(self, vocabulary: Vocabulary | None) -> None:
        """Get ready for the ids of a vocabulary, or for text."""
        self._program: Program = compile_format(self.format, vocabulary)
        self.spellings = self._program.spellings
        self.texts = self._program.texts
        self.detokenizer = None if vocabulary is None else Detokenizer(vocabulary, self._program.texts)
        self.sections = 0
        self.prose, self.in_message, self.names_headers = [0, 0, 0], False, True
        self.stack, self.strands, self.running = [], [], None
        self.push(ScopeFrame(self._program.content))
        self._start()
        self.started = self.detokenizer is None and not self.put_back  # otherwise the first input has to be seen
        self.choose_fast_path()

    def _start(self) -> None:
        """Begin where the prompt leaves off."""
        program, prompt = self._program, self._prompt
        inside: list[str] = []
        if not isinstance(prompt, str) and program.vocabulary is None and self._vocabulary is not None:
            # Ids could have come, and text does: then the prompt's markers are text as well.
            inside = read_end(compile_format(self.format, self._vocabulary), prompt).strands
            prompt = Detokenizer(self._vocabulary).text(prompt, {})
        end = read_end(program, prompt)
        if end.header:
            assert self._program.headers is not None
            self.push(self._program.headers.frame(end.header))
            return
        strands = with_speech(self._program, end.strands or inside)
        scope = program.content
        for strand in strands:
            scope = scope.inner[strand]
            enter(self, scope)
        if self.format.reasoning_in_content and strands[-1:] == ["reasoning"]:
            self.put_back = program.spelled(scope.opens[0].key)
        self.trail = end.trail
        self.in_message = end.in_message
        if scope.leading:
            self.push(LeadingMarkerFrame(scope.leading, end.label))

    def _begin(self) -> None:
        """The first input comes, or the end."""
        self.started = True
        if self.put_back:
            self.out.append(self.text_event(self.put_back, 0, 0))
            self.prose[self.place] |= prose.IN_LINE

    @property
    def can_be_copied(self) -> bool:
        """Whether `anew` may be called: before the first input, and after text that did no more than open strands."""
        if self.out or self.calls is not None or self.call_count or self.holds_back:
            return False
        if self.offset and (self.tally is not None or self._vocabulary is not None):
            return False
        return all(isinstance(frame, _AT_START) and _is_new(frame) for frame in self.stack)

    def anew(self, prompt: str | Sequence[int], tools: Tools | None, seed: int | None) -> Driver:
        """A machine for another response, after a prompt that leaves the same open, and after the same input, if this
        one had any (`can_be_copied`)."""
        other = object.__new__(Driver)
        _copy(other, self)
        other._prompt = prompt
        if self.tally is not None:
            other.tally = type(self.tally)()
        if self._vocabulary is not None:
            other.detokenizer = Detokenizer(self._vocabulary, self._program.texts)
        other.ids, other.call = IdSource(self.format.call_ids, seed, self.limits.ids), PendingCall()
        other.stack = [frame.anew() for frame in self.stack]  # type: ignore[attr-defined]  # `can_be_copied` says so
        other.strands, other.prose, other.gaps, other.out = self.strands.copy(), self.prose.copy(), [], []
        other.running, other.tools = None, tools
        other._choose_text_event()
        other.choose_fast_path()
        return other

    def skip(self, text: str) -> None:
        """Go on after text that a response begins with, and that is content (`signs`)."""
        assert self.signs is not None
        frame: ScopeFrame = self.stack[-1]  # type: ignore[assignment]
        frame.follow(self, text)
        self.offset += len(text)

    # --- Input -----------------------------------------------------------------------------------------------------

    def feed(self, text: str) -> list[Event]:
        """Parse the next piece of text, cut anywhere."""
        if self.finished:
            self._refuse()
        if not isinstance(text, str):
            raise UnbraidError(f"feed takes text, not {type(text).__name__}; token ids go to feed_tokens")
        if self.detokenizer is not None:
            if self.started:
                raise UnbraidError("this parser has been fed token ids: it cannot go on with text")
            self.set_up(None)
        if not self.started:
            self._begin()
        if self._program.code_search is not None:
            self._push_with_codes(text)
        elif text:
            self.buffer = self.buffer[self.position :] + text if self.position < len(self.buffer) else text
            self.position = 0
            self.run()
        return self._collect()

    def feed_tokens(self, ids: Iterable[int]) -> list[Event]:
        """Parse the next token ids."""
        if self.finished:
            self._refuse()
        detokenizer = self.detokenizer
        if detokenizer is None:
            if self._vocabulary is not None:
                raise UnbraidError("this parser has been fed text: it cannot go on with token ids")
            raise UnbraidError("feed_tokens needs a tokenizer: make the parser with tokenizer=…, or feed text")
        program = self._program
        placeholders, codes, tally = program.token_placeholders, program.codes, self.tally
        tokens = ids if isinstance(ids, list | tuple) else list(ids)
        if tokens and not self.started:
            self._begin()
        if len(tokens) > _SEVERAL and detokenizer.clean:
            if self._take_pieces(tokens):
                return self._collect()
            # What is not among the pieces yet will be.
            self._keep_pieces(tokens)
        text: list[str] = []
        texts = [*map(program.texts.get, tokens), None]
        at = 0
        while at < len(tokens):
            if texts[at] and detokenizer.clean:
                until = texts.index(None, at)
                run: list[str] = texts[at:until]  # type: ignore[assignment]
                if tally is not None:
                    tally.tokens(run)
                text += run
                at = until
                continue
            token = tokens[at]
            at += 1
            if token in codes:
                self._push("".join(text))
                text.clear()
                code, spelled = codes[token]
                if spelled and self.stack[-1].in_string:
                    spelled = detokenizer.flush() + spelled
                    if tally is not None:
                        tally.token(len(spelled))
                    self._push(spelled)
                else:
                    if tally is not None:
                        tally.out_of_band(len(spelled), "content" if isinstance(code, str | float) else "audio")
                    emit_code(self, code, spelled)
            elif token in placeholders:
                # A marker ends a character that was cut off; audio does not.
                if not detokenizer.clean:
                    text.append(cut_off := detokenizer.flush())
                    if tally is not None:
                        tally.cut_off(len(cut_off))
                if tally is not None:
                    tally.token(len(self.spellings[placeholders[token]]))
                if token in program.ends:
                    self._push("".join(text))
                    text.clear()
                    self._close_all(turn_over=True)
                text.append(placeholders[token])
            else:
                piece = detokenizer.decode(token)
                if piece is None:
                    self._push("".join(text))
                    text.clear()
                    held = len(self.spell(self.buffer[self.position :])) + sum(size for _, size in self.gaps)
                    message = f"token {token} is not in the vocabulary"
                    self.report(diagnostics.UNKNOWN_TOKEN, message, self.offset + held)
                    piece = detokenizer.flush() + "\ufffd"
                if tally is not None:
                    tally.token(len(piece))
                text.append(piece)
        self._push("".join(text))
        return self._collect()

    def _take_pieces(self, tokens: Sequence[int]) -> bool:
        """Take several tokens at once, all of them known, of which at most the last ends the turn. False where they
        are not; then nothing is taken."""
        program, tally = self._program, self.tally
        end = program.token_placeholders[tokens[-1]] if tokens[-1] in program.ends else ""
        try:
            pieces: tuple[str, ...] = itemgetter(*(tokens[:-1] if end else tokens))(program.pieces)
        except KeyError:
            return False
        if tally is not None:
            tally.pieces(pieces, program.spellings)
        self._push("".join(pieces))
        if end:
            if tally is not None:
                tally.token(len(program.spellings[end]))
            self._close_all(turn_over=True)
            self._push(end)
        return True

    def _keep_pieces(self, tokens: Sequence[int]) -> None:
        """Keep the pieces of tokens that come for the first time."""
        program = self._program
        for token in set(tokens).difference(program.pieces, program.codes, program.ends):
            piece = program.token_placeholders.get(token) or program.texts.get(token)
            if piece is not None:
                program.pieces[token] = piece

    def feed_codes(self, codes: Iterable[int]) -> list[Event]:
        """Take the next audio codes of a head of their own, frame by frame."""
        if self.finished:
            self._refuse()
        speech = self.format.speech
        if speech is None or speech.code or speech.first_token is not None:
            raise UnbraidError(
                f"the format {self.format.name!r} has no audio codes beside the output: feed_codes takes none"
            )
        values = list(codes)
        if len(values) % speech.codebooks:
            raise UnbraidError(
                f"feed_codes takes whole frames of {speech.codebooks} codes, one of each codebook, not {len(values)}"
            )
        for at in range(0, len(values), speech.codebooks):
            if values[at] < speech.codes:
                for code in values[at : at + speech.codebooks]:
                    emit_code(self, code, "")
        return self._collect()

    def finish(self, end_of_turn: bool = False) -> list[Event]:
        """The output is over: emit what is still held back and close what is open."""
        if self.finished:
            self._refuse()
        if not self.started:
            self._begin()
        if self.detokenizer is not None:
            rest = self.detokenizer.flush()
            if rest and self.tally is not None:
                self.tally.cut_off(len(rest))
            self._push(rest)
        if self.code_tail:
            self._push(self.code_tail)
            self.code_tail = ""
        self._close_all(turn_over=end_of_turn)
        if self.tally is not None:
            self.tally.finish()
        self.finished = True
        return self._collect()

    def _refuse(self) -> None:
        raise UnbraidError("the parser is finished: make a new one for the next response")

    # --- Where it stands ------------------------------------------------------------------------------------------

    @property
    def strand(self) -> str:
        """The strand of the next text, if it is no marker."""
        return "tool_calls" if self.calls is not None else self.strands[-1]

    @property
    def holds_back(self) -> bool:
        """Whether text is held back: the beginning of what may be a marker, or a part of a character."""
        cut = self.detokenizer is not None and self.detokenizer.inside
        return self.position < len(self.buffer) or bool(self.code_tail) or cut

    @property
    def signs(self) -> tuple[str, ...] | None:
        """The characters that any marker begins with, where plain content comes next; None where all is looked at."""
        frame = self.stack[-1]
        plain = self.fast_path is not None and len(self.stack) == 1 and isinstance(frame, ScopeFrame)
        return frame.rule.all_markers.first_characters if plain else None  # type: ignore[attr-defined]

    # --- Running ---------------------------------------------------------------------------------------------------

    def _push(self, text: str) -> None:
        if not text:
            return
        if self.position < len(self.buffer):
            text = self.buffer[self.position :] + text
        self.buffer = text
        self.position = 0
        self.run()

    def _push_with_codes(self, text: str) -> None:
        """Push text that may have codes in it. Where a code stands decides whether it is one: so the text before it is
        parsed first."""
        search = self._program.code_search
        assert search is not None
        text = self.code_tail + text
        at = 0
        while match := search.find(text, at):
            self._push(text[at : match.start()])
            code = search.code(match.group())
            if code is not None and search.admitted(self):
                emit_code(self, code, match.group())
            else:
                self._push(match.group())
            at = match.end()
        held = search.unfinished(text, at)
        self._push(text[at:held])
        self.code_tail = text[held:]
        if self.code_tail and not search.admitted(self):
            self._push(self.code_tail)
            self.code_tail = ""

    def _close_all(self, turn_over: bool) -> None:
        """Close all that is open: the output ends, or the turn does."""
        if self.position == len(self.buffer):
            self.trail = self.marks = ""  # it does not come
            if len(self.stack) == 1:
                return
        self.at_end, self.turn_over = True, turn_over
        self.run()
        self.at_end = self.turn_over = False

    def _collect(self) -> list[Event]:
        events, self.out = self.out, []
        self.moves += 1
        if self.sections:
            events = join_audio(events)
        self.choose_fast_path()
        return events

    def choose_fast_path(self) -> None:
        """Set the fast paths. There is none where the next text can hold codes, and by ids none where text waits."""
        self.fast_path = self.fast_tokens = None
        if self.finished or not self.started:
            return
        frame = self.stack[-1]
        if self.trail:
            in_text = self.detokenizer is None and self._program.code_search is None
            if in_text and self.position == len(self.buffer) and not self.gaps:
                self.fast_path = Machine.pass_trail
            return
        if self.detokenizer is not None:
            if self.position == len(self.buffer) and self.detokenizer.clean and not self.gaps:
                self.fast_tokens = frame.fast_path(self)
        elif self._program.code_search is None:
            path = None if self.position < len(self.buffer) else frame.fast_path(self)
            self.fast_path = path or frame.held_path(self)


def _copier(kind: type[Driver]) -> Callable[[Driver, Driver], None]:
    """What gives a machine all that another has. Its lines are written out, as dataclasses do it: a loop takes ten
    times as long."""
    names = [name for one in kind.__mro__ for name in vars(one).get("__slots__", ())]
    lines = [f" other.{name} = one.{name}" for name in names]
    namespace: dict[str, Any] = {}
    exec("\n".join(["def copy(other, one):", *lines]), namespace)
    copy: Callable[[Driver, Driver], None] = namespace["copy"]
    return copy


_copy = _copier(Driver)
_AT_START = ScopeFrame, LeadingMarkerFrame, HeaderFrame
"""The frames that may stand on the stack before the first input."""
_MOST_ENDS = 16


def _is_new(frame: Frame) -> bool:
    """Whether a frame is as `anew` makes it."""
    other = frame.anew()  # type: ignore[attr-defined]
    names = (name for kind in type(frame).__mro__ for name in getattr(kind, "__slots__", ()))
    return all(getattr(frame, name) == getattr(other, name) for name in names)


class _Kind:
    """What machines that are made with the same options share, and one without input for each end of a prompt."""

    __slots__ = ("machines", "of", "program", "prompt")

    def __init__(self, format: Format, machine: Driver) -> None:
        self.of = format, machine._vocabulary
        """Kept, so that nothing else gets their ids."""
        self.program, self.prompt = machine._program, machine.format.prompt
        self.machines: LruCache[EndKey, Driver] = LruCache(_MOST_ENDS)


_kinds: LruCache[tuple[Any, ...], _Kind] = LruCache(64)
"""By the options, the format and the vocabulary by identity."""


def driver(
    format: Format,
    tools: Tools | None,
    prompt: str | Sequence[int] | None = None,
    seed: int | None = None,
    vocabulary: Vocabulary | None = None,
    **options: Any,
) -> Driver:
    """A machine. To make one takes as long as many a short response, and to copy one half of that.

    options: those of `Driver` that do not change from one response to the next.
    """
    key = id(format), id(vocabulary), *options.items()
    kind = _kinds.get(key)
    if kind is not None:
        prompt = kind.prompt if prompt is None else prompt
        end = read_end(kind.program, prompt).key
        unused = kind.machines.get(end)
        if unused is not None:
            return unused.anew(prompt, tools, seed)
    machine = Driver(format, tools=tools, prompt=prompt, seed=seed, vocabulary=vocabulary, **options)
    if isinstance(vocabulary, Hashable):  # others may change
        if kind is None:
            kind = _kinds[key] = _Kind(format, machine)
            prompt = kind.prompt if prompt is None else prompt
            end = read_end(kind.program, prompt).key
        if machine.can_be_copied:
            kind.machines[end] = machine.anew("", None, None)
    return machine
