"""The laws, as properties of every registered format (docs/laws.md says them in full).

Law 9 in time is measured by `bench/parse.py`; here is what makes it so: nothing that was emitted is kept. What holds
only with token ids (half of law 6) is in `test_token_laws.py`, the vendors' half of law 10 in `test_templates.py`. The
laws that hold for any text are checks in `tests/support/laws.py`, which the fuzzer shares, on the texts of
`tests/support/cases.py`.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid import Event, Format, Message, ToolCallArguments, ToolCallEnd, stream_checks
from unbraid.core.machine.markers import is_control
from unbraid.core.notations import Arguments, BareArguments, ElementArguments, JsonCall, TaggedArguments, XmlArguments
from unbraid.core.notations.base import CallNotation
from unbraid.stream_checks import run

from ..support import laws, strategies
from ..support.cases import PROMPTS, cases, cut, each_format, messages
from ..support.examples import LONG, examples
from ..support.notations import nodes_in

TWO_STRINGS = [{"name": "f", "parameters": {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}}}]
every_format = each_format()
with_calls = each_format(format for format in strategies.FORMATS if format.tools is not None)
with_calls_and_text = each_format(
    format
    for format in strategies.FORMATS
    if format.tools is not None and (format.speech is None or not format.speech.implied)
)


@every_format
def test_1_chunk_invariance(format: Format) -> None:
    for case in cases(format):
        ways: list[Sequence[str]] = [list(case.text), case.pieces]
        ways += [[case.text[:at], case.text[at:]] for at in case.sizes]
        stream_checks.chunks_do_not_matter(format, [case.text], ways, case.options)


@every_format
def test_2_batch_is_stream(format: Format) -> None:
    for case in cases(format):
        laws.whole_is_streamed(format, case.text)


@every_format
def test_3_conservation(format: Format) -> None:
    for case in cases(format):
        stream_checks.nothing_is_lost(format, case.pieces, case.options)


# Where the reasoning belongs to the content, its markers are content, and are looked for all the same.
@each_format(format for format in strategies.FORMATS if not format.reasoning_in_content)
@given(data=st.data())
def test_4_promptness(format: Format, data: st.DataObject) -> None:
    """Text that is held back must be able to become two different things. (Inside a call, see the next test.)"""
    text = data.draw(strategies.hostile(format, damage=False))
    options: dict[str, Any] = {"prompt": data.draw(st.sampled_from(PROMPTS))}
    literals = strategies.literals_of(format)
    # What may follow a marker, so that it is one.
    after = [""]
    if format.tools is not None:
        call = unbraid.render(format, Message((unbraid.ToolCall("f", "{}", "abcdefghi"),)))
        opening = [format.tools.open.strip(), *(text.strip() for text in strategies.strings_in(format.tools))]
        after += dict.fromkeys(call.partition(text)[2] for text in opening if text)
        after += [call, '[{"name": "f"}', '{"name": "f"}', "f", "f()", "{]"]
    after += format.headers.closes if format.headers is not None else ()
    parser = unbraid.parser(format, seed=7, markup=True, **options)
    emitted = 0
    looked_at = data.draw(st.sets(st.integers(1, max(1, len(text))), max_size=len(text) if LONG else 12))
    for count, char in enumerate(text, start=1):
        emitted = max([emitted, *(event.end for event in parser.feed(char))])
        if emitted == count or parser._machine.reading_call or count not in looked_at:
            continue
        held = text[emitted:count]
        if (closer := getattr(parser._machine.stack[-1], "orphan_closer", "")) and closer.startswith(held):
            continue  # what closes a call that was none is looked for as any marker is
        # Whitespace between a mark and its tag says nothing.
        begun = unfinished(literals, re.sub(r"(?<=\[)\s+(?=<)", "", held))
        # What is held back may also be whole: a comma, after which another call comes, or none.
        rests = ["", *(rest for _, rest in begun), *(literals if held.isspace() else ())]
        rests += format.headers.closes if format.headers is not None else ()
        # What goes on after an audio code, too: codes may stand inside a marker.
        for size, code in begun if format.speech or format.transcript else ():
            before = held[:-size]
            going_on = literals if before.isspace() else [rest for _, rest in unfinished(literals, before)]
            rests += [code + rest for rest in going_on]
        # Whitespace before it waits along, whatever it is.
        place = emitted + len(held) - len(held.lstrip() or held)
        fates = set()
        for rest in ["x", ">", *(rest + body for rest in rests for body in after)]:
            fates.add(fate(run(format, [text[:count] + rest], **options)[1], place))
            if len(fates) > 1:
                break
        # Markup that waits keeps nobody waiting.
        assert len(fates) > 1 or fates == {("Markup", None)}, f"{held!r} is held back for nothing"


def unfinished(literals: list[str], text: str) -> list[tuple[int, str]]:
    """The literals that `text` may have begun at its end: how much of each is there, and the rest."""
    return [(n, literal[n:]) for literal in literals for n in range(1, len(literal)) if text.endswith(literal[:n])]


def fate(events: list[Event], at: int) -> object:
    """What became of the character at a position."""
    event = next(event for event in events if event.start <= at < event.end)
    return type(event).__name__, getattr(event, "index", None)


@every_format
def test_4_arguments_stream(format: Format) -> None:
    """Once a call has started, its arguments wait for nothing, save a `[` that may begin `[TOOL_CALLS]`, a tag that may
    end an argument, or a word of Python's. (What may still be JSON or a string waits too: `test_tagged_arguments`.)"""
    for message, _ in messages(format):
        text = unbraid.render(format, message)
        parser = unbraid.parser(format, prompt="", markup=True)
        open_call = False
        for fed, char in enumerate(text, start=1):
            events = parser.feed(char)
            open_call = open_call or any(isinstance(event, ToolCallArguments) for event in events)
            open_call = open_call and not any(isinstance(event, ToolCallEnd) for event in events)
            if open_call and events:
                waiting = text[events[-1].end : fed]
                assert may_wait(format, waiting)


