"""Random messages, random grammatical texts and hostile texts for any format, made from its grammar alone.

A format that is registered is tested by these; there is nothing to write for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from hypothesis import strategies as st

from unbraid import Format, Message, Part, Speech, Tag, Text, ToolCall, all_formats
from unbraid.core import grammar, notations
from unbraid.core.notations import xml_text
from unbraid.core.notations.bare import is_bare_key
from unbraid.core.notations.elements import is_element_name
from unbraid.schema.kinds import kind_of

FORMATS = list(all_formats())

TOOLS = [{"name": name} for name in ("f", "get_weather", "Search-2", "a.b_c")]
TYPES = {"a": "string", "n": "integer", "t": "boolean", "l": "array", "o": "object"}
TYPED_TOOLS = [
    {"name": name, "parameters": {"type": "object", "properties": {key: {"type": TYPES[key]} for key in TYPES}}}
    for name in ("f", "get_weather")
]
_NAMES = st.sampled_from([str(tool["name"]) for tool in TOOLS])


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


def notation_of(format: Format) -> grammar.Notation | None:
    """How arguments are written, where they are not JSON."""
    for node in nodes_in(format.tools):
        if isinstance(node, grammar.Notation) and not isinstance(node, notations.Arguments | notations.JsonCall):
            return node
    return None


def ends_of_value(format: Format) -> list[str]:
    """What ends a string argument that stands in the text as it is, and so cannot stand in it."""
    node = notation_of(format)
    if isinstance(node, notations.BareArguments):
        return [node.quote]
    if isinstance(node, notations.ElementArguments):
        return [node.mark]
    if not isinstance(node, notations.TaggedArguments) or node.escaped:
        return []
    assert format.tools is not None
    found = [node.close, node.open.partition("{key}")[0].split()[0], format.tools.close]
    for call in nodes_in(format.tools):
        if isinstance(call, grammar.Call) and node in call.parts:
            found += [part for part in call.parts[call.parts.index(node) + 1 :][:1] if isinstance(part, str)]
    return [text.strip() for text in found if text.strip()]


def data_in_strings(format: Format) -> list[str]:
    """The literals that are data where they stand in a string argument."""
    ends = ends_of_value(format)
    return [literal for literal in literals_of(format) if not any(end in literal for end in ends)]


def markers_of(format: Format) -> list[str]:
    """The markers of a format, without the whitespace around them."""
    found = list(format.ignored)
    if format.headers is not None:
        found += [*format.headers.opens, *format.headers.closes, *format.headers.ends]
    for around in (format.reasoning, format.answer):
        if around is not None:
            found += [around.open, around.close, *(text for pair in around.also for text in pair)]
    for tools in (format.tools, *format.other_tools):
        if tools is not None:
            found += [tools.open, *tools.also, tools.close]
    if format.speech is not None:
        found += [format.speech.open, format.speech.close]
    return [marker for marker in dict.fromkeys(text.strip() for text in found) if marker]


def literals_of(format: Format) -> list[str]:
    """All that could be markup somewhere: markers, and the literals inside calls and speech."""
    nodes = (format.reasoning, format.answer, format.tools, format.other_tools, format.speech)
    found = [text.strip().replace("{key}", "a") for node in nodes for text in strings_in(node) if text.strip()]
    found = [text.replace("{kind}", "").replace("{}", "a") for text in found]
    if format.speech is not None:
        found += [format.speech.code.format(n) for n in (0, 17, format.speech.codes - 1, format.speech.codes)]
    if format.transcript is not None:
        found += tags_of(format.transcript)
    return list(dict.fromkeys([*markers_of(format), *found]))


def tags_of(transcript: grammar.TranscriptMarkup) -> list[str]:
    """Some of all kinds."""
    texts = (*transcript.languages[:3], transcript.languages[-1], *transcript.tasks, transcript.timeless)
    times = [transcript.time(number) for number in (0, 1, 29, transcript.times - 1)]
    return [*(transcript.tag.format(text) for text in (*texts, *transcript.ignored)), *times]


# --- JSON ----------------------------------------------------------------------------------------------------------


def json_values(format: Format) -> st.SearchStrategy[Any]:
    hostile = st.sampled_from(["", *literals_of(format), '"', "\\", "\n", "é", "天气", "😀", "\x7f", "</", "<|"])
    text = st.lists(hostile | st.text(max_size=4), max_size=4).map("".join)
    plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text
    return st.recursive(
        plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3), max_leaves=6
    )


@st.composite
def arguments(draw: st.DrawFn, format: Format) -> str:
    """A JSON object. Written in one of the ways that JSON can be written; but where the model does not write JSON, in
    the way that `json.dumps` does, and only what the notation can say without a schema."""
    key = st.sampled_from(["name", "arguments", "parameters", "id", "a", "é", ""]) | st.text(max_size=3)
    value, notation = json_values(format), notation_of(format)
    if notation is not None:
        ends = ends_of_value(format)
        key = key.filter(re.compile(KEYS[type(notation)]).fullmatch)
        if isinstance(notation, notations.TaggedArguments):
            typed = bool(notation.kinds)
            after = "" if notation.escaped else notation.open.partition("{key}")[2].replace("{kind}", "").strip()[0]
            key = key.filter(lambda key: not after or after not in key)
            value = value.filter(lambda value: not reads_otherwise(value, ends, typed))
        elif isinstance(notation, notations.ElementArguments):
            value = value.filter(lambda value: not any(reads_otherwise(leaf, ends) for leaf in strings_of(value)))
        else:
            key = key.filter(lambda key: not any(end in key for end in ends))
            value = value.filter(lambda value: not any(end in text for text in strings_of(value) for end in ends))
        return json.dumps(draw(st.dictionaries(key, value, max_size=3)), ensure_ascii=False)
    separators = draw(st.sampled_from([(", ", ": "), (",", ":"), (" ,\n", " :\t")]))
    indent = draw(st.sampled_from([None, None, 2]))
    made = draw(st.dictionaries(key, value, max_size=3))
    return json.dumps(made, ensure_ascii=draw(st.booleans()), separators=separators, indent=indent)


KEYS: dict[type, str] = {
    notations.TaggedArguments: r"[^<>\x00-\x1f]*",
    notations.XmlArguments: r"[^<>\x00-\x1f]*",
    notations.BareArguments: r"(?s:.*)",
    notations.ElementArguments: r"(?!/)[^<>\"\x00-\x1f]*",
    notations.PythonArguments: r"[^\s\"'{}\[\]()<>,=\x00-\x1f]+",
}
"""The keys that can be written."""


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


@st.composite
def python_literals(draw: st.DrawFn, value: Any) -> str:
    """A value as Python may write it."""
    comma = st.sampled_from([", ", ",", " ,\n"])
    last = draw(st.sampled_from(["", "", ",", " , "]))
    if isinstance(value, str):
        quotes = draw(st.sampled_from(["'", '"', "'''", '"""']))
        plain = draw(st.booleans())
        return quotes + "".join(_python_char(char, quotes, plain) for char in value) + quotes
    if isinstance(value, list):
        items = draw(comma).join(draw(python_literals(item)) for item in value)
        open, close = draw(st.sampled_from([("[", "]"), ("(", ")")]))
        return f"{open}{items}{last if value else ''}{close}"
    if isinstance(value, dict):
        pairs = [f"{draw(python_literals(key))}: {draw(python_literals(item))}" for key, item in value.items()]
        return "{" + draw(comma).join(pairs) + (last if value else "") + "}"
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


