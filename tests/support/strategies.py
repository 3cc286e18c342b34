"""Random messages, random grammatical texts and hostile texts for any format, made from its grammar alone.

A format that is registered is tested by these; there is nothing to write for it.

To make a strategy takes longer than to draw from it, so each is made once for a format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cache
from typing import Any

from hypothesis import strategies as st

from unbraid import Format, Message, Part, Speech, Tag, Text, ToolCall, all_formats, render
from unbraid.core import grammar
from unbraid.core.machine.markers import is_control, marked_parts

from .notations import (
    NAMES,
    SPACE,
    TYPES,
    cuts,
    generator_of,
    notation_of,
    python_literals,
    spaced,
    strings_in,
    strings_of,
)

__all__ = ["cuts", "notation_of", "python_literals", "strings_in", "strings_of"]

FORMATS = list(all_formats())

TOOLS = [{"name": name} for name in NAMES]
TYPED_TOOLS = [
    {"name": name, "parameters": {"type": "object", "properties": {key: {"type": TYPES[key]} for key in TYPES}}}
    for name in ("f", "get_weather")
]
HARD_KEYS = ["", 'a"b', "it's", "a&b", "a&amp;b", "&quot;", "<a>", "</a>", "a b", " a", "a ", "\\", "a\nb", "天😀"]
HARD_KEYS += ["a=b", "a:b", "a,b", "/a", "a.b", "{a}", "[a]", "(a)", "\x7f"]
"""Names of arguments that may be something else where they stand."""
_NAMES = st.sampled_from([str(tool["name"]) for tool in TOOLS])


def data_in_strings(format: Format) -> list[str]:
    """The literals that are data where they stand in a string argument."""
    notation = notation_of(format)
    ends = [] if notation is None else notation.ends(format)
    return [literal for literal in literals_of(format) if not any(end in literal for end in ends)]


def node_of(format: Format) -> grammar.Notation | None:
    """The node of that notation."""
    notation = notation_of(format)
    return None if notation is None else notation.node


def quotes(format: Format) -> list[str]:
    """Strings that quote the markup of the format, inside a line and on lines of their own."""
    literals, notation = data_in_strings(format), notation_of(format)
    ends = [] if notation is None else notation.ends(format)
    texts = [text for one in literals for text in (one, f"see {one} <b>", f"a\n{one}\nb")]
    texts += [between.join(literals) for between in ("", " ", "\n")]
    return [text for text in texts if not any(end in text for end in ends)]


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
        found += [format.speech.open, format.speech.close, *format.speech.out_of_band]
    found += [text.strip().removesuffix(format.optional_end) for text in found if format.optional_end]
    return [marker for marker in dict.fromkeys(text.strip() for text in found) if marker]


def noises_of(format: Format) -> list[str]:
    """What no prose has of a format's markup: markers, and the tags in calls, unless they begin markers."""
    markers = [marker for marker in markers_of(format) if is_control(marker)]
    tags = [tag for text in literals_of(format) for tag in re.findall(r"</?[^<>\s\"/]+>", text) if is_control(tag)]
    inner = [tag for tag in tags if not any(tag in marker for marker in (*markers, format.optional_end))]
    return list(dict.fromkeys([*markers, *(inner if format.speech is None else ())]))


@cache
def literals_of(format: Format) -> list[str]:
    """All that could be markup somewhere: markers, and the literals inside calls and speech."""
    nodes = (format.reasoning, format.answer, format.tools, format.other_tools, format.speech)
    found = [text.strip().replace("{key}", "a") for node in nodes for text in strings_in(node) if text.strip()]
    found = [text.replace("{kind}", "").replace("{}", "a") for text in found]
    if format.reasoning is not None and format.reasoning.label:
        found.append(format.reasoning.label)
    if format.speech is not None and format.speech.code:
        found += [format.speech.code.format(n) for n in (0, 5, 17, format.speech.codes - 1, format.speech.codes)]
    if format.transcript is not None:
        found += tags_of(format.transcript)
    if (cited := format.citations) is not None:
        found += [
            *cited.tags,
            *(open + said + cited.close for open in cited.opens for said in ("", " 0", " 0:[1,2],1:[0]")),
        ]
    return list(dict.fromkeys([*markers_of(format), *found]))


