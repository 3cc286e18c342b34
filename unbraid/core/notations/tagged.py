"""Tagged notation: each argument between tags of its own, `<parameter=key>value</parameter>`, turned into JSON.

The text alone does not say what a value is: `3` may be a number or a string. The tool's schema does
(`unbraid/schema/kinds.py`), or the tag itself (`type="number"`). A string goes out character by character; an array or
an object as it is, read as JSON or as Python writes it. Where the schema admits strings and something else, or says
nothing, the value is JSON if all of it is and a string otherwise; it waits only as long as it can be either, which its
first character mostly tells.

A value ends at its closing tag. Models forget that, so the next tag and the end of the call end it as well, with a
diagnostic. `xml.py` is the same with entities and CDATA sections in it, `elements.py` nests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, cast

from ...errors import InvalidFormat
from ...schema.kinds import ANY_KIND, STRING, kind_of, kinds_of
from .. import diagnostics
from ..machine.calls import Step
from ..machine.machine import FastPath, Frame, Machine, Malformed
from ..machine.markers import HEADER_END, Marker, Markers, split_whitespace
from ..machine.pending_call import ARGUMENTS, MARKUP, PENDING
from ..machine.steps import BeginNotation
from ..machine.words import (
    QUOTES,
    AfterWords,
    after_escaped_space,
    after_loose_words,
    after_words,
    escaped_space_end,
    run_of,
    space_end,
    words_of,
)
from ..message import ToolCall
from ..records import frozen
from .base import CallNotation, ObjectWriter, Place, string_path
from .json import ValueFrame
from .json_scanner import JsonScanner
from .json_text import escape, is_number, may_become_number, members
from .nested import ONLY_IN_PYTHON, ArgumentFrame
from .python_values import literal_as_json, number_as_json

_key_ends = {
    "'": run_of(r"[^'<>\x00-\x1f\ud800-\udfff]*"),
    "": run_of(r"[^\s\"'<>/=\x00-\x1f\ud800-\udfff]*"),
}
"""Where a key ends that stands between other quotes than it should, or none."""
_word_end = run_of(r"\w*")
_said_end = run_of(r"[^\"'<>\x00-\x1f\ud800-\udfff]*")
_json_space = " \t\n\r"
_KEY_STARTS = ('"', "'", "\\", "}")
"""What an object goes on with, as JSON, in Python or escaped."""
_ESCAPED_SPACE = "line breaks between tags that are written as in a string"

_STARTS = {"{": "object", "[": "array", "-": "number", "t": "boolean", "f": "boolean", "n": "null"}
_STARTS |= dict.fromkeys("0123456789", "number")
_PYTHON_STARTS = {"T": "boolean", "F": "boolean", "N": "null"}
_NUMBER_STARTS = "+."
"""What numbers begin with that JSON writes otherwise."""
_may_be_other_number = run_of(r"[-+.\w]*")
_WORDS = {"true": "true", "false": "false", "null": "null"}
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}


@frozen
class TaggedArguments(CallNotation):
    """The arguments one by one, each between tags: a string as its bare characters, anything else as JSON, or as
    Python's literals where the tool's schema leaves no string."""

    open: str
    """With `{key}` for the argument's name, and, where the tag says what kind of value comes, `{kind}` after it."""
    close: str
    kind: str = ""
    """How the kind is said, with `{}` for the word that stands for it. It may be missing."""
    kinds: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The words, and the kinds of JSON value that each stands for."""
    key_escapes: tuple[tuple[str, str], ...] = ()
    """What is replaced in keys, in this order, and by what."""
    wrappers: tuple[str, ...] = ()
    """Keys that models put all of the arguments under, as one JSON object, where the tool knows no such key."""

    @property
    def quotes_keys(self) -> bool:
        """Whether keys stand between quotes. If not, whitespace around them says nothing."""
        return self.open.partition("{key}")[0].endswith('"')

    @property
    def not_in_keys(self) -> str:
        """The characters that cannot stand in a key, beside control characters."""
        return "<>" + self.open.partition("{key}")[2].replace("{kind}", "").strip()[:1]

    def can_name(self, key: str) -> bool:
        key = self.encoded_key(key)
        trimmed = self.quotes_keys or key == key.strip()
        return trimmed and not any(char < " " or char in self.not_in_keys for char in key)

    def encoded_key(self, key: str) -> str:
        """A key as it stands in the tag."""
        for text, written in self.key_escapes:
            key = key.replace(text, written)
        return key

    def decoded_key(self, written: str) -> str:
        """The key that stands in the tag so."""
        for text, replaced in reversed(self.key_escapes):
            written = written.replace(replaced, text)
        return written

    def step(self, place: Place) -> Step:
        rule = tag_rule(self, place)
        return BeginNotation(lambda markers: TaggedArgumentsFrame(rule, markers))

    def write(self, call: ToolCall, number: int) -> str:
        return "".join(self._argument(key, value) for key, value in self.members(call).items())

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


@dataclass(slots=True, eq=False, repr=False)
class ValueRule:
    """What ends a value."""

    close: Marker
    ends: Markers
    """All that does. Models forget to close a value: then what comes next ends it."""
    watched: Markers
    """That, and what else means something in its text."""


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
    """The words around the word that says what kind of value comes, where it may be said."""
    kinds: Mapping[str, frozenset[str]]
    """What each such word says."""
    after: tuple[str, ...]
    """The words after that."""
    trail: str
    """Whitespace after it that belongs to it."""
    value: ValueRule
    closer: Markers
    """What closes a value, without the whitespace around it."""
    following: Markers
    """What may come after the last argument."""
    attributes: bool
    """Whether the key, or the kind, is the value of an attribute. Models write other quotes around it, or none."""


def tag_rule(node: TaggedArguments, place: Place, watched: Iterable[str] = ()) -> TagRule:
    """Lay out the tags. `watched` is what else means something in the text of a value."""
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
    next = find(opening.strip())
    ends = [close, *(Marker("end", "", text, lead) for text in dict.fromkeys((next, *following)))]
    value = ValueRule(close, Markers(ends), Markers([*ends, *(Marker("open", "", text) for text in watched)]))
    return TagRule(
        before,
        run_of(rf"[^{re.escape(node.not_in_keys)}\x00-\x1f\ud800-\udfff]*"),
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
    )


class TaggedArgumentsFrame(Frame):
    """Between the arguments: the next one's tag comes, or the end."""

    kind = "tagged"
    saved = ("keys",)
    __slots__ = ("keys", "markers", "rule")

    def __init__(self, rule: TagRule, markers: Markers) -> None:
        self.rule = rule
        self.markers = markers
        self.keys = ObjectWriter()

    def step(self, machine: Machine) -> bool:
        machine.skip_space()
        rule, buffer, start = self.rule, machine.buffer, machine.position
        most = machine.limits.name
        if buffer.startswith("\\", start) and (skipped := self._skip_escaped_space(machine)) is not False:
            return skipped or machine.needs_more()
        begin = after_words(buffer, start, rule.before, most)
        first = stop = 0
        end = begin
        kinds: frozenset[str] | None = None
        if begin is not None and begin >= 0:
            first = begin if rule.node.quotes_keys else space_end(buffer, begin)
            stop = rule.key_end(buffer, first)
            end, kinds = self._after_key(buffer, stop, most)
            if end == -1:
                end, kinds = self._after_key(buffer, stop, most, after_escaped_space)
        if end == -1 and rule.attributes:
            found = self._loose_tag(buffer, start, most)
            if found is None:
                return machine.needs_more()
            if found[2] >= 0:
                begin, (first, stop, end, kinds) = found[0], found
                machine.report(diagnostics.REPAIRED, "an attribute that stands in no double quotes")
        if begin == -1 and self.keys.empty and buffer.startswith("{", start):
            machine.report(diagnostics.REPAIRED, "arguments as one JSON object, where they should stand between tags")
            machine.pop()
            machine.push(ValueFrame(machine.limits, ARGUMENTS, self.markers))
            return True
        if begin == -1 or (machine.at_end and start == len(buffer)):
            return self._end(machine)
        if begin is not None and stop - begin > most:
            raise Malformed(diagnostics.TOO_LONG, f"an argument's name longer than {most} characters")
        if end is None:
            return machine.needs_more()
        if end == -1:
            lone = self._end_of_lone_key(machine, stop)
            if lone is None:
                return machine.needs_more()
            if lone >= 0:
                machine.report(diagnostics.REPAIRED, f"the name {buffer[first:stop]!r} without a value: left out")
                machine.take(lone - start, MARKUP)
                return True
            words = "".join((*rule.after_key, *rule.after))
            raise Malformed(diagnostics.MALFORMED_CALL, f"an argument without '{words}' after its name")
        if "\\" in buffer[stop:end]:
            machine.report(diagnostics.REPAIRED, _ESCAPED_SPACE)
        written = buffer[first:stop]
        key = rule.node.decoded_key(written if rule.node.quotes_keys else written.rstrip())
        if key in rule.node.wrappers and key not in machine.parameters().get("properties", {key: True}):
            machine.take(end - start, MARKUP)
            machine.push(self._wrapper(key, kinds == frozenset((STRING,))))
        else:
            value = self._value(self._kinds(machine, key, kinds))
            machine.take(end - start, ARGUMENTS, self.keys.begin(machine, key) + value.written)
            machine.push(value)
        machine.trail = rule.trail
        return True

    def _kinds(self, machine: Machine, key: str, said: frozenset[str] | None) -> frozenset[str]:
        """The kinds of value that come: by the schema, and by what the tag says. Where the two contradict each other,
        the schema is right: a value of another kind would be of no use."""
        kinds = kinds_of(machine.parameters(), key)
        if said is None:
            return kinds
        if not said:
            machine.report(diagnostics.MALFORMED_CALL, f"the tag of {key!r} says a kind of value that is not known")
        elif kinds.isdisjoint(said):
            written, known = _either(said), _either(kinds)
            machine.report(diagnostics.REPAIRED, f"the tag of {key!r} says {written}, and the schema {known}")
        return kinds & said or kinds

    def _value(self, kinds: frozenset[str]) -> TaggedValueFrame:
        return TaggedValueFrame(self.rule.value, kinds)

    def _wrapper(self, key: str, text: bool) -> TaggedValueFrame:
        return WrapperFrame(self.rule.value, key, text)

    def _loose_tag(self, buffer: str, at: int, most: int) -> tuple[int, int, int, frozenset[str] | None] | None:
        """Where the key begins and ends, where the tag ends, and the kinds of value that it speaks of, with any quotes
        or none; the tag ends at -1 where no such tag comes. None where that cannot be told yet."""
        rule = self.rule
        first = after_loose_words(buffer, at, rule.before, most)
        if first is None or first < 0:
            return None if first is None else (0, 0, -1, None)
        quote, key_end = buffer[first - 1], rule.key_end
        if rule.node.quotes_keys and quote != '"':
            key_end = _key_ends[quote if quote in QUOTES else ""]
        if not rule.node.quotes_keys or quote not in QUOTES:
            first = space_end(buffer, first)
        stop = key_end(buffer, first)
        closed = stop == len(buffer) or buffer[stop] == quote if quote in QUOTES else stop > first
        if stop - first > most or not closed:
            return 0, 0, -1, None
        end, kinds = self._after_key(buffer, stop, most, after_loose_words)
        return None if end is None else (first, stop, end, kinds)

    def _after_key(
        self, buffer: str, at: int, most: int, after: AfterWords = after_words
    ) -> tuple[int | None, frozenset[str] | None]:
        """The position after the opening tag, as `after_words` says it, and the kinds of value that the tag speaks of:
        None where it does not, none at all where it is not known what it says."""
        rule = self.rule
        end = after(buffer, at, rule.after_key, most)
        kinds = None
        if end is not None and end >= 0 and rule.kind is not None:
            said = after(buffer, end, rule.kind[0], most)
            if said is None:
                return None, None
            if said >= 0:
                stop = _said_end(buffer, said)
                if stop - said > most:
                    return -1, None
                if stop == len(buffer):
                    return None, None
                # Of `array[string]`, the first word.
                kinds = rule.kinds.get(buffer[said : min(_word_end(buffer, said), stop)].lower(), frozenset())
                end = after(buffer, stop, rule.kind[1], most)
        if end is not None and end >= 0:
            end = after(buffer, end, rule.after, most)
        return end, kinds

    def _skip_escaped_space(self, machine: Machine) -> bool | None:
        """Take line breaks that are written as in a string, where a tag follows. False where none does, None where that
        cannot be told yet."""
        buffer, start = machine.buffer, machine.position
        end = escaped_space_end(buffer, start)
        comes = [markers.matches_at(buffer, end) for markers in (self.rule.value.ends, self.markers)]
        if any(comes) and end > start:
            machine.report(diagnostics.REPAIRED, _ESCAPED_SPACE)
            machine.take(end - start, MARKUP)
            return True
        undecided = None in comes or end == len(buffer) or buffer[end:] == "\\"
        return None if undecided and end - start <= machine.limits.name else False

    def _end_of_lone_key(self, machine: Machine, at: int) -> int | None:
        """Where a name ends that has tags of its own and no value: another name comes after it, or the end of the call.
        -1 where it is none, None where that cannot be told yet."""
        rule, buffer = self.rule, machine.buffer
        words = (*rule.after_key, *rule.after)
        closing = next((words[:count] for count in range(1, len(words)) if words[count - 1].endswith(">")), ())
        end = after_words(buffer, at, closing, machine.limits.name) if closing else -1
        if end is None or end < 0:
            return end
        comes = [markers.matches_at(buffer, space_end(buffer, end)) for markers in (rule.value.ends, self.markers)]
        return end if any(comes) else None if None in comes else -1

    def _end(self, machine: Machine) -> bool:
        comes = [
            markers.matches_at(machine.buffer, machine.position) for markers in (self.rule.following, self.markers)
        ]
        if not any(comes):
            extra = self.rule.closer.matches_at(machine.buffer, machine.position)
            if extra:
                close = self.rule.value.close.key
                machine.report(diagnostics.REPAIRED, f"'{close}' once more than there are arguments")
                machine.take(len(close), MARKUP)
                return True
            if machine.cut_off or (None in (*comes, extra) and not machine.at_end):
                return machine.needs_more()
            if not machine.at_end:
                raise Malformed(diagnostics.MALFORMED_CALL, "text between the arguments of a tool call")
        ended_by = self.markers.at(machine.buffer, machine.position)
        if ended_by and not comes[0] and self.keys.empty and self.markers.which(ended_by).strand == HEADER_END:
            # The end of a header, twice: the arguments stand after it.
            raise Malformed(diagnostics.MALFORMED_CALL, "a tool call without arguments that does not end")
        machine.pop()
        self.keys.end(machine)
        return True

    @classmethod
    def resume(cls, machine: Machine, saved: Mapping[str, Any]) -> Self:
        assert machine.calls is not None
        return cast(Self, machine.calls.begun())


