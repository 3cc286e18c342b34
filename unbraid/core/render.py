"""A message back to the raw text that a model would have written: the grammar, read the other way.

Arguments are written by their notation (`CallNotation.write`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import UnbraidError
from . import grammar
from .message import Message, Part, Speech, Tag, Text, ToolCall
from .notations.base import CallNotation
from .notations.value_ends import call_tail


def render(format: grammar.Format, message: Message, tools: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """The text that parses back to `message`, written as the vendor's template writes it.

    tools: the parameters of each tool, by its name.

    Text that spells one of the format's own markers may not be told from that marker in text; it is written as it is.
    So is a string argument between tags: where no schema says that it is a string, "3" reads back as a number. An
    argument whose name the format cannot write (`a"b` in `name="…"`) raises `UnbraidError`, and so does one whose value
    would end too early: law 14 (docs/laws.md#law-14). Where the tags of other arguments end a value, `tools` tell. So
    does reasoning where the format has none: once the answer has begun, or, where it may open again, in the middle of a
    line.
    """
    return _Renderer(format, tools).message(message)


def spell_codes(speech: grammar.SpeechMarkup, codes: tuple[int, ...]) -> str:
    """A run of audio codes, as the model writes it where it writes them."""
    if not (codes and speech.code):
        return ""
    open, close = speech.around
    return open + "".join([speech.code.format(code) for code in codes]) + close


class _Renderer:
    def __init__(self, format: grammar.Format, tools: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.format = format
        self.tools = tools
        self.written: list[str] = []
        self.count = 0
        """How many calls have been written."""
        self.after_space = True
        """At the start, or after a marker's own whitespace: where templates write no line break before a marker."""
        self.answer = ""
        """The answer so far, since the start or the last call."""

    def message(self, message: Message) -> str:
        parts = message.parts
        last_of = {part.section: i for i, part in enumerate(parts) if isinstance(part, Speech)}
        at = 0
        while at < len(parts):
            part = parts[at]
            if isinstance(part, Speech):
                # A section goes on as long as a part of it is still to come; what stands between stands inside it.
                last = last_of[part.section]
                self._speech(parts[at : last + 1])
                at = last + 1
            elif isinstance(part, ToolCall):
                last = at
                while last + 1 < len(parts) and isinstance(parts[last + 1], ToolCall):
                    last += 1
                self._calls([p for p in parts[at : last + 1] if isinstance(p, ToolCall)])
                at = last + 1
            elif isinstance(part, Tag):
                self._tag(part)
                at += 1
            else:
                if part.strand == "reasoning" and self.format.headers is None:
                    self._check_opens()
                self._text(part)
                at += 1
        return "".join(self.written)

    def _write(self, *texts: str) -> None:
        for text in texts:
            if text:
                self.written.append(text)
                self.after_space = False

    def _open(self, marker: str) -> None:
        self._write(marker.lstrip() if self.after_space else marker)

    def _close(self, marker: str) -> None:
        if not marker:
            return
        self._write(marker)
        self.after_space = marker.endswith(("\n", " "))

    def _text(self, part: Text) -> None:
        speech = self.format.speech
        if part.strand == "content" and speech is not None and speech.implied:
            raise UnbraidError(
                f"format {self.format.name!r} has no text that is not spoken: give {part.text[:40]!r} as Speech"
            )
        around = self.format.answer if part.strand == "content" else self.format.reasoning
        if around is None and part.strand == "reasoning":
            raise UnbraidError(f"format {self.format.name!r} has no reasoning to write {part.text[:40]!r} as")
        if part.strand == "content":
            self.answer = "" if around is not None and around.close else self.answer + part.text
        if around is None:
            self._write(part.text)
            return
        self._open(around.open)
        self._write(part.text)
        self._close(around.close)

    def _check_opens(self) -> None:
        """Whether reasoning can open here."""
        if not self.answer.strip():
            return
        if not self.format.reasoning_again:
            raise UnbraidError(f"format {self.format.name!r} has no reasoning once the answer has begun")
        if self.answer.rpartition("\n")[2].strip():
            raise UnbraidError(f"format {self.format.name!r} has no reasoning in the middle of a line: end it first")

    def _tag(self, part: Tag) -> None:
        transcript = self.format.transcript
        if transcript is None:
            raise UnbraidError(f"format {self.format.name!r} has no language and no times")
        if isinstance(part.value, str):
            self._write(transcript.tag.format(part.value))
        else:
            self._write(transcript.time(round(part.value / transcript.step)))

    def _speech(self, parts: tuple[Part, ...]) -> None:
        speech = self.format.speech
        if speech is None:
            raise UnbraidError(f"format {self.format.name!r} has no speech")
        self._open(speech.open)
        for part in parts:
            if isinstance(part, Speech):
                self._write(part.text, self._codes(speech, part.codes))
            elif isinstance(part, ToolCall):
                self._calls([part])
            elif isinstance(part, Text) and part.strand == "reasoning":
                self._text(part)
            else:
                raise UnbraidError("content cannot stand inside speech: give the parts sections of their own")
        self._close(speech.close)

    def _codes(self, speech: grammar.SpeechMarkup, codes: tuple[int, ...]) -> str:
        if codes and not speech.code:
            raise UnbraidError(f"format {self.format.name!r} has no text for audio codes: leave them out")
        return spell_codes(speech, codes)

    def _calls(self, calls: list[ToolCall]) -> None:
        tools = self.format.tools
        if tools is None:
            raise UnbraidError(f"format {self.format.name!r} has no tool calls")
        body = tools.body
        while isinstance(body, grammar.Either):
            body = body.second
        each: list[str] = []
        one, of = (body.call, body) if isinstance(body, grammar.CallList) else (body, None)
        tail = call_tail(tools, one, of, self.format.ends)
        self.answer = ""
        for call in calls:
            for part in one.parts:
                if isinstance(part, CallNotation):
                    part.check(call, tail, self.tools)
            each.append(self._call(one.parts, call))
            self.count += 1
        if isinstance(body, grammar.CallList):
            each = [body.open + body.separator.join(each) + body.close]
        for text in each:
            if not tools.bare:
                self._open(tools.open)
            self._write(text)
            if tools.close_written:
                self._close(tools.close)

    def _number(self) -> str:
        """The id of a call that has none: its number, as long as an id."""
        ids = self.format.call_ids
        return f"{ids.prefix}{self.count:0{ids.length}}"

    def _call(self, parts: tuple[grammar.CallPart, ...], call: ToolCall) -> str:
        pieces: list[str] = []
        for part in parts:
            if isinstance(part, str):
                pieces.append(part)
            elif isinstance(part, grammar.Name):
                pieces.append(grammar.escaped(call.name, part.escapes))
            elif isinstance(part, grammar.CallId):
                pieces.append(call.id or self._number())
            elif isinstance(part, grammar.NameInId):
                before, after = f"{part.before}{call.name}{part.after}", call.id.rpartition(part.after)[2]
                pieces.append(call.id if call.id == before + after else f"{before}{self.count}")
            elif isinstance(part, grammar.Ordinal):
                pieces.append(str(part.first + self.count))
            elif isinstance(part, CallNotation):
                pieces.append(part.write(call, self.count))
            elif isinstance(part, grammar.Maybe) and part.written and (call.id or grammar.CallId() not in part.then):
                pieces.append(part.marker + self._call(part.then, call))
        return "".join(pieces)
