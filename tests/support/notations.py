"""Random texts of each notation, for the laws: one generator for each, in the table at the end.

A generator derives all the ways in which a model may write some arguments, says which arguments the notation can write
at all, and has bits of hostile text of its own.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Generic, TypeVar

from hypothesis import strategies as st

from unbraid import Format, ToolCall
from unbraid.core import grammar, notations
from unbraid.core.machine.markers import words_of
from unbraid.core.notations import xml
from unbraid.core.notations.bare import is_bare_key
from unbraid.core.notations.base import CallNotation
from unbraid.core.notations.elements import is_element_name
from unbraid.core.notations.value_ends import call_tail
from unbraid.schema.kinds import kind_of

TYPES = {"a": "string", "n": "integer", "t": "boolean", "l": "array", "o": "object"}
"""The arguments of the tools that the laws use, and their types."""
NAMES = ("f", "get_weather", "Search-2", "a.b_c")
"""The names of these tools."""
N = TypeVar("N", bound=CallNotation)
SPACE = st.sampled_from(["", "", " ", "\n", " \n\t"])
"""Whitespace that says nothing, and need not be there."""
SOME_SPACE = st.sampled_from([" ", " ", "\n", "  "])


def strings_in(node: object) -> Iterator[str]:
    """Every literal in a grammar."""
    if isinstance(node, str):
        if node:
            yield node
    elif isinstance(node, tuple):
        for item in node:
            yield from strings_in(item)
    elif is_dataclass(node):
        for item in fields(node):
            yield from strings_in(getattr(node, item.name))


def nodes_in(node: object) -> Iterator[object]:
    """Every node of a grammar."""
    if isinstance(node, tuple):
        for item in node:
            yield from nodes_in(item)
    elif is_dataclass(node):
        yield node
        for item in fields(node):
            yield from nodes_in(getattr(node, item.name))


def cuts(draw: st.DrawFn, text: str) -> list[str]:
    """`text` in pieces."""
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


def spaced(draw: st.DrawFn, markup: str) -> str:
    """Markup with whitespace between its words, as it comes."""
    written, at = "", 0
    for word in words_of(markup):
        start = markup.index(word, at)
        between = markup[at:start]
        written += between if not at else draw(SOME_SPACE if between else SPACE)
        written, at = written + word, start + len(word)
    return written + markup[at:]


def strings_of(value: object) -> Iterator[str]:
    """The strings in a value, its keys among them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for inner in value:
            yield from strings_of(inner)
        if isinstance(value, dict):
            yield from strings_of(list(value.values()))