# What is known of a value so far.
_NOTHING, _SCALAR, _JSON, _STRING, AFTER_JSON, _AS_IS = range(6)


class TaggedValueFrame(Frame):
    """One value. A string is passed on as it arrives. What may still be JSON or a string waits until that is told: by
    its first character where the schema leaves no other kind, by the first that JSON cannot have, or by its end."""

    kind = "tagged_value"
    saved: ClassVar[tuple[str, ...]] = ("kind_names", "scalar", "scanner", "size", "state")
    __slots__ = ("kinds", "rule", "scalar", "scanner", "size", "state")

    def __init__(self, rule: ValueRule, kinds: frozenset[str]) -> None:
        self.rule = rule
        self.kinds = kinds
        self.state = _STRING if kinds == {STRING} else _NOTHING
        self.scalar = ""
        """What waits, where it may be a number or a word."""
        self.scanner: JsonScanner | None = None
        """What checks it, where it may be an array or an object."""
        self.size = 0

    @property
    def kind_names(self) -> list[str]:
        """The kinds that it can be, as a snapshot has them."""
        return sorted(self.kinds)

    @kind_names.setter
    def kind_names(self, names: list[str]) -> None:
        self.kinds = frozenset(names)

    @property
    def written(self) -> str:
        """What has been written of the value before it comes."""
        return '"' if self.state == _STRING else ""

    @property
    def in_string(self) -> bool:
        return self.state != AFTER_JSON

    @property
    def python_words(self) -> bool:
        """Whether `True` may be a word of Python's: not where it may as well be text."""
        return STRING not in self.kinds

    @property
    def decided(self) -> bool:
        """Whether it is told what the value is."""
        return self.state in (_STRING, AFTER_JSON, _AS_IS)

    @property
    def watched(self) -> Markers:
        """What is looked for in the text that comes."""
        return self.rule.ends

    def step(self, machine: Machine) -> bool:
        buffer, start = machine.buffer, machine.position
        if self.state == AFTER_JSON:
            return self._after_json(machine)
        watched = self.watched
        found = watched.find(buffer, start)
        end = watched.safe_end(buffer, start) if found is None else found.start()
        # A tag that has begun shows that the model did not end its turn: then something else did.
        begun = buffer[self.rule.ends.safe_end(buffer, start) :] if machine.turn_over else ""
        cut_off = machine.cut_off or bool(begun.strip())
        if found is None and machine.at_end and not cut_off:
            end = len(buffer)
        if end > start and self._pass_on(machine, buffer[start:end], end - start, ended=found is not None):
            return True
        if found is not None:
            return self._on_found(machine, found)
        if not machine.at_end:
            return False
        if cut_off:
            machine.resolve_pending(str)
            if left := len(buffer) - machine.position:
                machine.take(left, MARKUP)  # the beginning of a tag
            return machine.needs_more()
        self._finish(machine, None)
        return True

    def fast_path(self, machine: Machine) -> FastPath | None:
        return string_path(self.watched) if self.state == _STRING and machine.call.accepted else None

    def _on_found(self, machine: Machine, found: re.Match[str]) -> bool:
        """Something comes that was looked for. As `step` says whether it could be taken."""
        self._finish(machine, found)
        return True

    def _pass_on(self, machine: Machine, text: str, size: int, *, ended: bool) -> bool:
        """Take text of the value, which is written in so many characters, or see what it is first. True where the rest
        is not of the value as it is now. ended: whether no more of it comes."""
        if self.state == _NOTHING:
            rest = text.lstrip(_json_space)
            space = len(text) - len(rest)
            if self.size + space > machine.limits.held:
                self._is_string(machine)
                return True
            if rest:
                inside = rest[1:].lstrip(_json_space)
                if rest[0] == "{" and STRING not in self.kinds and not machine.at_end and not inside and not ended:
                    return False
                self._begin(machine, rest[0] + inside[:1], space)
                return True
            self.size += space
            machine.take(size, PENDING)
        elif self.state == _STRING:
            machine.take(size, ARGUMENTS, escape(machine.spell(text)))
        elif self.state == _AS_IS:
            machine.take(size, ARGUMENTS, None if size == len(text) else text)
        else:
            machine.take(size, PENDING)
            if not (self._may_be_scalar(machine, text) if self.state == _SCALAR else self._may_be_json(machine, text)):
                self._is_string(machine)
        return False

    def _begin(self, machine: Machine, begun: str, space: int) -> None:
        """The first character shows what the value may be; after a brace, the second one."""
        text_too = STRING in self.kinds
        kind = _STARTS.get(begun[0]) or (_PYTHON_STARTS.get(begun[0]) if self.python_words else None)
        if begun[0] in _NUMBER_STARTS and not text_too:
            kind = "number"
        # No schema is so strict that models do not write `null` for what they leave out.
        if kind not in self.kinds and not (kind == "null" and not text_too):
            self._is_string(machine)
        elif kind not in ("array", "object"):
            self.state = _SCALAR
        elif text_too:
            self.state, self.scanner = _JSON, JsonScanner(machine.limits)
        elif kind == "object" and begun[1:] and not begun.endswith(_KEY_STARTS):
            self._is_string(machine)  # a set of Python's, keys without quotes
        else:
            self._begin_json(machine, space)

    def _begin_json(self, machine: Machine, space: int) -> None:
        """An array or an object comes for sure, after whitespace."""
        machine.resolve_pending(str)
        if space:
            machine.take(space, ARGUMENTS)
        self.state = AFTER_JSON
        machine.push(ArgumentFrame(machine.limits, ARGUMENTS, self.rule.ends))

    def _may_be_scalar(self, machine: Machine, text: str) -> bool:
        self.scalar = (self.scalar + text).lstrip(_json_space)
        if len(self.scalar) > machine.limits.number:
            return False
        scalar = self.scalar.rstrip(_json_space)
        if scalar != self.scalar:
            return self._json_of(scalar) is not None
        words = _WORDS | _PYTHON_WORDS if self.python_words else _WORDS
        if may_become_number(scalar) or any(word.startswith(scalar) for word in words):
            return True
        return self._admits_other_numbers and _may_be_other_number(scalar, 0) == len(scalar)

    def _json_of(self, scalar: str) -> str | None:
        """A number or a word as JSON; None where it is neither."""
        words = _WORDS | _PYTHON_WORDS if self.python_words else _WORDS
        if is_number(scalar) or scalar in words:
            return words.get(scalar, scalar)
        return number_as_json(scalar) if self._admits_other_numbers else None

    @property
    def _admits_other_numbers(self) -> bool:
        """Whether `007` may be a number: not where it may as well be text."""
        return "number" in self.kinds and STRING not in self.kinds

    def _may_be_json(self, machine: Machine, text: str) -> bool:
        scanner = self.scanner
        assert scanner is not None
        self.size += len(text)
        end = scanner.scan(text, 0)
        broken = scanner.error or scanner.flaw or (scanner.done and text[end:].strip(_json_space))
        return not broken and self.size <= machine.limits.held

    def _is_string(self, machine: Machine) -> None:
        machine.add_arguments('"')
        machine.resolve_pending(lambda text: escape(self._read(text)))
        self.state, self.scalar, self.scanner = _STRING, "", None

    def _pass_as_is(self) -> None:
        """What comes is no string, and is not looked at any more."""
        self.state = _AS_IS

    def _read(self, written: str) -> str:
        """What text of the value says."""
        return written

    def _after_json(self, machine: Machine) -> bool:
        machine.skip_space()
        ends = self.rule.ends
        comes = ends.matches_at(machine.buffer, machine.position)
        if not comes and (machine.cut_off or (comes is None and not machine.at_end)):
            return machine.needs_more()
        if comes or machine.position == len(machine.buffer):
            self._finish(machine, ends.at(machine.buffer, machine.position))
            return True
        if not machine.call.flawed:
            machine.report(diagnostics.MALFORMED_JSON, "text follows the JSON of an argument")
            machine.call.flawed = True
        self._pass_as_is()
        return True

    def _finish(self, machine: Machine, found: re.Match[str] | None) -> None:
        """The value is over: something ends it, or the output does."""
        scalar = self._json_of(self.scalar.rstrip(_json_space)) if self.state == _SCALAR else None
        if scalar is not None:
            written = self.scalar.rstrip(_json_space)
            if scalar != written and written not in _PYTHON_WORDS:
                machine.report(diagnostics.REPAIRED, f"a number that JSON writes as {scalar}")
            machine.resolve_pending(lambda text: self._read(text) if scalar == written else scalar)
        elif self.state == _JSON and self.scanner is not None and self.scanner.done:
            machine.resolve_pending(self._read)
        elif self.state in (_NOTHING, _SCALAR, _JSON):
            self._is_string(machine)
        machine.pop()
        is_string = self.state == _STRING
        if is_string and STRING not in self.kinds:
            kinds = _either(self.kinds)
            machine.report(diagnostics.MALFORMED_JSON, f"an argument is no JSON of type {kinds}: passed on as a string")
        self._take_close(machine, found, is_string)

    def _take_close(self, machine: Machine, found: re.Match[str] | None, is_string: bool) -> None:
        if found is not None and self.rule.ends.which(found) is self.rule.close:
            size = found.end() - found.start()
            if is_string:
                machine.take(size, ARGUMENTS, '"')
            else:
                machine.take(size, MARKUP)
            return
        if is_string:
            machine.add_arguments('"')
        if found is not None:
            machine.report(diagnostics.MALFORMED_CALL, f"an argument without '{self.rule.close.key}'")
            machine.skip_space()

    @classmethod
    def resume(cls, machine: Machine, saved: Mapping[str, Any]) -> Self:
        return cls(machine.stack[-1].rule.value, frozenset())  # type: ignore[attr-defined]  # of a notation of tags