@st.composite
def bare_values(draw: st.DrawFn, node: notations.BareArguments, value: Any) -> str:
    """A value as an object with bare keys may hold it."""
    space = draw(st.sampled_from(["", "", " ", "\n"]))
    last = draw(st.sampled_from(["", "", f"{space},"])) if value else ""
    if isinstance(value, dict):
        pairs = [
            f"{space}{draw(bare_keys(node, key))}{space}:{space}{draw(bare_values(node, item))}"
            for key, item in value.items()
        ]
        return "{" + f"{space},".join(pairs) + f"{last}{space}}}"
    if isinstance(value, list):
        return "[" + f"{space},{space}".join(draw(bare_values(node, item)) for item in value) + f"{last}{space}]"
    if isinstance(value, str):
        return node.quote + value + node.quote
    return draw(st.sampled_from(["None", "null"])) if value is None else json.dumps(value)


def bare_keys(node: notations.BareArguments, key: str) -> st.SearchStrategy[str]:
    quoted = node.quote + key + node.quote
    return st.sampled_from([key, quoted]) if is_bare_key(key) else st.just(quoted)


@st.composite
def elements(draw: st.DrawFn, node: notations.ElementArguments, name: str, value: Any) -> str:
    """A value as elements may say it."""
    space = draw(st.sampled_from(["", "", " ", "\n"]))
    open, close = f"{space}{node.mark}<{name}>", f"{node.mark}</{name}>{space}"
    if isinstance(value, str):
        return open + value + close
    if isinstance(value, list) and value:
        return open + space + "".join(draw(elements(node, node.item, item)) for item in value) + close
    if isinstance(value, dict) and value and all(map(is_element_name, value)) and next(iter(value)) != node.item:
        return open + space + "".join(draw(elements(node, key, item)) for key, item in value.items()) + close
    return open + json.dumps(value, ensure_ascii=False) + close


