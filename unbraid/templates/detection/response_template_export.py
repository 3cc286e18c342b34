"""A format as Hugging Face's `response_template`: patterns and named parsers, for a tokenizer's configuration.

    unbraid export --response-template qwen3

What the vendor's template writes becomes the fields `reasoning_content`, `tool_calls` and `content`. The content is
what stands outside the others; markers that say nothing end a piece of it, and so they are left out. A
response_template says less than a format. What it cannot say at all is refused with the reason, and what it leaves out
is listed beside it (`ExportedTemplate.unread`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.grammar import (
    Between,
    Call,
    CallId,
    CallList,
    CallPart,
    Calls,
    CallsBody,
    Either,
    Format,
    Instead,
    Maybe,
    Name,
    NameInId,
    Notation,
    Ordinal,
)
from ...core.notations import Arguments, BareArguments, JsonCall, TaggedArguments
from ...errors import UnbraidError

_NAME = r"[\w.-]+"
_ENDS = r"\s*$"
"""Where no marker ends the calls, the end of the output does."""
_NAMED = {"name": "{name}", "arguments": "{content}"}
_TEXT = {"name": "text", "args": {"strip": False}}
"""Values between tags stay text: transformers gives them their types by the schemas of the tools."""


@dataclass(frozen=True)
class ExportedTemplate:
    """A response_template, and what the format reads that it does not."""

    document: dict[str, Any]
    unread: tuple[str, ...]


def response_template(format: Format) -> ExportedTemplate:
    """The response_template of a format. Raises `UnbraidError` with the reason where there is none."""
    return _Writer(format).exported()


class _Writer:
    def __init__(self, format: Format) -> None:
        self.format = format
        self.unread: list[str] = []
        self.dropped: list[str] = [*format.ends, *format.ignored]
        """Markers that say nothing."""

    def refuse(self, reason: str) -> UnbraidError:
        return UnbraidError(f"a response_template cannot say what {self.format.name!r} writes: {reason}")

    def exported(self) -> ExportedTemplate:
        format = self.format
        if format.speech is not None or format.transcript is not None:
            raise self.refuse("it has fields for text and calls, and none for speech")
        if format.reasoning_in_content:
            raise self.refuse("the reasoning's place is the content, with its markers, and a marker is no text there")
        fields: dict[str, Any] = {}
        if format.reasoning is not None:
            fields["reasoning_content"] = self._reasoning(format.reasoning)
        if format.tools is not None:
            fields["tool_calls"] = self._tool_calls(format.tools)
        self._left_out()
        fields["content"] = {"content": "text", "repeats": True, "join": "\n"}
        if format.answer is not None:
            self.dropped += [*self._opens(format.answer), format.answer.close]
        if format.headers is not None:
            self.dropped += [format.prompt, *format.headers.ends]
        if dropped := _any_of(self.dropped):
            fields["content"]["close_pattern"] = rf"\s*(?:{dropped})\s*"
        document = {
            "version": 1,
            "defaults": {"role": "assistant"},
            "start_anchor_pattern": self._anchor(),
            "fields": fields,
        }
        return ExportedTemplate(document, tuple(self.unread))

    def _left_out(self) -> None:
        """What the format reads, and nothing here says."""
        if self.format.other_tools:
            self.unread.append("the other ways in which its models write calls")
        if self.format.citations is not None:
            self.unread.append("citations: their tags stay in the text")
        if self.format.versions:
            self.unread.append("what later versions of its tokenizer write")
        if self.format.reasoning is not None and self.format.tools is not None and self.format.calls_in_reasoning:
            self.unread.append("a call before the reasoning is closed")

    # Text

    def _opens(self, around: Between) -> list[str]:
        """What opens a strand. A prompt that has begun the header has written the rest."""
        return self._shortened([around.open, *(open for open, _ in around.also)])

    def _shortened(self, opens: Sequence[str]) -> list[str]:
        begun = self.format.prompt if self.format.headers is not None else ""
        return [text for open in opens for text in dict.fromkeys([open, open.removeprefix(begun)])]

    def _anchor(self) -> str:
        """Where the turn begins in the prompt: at its end, or where it ends with what opens something. So it fits any
        chat template."""
        strands = [each for each in (self.format.reasoning, self.format.answer) if each is not None]
        opened = _any_of([text for around in strands for text in self._opens(around)])
        if not opened:
            return r"\A[\s\S]+"
        return rf"(?=(?:{opened})\s*\Z)|\A(?![\s\S]*(?:{opened})\s*\Z)[\s\S]+"

    def _reasoning(self, around: Between) -> dict[str, Any]:
        closes = [around.close, *(close for _, close in around.also)]
        return {
            "open_pattern": rf"\s*(?:{_any_of(self._opens(around))})\s*",
            "close_pattern": rf"\s*(?:{_any_of(closes)})\s*",
            "content": "text",
            "repeats": True,
            "join": "\n",
        }

    # Calls

    def _tool_calls(self, calls: Calls) -> dict[str, Any]:
        body = self._body(calls.body)
        one = body if isinstance(body, Call) else body.call
        if odd := next((kind for part in one.parts if (kind := _KINDS.get(type(part).__name__))), None):
            raise self.refuse(f"its arguments are {odd}, which none of the parsers there reads")
        if (
            self.format.headers is not None
            and self.format.answer is not None
            and self.format.answer.open.startswith(calls.open)
        ):
            raise self.refuse("only the name tells a call from an answer")
        if calls.bare and not (isinstance(body, CallList) and isinstance(body.call.parts[0], JsonCall)):
            raise self.refuse("calls begin without a marker, and a pattern cannot tell them from text")
        if isinstance(body, Call):
            return self._each([calls.open, *calls.also], body.parts, calls)
        if isinstance(body.call.parts[0], JsonCall) and len(body.call.parts) == 1:
            return self._json_list(calls, body, body.call.parts[0])
        ends = (body.call.parts[0], body.call.parts[-1])
        if body.separator.strip() or not all(isinstance(each, str) and len(each.strip()) > 1 for each in ends):
            raise self.refuse("calls stand in a list, and have no markers of their own")
        self.dropped += [*self._shortened([calls.open, *calls.also]), *calls.closes, body.open, body.close]
        return self._each([], body.call.parts, calls)

    def _body(self, body: CallsBody) -> Call | CallList:
        """The way that is written."""
        while isinstance(body, Either):
            self.unread.append(f"calls that begin with {body.opening!r}")
            body = body.second
        return body

    def _json_list(self, calls: Calls, body: CallList, call: JsonCall) -> dict[str, Any]:
        """A JSON array of calls; or one call without brackets, where nothing marks the calls."""
        listed = body.open.strip() == "["
        if not listed and not calls.bare:
            raise self.refuse("calls are JSON objects that follow each other, which is no JSON")
        field = {"content": "json", "content_args": {}, **self._close(calls, body.close.strip()[1:] if listed else "")}
        keys = {"name": call.name, "arguments": call.arguments[0]}
        place = "" if listed else "content."
        field["transform"] = self._function({key: f"{{{place}{name}}}" for key, name in keys.items()})
        if listed:
            self.unread.append("calls in more than one list")
            field["transform_each"] = True
        else:
            self.unread.append("more than one call")
            field["repeats"] = True
        begins = r"\[\s*\{" if listed else rf'\{{\s*"{re.escape(call.name)}"'
        opens = "" if calls.bare else _any_of([calls.open, *calls.also])
        return {"open_pattern": rf"\s*(?:{opens})\s*" if opens else rf"\s*(?={begins})", **field}

    def _close(self, calls: Calls, rest: str) -> dict[str, Any]:
        """What ends a list of calls: its own marker, or the end of the turn."""
        if calls.close and calls.close_written:
            return {"close_pattern": rf"\s*(?:{_any_of(calls.closes)})\s*"}
        self.unread.append("text after calls")
        ends = _any_of([*calls.closes, *self.format.ends])
        return {"close_pattern": rf"{_pattern(rest)}\s*(?:{ends})\s*|{_pattern(rest)}{_ENDS}" if ends else _ENDS}

    def _each(self, opens: Sequence[str], parts: Sequence[CallPart], calls: Calls) -> dict[str, Any]:
        """Calls one by one. Without `opens`, they stand in a section and have markers of their own."""
        at = next((at for at, part in enumerate(parts) if isinstance(part, Notation)), None)
        if at is None:
            raise self.refuse("a part of its calls that may be missing holds the arguments")
        opening = _any_of(self._shortened(opens))
        head, tail = (r"\s*".join(self._patterns(each)) for each in (parts[:at], parts[at + 1 :]))
        own = any(isinstance(part, CallId | NameInId) for part in parts)
        if not opens:
            closing = tail
        elif calls.close and calls.close_written:
            closing = rf"{tail}\s*(?:{_any_of(calls.closes)})"
        else:
            # The next call ends it, or the turn.
            ends = _any_of([*calls.closes, *self.format.ends])
            closing = rf"{tail}\s*(?:(?={opening})|{ends or '$'}|$)"
        return {
            "open_pattern": _tidy(rf"\s*(?:{opening})\s*{head}" if opening else rf"\s*{head}"),
            "close_pattern": _tidy(rf"\s*{closing}\s*"),
            "repeats": True,
            **self._arguments(parts[at], own),
        }

    def _arguments(self, notation: CallPart, has_id: bool) -> dict[str, Any]:
        if isinstance(notation, JsonCall):
            keys = {"name": f"{{content.{notation.name}}}", "arguments": f"{{content.{notation.arguments[0]}}}"}
            if len(notation.arguments) > 1:
                self.unread.append(f"arguments under {notation.arguments[1]!r}")
            return {"content": "json", "transform": self._function(keys, has_id)}
        if isinstance(notation, Arguments):
            return {"content": "json", "transform": self._function(_NAMED, has_id)}
        if isinstance(notation, BareArguments):
            arguments: dict[str, Any] = {"unquoted_keys": True, "string_delims": [[notation.quote, notation.quote]]}
            return {"content": "json", "content_args": arguments, "transform": self._function(_NAMED, has_id)}
        if type(notation) is TaggedArguments:
            arguments = {"tag_pattern": self._tag_pattern(notation), "value_parser": _TEXT}
            return {"content": "xml-inline", "content_args": arguments, "transform": self._function(_NAMED, has_id)}
        raise self.refuse("its arguments are in a notation that none of the parsers there reads")

    def _function(self, keys: dict[str, str], has_id: bool = False) -> dict[str, Any]:
        return {**({"id": "{id}"} if has_id else {}), "type": "function", "function": keys}

    def _tag_pattern(self, tags: TaggedArguments) -> str:
        """The whitespace of the tags is theirs, as far as it is there; all other belongs to the value."""
        before, _, after = tags.open.partition("{key}")
        after = after.replace("{kind}", "\0")
        kind = _pattern(tags.kind.replace("{}", "\0")).replace("\0", r"[^<>\"]*") if tags.kind else ""
        opened = after.rstrip()
        trail, lead = after[len(opened) :], tags.close[: len(tags.close) - len(tags.close.lstrip())]
        key = f"(?P<key>[^{re.escape(opened[:1] or '>')}]+)"
        if tags.key_escapes:
            self.unread.append("names of arguments with characters that are escaped")
        middle = _pattern(opened).replace("\0", f"(?:{kind})?")
        value = rf"{_each_optional(trail)}(?P<value>.*?){_each_optional(lead)}"
        return f"{_pattern(before.strip())}{key}{middle}{value}{_pattern(tags.close.strip())}"

    def _patterns(self, parts: Sequence[CallPart]) -> Iterator[str]:
        for part in parts:
            match part:
                case str():
                    yield _pattern(part)
                case Name():
                    yield f"(?P<name>{_NAME})"
                case NameInId():
                    yield rf"(?P<id>{re.escape(part.before)}(?P<name>{_NAME}){re.escape(part.after)}\d+)"
                case CallId():
                    yield r"(?P<id>[^\s<\[]+)"
                case Ordinal():
                    yield r"\d+"
                case Maybe() if not any(isinstance(each, Notation) for each in part.then):
                    inner = r"\s*".join([_pattern(part.marker), *self._patterns(part.then)])
                    yield f"(?:{inner.replace('(?P<id>', '(?:')})?"
                case Instead():
                    self.unread.append(f"calls with {part.marker!r} in place of their rest")
                case _:
                    raise self.refuse("a part of its calls that may be missing holds the arguments")


_KINDS = {
    "XmlArguments": "XML with entities",
    "ElementArguments": "nested elements",
    "PythonArguments": "Python's literals",
    "PythonDict": "Python's literals",
}


def _any_of(markers: Sequence[str]) -> str:
    """A pattern for any of these markers, without the whitespace around it; the longest first."""
    texts = dict.fromkeys(text for marker in markers if (text := marker.strip()))
    return "|".join(_pattern(text) for text in sorted(texts, key=len, reverse=True))


def _pattern(text: str) -> str:
    """A pattern for a text. Whitespace in it is as it comes; at its ends it may be missing."""
    if not text.strip():
        return r"\s*" if text else ""
    words = r"\s+".join(map(re.escape, text.split()))
    return rf"{'' if text == text.lstrip() else chr(92) + 's*'}{words}{'' if text == text.rstrip() else chr(92) + 's*'}"


def _each_optional(space: str) -> str:
    return "".join("\\n?" if each == "\n" else f"{each}?" for each in space)


def _tidy(pattern: str) -> str:
    """The same without whitespace twice."""
    while r"\s*\s*" in pattern:
        pattern = pattern.replace(r"\s*\s*", r"\s*")
    return pattern