def tags_of(transcript: grammar.TranscriptMarkup) -> list[str]:
    """Some of all kinds."""
    texts = (*transcript.languages[:3], transcript.languages[-1], *transcript.tasks, transcript.timeless)
    times = [transcript.time(number) for number in (0, 1, 29, transcript.times - 1)]
    return [*(transcript.tag.format(text) for text in (*texts, *transcript.ignored)), *times]


# --- JSON ----------------------------------------------------------------------------------------------------------


@cache
def json_values(format: Format) -> st.SearchStrategy[Any]:
    hostile = st.sampled_from(["", *literals_of(format), '"', "\\", "\n", "é", "天气", "😀", "\x7f", "</", "<|"])
    text = st.lists(hostile | st.text(max_size=4), max_size=4).map("".join)
    plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text
    return st.recursive(
        plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3), max_leaves=6
    )


@cache
def objects(format: Format) -> st.SearchStrategy[dict[str, Any]]:
    """What a call's arguments may be; where the model does not write JSON, only what its notation can say without a
    schema."""
    key = st.sampled_from(["name", "arguments", "parameters", "id", "é", *TYPES, *HARD_KEYS]) | st.text(max_size=3)
    value, notation = json_values(format), notation_of(format)
    if notation is not None:
        ends = notation.ends(format)
        key = key.filter(notation.node.can_name)
        value = value.filter(lambda value: notation.can_say(value, ends))
    return st.dictionaries(key, value, max_size=3)


@cache
@st.composite
def arguments(draw: st.DrawFn, format: Format) -> str:
    """A JSON object. Written in one of the ways that JSON can be written; but where the model does not write JSON, in
    the way that `json.dumps` does."""
    if notation_of(format) is not None:
        return json.dumps(draw(objects(format)), ensure_ascii=False)
    separators = draw(st.sampled_from([(", ", ": "), (",", ":"), (" ,\n", " :\t")]))
    indent = draw(st.sampled_from([None, None, 2]))
    made = draw(objects(format))
    return json.dumps(made, ensure_ascii=draw(st.booleans()), separators=separators, indent=indent)


# --- Messages ------------------------------------------------------------------------------------------------------