@st.composite
def xml_texts(draw: st.DrawFn, text: str) -> str:
    """A text as XML may write it."""
    pieces = []
    for piece in draw(st.composite(cuts)(text)):
        ways = [xml_text.encode(piece), xml_text.encode_attribute(piece), "".join(f"&#{ord(c)};" for c in piece)]
        ways.append("".join(f"&#x{ord(c):X};" for c in piece))
        pieces.append(draw(st.sampled_from(ways)))
    return "".join(pieces)


# --- Messages ------------------------------------------------------------------------------------------------------


def texts(format: Format) -> st.SearchStrategy[str]:
    """Text that holds no marker, but much that looks like one."""
    markers = literals_of(format)
    cut = [marker[:n] for marker in markers for n in (1, len(marker) // 2, len(marker) - 1) if n > 0]
    near = [marker.upper() for marker in markers] + [marker.replace("_", "-") for marker in markers]
    hostile = st.sampled_from(["\n", "\n\n", " ", *cut, *near, "<", "[", "{", "}", "é", "天", "😀", "Hello"])
    whole = st.lists(hostile | st.text(max_size=5), min_size=1, max_size=5).map("".join)
    begun = tuple(completed_by(format, markers))
    return whole.filter(
        lambda text: text != "" and not text.endswith(begun) and not any(marker in text for marker in markers)
    )


def completed_by(format: Format, markers: list[str]) -> set[str]:
    """Beginnings of markers that the marker after a text completes: `>>` before `>>>`, `<|eot_id|` before `>>>`."""
    # Where calls have no marker, a bracket follows the text.
    bare = format.tools is not None and format.tools.bare
    following = markers if bare or format.speech or format.transcript else markers_of(format)
    return {
        marker[:n]
        for marker in markers
        for n in range(1, len(marker))
        if any(after.startswith(marker[n:]) or marker[n:].startswith(after) for after in following)
    }


def calls(format: Format) -> st.SearchStrategy[ToolCall]:
    ids = st.text("abcXYZ0189", min_size=9, max_size=9) | st.just("")
    return st.builds(ToolCall, _NAMES, arguments(format), ids)


@st.composite
def messages(draw: st.DrawFn, format: Format) -> Message:
    """A message that the format can say, with everything in any order."""
    strands = ["content"]
    strands += ["reasoning"] * (format.reasoning is not None)
    strands += ["call"] * 2 * (format.tools is not None)
    strands += ["speech"] * 2 * (format.speech is not None)
    strands += ["tag"] * 2 * (format.transcript is not None)
    parts: list[Part] = []
    section = 0
    ids: set[str] = set()

    def add(strand: str) -> None:
        last = parts[-1] if parts else None
        if strand == "call":
            call = draw(calls(format).filter(lambda call: not call.id or call.id not in ids))
            ids.add(call.id)
            parts.append(call)
        elif not (isinstance(last, Text) and last.strand == strand):
            parts.append(Text("content" if strand == "content" else "reasoning", draw(texts(format))))

    for strand in draw(st.lists(st.sampled_from(strands), max_size=5)):
        if strand == "tag":
            parts.append(draw(tags(format)))
            continue
        if strand != "speech":
            add(strand)
            continue
        parts.append(draw(speech(format, section)))
        for inner in draw(st.lists(st.sampled_from([s for s in strands if s in ("call", "reasoning")]), max_size=2)):
            add(inner)
            parts.append(draw(speech(format, section)))
        section += 1
    return Message(tuple(parts))


def tags(format: Format) -> st.SearchStrategy[Tag]:
    transcript = format.transcript
    assert transcript is not None
    times = st.integers(0, transcript.times - 1).map(lambda number: Tag(round(number * transcript.step, 2)))
    return st.sampled_from(transcript.languages).map(Tag) | times


@st.composite
def speech(draw: st.DrawFn, format: Format, section: int) -> Speech:
    assert format.speech is not None
    codes = st.lists(st.integers(0, format.speech.codes - 1), max_size=4).map(tuple)
    text = draw(st.just("") | texts(format))
    return Speech(text, draw(codes.filter(lambda codes: bool(codes or text))), section)


# --- Everything that the grammar accepts ---------------------------------------------------------------------------


@st.composite
def grammatical(draw: st.DrawFn, format: Format) -> tuple[str, list[ToolCall]]:
    """A text that the grammar accepts, written in any of the ways it allows, and the calls in it."""
    said: list[ToolCall] = []
    written: list[str] = []
    kinds = ["text"]
    for kind, node in (("reasoning", format.reasoning), ("speech", format.speech), ("calls", format.tools)):
        kinds += [kind] * (node is not None)
    kinds += ["tag"] * (format.transcript is not None)
    kinds += ["answer"] * (format.answer is not None) + ["ignored"] * bool(format.ignored)
    # Messages that have headers follow each other: there is none inside another.
    inside = ("text", "calls") if format.headers is None else ("text",)

    def marker(text: str) -> str:
        # The whitespace at a marker's ends may be there or not, but not in a header, which is one word.
        if format.headers is not None:
            return text
        return draw(st.sampled_from([text, text.strip(), text.lstrip(), text.rstrip()]))

    def some_calls() -> None:
        tools = format.tools
        assert tools is not None
        body = tools.body
        while isinstance(body, grammar.Either):
            body = draw(st.sampled_from([body.first, body.second]))
        # In a header space would be part of the name.
        space = st.sampled_from(["", "", " ", "\n", " \n\t"] if format.headers is None else [""])
        if not tools.bare:
            written.append(marker(draw(st.sampled_from([tools.open, *tools.also]))))
        if isinstance(body, grammar.CallList):
            count = draw(st.integers(1, 3))
            each = [draw(space) + one_call(body.call.parts) + draw(space) for _ in range(count)]
            lead = "" if tools.bare else draw(space)
            if tools.bare or not (body.close or tools.close):
                # What is not closed ends with its last call: then space is content.
                each = [one.strip() for one in each]
            written.append(lead + body.open + body.separator.join(each) + body.close)
        else:
            written.append(("" if tools.bare else draw(space)) + one_call(body.parts))
        if tools.close and (tools.close_written or draw(st.booleans())):
            written.append(marker(tools.close))

    def one_call(parts: tuple[grammar.CallPart, ...]) -> str:
        call = draw(calls(format).filter(lambda call: call.id not in ["", *(other.id for other in said)]))
        said.append(call)
        return "".join(part_of(part, call) for part in parts)

    def part_of(part: grammar.CallPart, call: ToolCall) -> str:
        if isinstance(part, str):
            return part
        if isinstance(part, grammar.Name):
            return call.name
        if isinstance(part, grammar.CallId):
            return call.id
        if isinstance(part, grammar.NameInId):
            number = f"{part.after}{len(said)}"
            return draw(st.sampled_from([part.before + call.name + number, call.name + number, call.name]))
        if isinstance(part, grammar.Ordinal):
            return str(len(said))
        if isinstance(part, notations.Arguments):
            return draw(st.sampled_from(["", " ", "\n"])) + call.arguments
        if isinstance(part, notations.TaggedArguments):
            return "".join(tagged(part, *pair) for pair in json.loads(call.arguments).items())
        if isinstance(part, notations.PythonArguments):
            space = draw(st.sampled_from(["", " ", "\n"]))
            values = json.loads(call.arguments)
            items = [f"{space}{key}{space}={space}{draw(python_literals(value))}" for key, value in values.items()]
            return ",".join(items) + (draw(st.sampled_from(["", ","])) if items else "") + space
        if isinstance(part, notations.BareArguments):
            return draw(bare_values(part, json.loads(call.arguments)))
        if isinstance(part, notations.ElementArguments):
            return "".join(draw(elements(part, *pair)) for pair in json.loads(call.arguments).items())
        if isinstance(part, notations.JsonCall):
            written = json.dumps(call.arguments) if draw(st.booleans()) else call.arguments
            pairs = [(part.name, json.dumps(call.name)), (draw(st.sampled_from(part.arguments)), written)]
            pairs += draw(st.sampled_from([[], [(part.id, json.dumps(call.id))]]))
            pairs += draw(st.sampled_from([[], [(key, '"function"') for key in part.ignored]]))
            space = draw(st.sampled_from(["", " ", "\n  "]))
            inside = ",".join(f'{space}"{key}":{space}{value}' for key, value in draw(st.permutations(pairs)))
            return "{" + inside + space + "}"
        assert isinstance(part, grammar.Maybe)
        if draw(st.booleans()):
            return part.marker + "".join(part_of(inner, call) for inner in part.then)
        return ""

    def tagged(node: notations.TaggedArguments, key: str, value: object) -> str:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        # A tag may be without its whitespace, where the value has none of its own that would be taken for it.
        open = node.open if text[:1].isspace() else marker(node.open)
        close = node.close if not text or text[-1].isspace() else marker(node.close)
        if node.escaped:
            key, text = xml_text.encode_attribute(key), draw(xml_texts(text))
        words = [word for word, kinds in node.kinds if kind_of(value) in kinds]
        kind = node.kind.format(draw(st.sampled_from(words))) if words else ""
        open = open.replace("{kind}", kind).replace("{key}", key)
        return open + text + close + draw(st.sampled_from(["", "\n", "  "]))

    def pieces(kinds: list[str], most: int) -> None:
        for kind in draw(st.lists(st.sampled_from(kinds), max_size=most)):
            if kind == "text":
                written.append(draw(texts(format)))
            elif kind == "calls":
                some_calls()
            elif kind == "tag":
                assert format.transcript is not None
                written.append(draw(st.sampled_from(tags_of(format.transcript))))
            elif kind == "reasoning":
                assert format.reasoning is not None
                both = format.reasoning.open, format.reasoning.close
                open, close = draw(st.sampled_from([both, *format.reasoning.also]))
                written.append(marker(open))
                # Without a marker, there are no calls in reasoning.
                no_calls = format.tools is not None and format.tools.bare
                pieces([k for k in kinds if k in inside and not (k == "calls" and no_calls)], 2)
                written.append(marker(close))
            elif kind == "answer":
                assert format.answer is not None
                both = format.answer.open, format.answer.close
                open, close = draw(st.sampled_from([both, *format.answer.also]))
                written.append(marker(open))
                pieces([k for k in kinds if k in inside], 2)
                written.append(draw(st.sampled_from([marker(close), ""])))
            elif kind == "ignored":
                written.append(marker(draw(st.sampled_from(format.ignored))))
            else:
                assert format.speech is not None
                written.append(marker(format.speech.open))
                pieces([k for k in kinds if k not in ("speech", "answer", "ignored")], 3)
                some = [format.speech.code.format(n) for n in (0, 5, format.speech.codes - 1)]
                written.extend(draw(st.lists(st.sampled_from([*some, *format.speech.padding]), max_size=4)))
                written.append(draw(st.sampled_from([format.speech.close, ""])) if kinds == [] else format.speech.close)

    pieces(kinds, 4)
    return "".join(written), said


# --- Hostile texts -------------------------------------------------------------------------------------------------


def hostile(format: Format) -> st.SearchStrategy[str]:
    """Markers whole, cut short, doubled and inside each other; broken calls; anything."""
    literals = literals_of(format)
    cut = [literal[:n] for literal in literals for n in range(1, len(literal))]
    json_bits = ['{"name": "f"', ', "arguments": ', '{"a": 1}', "{}", "}", "]", "[", "{", '"', "\\", "\\u00", ",", ":"]
    json_bits += ["'a'", "1e", "-", "tru", "null", '"name"', '"x": "', "f", "get_weather", "unknown", "\n", " ", "\t"]
    json_bits += hostile_notation(format)
    bits = st.sampled_from([*literals, *literals, *cut, *json_bits]) | st.text(max_size=6)
    return st.lists(bits, max_size=12).map("".join) | grammatical(format).map(lambda pair: pair[0])


def hostile_notation(format: Format) -> list[str]:
    notation = notation_of(format)
    if isinstance(notation, notations.TaggedArguments):
        tags = [notation.open.replace("{key}", key) for key in [*TYPES, "x"]]
        bits = ["True", "None", "[1, ", ' "a"]', "12", "{}\n"]
        if notation.escaped:
            bits += ["&lt;", "&amp", "&#6", "5;", "&#xD800;", "&quot;", "<![CDATA[", "<![CDATA[", "]]>", "]]", "&"]
        return [*tags, *tags, notation.close, notation.close, *bits]
    if isinstance(notation, notations.BareArguments):
        keys = [f"{key}:" for key in [*TYPES, "x", ""]]
        bits = ["call:f{", "{a:", "}", "}", "[", "]", ", ", "tru", "True", "None", "-1.5", "00", "Paris", " x ", "f("]
        return [*keys, *keys, *bits, notation.quote, notation.quote, f"{notation.quote}k{notation.quote}:"]
    if isinstance(notation, notations.ElementArguments):
        tags = [f"{notation.mark}<{sign}{key}>" for key in [*TYPES, "x", notation.item] for sign in ("", "/")]
        return [*tags, *tags, notation.mark, f"{notation.mark}<", "True", "None", "[1, ", ' "a"]', "12", "{}\n", ">"]
    if isinstance(notation, notations.PythonArguments):
        keys = [f"{key}=" for key in [*TYPES, "x"]]
        bits = ["'", '"""', "'''", "\\x4", "\\12", "\\U0001", "\\\n", "True", "nan", "1_0", ".5", "0x", "(", ")", "f("]
        return [*keys, *bits, "'a", "b'", ", ", "{'k': ", "{1: ", "[1, ", "(2,)"]
    return []


def escapes_of(format: Format) -> list[str]:
    """What stands for something else in the text of a value."""
    notation = notation_of(format)
    if not isinstance(notation, notations.TaggedArguments) or not notation.escaped:
        return []
    return [xml_text.SECTION_OPEN, xml_text.SECTION_CLOSE, "&lt;", "&gt;", "&amp;", "&quot;", "&apos;"]


def cuts(draw: st.DrawFn, text: str) -> list[str]:
    """`text` in pieces."""
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