def reads_otherwise(value: object, ends: list[str], typed: bool = False) -> bool:
    """Whether a value between tags reads back as another, where no schema, nor the tag, says what it is."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if any(end in text for end in ends):
        return True
    if typed:
        return False
    try:
        return isinstance(value, str) and not isinstance(json.loads(text), str)
    except ValueError:
        return False


class Generator(ABC, Generic[N]):
    """What the laws need to know about a notation."""

    def __init__(self, node: N) -> None:
        self.node = node

    @abstractmethod
    def derive(self, draw: st.DrawFn, call: ToolCall, marker: Callable[[str], str]) -> str:
        """The arguments of `call`, written in one of the ways there are. `marker` may take whitespace off a marker."""

    def ends(self, format: Format) -> list[str]:
        """What ends a string argument that stands in the text as it is, and so cannot stand in it."""
        return []

    def can_say(self, value: object, ends: list[str]) -> bool:
        """Whether it can write this value so that it reads back, with no schema to help."""
        return not any(end in text for text in strings_of(value) for end in ends)

    @property
    def hostile(self) -> list[str]:
        """Bits of text that are hard to read."""
        return []

    @property
    def escapes(self) -> list[str]:
        """What stands for something else in the text of a value."""
        return []

    def may_wait(self, waiting: str) -> bool | None:
        """Whether this may be held back inside a call; None where it may if it begins a literal of the grammar."""
        return None


class Json(Generator[notations.Arguments]):
    def derive(self, draw: st.DrawFn, call: ToolCall, marker: Callable[[str], str]) -> str:
        return draw(SPACE) + call.arguments


class JsonCall(Generator[notations.JsonCall]):
    def derive(self, draw: st.DrawFn, call: ToolCall, marker: Callable[[str], str]) -> str:
        node = self.node
        written = json.dumps(call.arguments) if draw(st.booleans()) else call.arguments
        pairs = [(node.name, json.dumps(call.name)), (draw(st.sampled_from(node.arguments)), written)]
        pairs += draw(st.sampled_from([[], [(node.id, json.dumps(call.id))]]))
        pairs += draw(st.sampled_from([[], [(key, '"function"') for key in node.ignored]]))
        space = draw(SPACE)
        inside = ",".join(f'{space}"{key}":{space}{value}' for key, value in draw(st.permutations(pairs)))
        return f"{space}{{{inside}{space}}}"


class Tagged(Generator[notations.TaggedArguments]):
    def derive(self, draw: st.DrawFn, call: ToolCall, marker: Callable[[str], str]) -> str:
        values = json.loads(call.arguments)
        return draw(SPACE) + "".join(self._argument(draw, key, value, marker) for key, value in values.items())

    def _argument(self, draw: st.DrawFn, key: str, value: object, marker: Callable[[str], str]) -> str:
        node = self.node
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        # A tag may be without its whitespace, where the value has none of its own that would be taken for it.
        open = node.open if text[:1].isspace() else marker(node.open)
        close = node.close if not text or text[-1].isspace() else marker(node.close)
        key, text = node.encoded_key(key), self._encoded(draw, text)
        words = [word for word, kinds in node.kinds if kind_of(value) in kinds]
        kind = node.kind.format(draw(st.sampled_from(words))) if words else ""
        before, _, rest = open.partition("{key}")
        around = st.just("") if node.quotes_keys else SPACE
        key = draw(around) + key + draw(around)
        open = spaced(draw, before) + key + spaced(draw, rest.replace("{kind}", kind))
        return open + text + close + draw(SPACE)

    def _encoded(self, draw: st.DrawFn, text: str) -> str:
        return text

    def ends(self, format: Format) -> list[str]:
        assert format.tools is not None
        ends = [self.node.close.strip()]
        for node in nodes_in(format.tools):
            of = node if isinstance(node, grammar.CallList) else None
            call = node.call if isinstance(node, grammar.CallList) else node
            if isinstance(call, grammar.Call) and self.node in call.parts:
                ends += [text for closing in call_tail(format.tools, call, of) for text in closing.calls(NAMES)]
        return ends

    def can_say(self, value: object, ends: list[str]) -> bool:
        return not reads_otherwise(value, ends, typed=bool(self.node.kinds))

    @property
    def hostile(self) -> list[str]:
        tags = [self.node.open.replace("{key}", key) for key in [*TYPES, "x"]]
        tags += [self.node.open.replace("{key}", key) for key in self.node.wrappers]
        tags += [tag.replace('"', quote) for tag in tags[:2] if '="' in tag for quote in ("'", "")]
        bits = ["True", "None", "[1, ", ' "a"]', "12", "{}\n", '{"a": ', "{\\", '[{\\"a\\": 1', *self.escapes]
        return [*tags, *tags, self.node.close, self.node.close, *bits]


class Xml(Tagged):
    def _encoded(self, draw: st.DrawFn, text: str) -> str:
        return draw(xml_texts(text))

    def ends(self, format: Format) -> list[str]:
        return []

    def can_say(self, value: object, ends: list[str]) -> bool:
        word = isinstance(value, str) and value.strip() in ("True", "False", "None")
        return not word and super().can_say(value, ends)

    @property
    def hostile(self) -> list[str]:
        return [*super().hostile, "&amp", "&#6", "5;", "&#xD800;", xml.SECTION_OPEN, "]]", "&"]

    @property
    def escapes(self) -> list[str]:
        return [xml.SECTION_OPEN, xml.SECTION_CLOSE, "&lt;", "&gt;", "&amp;", "&quot;", "&apos;"]


@st.composite
def xml_texts(draw: st.DrawFn, text: str) -> str:
    """A text as XML may write it."""
    pieces = []
    for piece in draw(st.composite(cuts)(text)):
        ways = [xml.encode(piece), xml.encode_attribute(piece), "".join(f"&#{ord(c)};" for c in piece)]
        ways.append("".join(f"&#x{ord(c):X};" for c in piece))
        pieces.append(draw(st.sampled_from(ways)))
    return "".join(pieces)


class Elements(Generator[notations.ElementArguments]):
    def derive(self, draw: st.DrawFn, call: ToolCall, marker: Callable[[str], str]) -> str:
        return "".join(draw(elements(self.node, *pair)) for pair in json.loads(call.arguments).items())

    def ends(self, format: Format) -> list[str]:
        return [self.node.mark]

    def can_say(self, value: object, ends: list[str]) -> bool:
        return not any(reads_otherwise(leaf, ends) for leaf in strings_of(value))

    @property
    def hostile(self) -> list[str]:
        node = self.node
        tags = [f"{node.mark}<{sign}{key}>" for key in [*TYPES, "x", node.item] for sign in ("", "/")]
        return [
            *tags,
            *tags,
            node.mark,
            f"{node.mark}<",
            f"{node.mark}\n",
            "True",
            "None",
            "[1, ",
            ' "a"]',
            "12",
            "{}\n",
            ">",
        ]


@st.composite
def elements(draw: st.DrawFn, node: notations.ElementArguments, name: str, value: Any) -> str:
    """A value as elements may say it."""
    space, gap = draw(SPACE), draw(SPACE)
    open, close = f"{space}{node.mark}{gap}<{name}>", f"{node.mark}{gap}</{name}>{space}"
    if isinstance(value, str):
        return open + value + close
    if isinstance(value, list) and value:
        return open + space + "".join(draw(elements(node, node.item, item)) for item in value) + close
    if isinstance(value, dict) and value and all(map(is_element_name, value)) and next(iter(value)) != node.item:
        return open + space + "".join(draw(elements(node, key, item)) for key, item in value.items()) + close
    return open + json.dumps(value, ensure_ascii=False) + close


_BEGUN_DICT = re.compile(r"""\{\s*(?:"(?:[^"\\]|\\.)*"?|[\w.+-]*)\s*""", re.DOTALL)
"""A key of a dict, or an item of a set: what follows it tells."""


