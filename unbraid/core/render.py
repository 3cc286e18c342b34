"""A message back to the raw text that a model would have written: the grammar, read the other way."""

from __future__ import annotations

import json
import re

from ..errors import UnbraidError
from ..schema.kinds import STRING, kind_of
from . import grammar
from .message import Message, Part, Speech, Tag, Text, ToolCall
from .notations import xml_text
from .notations.bare import is_bare_key
from .notations.elements import is_element_name
from .notations.object_writer import quote


def render(format: grammar.Format, message: Message) -> str:
    """The text that parses back to `message`, written as the vendor's template writes it.

    Text that spells one of the format's own markers cannot be told from that marker in text; it is written as it is. So
    is a string argument between tags: where no schema says that it is a string, "3" reads back as a number.
    """
    return _Renderer(format).message(message)


class _Renderer:
    def __init__(self, format: grammar.Format) -> None:
        self.format = format
        self.written: list[str] = []
        self.count = 0
        """How many calls have been written."""
        self.after_space = True
        """At the start, or after a marker's own whitespace: where templates write no line break before a marker."""

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
        around = self.format.answer if part.strand == "content" else self.format.reasoning
        if around is None and part.strand == "reasoning":
            raise UnbraidError(f"format {self.format.name!r} has no reasoning to write {part.text[:40]!r} as")
        if around is None:
            self._write(part.text)
            return
        self._open(around.open)
        self._write(part.text)
        self._close(around.close)

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
                self._write(part.text, *(speech.code.format(code) for code in part.codes))
            elif isinstance(part, ToolCall):
                self._calls([part])
            elif isinstance(part, Text) and part.strand == "reasoning":
                self._text(part)
            else:
                raise UnbraidError("content cannot stand inside speech: give the parts sections of their own")
        self._close(speech.close)

    def _calls(self, calls: list[ToolCall]) -> None:
        tools = self.format.tools
        if tools is None:
            raise UnbraidError(f"format {self.format.name!r} has no tool calls")
        body = tools.body
        while isinstance(body, grammar.Either):
            body = body.second
        each: list[str] = []
        for call in calls:
            each.append(self._call(body.call.parts if isinstance(body, grammar.CallList) else body.parts, call))
            self.count += 1
        if isinstance(body, grammar.CallList):
            each = [body.open + body.separator.join(each) + body.close]
        for text in each:
            if not tools.bare:
                self._open(tools.open)
            self._write(text)
            if tools.close_written:
                self._close(tools.close)

    def _call(self, parts: tuple[grammar.CallPart, ...], call: ToolCall) -> str:
        written: list[str] = []
        for part in parts:
            if isinstance(part, str):
                written.append(part)
            elif isinstance(part, grammar.Name):
                written.append(call.name)
            elif isinstance(part, grammar.CallId):
                written.append(call.id)
            elif isinstance(part, grammar.NameInId):
                before, after = f"{part.before}{call.name}{part.after}", call.id.rpartition(part.after)[2]
                written.append(call.id if call.id == before + after else f"{before}{self.count}")
            elif isinstance(part, grammar.Ordinal):
                written.append(str(part.first + self.count))
            elif isinstance(part, grammar.Arguments):
                written.append(call.arguments)
            elif isinstance(part, grammar.TaggedArguments):
                written += [_tagged(part, key, value) for key, value in _members(call.arguments).items()]
            elif isinstance(part, grammar.PythonArguments):
                members = _members(call.arguments)
                written.append(", ".join(f"{key}={_python(value)}" for key, value in members.items()))
            elif isinstance(part, grammar.BareArguments):
                written.append(_bare(part, _members(call.arguments)))
            elif isinstance(part, grammar.ElementArguments):
                members = _members(call.arguments)
                written += [_element(part, key, _decode(value)) for key, value in members.items()]
            elif isinstance(part, grammar.JsonCall):
                name = json.dumps(call.name, ensure_ascii=False)
                id = f'"{part.id}": "{call.id or self.count}", ' if part.id_first else ""
                written.append(f'{{{id}"{part.name}": {name}, "{part.arguments[0]}": {call.arguments}}}')
            elif part.written and (call.id or grammar.CallId() not in part.then):
                written.append(part.marker + self._call(part.then, call))
        return "".join(written)