def may_wait(format: Format, waiting: str) -> bool:
    notation = strategies.notation_of(format)
    if notation is None:
        return any(literal.startswith(waiting) for literal in strategies.markers_of(format))
    if (may := notation.may_wait(waiting)) is not None:
        return may
    return any(literal.startswith(waiting) for literal in [*strategies.strings_in(format.tools), *notation.escapes])


@every_format
def test_5_fidelity_and_10_round_trip(format: Format) -> None:
    for message, sizes in messages(format):
        text = unbraid.render(format, message)
        parsed, events = run(format, cut(text, sizes), prompt="")
        assert parsed == message
        assert parsed.diagnostics == ()
        # Byte for byte: what the events say is what stands in the text, where that is JSON.
        for event in events:
            if isinstance(event, ToolCallArguments) and strategies.notation_of(format) is None:
                assert text[event.start : event.end] == event.fragment


TYPES = {"s": "string", "n": "integer", "t": "boolean", "l": "array", "o": ["object", "null"]}
BETWEEN_QUOTES = {
    '{"n": "3", "s": "3", "t": "True"}': '{"n": 3, "s": "3", "t": true}',
    r'{"l": "[1, \"a\"]", "o": "{\"n\": \"3\"}"}': '{"l": [1, "a"], "o": {"n": "3"}}',
    '{"n": " -1.50 ", "o": "None", "l": "[]"}': '{"n": -1.50, "o": null, "l": []}',
    '{"n": "", "t": "3", "l": "[1", "o": "[]", "n": "2 "}': '{"n": "", "t": "3", "l": "[1", "o": "[]", "n": 2}',
}
"""Arguments with strings where the schema has none, and what they are to engines that go by the schema."""


def first_notation(format: Format) -> object:
    """The notation that calls are written in; None where the format has none."""
    return next((node for node in nodes_in(format.tools) if isinstance(node, CallNotation)), None)