def may_wait_in_python(waiting: str) -> bool:
    return len(waiting) <= 1 or bool(_BEGUN_DICT.fullmatch(waiting))


class Python(Generator[notations.PythonArguments]):
    def derive(self, draw: st.DrawFn, call: ToolCall, marker: Callable[[str], str]) -> str:
        space = draw(SPACE)
        values = json.loads(call.arguments)
        items = [f"{space}{key}{space}={space}{draw(python_literals(value))}" for key, value in values.items()]
        last = draw(st.sampled_from(["", ",", " ,"])) if items else ""
        return f"{space},".join(items) + last + space

    @property
    def hostile(self) -> list[str]:
        keys = [f"{key}=" for key in [*TYPES, "x"]]
        bits = ["'", '"""', "'''", "\\x4", "\\12", "\\U0001", "\\\n", "True", "nan", "1_0", ".5", "0x", "(", ")", "f("]
        return [*keys, *bits, "'a", "b'", ", ", "{'k': ", "{1: ", "[1, ", "(2,)", "{1,", "{'a'", "{'", "}"]

    def may_wait(self, waiting: str) -> bool:
        return may_wait_in_python(waiting)


class PythonDict(Generator[notations.PythonDict]):
    def derive(self, draw: st.DrawFn, call: ToolCall, marker: Callable[[str], str]) -> str:
        return draw(python_literals(json.loads(call.arguments)))

    @property
    def hostile(self) -> list[str]:
        bits = ["'", '"""', "\\x4", "\\\n", "True", "nan", "1_0", "0x", "(", ")", "}", "{'a': ", "{1: ", "[1, ", "(2,)"]
        return [*bits, "'a", "b'", ", ", "'a': '", ": "]

    def may_wait(self, waiting: str) -> bool:
        return may_wait_in_python(waiting)


