"""Hugging Face's `response_template` as a format.

A tokenizer's configuration may describe the model's output with regular expressions and named parsers. Here it becomes
a grammar. A grammar knows literal markers, names and optional whitespace, so patterns are read into these
(`read_pattern`). A field that says more is an error that names it: a format that reads half of the output would be
worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...core.compiler.compiler import compile_format
from ...core.grammar import Between, Call, CallList, CallPart, Calls, Format, Headers, Maybe, Name, Notation
from ...core.notations import Arguments, BareArguments, JsonCall, PythonArguments, TaggedArguments
from ...errors import InvalidFormat
from ..errors import DetectionError

NAME = "response_template"
_REASONING = ("thinking", "reasoning_content", "reasoning")
_TOP = {"version", "defaults", "start_anchor", "start_anchor_pattern", "fields"}
_KEYS = {
    *("open", "open_pattern", "close", "close_pattern", "content", "content_args"),
    *("repeats", "join", "optional", "transform", "transform_each"),
}
_placeholder = re.compile(r"\{([\w.]+)\}").fullmatch
_telling = re.compile(r"[<>\[\]{}|｜◁▷`]|\W{3}").search
"""Characters that make a text a marker, which does not occur in prose."""
SPACE = "\n"
"""Stands for optional whitespace: at the ends of a marker, a line break may be present or not."""
_NEVER = "(?!)"
"""A pattern that nothing matches."""
_SPELLED = {"n": "\n", "t": "\t", "r": "\r"}
_space = re.compile(r"\\s[*+?]?|\\n[*?]").match
_attributes = re.compile(r"(\\b)?\[\^>\][*]\??(\\b)?|\\b").match
"""Whatever else a tag says; nothing, as models write it, but the space between two words."""
_named = re.compile(r"\(\?P<(\w+)>").match
_first_tag = re.compile(r"<[^<>\s]+>").match
_last_tag = re.compile(r"<[^<>\s]+>$").search
_anything = re.compile(r"(?:\.|\[\^(?:\\.|[^\]\\])+\])[*+]\??").sub
"""Takes whatever may stand there out of a pattern."""


def format_from_response_template(template: object, eos_token: str = "") -> Format:
    """The format that a response template describes."""
    if not isinstance(template, Mapping):
        raise DetectionError(f"a response_template is an object, not {type(template).__name__}")
    if template.get("version", 1) != 1:
        raise DetectionError(f"response_template: version {template['version']!r} is not known, only 1 is")
    if unknown := set(template) - _TOP:
        raise DetectionError(f"response_template: {sorted(unknown)} are not known")
    fields = template.get("fields")
    if not isinstance(fields, Mapping) or not fields:
        raise DetectionError("response_template: fields is an object with at least one field")
    read = {name: _Field(name, field) for name, field in fields.items()}
    strange = [name for name in read if name not in (*_REASONING, "content", "tool_calls")]
    if strange:
        raise DetectionError(f"response_template: there is no strand for the field {strange[0]!r}")
    reasoning = next((read[name] for name in _REASONING if name in read), None)
    content, tools = read.get("content"), read.get("tool_calls")
    ends = [eos_token, *(content.closes() if content is not None and content.implicit else ())]
    headers = _Headed.of(template.get("start_anchor"), reasoning, content, tools)
    format = (
        headers.format(eos_token)
        if headers is not None
        else Format(
            NAME,
            reasoning=None if reasoning is None else reasoning.between(),
            answer=None if content is None or content.implicit else content.between(eos_token),
            tools=None if tools is None else tools.calls(ends),
            ends=tuple(dict.fromkeys(end for end in ends if end)),
            ignored=tuple(dict.fromkeys(end for end in ends if end and _telling(end))),
            prompt=reasoning.between().open if reasoning is not None and reasoning.at_start else "",
        )
    )
    try:
        compile_format(format, None)
    except InvalidFormat as error:
        raise DetectionError(f"response_template: {error}") from error
    return format


class _Field:
    """One field of a response_template: content, reasoning or calls."""

    def __init__(self, name: str, field: object) -> None:
        self.name = name
        if not isinstance(field, Mapping):
            raise self.error("is an object")
        if unknown := set(field) - _KEYS:
            raise self.error(f"has keys that are not known: {sorted(unknown)}")
        self.field = field
        self.content: str = field.get("content", "text")
        arguments = field.get("content_args") or {}
        self.arguments: Mapping[str, Any] = arguments if isinstance(arguments, Mapping) else {}
        looks_ahead = str(field.get("open_pattern", "")).startswith("(?=")
        self.implicit = looks_ahead or ("open" not in field and "open_pattern" not in field)
        """Whether nothing opens it. (Looking ahead for its close is no text, and nobody who streams can do it.)"""
        self.at_start = self.implicit or "^" in _branches(_ungrouped(str(field.get("open_pattern", ""))))
        """Whether the output may begin inside it."""

    def error(self, problem: str) -> DetectionError:
        return DetectionError(f"response_template: the field {self.name!r} {problem}")

    # Markers

    def opens(self) -> list[PatternItem]:
        """The opening marker: one text, or texts and groups."""
        if "open_pattern" in self.field:
            return self._pattern("open_pattern")
        return list(self._texts("open")[:1])

    def closes(self) -> list[str]:
        if "close_pattern" in self.field:
            texts = []
            for items in self._alternatives("close_pattern"):
                if len(items) > 1 or not all(isinstance(item, str) for item in items):
                    raise self.error("has a close_pattern with groups, which say nothing")
                texts += [str(item).strip() for item in items if str(item).strip()]
            return list(dict.fromkeys(texts))
        return [text for text in self._texts("close") if text != "eos"] if "close" in self.field else []

    def _texts(self, key: str) -> list[str]:
        value = self.field[key]
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
            raise self.error(f"needs a text as {key}, or a list of texts")
        return texts

    def _pattern(self, key: str) -> list[PatternItem]:
        """The first alternative, which is the usual one."""
        return self._alternatives(key)[0]

    def _alternatives(self, key: str) -> list[list[PatternItem]]:
        pattern = self.field[key]
        if not isinstance(pattern, str) or not pattern:
            raise self.error(f"needs a text as {key}")
        where = f"response_template: the field {self.name!r}: {key}"
        texts = [each for each in alternatives(pattern, where) if each != "^"]
        return [read_pattern(each.removesuffix("$"), where) for each in texts]

    def header(self) -> list[PatternItem]:
        """The opening marker where it is the header of a message, which may have more in it than is known."""
        if "open_pattern" not in self.field:
            return self.opens()
        where = f"response_template: the field {self.name!r}: open_pattern"
        return read_pattern(_anything("", alternatives(str(self.field["open_pattern"]), where)[0]), where)

    # Text

    def between(self, end: str = "") -> Between:
        """The field as text between markers. Whitespace at its ends is stripped unless `strip` is false.

        end: what closes it where nothing else does: it goes up to the end of the output.
        """
        if self.content != "text" or self.field.get("transform") is not None:
            raise self.error(f"has to be text without a transform, not {self.content!r}")
        closes = self.closes() or [text for text in (end,) if text]
        if not closes:
            raise self.error("is not closed by anything, so it cannot be told from what follows")
        if self.implicit:
            opens = [closes[0].replace("</", "<", 1).replace("[/", "[", 1)]
            if opens[0] == closes[0]:
                raise self.error("has no open, and its close does not tell what it would be")
        elif "open_pattern" in self.field:
            opens = [item for item in self.opens() if isinstance(item, str)]
            if len(opens) != len(self.opens()):
                raise self.error("has an open_pattern with groups, which say nothing")
        else:
            opens = self._texts("open")
        line = SPACE if self.arguments.get("strip", True) else ""
        pairs = [(open + line, f"{line}{close}{line}") for open in opens for close in closes]
        return Between(*pairs[0], also=tuple(pairs[1:]))

    # Calls

    def calls(self, ends: Sequence[str]) -> Calls:
        """The field as calls.

        ends: what ends the turn. Where a call ends with it, it is no part of the call.
        """
        if self.implicit:
            raise self.error("needs an open: without one, nothing tells that a call comes")
        closes = self.closes()
        tail = next((end for end in ends if end and closes and closes[0].endswith(end)), "")
        if tail:
            closes = [closes[0].removesuffix(tail)]
        if self._is_python(closes):
            return self._python_calls(closes)
        if len(closes) > 1:
            raise self.error(f"is closed by {len(closes)} texts, and calls can be closed by one")
        if self.field.get("join") is not None:
            raise self.error("has a join, which calls cannot have")
        opens = self.opens()
        first = opens[0]
        if not isinstance(first, str) or not _telling(first):
            raise self.error(f"opens with {self._said('open')!r}: no text in it tells a call from prose")
        # Optional whitespace separates the marker from the beginning of the call.
        marker, _, lead = first.strip().partition(SPACE)
        head: list[CallPart] = [lead.strip()] if lead.strip() else []
        groups = [item.name for item in opens if isinstance(item, NamedGroup)]
        head += [Name() if isinstance(item, NamedGroup) else item for item in opens[1:]]
        name, arguments = self.transform()
        if groups and (groups != ["name"] or name != "name"):
            raise self.error(f"has groups in its open_pattern that are no function's name: {groups}")
        body = self._body(head, bool(groups), name, arguments)
        if tail and isinstance(body, Call):
            body, closes = Call((*body.parts, *(each for each in closes if each))), []
        others = tuple(SPACE + text + SPACE for text in self._texts("open")[1:]) if "open" in self.field else ()
        close = SPACE + closes[0] + SPACE if closes else ""
        # A name that follows directly is part of the tag.
        trail = "" if head[:1] == [Name()] else SPACE
        return Calls(SPACE + marker + trail, body, close, also=others)

    def _said(self, key: str) -> object:
        return self.field.get(key, self.field.get(f"{key}_pattern"))

    def _body(self, head: list[CallPart], named: bool, name: str, arguments: str) -> Call | CallList:
        each = bool(self.field.get("transform_each"))
        if self.content == "xml-inline":
            if not named or arguments != "content" or each:
                raise self.error("is xml-inline: its name has to be a group of open_pattern, its arguments {content}")
            return Call((*head, self._tags(), *self._closing_of_name(head)))
        if self.content != "json":
            raise self.error(f"holds {self.content!r}: calls are read from json or xml-inline")
        notation = self._json_notation(named)
        if named:
            if arguments != "content" or each:
                raise self.error("has its name in open_pattern: its arguments have to be {content}")
            return Call((*head, notation))
        prefix = "" if each else "content."
        keys = name.removeprefix(prefix), arguments.removeprefix(prefix)
        if not all(key and "." not in key and key != "content" for key in keys):
            raise self.error("takes the name and the arguments from places that are no keys of one object")
        one = Call((*head, JsonCall(name=keys[0], arguments=(keys[1],))))
        return CallList(one, open="[", separator=", ", close="]") if each else one

    def _json_notation(self, named: bool) -> Notation:
        """JSON, or JSON with bare keys and strings between delimiters of their own."""
        bare, quotes = self.arguments.get("unquoted_keys"), self.arguments.get("string_delims")
        if not bare and not quotes:
            return Arguments()
        pairs = quotes if isinstance(quotes, list) else []
        if not named or not bare or len(pairs) != 1 or len(set(pairs[0])) != 1:
            raise self.error(
                "holds JSON that is none: with unquoted_keys it needs one delimiter in string_delims, the same on both "
                "sides of a string, and the name in open_pattern"
            )
        return BareArguments(str(pairs[0][0]))

    def _is_python(self, closes: list[str]) -> bool:
        """Whether calls are written as in Python, in a list: `[name(key=value), …]`."""
        tags = self.arguments.get("tag_pattern")
        return (
            self.content == "xml-inline"
            and isinstance(tags, str)
            and tags.startswith(r"(?P<key>\w+)=(?P<value>")
            and all(close.startswith(")") for close in closes)
        )

    def _python_calls(self, closes: list[str]) -> Calls:
        opens = self.opens()
        first = opens[0].strip() if isinstance(opens[0], str) else ""
        last = max(closes, key=len).removeprefix(")").strip()
        listed = first.endswith("[") and last.startswith("]")
        if opens[1:] != [NamedGroup("name"), "("] or not listed or self.transform() != ("name", "content"):
            raise self.error("looks like calls in Python, which are read as a list: <open>[name(key=value), …]<close>")
        call = Call((Name(), "(", PythonArguments(), ")"))
        body = CallList(call, open="[", separator=", ", close="]")
        return Calls(first[:-1].strip(), body, last[1:].strip())

    def transform(self) -> tuple[str, str]:
        """The paths of the name and the arguments."""
        transform = self.field.get("transform")
        function = transform.get("function") if isinstance(transform, Mapping) else None
        if function == "{content}":
            return "content.name", "content.arguments"
        if not isinstance(function, Mapping):
            raise self.error('needs a transform of the shape {"function": {"name": …, "arguments": …}}')
        paths = [_placeholder(str(function.get(key, ""))) for key in ("name", "arguments")]
        if paths[0] is None or paths[1] is None:
            raise self.error("needs placeholders for the name and the arguments, such as {content.name}")
        return paths[0][1], paths[1][1]

    def _tags(self) -> TaggedArguments:
        pattern = self.arguments.get("tag_pattern")
        if not isinstance(pattern, str):
            raise self.error("is xml-inline and needs a tag_pattern")
        parser = self.arguments.get("value_parser") or {"name": "text"}
        if not isinstance(parser, Mapping) or parser.get("name") not in ("text", "json"):
            raise self.error(f"reads its values as {parser!r}: only text and json can be told by the tools' schemas")
        if self.arguments.get("merge_duplicates"):
            raise self.error("merges arguments of one name, which no call has")
        items = read_pattern(pattern, f"response_template: the field {self.name!r}: tag_pattern")
        names = [item.name for item in items if isinstance(item, NamedGroup)]
        texts = [item for item in items if isinstance(item, str)]
        if names != ["key", "value"] or len(items) != 5 or len(texts) != 3:
            raise self.error(f"needs a tag_pattern with text around a key and a value: {pattern!r}")
        before, middle, after = texts
        return TaggedArguments(open=f"{before.lstrip()}{{key}}{middle}", close=after.rstrip() + SPACE)

    def _closing_of_name(self, head: list[CallPart]) -> tuple[CallPart, ...]:
        """The closing tag of the one that holds the name. The response_template does not mention it, since Hugging Face
        ignores text after the arguments."""
        at = head.index(Name())
        before = head[at - 1] if at else str(self.opens()[0])
        tag = re.search(r"<([\w:]+)\W*$", before if isinstance(before, str) else "")
        if tag is None or any(close.startswith(f"</{tag[1]}>") for close in self.closes()):
            return ()
        return (Maybe(f"</{tag[1]}>"),)


_LISTS = {"invoke": "function_calls"}
"""The tag of a list of calls, by that of a call. A response_template does not mention it, since Hugging Face ignores
text outside of the fields."""


@dataclass(frozen=True)
class _Headed:
    """A response_template whose fields open with headers: `<|channel|>final<|message|>`, and `to=functions.f…` before
    the channel for calls. What begins a message is the anchor."""

    anchor: str
    reasoning: _Field
    content: _Field
    tools: _Field
    in_body: bool
    """Whether calls open with a tag of their own, in the body of any message."""

    @classmethod
    def of(
        cls, anchor: object, reasoning: _Field | None, content: _Field | None, tools: _Field | None
    ) -> _Headed | None:
        """None where the fields do not open so."""
        if not isinstance(anchor, str) or reasoning is None or content is None or tools is None:
            return None
        fields = (reasoning, content, tools)
        if any(field.implicit for field in fields) or not _first_tag(anchor):
            return None
        try:
            headers = [field.header() for field in fields]
        except DetectionError:  # its opening marker says more; where it is none, it is read again
            return None
        if not all(headers):
            return None
        first, second, last = (tag[0] if (tag := _last_tag(str(header[-1]))) else "" for header in headers)
        anchored = all(str(header[0]).startswith(anchor) for header in headers)
        headed = bool(first and second and last) and (anchored or first == second == last)
        in_body = not headed and first == second != "" and not _first_tag(str(headers[1][0]))
        return cls(anchor, reasoning, content, tools, in_body) if headed or in_body else None

    def format(self, eos_token: str) -> Format:
        fields = (self.reasoning, self.content, self.tools)
        closes = {field.name: field.closes() for field in fields}
        for field in fields:
            if not closes[field.name]:
                raise field.error("opens with a header, and needs a close")
        reasoning, content = (self._header(field) for field in fields[:2])
        headed = fields[:2] if self.in_body else fields
        first, start = _first_tag(content), _first_tag(self.anchor)
        lasts = [tag[0] for field in headed if (tag := _last_tag(str(field.header()[-1])))]
        opens = [tag[0] for tag in (start, first) if tag is not None and tag[0] not in lasts]
        ends = dict.fromkeys(close for field in headed for close in closes[field.name])
        turn_ends = (*closes[self.content.name], *(() if self.in_body else closes[self.tools.name]), eos_token)
        return Format(
            NAME,
            reasoning=Between(self.anchor + reasoning, closes[self.reasoning.name][0]),
            answer=Between(self.anchor + content, closes[self.content.name][0]),
            tools=self._calls_in_body() if self.in_body else self._calls(closes[self.tools.name][0]),
            headers=Headers(
                opens=tuple(dict.fromkeys(opens)),
                closes=tuple(dict.fromkeys(lasts)),
                ends=tuple(ends),
                reasoning=self._told_by(self.reasoning),
                content="",  # nothing is lost: what no field reads is content
                calls=_NEVER if self.in_body else self._told_by(self.tools),
            ),
            ends=tuple(dict.fromkeys(end for end in turn_ends if end and end not in closes[self.reasoning.name])),
            ignored=tuple(f"<{tag}>" for tag in self._list_tags()) if self.in_body else (),
            prompt=self.anchor,
        )

    def _calls_in_body(self) -> Calls:
        """What closes a call ends it, and not the message. A list of calls may end with it."""
        calls = self.tools.calls(())
        assert isinstance(calls.body, Call)
        list_ends = [Maybe(f"</{tag}>", written=False) for tag in self._list_tags()]
        return replace(calls, body=Call((*calls.body.parts, calls.close.strip(), *list_ends)), close="")

    def _list_tags(self) -> list[str]:
        """The name of the tag that a list of calls stands in, if it has one."""
        tag = re.match(r"<(\w+:)?(\w+)", str(self.tools.opens()[0]))
        return [f"{tag[1] or ''}{_LISTS[tag[2]]}"] if tag and tag[2] in _LISTS else []

    def _header(self, field: _Field) -> str:
        """A header, without what the prompt begins it with."""
        header = str(field.header()[0]).removeprefix(self.anchor)
        return header if header.startswith(("<", " ")) else f" {header}"

    def _told_by(self, field: _Field) -> str:
        pattern = field.field.get("open_pattern")
        return pattern if isinstance(pattern, str) else re.escape(str(field.header()[0]))

    def _calls(self, close: str) -> Calls:
        tools, (begin, *rest) = self.tools, self.tools.header()
        begin = str(begin).removeprefix(self.anchor)
        marker = self.anchor + ("" if _first_tag(begin) else " ") + begin.strip()
        if tools.content != "json" or tools.arguments or tools.field.get("transform_each"):
            raise tools.error("opens with a header: its content has to be JSON, of one call")
        name, arguments = tools.transform()
        if rest[:1] == [NamedGroup("name")] and len(rest) == 2 and (name, arguments) == ("name", "content"):
            return Calls(marker, Call((Name(), str(rest[1]).replace(SPACE, " "), Arguments())), close)
        keys = [path.removeprefix("content.") for path in (name, arguments)]
        if rest or not all(keys) or any("." in key or key == "content" for key in keys):
            raise tools.error("opens with a header: the name has to be a group in it, or a key of its content")
        return Calls(marker, Call((JsonCall(name=keys[0], arguments=(keys[1],)),)), close)


# Patterns


@dataclass(frozen=True)
class NamedGroup:
    """A named group. What it matches is not examined."""

    name: str


PatternItem = str | NamedGroup


def read_pattern(pattern: str, where: str) -> list[PatternItem]:
    """The texts and groups of a pattern, in order; optional whitespace is `SPACE` in a text. Raises `DetectionError`
    for other patterns; `where` names the pattern in the message."""
    items: list[PatternItem] = []
    for item in _items(pattern, where):
        if isinstance(item, str) and items and isinstance(items[-1], str):
            items[-1] += item
        else:
            items.append(item)
    return items


def _items(pattern: str, where: str) -> Iterator[PatternItem]:
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if space := _space(pattern, at):
            yield SPACE
            at = space.end()
        elif attributes := _attributes(pattern, at):
            yield " " if attributes[1] and attributes[2] else ""
            at = attributes.end()
        elif named := _named(pattern, at):
            yield NamedGroup(named[1])
            at = _group_end(pattern, at, where)
        elif char == "\\" and at + 1 < len(pattern) and not pattern[at + 1].isalnum():
            yield pattern[at + 1]
            at += 2
        elif char == "\\" and pattern[at + 1 : at + 2] in _SPELLED:
            yield _SPELLED[pattern[at + 1]]
            at += 2
        elif char in r".*+?()[]{}|^$" + "\\":
            raise DetectionError(
                f"{where}: {pattern[at : at + 12]!r} in {pattern!r} is more than a grammar can say, which knows texts, "
                "whitespace and named groups"
            )
        else:
            yield char
            at += 1


def _group_end(pattern: str, at: int, where: str) -> int:
    depth, inside_set = 0, False
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
        elif inside_set:
            inside_set = char != "]"
        elif char == "[":
            inside_set = True
            at += 1 if pattern[at + 1 : at + 2] in ("]", "^") else 0
        elif char in "()":
            depth += 1 if char == "(" else -1
            if depth == 0:
                return at + 1
        at += 1
    raise DetectionError(f"{where}: a bracket in {pattern!r} is not closed")


def alternatives(pattern: str, where: str) -> list[str]:
    """The patterns without `|` that a pattern stands for, in its order."""
    branches = _branches(pattern)
    if len(branches) > 1:
        return [each for branch in branches for each in alternatives(branch, where)]
    at = _first_group(pattern, where)
    if at < 0:
        return [pattern]
    end = _group_end(pattern, at, where)
    inner = _branches(pattern[at + 3 : end - 1])
    if pattern[end : end + 1] == "?":
        inner, end = [*inner, ""], end + 1
    return [each for branch in inner for each in alternatives(pattern[:at] + branch + pattern[end:], where)]


def _ungrouped(pattern: str) -> str:
    """What stands in the one group that a pattern is."""
    whole = pattern.startswith("(?:") and pattern.endswith(")") and pattern.count("(") == 1
    return pattern[3:-1] if whole else pattern


def _first_group(pattern: str, where: str) -> int:
    """Where the first group begins that has no name and does not look ahead; -1 if there is none."""
    at = 0
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 1
        elif pattern.startswith("(?P<", at):
            at = _group_end(pattern, at, where) - 1
        elif pattern.startswith("(?:", at):
            return at
        at += 1
    return -1


def _branches(pattern: str) -> list[str]:
    """A pattern cut at each `|` that is in no group and no set."""
    branches, depth, begin, at, inside_set = [], 0, 0, 0, False
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
        elif inside_set:
            inside_set = char != "]"
        elif char == "[":
            inside_set = True
            at += 1 if pattern[at + 1 : at + 2] in ("]", "^") else 0
        elif char in "()":
            depth += 1 if char == "(" else -1
        elif char == "|" and depth == 0:
            branches.append(pattern[begin:at])
            begin = at + 1
        at += 1
    return [*branches, pattern[begin:]]