@each_format(
    format
    for format in strategies.FORMATS
    if isinstance(first_notation(format), Arguments | JsonCall | BareArguments)
    and isinstance(strategies.node_of(format), BareArguments | None)
)
def test_5_a_string_where_the_schema_has_none(format: Format) -> None:
    tools = [{"name": "f", "parameters": {"properties": {key: {"type": kind} for key, kind in TYPES.items()}}}]
    node = first_notation(format)
    bare = isinstance(node, BareArguments)
    for written, typed in BETWEEN_QUOTES.items():
        if bare and written.count('"n"') > 1:  # `render` writes no key twice
            continue
        expected = typed if bare or getattr(node, "by_schema", False) else written
        call = unbraid.ToolCall("f", written, "functions.f:0" if format.name == "kimi-k2" else "abcdefghi")
        text = unbraid.render(format, Message((call,)))
        for pieces in ([text], list(text), [text[at : at + 3] for at in range(0, len(text), 3)]):
            message, _ = run(format, pieces, tools=tools, prompt="")
            assert [(call.arguments, call.complete) for call in message.tool_calls] == [(expected, True)]
            repaired = {one.kind for one in message.diagnostics} - {"duplicate_key"}
            assert repaired == ({"repaired"} if expected != written else set())
        half = text[: len(text) * 3 // 4]
        assert run(format, [half], tools=tools, prompt="")[0] == run(format, list(half), tools=tools, prompt="")[0]


@with_calls
def test_10_a_name_of_an_argument_reads_back_or_is_refused(format: Format) -> None:
    for key in strategies.HARD_KEYS:
        call = unbraid.ToolCall("f", json.dumps({key: "b", "c": {key: [key]}}, ensure_ascii=False), "abcdefghi")
        notation = strategies.notation_of(format)
        if notation is not None and not notation.node.can_name(key):
            with pytest.raises(unbraid.UnbraidError, match="cannot be written"):
                unbraid.render(format, Message((call,)))
        else:
            assert run(format, list(unbraid.render(format, Message((call,)))), prompt="")[0].tool_calls == (call,)


@with_calls
@given(data=st.data())
def test_6_isolation(format: Format, data: st.DataObject) -> None:
    """Markup inside a string argument is data."""
    literals = strategies.data_in_strings(format)
    some = data.draw(st.lists(st.sampled_from(literals), min_size=1, max_size=4).map("".join))
    around = [""] if format.speech is None else ["", format.speech.open]
    for inside, before in itertools.product([some, " ".join(literals)], around):
        having = json.dumps({"a": inside, "b": {inside: [inside]}}, ensure_ascii=False)
        call = unbraid.ToolCall("f", having, "abcdefghi")
        text = before + unbraid.render(format, Message((call,)))
        parsed, _ = run(format, list(text), prompt="")
        assert parsed.tool_calls == (call,)
        assert not parsed.content


@every_format
def test_7_order(format: Format) -> None:
    for case in cases(format):
        laws.order_is_kept(format, case.text, {"prompt": "", "tools": case.tools})


@with_calls
def test_7_ids_are_unique(format: Format) -> None:
    """Also where the model gives two calls one id."""
    twice = (unbraid.ToolCall("f", "{}", "abcdefghi"),) * 2
    message, _ = run(format, [unbraid.render(format, Message(twice))], prompt="")
    assert len({call.id for call in message.tool_calls}) == 2


@every_format
def test_8_never_raises(format: Format) -> None:
    for case in cases(format):
        for text in (case.text, case.other_text):
            laws.never_raises(format, text, {"prompt": case.prompt, "limits": case.limits})


STRANDS = [
    (format, strand)
    for format in strategies.FORMATS
    for strand, node in (
        ("content", format),
        ("reasoning", format.reasoning),
        ("arguments", format.tools),
        ("unfinished", format.tools),
    )
    if node is not None
]


@pytest.mark.parametrize(("format", "strand"), STRANDS, ids=[f"{strand}-{format.name}" for format, strand in STRANDS])
def test_9_linear(format: Format, strand: str) -> None:
    """What has been emitted is gone: the state after 200,000 characters is as large as after 2,000."""
    long = "The quick brown fox, \\n [1, 2] {jumps}. " * 10
    start = ""
    if strand == "reasoning":
        assert format.reasoning is not None
        start = format.reasoning.open
    elif strand != "content":
        call = unbraid.ToolCall("f", '{"a": "$"}', "abcdefghi")
        start = unbraid.render(format, Message((call,))).partition("$")[0]
        # Arguments that break off are followed on their brackets alone; that must not grow either.
        start += '" oops ' if strand == "unfinished" else ""
    parser = unbraid.parser(format, keep_message=False, prompt="")
    parser.feed(start)
    sizes = []
    for count in range(500):
        parser.feed(long)
        if count in (5, 499):
            sizes.append(len(json.dumps(parser.snapshot())))
            assert len(parser._machine.buffer) < 2 * len(long)
    assert abs(sizes[1] - sizes[0]) < 200


@every_format
@examples(0.5)
@given(data=st.data())
def test_9_a_flood_costs_no_more_than_its_length(format: Format, data: st.DataObject) -> None:
    """Whatever is repeated: what is held back is bounded, and three times as much takes three times as many calls."""
    limits = unbraid.Limits(depth=16, name=32, number=32, arguments=16, held=200)
    begin, repeated = data.draw(strategies.floods(format))
    work = []
    for size in (2000, 6000):
        parser = unbraid.parser(format, keep_message=False, prompt="", tools=strategies.TOOLS, limits=limits)
        text = begin + repeated * (size // len(repeated))
        calls = 0

        def count(*_: object) -> None:
            nonlocal calls
            calls += 1

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            for at in range(0, len(text), 50):
                parser.feed(text[at : at + 50])
                assert len(parser._machine.buffer) < 1500
            parser.finish()
        finally:
            sys.setprofile(before)
        work.append(calls)
    assert work[1] < 4 * work[0]


@every_format
@given(data=st.data())
def test_11_agreement(format: Format, data: st.DataObject) -> None:
    """Whatever the grammar accepts parses without a diagnostic, and says what it was made to say."""
    text, calls = data.draw(strategies.grammatical(format))
    message, _ = run(format, [text], prompt="", tools=strategies.TOOLS)
    assert message.diagnostics == ()
    assert [(call.name, call.arguments) for call in message.tool_calls] == [(c.name, c.arguments) for c in calls]


@with_calls_and_text
def test_11_a_text_that_ends_in_inline_code(format: Format) -> None:
    """The constraint lets a call follow any text. What no backtick closes in its line is no inline code."""
    call = unbraid.ToolCall("f", '{"a": "b"}', "functions.f:0" if format.name == "kimi-k2" else "abcdefghi")
    for said in ("Use `", "Use `a", "Use `a`, ``", "Use ```", "- `a` and\n`"):
        text = unbraid.render(format, Message((unbraid.Text("content", said), call)))
        for pieces in ([text], list(text)):
            message, _ = run(format, pieces, prompt="")
            assert message.content == said
            assert [(each.name, each.arguments) for each in message.tool_calls] == [("f", '{"a": "b"}')]
            assert message.diagnostics == ()


@every_format
def test_12_a_call_that_is_cut_off_is_not_complete(format: Format) -> None:
    for case in cases(format):
        stream_checks.cut_off_is_not_complete(format, case.text, case.sizes, case.options)


@with_calls
def test_12_a_complete_call_is_not_unfinished(format: Format) -> None:
    """Wherever the output is cut off after it, up to the end of what closes the calls."""
    calls = tuple(unbraid.ToolCall("f", '{"a": "b"}', f"abcdefgh{number}") for number in range(2))
    for text in (unbraid.render(format, Message(calls[:count])) for count in (1, 2)):
        for size in range(text.rindex("b") + 1, len(text) + 1):
            for pieces in ([text[:size]], list(text[:size])):
                message, _ = run(format, pieces, prompt="", tools=TWO_STRINGS)
                kinds = {one.kind for one in message.diagnostics}
                complete = all(call.complete for call in message.tool_calls)
                assert kinds <= {"unclosed" if complete else "unfinished_call"}, (text[:size], kinds)


@with_calls
def test_14_a_value_holds_any_text_but_its_own_closing(format: Format) -> None:
    for quote in strategies.quotes(format):
        call = unbraid.ToolCall("f", json.dumps({"a": quote, "b": "x"}, ensure_ascii=False), "abcdefghi")
        text = unbraid.render(format, Message((call,)), tools=TWO_STRINGS)
        parsed, _ = run(format, list(text), prompt="", tools=TWO_STRINGS)
        assert parsed.tool_calls == (call,)
        assert parsed.content == parsed.reasoning == ""
        assert parsed.diagnostics == ()
    # What was quoted last quotes everything: no beginning of it may be a call with half of the value.
    stream_checks.cut_off_is_not_complete(format, text, range(0, len(text), 3), {"prompt": "", "tools": TWO_STRINGS})


@each_format(format for format in strategies.FORMATS if isinstance(strategies.node_of(format), TaggedArguments))
def test_14_what_would_end_a_value_is_refused_or_escaped(format: Format) -> None:
    node = strategies.node_of(format)
    assert isinstance(node, TaggedArguments)
    for quote in (f"see {node.close.strip()} <b>", f"see {node.close.strip()}"):
        call = unbraid.ToolCall("f", json.dumps({"a": quote}), "abcdefghi")
        if isinstance(node, XmlArguments):
            text = unbraid.render(format, Message((call,)))
            assert run(format, list(text), prompt="")[0].tool_calls == (call,)
        else:
            with pytest.raises(unbraid.UnbraidError, match="would end"):
                unbraid.render(format, Message((call,)))


@each_format(format for format in strategies.FORMATS if isinstance(strategies.node_of(format), TaggedArguments))
def test_14_a_closing_that_is_forgotten(format: Format) -> None:
    """The end of the turn shows it, or a further call. Where the output may have been cut off, nothing does."""
    node = strategies.node_of(format)
    assert isinstance(node, TaggedArguments)
    call = unbraid.ToolCall("f", '{"a": "one two", "b": "three four"}', "abcdefghi")
    again = unbraid.ToolCall("f", '{"a": "x", "b": "y"}', "ihgfedcba")
    close = node.close.strip()
    for calls in ((call,), (call, again)):
        text = unbraid.render(format, Message(calls), tools=TWO_STRINGS)
        at = text.index(close, text.index("three four"))
        text = text[:at] + text[at + len(close) :]
        ended, _ = run(format, list(text), prompt="", tools=TWO_STRINGS, end_of_turn=True)
        said = [json.loads(one.arguments) for one in ended.tool_calls if one.complete]
        assert [{key: value.strip() for key, value in one.items()} for one in said] == [
            json.loads(one.arguments) for one in calls
        ]
        cut, _ = run(format, list(text), prompt="", tools=TWO_STRINGS)
        assert [one.complete for one in cut.tool_calls] == [len(calls) > 1, *(True for _ in calls[1:])]


def after_reasoning(format: Format, answer: str) -> str:
    """An answer as the model writes it."""
    reasoned = format.reasoning is not None and not format.reasoning_in_content
    before: tuple[unbraid.Text, ...] = (unbraid.Text("reasoning", "why"),) if reasoned else ()
    return unbraid.render(format, Message((*before, unbraid.Text("content", answer))))


@each_format(format for format in strategies.FORMATS if format.transcript is None and format.speech is None)
def test_15_an_answer_that_names_a_marker_keeps_its_words(format: Format) -> None:
    for marker, answers in strategies.named(format).items():
        for answer in answers:
            text = after_reasoning(format, answer)
            for pieces in ([text], list(text)):
                message, _ = run(format, pieces, prompt="")
                assert (message.content, message.tool_calls) == (answer, ()), (marker, message.diagnostics)


headed = each_format(
    format for format in strategies.FORMATS if format.headers is not None and format.answer and format.answer.close
)


def call_header(format: Format) -> str:
    assert format.headers is not None
    call = unbraid.render(format, Message((unbraid.ToolCall("f", "{}", "abcdefghi"),)))
    close = next(close for close in format.headers.closes if close in call)
    return call.partition(close)[0] + close


@headed
def test_15_a_header_in_an_answer_is_text(format: Format) -> None:
    for way in (*strategies.IN_LINE, *strategies.ON_LINE, *strategies.IN_CODE):
        answer = way.replace("{}", call_header(format))
        message, _ = run(format, list(after_reasoning(format, answer)), prompt="")
        assert (message.content, message.tool_calls) == (answer, ())


@headed
def test_15_a_header_in_an_answer_that_none_began_is_text(format: Format) -> None:
    """In code, and in part in the middle of a line, too; whole it is a header there, as to the engines. Everywhere the
    words are kept."""
    assert format.headers is not None
    assert format.reasoning is not None
    reasoned = f"{format.reasoning.open}why{format.reasoning.close}"
    parts = [text for text in (*format.headers.opens, *format.headers.closes) if text.strip()]
    whole = call_header(format)
    for header in parts if whole.endswith("\n") else (whole, *parts):
        for way in (*strategies.IN_CODE, *(strategies.IN_LINE if header in parts else ())):
            answer = way.replace("{}", header)
            for before, prompt in (("", ""), ("", format.prompt), (reasoned, "")):
                for pieces in ([before + answer], [*before, *answer]):
                    message, _ = run(format, pieces, prompt=prompt)
                    assert (message.content, message.tool_calls) == (answer, ()), message.diagnostics
    for part in parts:
        for way in ("{} beta, gamma.", "alpha\n{} beta gamma", "alpha. {} beta"):
            for before in ("", reasoned, format.reasoning.open):
                message, _ = run(format, list(before + way.replace("{}", part)), prompt="")
                said = re.findall("alpha|beta|gamma", message.content + message.reasoning)
                assert sorted(said) == re.findall("alpha|beta|gamma", way), message


def call_in_a_line(format: Format) -> str:
    """A call, if the format has calls that inline code can hold, which ends with its line; else nothing."""
    if format.tools is None or format.headers is not None:
        return ""
    call = unbraid.render(format, Message((unbraid.ToolCall("f", '{"a": "b"}', "abcdefghi"),))).strip()
    return "" if "\n" in call or "`" in call else call


@each_format(filter(call_in_a_line, strategies.FORMATS))
def test_15_a_call_in_inline_code_is_text(format: Format) -> None:
    answer = f"Like this: `{call_in_a_line(format)}`"
    message, _ = run(format, list(after_reasoning(format, answer)), prompt="")
    assert message.tool_calls == ()
    assert message.content == answer


def ends_of_answers(format: Format) -> list[str]:
    """What closes an answer, or may stand after one, where no header begins it."""
    closes = [format.answer.close] if format.answer is not None and format.headers is None else []
    return [close.strip() for close in (*closes, *format.ignored) if close.strip() and not is_control(close)]


@each_format(format for format in strategies.FORMATS if format.tools is not None and ends_of_answers(format))
def test_15_what_closes_an_answer_is_no_part_of_it(format: Format) -> None:
    """With or without lines of their own, before a call and at the end; in the middle of a line it is a name."""
    call = unbraid.render(format, Message((unbraid.ToolCall("f", "{}", "abcdefghi"),))).strip()
    for close in ends_of_answers(format):
        before = "" if format.answer is None else format.answer.open
        for rest, calls in ((call, 1), (f"\n{call}", 1), ("", 0), ("\n", 0)):
            text = f"{before}so{close}{rest}"
            for pieces in ([text], list(text)):
                message, _ = run(format, pieces, prompt="")
                assert (message.content.strip(), len(message.tool_calls)) == ("so", calls), text
        for pieces in ([f"{before}so {close} it is"], list(f"{before}so {close} it is")):
            assert run(format, pieces, prompt="")[0].content == f"so {close} it is"


@with_calls
def test_16_an_output_that_is_cut_off_shows_no_markup(format: Format) -> None:
    call = unbraid.ToolCall("f", '{"a": "b"}', "abcdefghi")
    text = after_reasoning(format, "so") if format.speech is None or not format.speech.implied else ""
    text += unbraid.render(format, Message((call,)))
    for size in range(1, len(text)):
        message, _ = run(format, [text[:size]], prompt="")
        shown = message.content + message.reasoning + "".join(part.text for part in message.speech)
        assert not is_control(shown), (text[:size], shown)


@with_calls
def test_16_a_call_that_is_cut_off_before_its_name_is_not_shown(format: Format) -> None:
    assert format.tools is not None
    spoken = format.speech is not None and format.speech.implied
    said = unbraid.Speech("So:") if spoken else unbraid.Text("content", "So:")
    call = unbraid.ToolCall("a_tool", '{"a": "b"}', "abcdefghi")
    text = unbraid.render(format, Message((said, call)))
    name, open = text.index("a_tool"), format.tools.open.strip()
    # Without a marker, only the beginning of the name shows that it is a call.
    begun = name + 1 if format.tools.bare else text.index(open, text.index("So:")) + len(open)
    for size in range(begun, name + 4):
        message, _ = run(format, [text[:size]], prompt="", tools=[{"name": "a_tool"}])
        assert (message.content + "".join(part.text for part in message.speech)).strip() == "So:", text[:size]
        assert message.diagnostics


@pytest.mark.parametrize(
    ("format", "text", "content"),
    [
        ("hermes", "So:<tool_call>", "So:"),
        ("hermes", "Say `<tool_call>", "Say `<tool_call>"),
        ("functionary-v3.2", "all\nSo:>>>get_w", "So:"),
        ("llama-3", '{"name": "get_w', '{"name": "get_w'),
    ],
)
def test_16_what_a_call_begins_with(format: str, text: str, content: str) -> None:
    message, _ = run(unbraid.find(format), [text])
    assert message.content == content
    assert message.diagnostics or content == text


def test_16_a_name_at_the_end_of_a_line_is_kept_where_the_model_has_ended_its_turn() -> None:
    parser = unbraid.parser("hermes")
    parser.feed("It is called <tool_call>")
    parser.finish(end_of_turn=True)
    assert parser.message.content == "It is called <tool_call>"


@pytest.mark.parametrize("format", ["dots", "minimax-m2", "seed-oss", "longcat", "iquest-q1", "functiongemma"])
def test_16_what_closes_calls_of_one_family_is_not_shown_at_the_end(format: str) -> None:
    tools = unbraid.find(format).tools
    assert tools is not None
    for said in ("Done.", "Done.\n"):
        message, _ = run(unbraid.find(format), [f"{said}{tools.close.strip()}"], prompt="")
        assert message.content.strip() == "Done."
        assert message.diagnostics


CONTROL_CALLS = [format for format in strategies.FORMATS if format.tools is not None and is_control(format.tools.open)]


@each_format(format for format in CONTROL_CALLS if format.headers is None)
def test_16_a_call_that_breaks_without_a_name_shows_no_markup(format: Format) -> None:
    call = unbraid.ToolCall("a_tool", '{"a": "b"}', "abcdefghi")
    text = unbraid.render(format, Message((unbraid.Text("content", "So:\n"), call)))
    for name in ("", "<"):
        for way in ("{}", "{}\nOk."):
            broken = way.replace("{}", text.replace("a_tool", name))
            for pieces in ([broken], list(broken)):
                message, _ = run(format, pieces, prompt="")
                assert not is_control(message.content), (broken, message.content)
                assert message.diagnostics or message.tool_calls


@with_calls
@pytest.mark.parametrize("rest", ["not a call\n", "\n\nOk.", "</", '"}]'])
def test_1_a_call_that_breaks_anywhere_is_the_same_in_pieces(format: Format, rest: str) -> None:
    text = unbraid.render(format, Message((unbraid.ToolCall("a_tool", '{"a": "b"}', "abcdefghi"),)))
    for size in range(len(text) + 1):
        broken = text[:size] + rest
        whole, _ = run(format, [broken], prompt="")
        for pieces in (list(broken), [text[:size], rest]):
            assert run(format, pieces, prompt="")[0] == whole, (broken, pieces)


CALL = "<|tool_call_start|>[get_weather(city='B')]<|tool_call_end|>"


@pytest.mark.parametrize(
    ("after", "content"),
    [
        ("[get_weather(city='B')]", ""),
        ("[get_weather(city='B')]<|tool_call_end|>", ""),
        ("\n[get_weather(city='B'), get_weather(city='C')]<|tool_call_end|>It is warm.", "\nIt is warm."),
        ("[get_weather(ci", ""),
        ("[get_w", ""),
        ("[1] says so.", "[1] says so."),
        ("[other(city='B')]", "[other(city='B')]"),
        ("It was [get_weather(city='B')].", "It was [get_weather(city='B')]."),
    ],
)
def test_16_a_call_that_is_written_once_more_is_left_out(after: str, content: str) -> None:
    format, text = unbraid.find("lfm2"), CALL + after
    for pieces in ([text], list(text)):
        message, _ = run(format, pieces, tools=[{"name": "get_weather"}])
        assert message.content == content
        assert len(message.tool_calls) == 1
        assert bool(message.diagnostics) == (content.strip() != after.strip())


@with_calls
def test_16_noise_and_calls_that_are_not_wanted_show_no_markup(format: Format) -> None:
    call = unbraid.render(format, Message((unbraid.ToolCall("f", '{"a": "b"}', "abcdefghi"),)))
    noises = strategies.noises_of(format)
    for text in (call, *(f"{noise} x " for noise in noises), *(f"{call}{noise}" for noise in noises)):
        message, _ = run(format, [text], prompt="", tools=[])
        shown = message.content + message.reasoning + "".join(part.text for part in message.speech)
        assert not is_control(shown), (text, shown)


REPEATED: dict[str, tuple[dict[str, Any], list[str], str]] = {
    "strings": ({"type": "array", "items": {"type": "string"}}, ["a", "3"], '["a", "3"]'),
    "numbers": ({"type": "array", "items": {"type": "integer"}}, ["1", "22", "3"], "[1, 22, 3]"),
    "objects": ({"type": ["array", "null"], "items": {"type": "object"}}, ['{"x": 1}', "{}"], '[{"x": 1}, {}]'),
    "words": ({"type": "array"}, ["news", "null", "none"], '["news", null, "none"]'),
    "one": ({"type": "array", "items": {"type": "string"}}, ["see <b> \n x"], '["see <b> \\n x"]'),
    "arrays": ({"type": "array", "items": {"type": "string"}}, ['["a", "b"]'], '["a", "b"]'),
    "text": ({"type": "string"}, ["a"], '"a"'),
}
"""For an argument its schema, what the model writes between tags of its name, and the JSON that it is."""


@each_format(
    format
    for format in strategies.FORMATS
    if isinstance(strategies.node_of(format), TaggedArguments | ElementArguments)
)
def test_a_key_for_each_item_of_an_array(format: Format) -> None:
    tools = [{"name": "f", "parameters": {"properties": {key: one[0] for key, one in REPEATED.items()}}}]
    values = {key + "Q" * number: item for key, one in REPEATED.items() for number, item in enumerate(one[1])}
    text = unbraid.render(format, Message((unbraid.ToolCall("f", json.dumps(values), "abcdefghi"),)))
    expected = ", ".join(f'"{key}": {one[2]}' for key, one in REPEATED.items())
    for pieces in ([text.replace("Q", "")], list(text.replace("Q", ""))):
        message, _ = run(format, pieces, tools=tools, prompt="")
        assert [(call.arguments, call.complete) for call in message.tool_calls] == [(f"{{{expected}}}", True)]
        assert {one.kind for one in message.diagnostics} == {"repaired"}


@with_calls
def test_a_key_that_comes_twice_is_reported(format: Format) -> None:
    call = unbraid.ToolCall("f", '{"tags": "a", "tagQs": "b"}', "abcdefghi")
    text = unbraid.render(format, Message((call,))).replace("tagQs", "tags")
    for pieces in ([text], list(text)):
        message, _ = run(format, pieces, prompt="")
        assert [(one.arguments.count('"tags"'), one.complete) for one in message.tool_calls] == [(2, True)]
        assert [one.kind for one in message.diagnostics] == ["duplicate_key"]


@with_calls_and_text
def test_text_around_calls_keeps_its_lines(format: Format) -> None:
    call = unbraid.ToolCall("f", "{}", "abcdefghi")
    parts = (unbraid.Text("content", "First line."), call, unbraid.Text("content", "Second line."))
    text = unbraid.render(format, Message(parts))
    for pieces in ([text], list(text)):
        message, events = run(format, pieces, prompt="")
        assert message.content == "First line.\nSecond line."
        assert "".join(event.text for event in events if isinstance(event, unbraid.Content)) == message.content
        assert message == Message(parts)


@each_format(format for format in strategies.FORMATS if format.tools is not None and format.reasoning is not None)
def test_a_line_break_around_a_call_is_no_reasoning_where_that_stays_in_the_content(format: Format) -> None:
    called = (unbraid.Text("reasoning", "First."), unbraid.ToolCall("f", "{}", "abcdefghi"))
    text = unbraid.render(format, Message((*called, unbraid.Text("reasoning", "Second."))))
    message, events = run(format, [text], prompt="", separate_reasoning=False, calls_in_reasoning=True)
    assert len(message.tool_calls) == 1
    assert not any(isinstance(event, unbraid.Reasoning) for event in events)


@every_format
def test_snapshot(format: Format) -> None:
    for case in cases(format):
        laws.saving_changes_nothing(format, case.pieces, case.options)
        laws.moves_are_counted(format, case.pieces, case.options)
