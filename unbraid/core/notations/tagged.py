"""Arguments between tags of their own: `<parameter=key>value</parameter>`, turned into JSON.

A value ends at its closing tag. Models forget that tag: so the next opening tag and the end of the call end a value as
well, with a diagnostic. `tagged_values.py` reads the values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import InvalidFormat, UnbraidError
from ...schema.kinds import ANY_KIND, ITEMS, STRING, kind_of, kinds_among, kinds_of, schemas_inside
from .. import diagnostics
from ..events import Event
from ..fast_import import frozen
from ..grammar import Escapes, escaped, unescaped
from ..json_text import quote
from ..machine.calls import Step
from ..machine.machine import FastPath, Frame, Machine, State
from ..machine.markers import (
    HEADER_END,
    NOT_YET,
    QUOTES,
    AfterWords,
    Beginnings,
    Marker,
    Markers,
    NotYet,
    after_escaped_space,
    after_loose_words,
    after_words,
    any_matches_at,
    escaped_space_end,
    run_of,
    space_end,
    split_whitespace,
    words_of,
)
from ..machine.output import ARGUMENTS, MARKUP, Malformed
from ..machine.steps import BeginNotation, pass_end
from ..machine.whole_calls import SPACE, WholeArguments
from ..message import ToolCall
from .base import CallNotation, Closing, NotationPlace, ObjectWriter
from .json import ValueFrame
from .tagged_values import TaggedValueFrame, WrapperFrame, either, whole_value
from .value_ends import NextArgument, ValueRule, next_argument

_key_ends = {
    "'": run_of(r"[^'<>\x00-\x1f\ud800-\udfff]*"),
    "": run_of(r"[^\s\"'<>/=\x00-\x1f\ud800-\udfff]*"),
}
"""Where a key ends that stands between other quotes than it should, or none."""
_word_end = run_of(r"\w*")
_simple_key_end = run_of(r"[\w.-]*")
_lower_end = run_of("[a-z]*")
_said_end = run_of(r"[^\"'<>\x00-\x1f\ud800-\udfff]*")
_ESCAPED_SPACE = "line breaks between tags that are written as in a string"


@frozen
class TaggedArguments(CallNotation):
    """The arguments one by one, each between tags: a string as its bare characters, anything else as JSON, or as
    Python's literals where the tool's schema leaves no string."""

    open: str
    """With `{key}` for the argument's name, and `{kind}` after it, if the tag says the kind of the value."""
    close: str
    kind: str = ""
    """The spelling of the kind, with `{}` for its word: ` type="{}"`. Models may leave it out."""
    kinds: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The words, and the kinds of JSON values that each stands for."""
    key_escapes: Escapes = ()
    """Replacements in keys. `<` and `>` need none: the tags around such keys are spelled as no key is (`<|sep|>`)."""
    wrappers: tuple[str, ...] = ()
    """Keys that models put all of the arguments under, as one JSON object, where the tool knows no such key."""

    @property
    def quotes_keys(self) -> bool:
        """Whether keys stand between quotes. If not, whitespace around them says nothing."""
        return self.open.partition("{key}")[0].endswith('"')

    @property
    def not_in_keys(self) -> str:
        """The characters that cannot stand in a key, beside control characters."""
        return ("" if self.key_escapes else "<>") + self.open.partition("{key}")[2].replace("{kind}", "").strip()[:1]

    @property
    def first_word(self) -> str:
        return words_of(self.open.partition("{key}")[0])[0]

    @property
    def next_tag(self) -> tuple[str, str, str]:
        """How the tag of a further argument begins: the line break that templates write before it, the text before the
        key, and the first word after the key."""
        before, _, rest = self.open.partition("{key}")
        middle, _, end = rest.rpartition("{kind}")
        lead, _, trail = split_whitespace(self.close)
        return "\n" if "\n" in lead + trail else "", before.strip(), words_of(f"{middle} {end}")[0]

    def tag_of(self, key: str) -> str:
        """How the tag of an argument begins, up to the first word after its key."""
        _, before, after = self.next_tag
        return before + self.encoded_key(key) + after

    def can_name(self, key: str) -> bool:
        key = self.encoded_key(key)
        trimmed = self.quotes_keys or key == key.strip()
        return trimmed and "<|" not in key and not any(char < " " or char in self.not_in_keys for char in key)

    def encoded_key(self, key: str) -> str:
        """A key as it stands in the tag."""
        return escaped(key, self.key_escapes)

    def decoded_key(self, spelled: str) -> str:
        """A key as it is, from the tag."""
        return unescaped(spelled, self.key_escapes)

    def step(self, place: NotationPlace) -> Step:
        rule = tag_rule(self, place)
        return BeginNotation(lambda markers: TaggedArgumentsFrame(rule, markers))

    def whole(self, place: NotationPlace) -> WholeArguments | None:
        ends = "|".join(map(re.escape, place.ends))
        return WholeArguments(WrittenTags(self, place).read, after=f"{SPACE}(?={ends})") if ends else None

    def write(self, call: ToolCall, number: int) -> str:
        return "".join(self._argument(key, value) for key, value in self.members(call).items())

    def check(self, call: ToolCall, tail: tuple[Closing, ...], tools: Mapping[str, Mapping[str, Any]] | None) -> None:
        calls = [text for closing in tail for text in closing.calls(tools or ())]
        for key, value in self.members(call).items():
            text = json.loads(value)
            if not isinstance(text, str):
                continue
            next = next_argument((tools or {}).get(call.name, {}), key)
            tags = [] if next is None else [self.next_tag[0] + self.tag_of(next)]
            for end in (self.close.strip(), *calls, *tags):
                if end in text:
                    raise UnbraidError(
                        f"the argument {key!r} cannot be written in this format: it holds {end!r}, where its value "
                        "would end; leave that out, or write it in another way"
                    )

    def _argument(self, key: str, value: str) -> str:
        """An argument between its tags. `value` is JSON."""
        kind = kind_of(json.loads(value))
        words = [word for word, kinds in self.kinds if kind in kinds]
        open = self.open.replace("{kind}", self.kind.format(words[0]) if words else "")
        text = self._encoded(json.loads(value) if kind == STRING else value)
        return open.replace("{key}", self.encoded_key(key)) + text + self.close

    def _encoded(self, text: str) -> str:
        """The text of a value as it stands between the tags."""
        return text


_NO_KIND = frozenset[str]()
Match = Callable[[str, int], re.Match[str] | None]


class WrittenTags:
    """The tags around arguments, as the template writes them. Nearly all are; to read others takes longer."""

    __slots__ = ("_kinds", "_lead", "_node", "_patterns", "begins", "match", "open")

    def __init__(self, node: TaggedArguments, place: NotationPlace) -> None:
        def literal(text: str) -> str:
            return re.escape(place.key(text)) if text.strip() else re.escape(text)

        opening, _, rest = node.open.partition("{key}")
        middle, _, end = rest.rpartition("{kind}")
        self._lead, closing, _ = split_whitespace(node.close)
        kind = node.kind.partition("{}")
        said = f"{literal(kind[0])}(?P<kind>[a-z]+){literal(kind[2])}" if node.kind else "(?P<kind>)"
        first = {re.escape(text[0]) for text in (place.key(closing), place.key(opening.strip()), *place.ends) if text}
        open = literal(opening.strip()) + r"(?P<key>[\w.-]++)" + literal(middle) + said + literal(end.rstrip())
        value = rf"(?P<value>[^{''.join(sorted(first))}\ud800-\udfff]*+)"
        self._patterns = open, f"{SPACE}{open}{end[len(end.rstrip()) :]}{value}{literal(closing)}"
        self._kinds = {word: frozenset(kinds) for word, kinds in node.kinds} if node.kind else {"": ANY_KIND}
        self._node = node
        after = (place.key(middle), place.key(kind[0]), _lower_end, place.key(kind[2])) if node.kind else ()
        pieces = (place.key(opening.strip()), _simple_key_end, *after, place.key(end.rstrip()))
        self.begins = Beginnings(tuple(piece for piece in pieces if piece), place.ends)
        """The opening tag, or what may come after the last argument."""
        self.open: Match = self._compile_open
        """The opening tag, with its key and the word for its kind."""
        self.match: Match = self._compile
        """All of an argument, with its value."""

    def _compile_open(self, text: str, at: int) -> re.Match[str] | None:
        """Puts the pattern in its place, with the first call."""
        self.open = re.compile(self._patterns[0]).match
        return self.open(text, at)

    def _compile(self, text: str, at: int) -> re.Match[str] | None:
        """Likewise."""
        self.match = re.compile(self._patterns[1]).match
        return self.match(text, at)

    def read(self, machine: Machine, markers: Markers, at: int, name: str) -> tuple[str, int] | None:
        """Arguments that have come whole: see `CallNotation.whole`."""
        buffer = machine.buffer
        schema = {} if machine.tools is None else machine.tools.get(name, {})
        fragments: dict[str, str] = {}
        match, lead, limits = self.match(buffer, at), self._lead, machine.limits
        while match is not None:
            key, said, text = match.group("key", "kind", "value")
            if not text.endswith(lead) or len(key) > limits.name or len(text) > limits.number:
                return None
            if key in fragments or key in self._node.wrappers:
                return None
            value = whole_value(text[: len(text) - len(lead)], kinds_of(schema, key) & self._kinds.get(said, _NO_KIND))
            if value is None:
                return None
            fragments[key] = f"{quote(key)}: {value}"
            at = match.end()
            match = self.match(buffer, at)
        return ("{" + ", ".join(fragments.values()) + "}", at) if fragments else None


@dataclass(slots=True, eq=False, repr=False)
class TagRule:
    """The tags around each argument."""

    before: tuple[str, ...]
    """The words of the opening tag before the key; whitespace between words is as it comes."""
    key_end: Callable[[str, int], int]
    """Where a key ends."""
    node: TaggedArguments
    after_key: tuple[str, ...]
    """Its words after the key."""
    kind: tuple[tuple[str, ...], tuple[str, ...]] | None
    """The words around the word for the kind of the value, if the tag may have one."""
    kinds: Mapping[str, frozenset[str]]
    """The kinds that each such word stands for."""
    after: tuple[str, ...]
    """The words after that."""
    trail: str
    """Whitespace after the tag that belongs to it."""
    value: ValueRule
    closer: Markers
    """The closing tag, without the whitespace around it."""
    following: Markers
    """The markers that may come after the last argument."""
    attributes: bool
    """Whether the key, or the kind, is the value of an attribute. Models write other quotes around it, or none."""
    written: WrittenTags


def tag_rule(node: TaggedArguments, place: NotationPlace, watched: Iterable[str] = ()) -> TagRule:
    """Lay out the tags. `watched` are further markers that mean something in the text of a value."""
    find, following = place.key, place.ends

    def words(text: str) -> tuple[str, ...]:
        return tuple(map(find, words_of(text)))

    opening, key, rest = node.open.partition("{key}")
    middle, _, end = rest.rpartition("{kind}")
    before, after_key, after = words(opening), words(middle), words(end)
    if not (key and before and (after_key or after)):
        raise InvalidFormat(f"the tag before an argument needs '{{key}}' between other text: {node.open!r}")
    kind = None
    if node.kind:
        around = node.kind.partition("{}")
        kind = words(around[0]), words(around[2])
    lead, text, trail = split_whitespace(node.close)
    close = Marker("close", "", find(text), lead, trail)
    # All of the tag before the key: `<parameter` alone may as well begin `<parameters>`, which is text.
    line_break, opens, first_word = node.next_tag
    next = Marker("end", "", find(opens), line_break)
    further = NextArgument(next, find(first_word), node.encoded_key)
    tail = tuple(closing for closing in place.tail if closing.text in following)
    key_char = rf"[^<{re.escape(node.not_in_keys)}\x00-\x1f\ud800-\udfff]"
    ends = [close, next, *(Marker("end", "", text, lead) for text in dict.fromkeys(following))]
    value = ValueRule(
        close, Markers(ends), Markers([*ends, *(Marker("open", "", text) for text in watched)]), further, tail
    )
    return TagRule(
        before,
        run_of(rf"(?:{key_char}|<(?!\|))*" if node.key_escapes else f"{key_char}*"),
        node,
        after_key,
        kind,
        {word: frozenset(kinds) for word, kinds in node.kinds},
        after,
        rest[len(rest.rstrip()) :],
        value,
        Markers([Marker("close", "", close.key)]),
        Markers(Marker("end", "", text) for text in following),
        opening.endswith('="') or node.kind.partition("{}")[0].endswith('="'),
        WrittenTags(node, place),
    )


class TaggedArgumentsFrame(Frame):
    """Between the arguments: the next one's tag comes, or the end."""

    kind = "tagged"
    opened_by = ("calls",)
    about = State(
        reads="between arguments that stand in tags",
        ends="what follows the last argument, or a marker",
        malformed="the call is given up",
    )
    saved = ("again", "key", "keys")
    __slots__ = ("again", "key", "keys", "markers", "rule")

    def __init__(self, rule: TagRule, markers: Markers) -> None:
        self.rule = rule
        self.markers = markers
        self.keys = ObjectWriter()
        self.key = ""
        """The argument that came last."""
        self.again = False
        """Whether it is an array that is still open: models write its tag once for each item."""

    def held_path(self, machine: Machine) -> FastPath | None:
        return self._wait if machine.call.accepted else None

    def _wait(self, machine: Machine, text: str) -> list[Event] | None:
        rest, tags = machine.buffer[machine.position :] + text, self.rule.written
        if len(rest) > machine.limits.name:
            return None
        if tags.begins[rest]:
            return machine.hold(rest)
        if self.again or not machine.in_short:
            return None
        if rest.isspace():
            return machine.pass_space(rest)
        tag = tags.open(rest, 0)
        if tag is None:
            return None if self.keys.empty else pass_end(machine, "}", rest)
        trail = self.rule.trail
        comes = rest[tag.end() :]
        if comes != trail and comes:
            return None
        key = tag[1]
        kinds = machine.kinds(key)
        if self.rule.kinds:
            kinds &= self.rule.kinds.get(tag["kind"], _NO_KIND)
        if not kinds or key in self.keys or key in self.rule.node.wrappers:
            return None
        self.key, value = key, self._value(kinds)
        events = machine.pass_markup(rest, self.keys.begin(machine, key) + value.written, tag.end())
        machine.stack.append(value)
        if trail and not comes:
            machine.trail, machine.fast_path = trail, Machine.pass_trail
        else:
            machine.fast_path = value.fast_path(machine) or value.held_path(machine)
        return events

    def step(self, machine: Machine) -> bool:
        machine.skip_space()
        rule, buffer, start = self.rule, machine.buffer, machine.position
        if start == len(buffer) and not machine.at_end:
            return False
        tag = rule.written.open(buffer, start)
        if tag is not None and len(tag["key"]) <= machine.limits.name:
            self._begin(machine, tag["key"], tag.end(), rule.kinds.get(tag["kind"], _NO_KIND) if rule.kinds else None)
            return True
        most = machine.limits.name
        if buffer.startswith("\\", start) and (skipped := self._skip_escaped_space(machine)) is not False:
            return bool(skipped) or machine.needs_more()
        begin = after_words(buffer, start, rule.before, most)
        first = stop = 0
        end = begin
        kinds: frozenset[str] | None = None
        if isinstance(begin, int):
            first = begin if rule.node.quotes_keys else space_end(buffer, begin)
            stop = rule.key_end(buffer, first)
            end, kinds = self._after_key(buffer, stop, most)
            if end is None:
                end, kinds = self._after_key(buffer, stop, most, after_escaped_space)
        if end is None and rule.attributes:
            loose = self._loose_tag(buffer, start, most)
            if loose is NOT_YET:
                return machine.needs_more()
            if loose is not None:
                begin, (first, stop, end, kinds) = loose[0], loose
                machine.report(diagnostics.REPAIRED, "an attribute that stands in no double quotes")
        if begin is None and self.keys.empty and buffer.startswith("{", start):
            machine.report(diagnostics.REPAIRED, "arguments as one JSON object, where they should stand between tags")
            machine.pop()
            machine.push(ValueFrame(machine.limits, ARGUMENTS, self.markers))
            return True
        if begin is None or (machine.at_end and start == len(buffer)):
            return self._end(machine)
        if isinstance(begin, int) and stop - begin > most:
            raise Malformed(diagnostics.TOO_LONG, f"an argument's name longer than {most} characters")
        if end is NOT_YET:
            return machine.needs_more()
        if end is None:
            lone = self._end_of_lone_key(machine, stop)
            if lone is NOT_YET:
                return machine.needs_more()
            if lone is not None:
                machine.report(diagnostics.REPAIRED, f"the name {buffer[first:stop]!r} without a value: left out")
                machine.take(lone - start, MARKUP)
                return True
            words = "".join((*rule.after_key, *rule.after))
            raise Malformed(diagnostics.MALFORMED_CALL, f"an argument without '{words}' after its name")
        if "\\" in buffer[stop:end]:
            machine.report(diagnostics.REPAIRED, _ESCAPED_SPACE)
        spelled = buffer[first:stop]
        key = rule.node.decoded_key(spelled if rule.node.quotes_keys else spelled.rstrip())
        self._begin(machine, key, end, kinds)
        return True

    def _begin(self, machine: Machine, key: str, end: int, kinds: frozenset[str] | None) -> None:
        """An argument begins, whose tag ends at a position of the buffer. kinds: those that the tag speaks of."""
        rule, start = self.rule, machine.position
        if self.again and key == self.key:
            value = self._value(self._kinds_of_items(machine))
            machine.take(end - start, ARGUMENTS, f", {value.written}")
            machine.push(value)
        elif key in rule.node.wrappers and key not in machine.parameters().get("properties", {key: True}):
            self._end_array(machine)
            machine.take(end - start, MARKUP)
            machine.push(self._wrapper(key, kinds == frozenset((STRING,))))
        else:
            self._end_array(machine)
            self.key = key
            value = self._value(self._kinds(machine, key, kinds))
            machine.take(end - start, ARGUMENTS, self.keys.begin(machine, key) + value.written)
            machine.push(value)
        machine.trail = rule.trail

    def begin_array(self, machine: Machine) -> frozenset[str] | None:
        """The value that has begun is an item of the array that it should be. Returns the kinds that it may be of; None
        where it is one already."""
        if self.again:
            return None
        machine.report(diagnostics.REPAIRED, f"{self.key!r} once for each item of its array")
        machine.add_arguments("[")
        self.again = True
        return self._kinds_of_items(machine)

    def _kinds_of_items(self, machine: Machine) -> frozenset[str]:
        parameters = machine.parameters()
        schema = parameters.get("properties", {}).get(self.key, parameters.get("additionalProperties", True))
        return kinds_among(parameters, schemas_inside(parameters, [schema], ITEMS))

    def _end_array(self, machine: Machine) -> None:
        if self.again:
            machine.add_arguments("]")
            self.again = False

    def _kinds(self, machine: Machine, key: str, said: frozenset[str] | None) -> frozenset[str]:
        """The kinds that the value may be of, by the schema and by the tag. If the two contradict each other, the
        schema is right: a value of another kind would be of no use."""
        kinds = machine.kinds(key)
        if said is None:
            return kinds
        if not said:
            machine.report(diagnostics.MALFORMED_CALL, f"the tag of {key!r} says a kind of value that is not known")
        elif kinds.isdisjoint(said):
            by_tag, by_schema = either(said), either(kinds)
            machine.report(diagnostics.REPAIRED, f"the tag of {key!r} says {by_tag}, and the schema {by_schema}")
        return kinds & said or kinds

    def _value(self, kinds: frozenset[str]) -> TaggedValueFrame:
        return TaggedValueFrame(self.rule.value, kinds)

    def _wrapper(self, key: str, text: bool) -> TaggedValueFrame:
        return WrapperFrame(self.rule.value, key, text)

    def _loose_tag(
        self, buffer: str, at: int, most: int
    ) -> tuple[int, int, int, frozenset[str] | None] | NotYet | None:
        """A tag with any quotes or none: where its key begins and ends, where the tag ends, and the kinds of value that
        it speaks of."""
        rule = self.rule
        first = after_loose_words(buffer, at, rule.before, most)
        if not isinstance(first, int):
            return first
        quote, key_end = buffer[first - 1], rule.key_end
        if rule.node.quotes_keys and quote != '"':
            key_end = _key_ends[quote if quote in QUOTES else ""]
        if not rule.node.quotes_keys or quote not in QUOTES:
            first = space_end(buffer, first)
        stop = key_end(buffer, first)
        closed = stop == len(buffer) or buffer[stop] == quote if quote in QUOTES else stop > first
        if stop - first > most or not closed:
            return None
        end, kinds = self._after_key(buffer, stop, most, after_loose_words)
        return (first, stop, end, kinds) if isinstance(end, int) else end

    def _after_key(
        self, buffer: str, at: int, most: int, after: AfterWords = after_words
    ) -> tuple[int | NotYet | None, frozenset[str] | None]:
        """The position after the opening tag, and the kinds of value that the tag speaks of: None where it does not
        speak of any, an empty set where its word is unknown."""
        rule = self.rule
        end = after(buffer, at, rule.after_key, most)
        kinds = None
        if isinstance(end, int) and rule.kind is not None:
            said = after(buffer, end, rule.kind[0], most)
            if said is NOT_YET:
                return NOT_YET, None
            if said is not None:
                stop = _said_end(buffer, said)
                if stop - said > most:
                    return None, None
                if stop == len(buffer):
                    return NOT_YET, None
                # Of `array[string]`, the first word.
                kinds = rule.kinds.get(buffer[said : min(_word_end(buffer, said), stop)].lower(), frozenset())
                end = after(buffer, stop, rule.kind[1], most)
        if isinstance(end, int):
            end = after(buffer, end, rule.after, most)
        return end, kinds

    def _skip_escaped_space(self, machine: Machine) -> bool | NotYet:
        """Take line breaks that are written as in a string, where a tag follows."""
        buffer, start = machine.buffer, machine.position
        end = escaped_space_end(buffer, start)
        comes = any_matches_at((self.rule.value.ends, self.markers), buffer, end)
        if comes and end > start:
            machine.report(diagnostics.REPAIRED, _ESCAPED_SPACE)
            machine.take(end - start, MARKUP)
            return True
        undecided = comes is NOT_YET or end == len(buffer) or buffer[end:] == "\\"
        return NOT_YET if undecided and end - start <= machine.limits.name else False

    def _end_of_lone_key(self, machine: Machine, at: int) -> int | NotYet | None:
        """Where a name ends that has tags of its own and no value: another name or the end of the call follows it."""
        rule, buffer = self.rule, machine.buffer
        words = (*rule.after_key, *rule.after)
        closing = next((words[:count] for count in range(1, len(words)) if words[count - 1].endswith(">")), ())
        end = after_words(buffer, at, closing, machine.limits.name) if closing else None
        if not isinstance(end, int):
            return end
        comes = any_matches_at((rule.value.ends, self.markers), buffer, space_end(buffer, end))
        return end if comes else NOT_YET if comes is NOT_YET else None

    def _end(self, machine: Machine) -> bool:
        comes = any_matches_at((self.rule.following, self.markers), machine.buffer, machine.position)
        if not comes:
            extra = self.rule.closer.matches_at(machine.buffer, machine.position)
            if extra:
                close = self.rule.value.close.key
                machine.report(diagnostics.REPAIRED, f"'{close}' once more than there are arguments")
                machine.take(len(close), MARKUP)
                return True
            if machine.cut_off or (NOT_YET in (comes, extra) and not machine.at_end):
                return machine.needs_more()
            if not machine.at_end:
                raise Malformed(diagnostics.MALFORMED_CALL, "text between the arguments of a tool call")
            self.rule.value.miss(machine, self.rule.value.needed())
        ended_by = self.markers.at(machine.buffer, machine.position)
        follows = self.rule.following.at(machine.buffer, machine.position)
        if ended_by and not follows and self.keys.empty and self.markers.which(ended_by).strand == HEADER_END:
            # The end of a header, twice: the arguments stand after it.
            raise Malformed(diagnostics.MALFORMED_CALL, "a tool call without arguments that does not end")
        machine.pop()
        self._end_array(machine)
        self.keys.end(machine)
        return True