_words = re.compile(r'"(?:[^"\\]|\\.)*"|true|false|null', re.DOTALL).sub
_escapes = re.compile(r"\\.").sub
_PYTHON = {"true": "True", "false": "False", "null": "None"}
_space = re.compile(r"[ \t\n\r]*").match


def _tagged(tags: grammar.TaggedArguments, key: str, value: str) -> str:
    """An argument between its tags. `value` is JSON."""
    kind = kind_of(json.loads(value))
    words = [word for word, kinds in tags.kinds if kind in kinds]
    text = json.loads(value) if kind == STRING else value
    if tags.escaped:
        key, text = xml_text.encode_attribute(key), xml_text.encode(text)
    open = tags.open.replace("{kind}", tags.kind.format(words[0]) if words else "").replace("{key}", key)
    return open + text + tags.close


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


_decode = json.JSONDecoder(parse_int=_Number, parse_float=_Number).decode


def _bare(notation: grammar.BareArguments, members: dict[str, str]) -> str:
    """An object with bare keys. Its members are JSON."""
    quote = notation.quote

    def key(text: str) -> str:
        return text if is_bare_key(text) else quote + text + quote

    def written(value: object) -> str:
        if isinstance(value, dict):
            return "{" + ",".join(f"{key(name)}:{written(inner)}" for name, inner in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(written, value)) + "]"
        if isinstance(value, str):
            return str(value) if isinstance(value, _Number) else quote + value + quote
        # The template writes true and false as JSON does, and None as Python.
        return "None" if value is None else json.dumps(value)

    return "{" + ",".join(f"{key(name)}:{written(_decode(value))}" for name, value in members.items()) + "}"


def _element(notation: grammar.ElementArguments, name: str, value: object) -> str:
    """A value as an element."""
    inside = ""
    if isinstance(value, str):
        inside = str(value)
    elif isinstance(value, list):
        inside = "".join(_element(notation, notation.item, item) for item in value)
    elif isinstance(value, dict) and all(map(is_element_name, value)) and next(iter(value), "") != notation.item:
        inside = "".join(_element(notation, key, item) for key, item in value.items())
    # What elements cannot say, and what is empty, is JSON: as a text it reads as what it is.
    if not inside and not isinstance(value, str):
        inside = _json(value)
    return f"{notation.mark}<{name}>{inside}{notation.mark}</{name}>"


def _json(value: object) -> str:
    """JSON, with the numbers as they were written."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quote(key)}: {_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_json, value)) + "]"
    return str(value) if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False)


def _members(arguments: str) -> dict[str, str]:
    """The values of a JSON object, each as the JSON it is written as."""
    try:
        if not isinstance(json.loads(arguments), dict):
            raise ValueError("no JSON object")
    except (ValueError, RecursionError) as problem:
        raise UnbraidError(f"arguments that this format cannot write: {arguments[:40]!r} ({problem})") from None
    members: dict[str, str] = {}
    decode = json.JSONDecoder(strict=False).raw_decode
    at = _skip(arguments, _skip(arguments, 0) + 1)
    while arguments[at] != "}":
        key, end = decode(arguments, at)
        start = _skip(arguments, _skip(arguments, end) + 1)
        _, end = decode(arguments, start)
        members[key] = arguments[start:end]
        at = _skip(arguments, end)
        if arguments[at] == ",":
            at = _skip(arguments, at + 1)
    return members


def _skip(text: str, at: int) -> int:
    """Past the whitespace."""
    return _space(text, at).end()  # type: ignore[union-attr]  # an empty match always exists


def _python(value: str) -> str:
    """JSON as a literal of Python. But for three words and one escape, the one is the other."""
    return _words(lambda word: _PYTHON.get(word.group()) or _escapes(_python_escape, word.group()), value)


def _python_escape(escape: re.Match[str]) -> str:
    return "/" if escape.group() == r"\/" else escape.group()