@cache
def texts(format: Format) -> st.SearchStrategy[str]:
    """Text that holds no marker, but much that looks like one."""
    markers = literals_of(format)
    cut = [marker[:n] for marker in markers for n in (1, len(marker) // 2, len(marker) - 1) if n > 0]
    near = [marker.upper() for marker in markers] + [marker.replace("_", "-") for marker in markers]
    hostile = st.sampled_from(["\n", "\n\n", " ", *cut, *near, "<", "[", "{", "}", "é", "天", "😀", "Hello"])
    whole = st.lists(hostile | st.text(max_size=5), min_size=1, max_size=5).map("".join)
    begun = tuple({*completed_by(format, markers), *(one for one in beginnings(markers) if is_control(one))})
    cited = format.citations
    tag = (
        f"(?:{'|'.join(map(re.escape, cited.opens))}){cited.inside}(?:{re.escape(cited.close)}|$)" if cited else "(?!)"
    )
    return whole.filter(
        lambda text: (
            text != ""
            and "`" not in text  # in code, what ends the text may be a name: see `answers`
            and not text.endswith(begun)
            and not any(marker in text for marker in (*markers, *noises_of(format)))
            and not re.search(tag, text)
        )
    )


def beginnings(markers: Iterable[str]) -> set[str]:
    """All that a marker may be cut off to."""
    return {marker[:n] for marker in markers for n in range(1, len(marker))}


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


@cache
def calls(format: Format) -> st.SearchStrategy[ToolCall]:
    ids = st.text("abcXYZ0189", min_size=9, max_size=9) | st.just("")
    return st.builds(ToolCall, _NAMES, arguments(format), ids)


@cache
@st.composite
def messages(draw: st.DrawFn, format: Format) -> Message:
    """A message that the format can say, with everything in any order."""
    strands = ["content"]
    strands += ["reasoning"] * (format.reasoning is not None and not format.reasoning_in_content)
    strands += ["call"] * 2 * (format.tools is not None)
    strands += ["speech"] * 2 * (format.speech is not None)
    strands += ["tag"] * 2 * (format.transcript is not None)
    implied = format.speech is not None and format.speech.implied
    if implied:
        strands.remove("content")
    parts: list[Part] = []
    section = 0
    ids: set[str] = set()

    def add(strand: str, spoken: bool = False) -> None:
        last = parts[-1] if parts else None
        if strand == "call":
            call = draw(calls(format).filter(lambda call: not call.id or call.id not in ids))
            ids.add(call.id)
            parts.append(call)
        elif not (isinstance(last, Text) and last.strand == strand):
            if strand == "reasoning" and not spoken and not may_reason(format, answer_of(format, parts)):
                return
            parts.append(Text("content" if strand == "content" else "reasoning", draw(texts(format))))

    for strand in draw(st.lists(st.sampled_from(strands), max_size=5)):
        if strand == "tag":
            parts.append(draw(tags(format)))
            continue
        if strand != "speech":
            add(strand)
            continue
        if implied:
            # Nothing but a call or reasoning cuts the one section in two.
            if not (parts and isinstance(parts[-1], Speech)):
                parts.append(draw(speech(format, 0)))
            continue
        parts.append(draw(speech(format, section)))
        for inner in draw(st.lists(st.sampled_from([s for s in strands if s in ("call", "reasoning")]), max_size=2)):
            add(inner, spoken=True)
            parts.append(draw(speech(format, section)))
        section += 1
    return Message(tuple(parts))


def answer_of(format: Format, parts: list[Part]) -> str:
    """The answer so far, since the last call; none where something ends it."""
    answer = ""
    for part in parts:
        if isinstance(part, Text) and part.strand == "content":
            answer += part.text
        if isinstance(part, ToolCall) or (format.answer is not None and format.answer.close):
            answer = ""
    return answer


def may_reason(format: Format, answer: str) -> bool:
    """Whether reasoning may open after an answer: where the family's may, on a line of its own."""
    if format.headers is not None or not answer.strip():
        return True
    return format.reasoning_again and not answer.rpartition("\n")[2].strip()


@cache
def tags(format: Format) -> st.SearchStrategy[Tag]:
    transcript = format.transcript
    assert transcript is not None
    times = st.integers(0, transcript.times - 1).map(lambda number: Tag(round(number * transcript.step, 2)))
    return st.sampled_from(transcript.languages).map(Tag) | times


@cache
@st.composite
def speech(draw: st.DrawFn, format: Format, section: int) -> Speech:
    assert format.speech is not None
    most = 4 if format.speech.code else 0
    codes = st.lists(st.integers(0, format.speech.codes - 1), max_size=most).map(tuple)
    text = draw(st.just("") | texts(format) if most else texts(format))
    return Speech(text, draw(codes.filter(lambda codes: bool(codes or text))), section)


# --- Everything that the grammar accepts ---------------------------------------------------------------------------


@cache
@st.composite
def grammatical(draw: st.DrawFn, format: Format) -> tuple[str, list[ToolCall]]:
    """A text that the grammar accepts, written in any of the ways it allows, and the calls in it."""
    said: list[ToolCall] = []
    written: list[str] = []
    kinds = ["text"]
    for kind, node in (("reasoning", format.reasoning), ("speech", format.speech), ("calls", format.tools)):
        kinds += [kind] * (node is not None)
    if format.speech is not None and format.speech.implied:
        kinds[kinds.index("speech")] = "audio"
    kinds += ["tag"] * (format.transcript is not None)
    kinds += ["answer"] * (format.answer is not None) + ["ignored"] * bool(format.ignored)
    # Messages that have headers follow each other: there is none inside another.
    inside = ("text", "calls") if format.headers is None else ("text",)

    def marker(text: str) -> str:
        # The whitespace at a marker's ends may be there or not, but not in a header, which is one word.
        if format.headers is not None:
            return text
        text = draw(st.sampled_from([text, text.strip(), text.lstrip(), text.rstrip()]))
        return draw(SPACE if len(marked_parts(text)) > 1 else st.just("")).join(marked_parts(text))

    def some_calls() -> None:
        tools = format.tools
        assert tools is not None
        body = tools.body
        while isinstance(body, grammar.Either):
            body = draw(st.sampled_from([body.first, body.second]))
        # In a header space would be part of the name.
        headed = format.headers is not None and not tools.open.endswith(format.headers.closes)
        space = st.just("") if headed else SPACE
        if not tools.bare:
            written.append(marker(draw(st.sampled_from([tools.open, *tools.also]))))
        if isinstance(body, grammar.CallList):
            count = draw(st.integers(1, 3))
            each = [draw(space) + one_call(body.call.parts, headed) + draw(space) for _ in range(count)]
            lead = "" if tools.bare else draw(space)
            if tools.bare or not (body.close or tools.close):
                # What is not closed ends with its last call: then space is content.
                each = [one.strip() for one in each]
            written.append(lead + body.open + body.separator.join(each) + spaced(draw, body.close))
        else:
            written.append(("" if tools.bare else draw(space)) + one_call(body.parts, headed))
            if tools.close and tools.close_written:
                written.append(draw(space))
        if tools.close and (tools.close_written or draw(st.booleans())):
            written.append(marker(tools.close))

    def one_call(parts: tuple[grammar.CallPart, ...], headed: bool) -> str:
        call = draw(calls(format).filter(lambda call: call.id not in ["", *(other.id for other in said)]))
        said.append(call)
        each: list[str] = []
        for part in parts:
            if each and not headed:
                each.append(draw(SPACE))
            each.append(part if headed and isinstance(part, str) else part_of(part, call))
            if headed and isinstance(part, str) and format.headers is not None:
                headed = not part.endswith(format.headers.closes)
        return "".join(each)

    def part_of(part: grammar.CallPart, call: ToolCall) -> str:
        if isinstance(part, str):
            # What ends the arguments is a marker, and those are written as they are.
            return part if part.startswith("</") else spaced(draw, part)
        if isinstance(part, grammar.Name):
            return call.name
        if isinstance(part, grammar.CallId):
            return call.id
        if isinstance(part, grammar.NameInId):
            number = f"{part.after}{len(said)}"
            return draw(st.sampled_from([part.before + call.name + number, call.name + number, call.name]))
        if isinstance(part, grammar.Ordinal):
            return str(len(said))
        if isinstance(part, grammar.Notation):
            return generator_of(part).derive(draw, call, marker)
        if isinstance(part, grammar.Instead):
            return ""
        assert isinstance(part, grammar.Maybe)
        if part.due or draw(st.booleans()):
            return "".join([spaced(draw, part.marker), *(draw(SPACE) + part_of(inner, call) for inner in part.then)])
        return ""

    def audio() -> None:
        """Codes with what stands around them, or without, and padding."""
        speech = format.speech
        assert speech is not None
        some = [speech.code.format(n) for n in (0, 5, speech.codes - 1)] if speech.code else []
        if some or speech.padding:
            some = draw(st.lists(st.sampled_from([*some, *speech.padding]), max_size=4))
        open, close = draw(st.sampled_from([speech.around, ("", "")]))
        written.extend([open, *some, close])

    begun = [""]  # the answer, since the last call

    def pieces(kinds: list[str], most: int) -> None:
        for kind in draw(st.lists(st.sampled_from(kinds), max_size=most)):
            if kind == "text":
                written.append(draw(texts(format)))
                begun.append(written[-1])
            elif kind == "calls":
                some_calls()
                begun.clear()
            elif kind == "tag":
                assert format.transcript is not None
                written.append(draw(st.sampled_from(tags_of(format.transcript))))
            elif kind == "reasoning":
                assert format.reasoning is not None
                if not may_reason(format, "".join(begun)):
                    continue
                both = format.reasoning.open, format.reasoning.close
                open, close = draw(st.sampled_from([both, *format.reasoning.also]))
                # A label that lacks its whitespace is none.
                label = format.reasoning.label
                written.append(marker(open.removesuffix(label)) + label if label else marker(open))
                # Without a marker, there are no calls in reasoning; and not where models only draft them.
                no_calls = not format.calls_in_reasoning or (format.tools is not None and format.tools.bare)
                pieces([k for k in kinds if k in inside and not (k == "calls" and no_calls)], 2)
                written.append(marker(close))
            elif kind == "answer":
                assert format.answer is not None
                both = format.answer.open, format.answer.close
                open, close = draw(st.sampled_from([both, *format.answer.also]))
                written.append(marker(open))
                pieces([k for k in kinds if k in inside], 2)
                # No header stands in a message that has an end of its own, and has not ended.
                ends = [marker(close)] if format.headers is not None else [marker(close), ""]
                written.append(draw(st.sampled_from(ends)) if close else "")
            elif kind == "audio":
                audio()
            elif kind == "ignored":
                written.append(marker(draw(st.sampled_from(format.ignored))))
            else:
                assert format.speech is not None
                written.append(marker(format.speech.open))
                pieces([k for k in kinds if k not in ("speech", "answer", "ignored")], 3)
                audio()
                written.append(draw(st.sampled_from([format.speech.close, ""])) if kinds == [] else format.speech.close)

    pieces(kinds, 4)
    return "".join(written), said


# --- Answers about markup ------------------------------------------------------------------------------------------

IN_LINE = ("Write {} first. Then answer.", "Is it {} or not?", "1. First comes {}\n2. Then more.")
ON_LINE = ("So:\n{} comes first.", "One.\n\n{}\nTwo.")
IN_CODE = ("It is `{}`, of course.", "- `{}` and `{}`", "See:\n\n```\n{}\n```\nThat is all.", "```xml\nx {}\n```\n")
"""How answers name markup."""


def named(format: Format) -> dict[str, list[str]]:
    """Answers that name a marker of the format, for each: in the middle of a line, at its beginning, and in code. Where
    no prose has a marker, it is named in code alone, unless it opens something: else it is noise."""
    opens: set[str] = set()
    if format.reasoning is not None:
        opens |= {format.reasoning.open, *(open for open, _ in format.reasoning.also)}
    on_line = set() if format.reasoning_again else set(opens)
    opens |= {open for calls in (format.tools, *format.other_tools) if calls for open in (calls.open, *calls.also)}
    opens, on_line = ({text.strip().removesuffix(format.optional_end) for text in some} for some in (opens, on_line))
    edges = {*(() if format.answer is None else strings_in(format.answer)), *format.ignored}
    ways: dict[str, list[str]] = {}
    for marker in markers_of(format):
        if "`" in marker:
            continue
        prose = not is_control(marker) and marker not in {edge.strip() for edge in edges}
        ways[marker] = [
            *IN_CODE,
            *(IN_LINE if marker in opens or prose else ()),
            *(ON_LINE if marker in on_line or (prose and marker not in opens) else ()),
        ]
    return {marker: [way.replace("{}", marker) for way in each] for marker, each in ways.items()}


# --- Hostile texts -------------------------------------------------------------------------------------------------


@cache
def hostile(format: Format, damage: bool = True) -> st.SearchStrategy[str]:
    """Markers whole, cut short, doubled and inside each other; broken calls; grammatical texts, damaged if you want."""
    literals = literals_of(format)
    cut = [literal[:n] for literal in literals for n in range(1, len(literal))]
    json_bits = ['{"name": "f"', ', "arguments": ', '{"a": 1}', "{}", "}", "]", "[", "{", '"', "\\", "\\u00", ",", ":"]
    json_bits += ["'a'", "1e", "-", "tru", "null", '"name"', '"x": "', "f", "get_weather", "unknown", "\n", " ", "\t"]
    notation = notation_of(format)
    json_bits += [] if notation is None else notation.hostile
    bits = st.sampled_from([*literals, *literals, *cut, *json_bits]) | st.text(max_size=6)
    texts = st.lists(bits, max_size=12).map("".join) | grammatical(format).map(lambda pair: pair[0])
    return texts | damaged(format, bits) if damage else texts


def floods(format: Format) -> st.SearchStrategy[tuple[str, str]]:
    """The beginning of an output, and what is repeated after it: openers, closers, brackets, pieces of them, calls."""
    literals = literals_of(format)
    bits = [*literals, *(one[:at] for one in literals for at in (len(one) // 2, len(one) - 1) if at > 0)]
    signs = [*"{[(<\"'`\n\\ ,:|/x", "```\n", "[{", '{"a":', "]}", "x ", "</"]
    beginnings = st.just("")
    if format.tools is not None:
        arguments = '{"a": "x y", "l": [1, {"c": null}]}'
        call = ToolCall("f", arguments, "functions.f:0" if format.name == "kimi-k2" else "abcdefghi")
        text = render(format, Message((call,)))
        beginnings |= st.integers(1, len(text)).map(lambda end: text[:end])
        bits.append(text)
    repeated = st.lists(st.sampled_from(signs) | st.sampled_from(bits or signs), min_size=1, max_size=3)
    return st.tuples(beginnings | st.sampled_from(bits or [""]), repeated.map("".join))


@st.composite
def damaged(draw: st.DrawFn, format: Format, bits: st.SearchStrategy[str]) -> str:
    """A grammatical text with something put in, taken out, or doubled."""
    text, _ = draw(grammatical(format))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        end = min(len(text), at + draw(st.integers(0, 12)))
        text = text[:at] + draw(st.sampled_from(["", text[at:end] * 2]) | bits) + text[end:]
    return text