class Wrapper(TaggedValueFrame):
    """A value that may hold all of the arguments. It waits until that is told, with its key: by its end, where it is an
    object, as JSON or Python writes it. A base for the frames of the notations, which have slots of their own: so this
    one has none."""

    def begin(self, key: str, text: bool) -> None:
        self.key = key
        self.text = text
        """Whether it is a string, where it is an argument like others."""
        self.python = False
        """Whether it is no JSON any more, and may be a dict of Python's."""

    def _may_be_json(self, machine: Machine, text: str) -> bool:
        scanner = self.scanner
        assert scanner is not None
        self.size += len(text)
        end = 0 if self.python else scanner.scan(text, 0)
        self.python = self.python or (bool(scanner.missing) and text[end] in ONLY_IN_PYTHON)
        broken = scanner.error or scanner.flaw or (scanner.done and text[end:].strip(_json_space))
        return (self.python or not broken) and self.size <= machine.limits.held

    def _is_string(self, machine: Machine) -> None:
        self._name(machine)
        super()._is_string(machine)

    def _finish(self, machine: Machine, found: re.Match[str] | None) -> None:
        if self.state == _JSON and self._unwrap(machine):
            machine.pop()
            self._take_close(machine, found, is_string=False)
            return
        if self.state in (_SCALAR, _JSON) and self.text:
            self._is_string(machine)
        self._name(machine)
        super()._finish(machine, found)

    def _unwrap(self, machine: Machine) -> bool:
        """Write the members of the object as arguments. False, and nothing done, where they are none of the tool's."""
        text = self._object(machine)
        known = machine.parameters().get("properties", {})
        if text is None or not all(key in known for key in json.loads(text)):
            return False
        machine.report(diagnostics.REPAIRED, f"all arguments stand in one argument {self.key!r}")
        keys = self._keys(machine)
        written = "".join(keys.begin(machine, key) + value for key, value in members(text).items())
        machine.resolve_pending(lambda _: written)
        return True

    def _object(self, machine: Machine) -> str | None:
        """The value as a JSON object; None where it is none."""
        text = self._read("".join(machine.call.pending))
        if self.python:
            literal = literal_as_json(text)
            return literal if literal is not None and literal.startswith("{") else None
        return text if self.scanner is not None and self.scanner.done and self.scanner.is_object else None

    def _name(self, machine: Machine) -> None:
        """It is an argument like others: write its key."""
        if self.key:
            machine.add_arguments(self._keys(machine).begin(machine, self.key))
            self.key = ""

    def _keys(self, machine: Machine) -> ObjectWriter:
        below = machine.stack[-2]
        assert isinstance(below, TaggedArgumentsFrame)
        return below.keys


class WrapperFrame(Wrapper):
    """Such a value between plain tags."""

    kind = "wrapper"
    saved: ClassVar[tuple[str, ...]] = (*TaggedValueFrame.saved, "key", "text", "python")

    def __init__(self, rule: ValueRule, key: str = "", text: bool = False) -> None:
        super().__init__(rule, ANY_KIND)
        self.begin(key, text)

    @classmethod
    def resume(cls, machine: Machine, saved: Mapping[str, Any]) -> Self:
        return cls(machine.stack[-1].rule.value)  # type: ignore[attr-defined]  # of a notation of tags


def _either(kinds: frozenset[str]) -> str:
    return " or ".join(sorted(kinds))