@st.composite
def python_literals(draw: st.DrawFn, value: Any) -> str:
    """A value as Python may write it."""
    comma = st.sampled_from([", ", ",", " ,\n"])
    last = draw(st.sampled_from(["", "", ",", " , "]))
    space, colon = draw(SPACE), draw(st.sampled_from([": ", ":", " :\n"]))
    if isinstance(value, str):
        quotes = draw(st.sampled_from(["'", '"', "'''", '"""']))
        plain = draw(st.booleans())
        return quotes + "".join(_python_char(char, quotes, plain) for char in value) + quotes
    if isinstance(value, list):
        items = draw(comma).join(draw(python_literals(item)) for item in value)
        open, close = draw(st.sampled_from([("[", "]"), ("(", ")")]))
        return f"{open}{space}{items}{last if value else ''}{space}{close}"
    if isinstance(value, dict):
        pairs = [f"{draw(python_literals(key))}{colon}{draw(python_literals(item))}" for key, item in value.items()]
        return f"{{{space}{draw(comma).join(pairs)}{last if value else ''}{space}}}"
    if value is None or isinstance(value, bool):
        return draw(st.sampled_from([repr(value), json.dumps(value)]))
    if isinstance(value, int):
        return draw(st.sampled_from([str(value), f"{value:_}", hex(value), f"{value:+}"]))
    return json.dumps(value)


def _python_char(char: str, quotes: str, plain: bool) -> str:
    if char in "\\'\"":
        return "\\" + char
    if plain and (char >= " " or (len(quotes) == 3 and char == "\n")):
        return char
    return f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\U{ord(char):08X}"


class Bare(Generator[notations.BareArguments]):
    def derive(self, draw: st.DrawFn, call: ToolCall, marker: Callable[[str], str]) -> str:
        return draw(bare_values(self.node, json.loads(call.arguments)))

    def ends(self, format: Format) -> list[str]:
        return [self.node.quote]

    @property
    def hostile(self) -> list[str]:
        quote = self.node.quote
        keys = [f"{key}:" for key in [*TYPES, "x", ""]]
        bits = ["call:f{", "{a:", "}", "}", "[", "]", ", ", "tru", "True", "None", "-1.5", "00", "Paris", " x ", "f("]
        return [*keys, *keys, *bits, quote, quote, f"{quote}k{quote}:"]


@st.composite
def bare_values(draw: st.DrawFn, node: notations.BareArguments, value: Any) -> str:
    """A value as an object with bare keys may hold it."""
    space = draw(SPACE)
    last = draw(st.sampled_from(["", "", f"{space},"])) if value else ""
    if isinstance(value, dict):
        pairs = [
            f"{space}{draw(bare_keys(node, key))}{space}:{space}{draw(bare_values(node, item))}"
            for key, item in value.items()
        ]
        return "{" + f"{space},".join(pairs) + f"{last}{space}}}"
    if isinstance(value, list):
        items = f"{space},{space}".join(draw(bare_values(node, item)) for item in value)
        return f"[{space}{items}{last}{space}]"
    if isinstance(value, str):
        return node.quote + value + node.quote
    return draw(st.sampled_from(["None", "null"])) if value is None else json.dumps(value)


def bare_keys(node: notations.BareArguments, key: str) -> st.SearchStrategy[str]:
    quoted = node.quote + key + node.quote
    return st.sampled_from([key, quoted]) if is_bare_key(key) else st.just(quoted)


GENERATORS: dict[type, type[Generator[Any]]] = {
    notations.Arguments: Json,
    notations.JsonCall: JsonCall,
    notations.TaggedArguments: Tagged,
    notations.XmlArguments: Xml,
    notations.ElementArguments: Elements,
    notations.PythonArguments: Python,
    notations.PythonDict: PythonDict,
    notations.BareArguments: Bare,
}
"""To test a notation of your own, add its generator here. The laws find it by the formats that use it."""


def generator_of(node: grammar.Notation) -> Generator[Any]:
    return GENERATORS[type(node)](node)


def notation_of(format: Format) -> Generator[Any] | None:
    """How arguments are written, where they are not JSON."""
    for node in nodes_in(format.tools):
        if isinstance(node, grammar.Notation) and not isinstance(node, notations.Arguments | notations.JsonCall):
            return generator_of(node)
    return None
