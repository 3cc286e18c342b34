"""Our answers to the recorded cases on which the engines do not all agree, each with the law or rule that it follows.

An answer is what the stream folds to, in the order of the text: strings are content, calls are calls. `same` names the
engines that say the same, as far as they can (see `test_conformance`): they report no text after the first call, and
count a call that is not complete as text.

No engine is followed for its own sake. The rules, where the laws leave a choice:

- A call is whole when its JSON is. A missing closing marker loses nothing and is only reported.
- JSON that is not whole is not repaired: nobody knows what the model would have written. The call has begun by then, so
  it stays a call, not complete.
- A string between tags is whole wherever it ends: at its closing tag, at the next tag, with the output. That its
  closing tag is missing is only reported.
- A call without arguments is a call with none: a function without parameters needs none.
- A call to a tool that was not offered is text, for a client cannot run it (`unknown_tools="emit"` passes it on).
"""

from __future__ import annotations

from dataclasses import dataclass

from unbraid import ToolCall

Part = str | ToolCall


@dataclass(frozen=True)
class Answer:
    parts: tuple[Part, ...]
    law: str
    same: tuple[str, ...]


def answer(*parts: Part, law: str, same: str = "") -> Answer:
    return Answer(parts, law, tuple(same.split()))


def weather(location: str) -> ToolCall:
    return ToolCall("get_weather", f'{{"location": "{location}"}}')


def cut(name: str, arguments: str) -> ToolCall:
    return ToolCall(name, arguments, complete=False)


NYC, LA, BOSTON, NEW_YORK = map(weather, ("NYC", "LA", "Boston", "New York"))
EST = ToolCall("get_time", '{"timezone": "EST"}')
NOW = ToolCall("get_time", "{}")
CUT_KEY = cut("get_weather", '{"loc')
CUT_VALUE = cut("get_weather", '{"location": "New York')
BOTH_CITIES = "I'll start by fetching the weather for both Boston and New York at the same time!"

GRAMMAR = "the grammar: a well-formed call is a call"
NO_CALL = "the grammar: without markup, all is content"
SPACE = "law 3: space before a call is content, and so is text after it"
FIDELITY = "law 5: arguments byte for byte"
ISOLATION = "law 6: markup in a string is data"
KEPT = "law 8: what is no call is kept as text"
NOT_WHOLE = "law 8: not repaired; kept as a call that is not complete"
CUT_OFF = "law 4: the call had begun; kept, not complete"
UNCLOSED = "law 8: a whole call is a call, closed or not"
ENDS = "law 8: a string between tags ends where the output does"
NO_ARGUMENTS = "law 8: a call without arguments is a call with none"
UNKNOWN = "law 8: a call to no tool of the request is kept as text"

# Well-formed output, the same in every family: case → our answer, law.
WELL_FORMED: dict[str, tuple[tuple[Part, ...], str]] = {
    "1": ((NYC,), GRAMMAR),
    "2.a": ((NYC, EST), GRAMMAR),
    "2.c": (("Both: ", NYC, EST, " Done."), SPACE),
    "2.d": ((NYC, LA), GRAMMAR),
    "3": (("Hello, how can I help you today?",), NO_CALL),
    "6.a": ((NOW,), GRAMMAR),
    "6.b": ((ToolCall("get_time", "{ }"),), FIDELITY),
    "7.a": ((ToolCall("book_flight", '{"destination": "Paris", "passengers": 2, "first_class": true}'),), FIDELITY),
    "7.b": ((ToolCall("get_weather", '{"location": "Tōkyō \\"central\\""}'),), FIDELITY),
    "7.c": ((ToolCall("set_temperature", '{"celsius": "20"}'),), FIDELITY),
    "7.d": ((ToolCall("process_data", '{"items": [1,2,3], "config": {"nested": true}}'),), FIDELITY),
    "7.e": (
        (
            ToolCall(
                "process_data",
                '{"payload": {"regions": [{"name": "west", "scores": [1, 2, 3]}, '
                '{"name": "east", "scores": [4, 5, 6]}], "flags": {"enabled": true, "retry": null}, "empty": {}}}',
            ),
        ),
        FIDELITY,
    ),
    "7.f": ((ToolCall("set_limit", '{"count": 9007199254740993}'),), FIDELITY),
    "8.a": (("I will check the weather. ", NYC), SPACE),
    "8.b": ((NYC, " Let me know if you need more."), SPACE),
    "8.c": (("I will check the weather. ", NYC, " Let me know if you need more."), SPACE),
    "8.d": (("I will check the weather. ", NYC, " Then check LA weather. ", LA), SPACE),
    "9.a": ((), NO_CALL),
    "9.b": (("   ",), NO_CALL),
    "10": ((NYC, LA), GRAMMAR),
}


def well_formed(cases: str, same: str) -> dict[str, Answer]:
    return {case: answer(*parts, law=law, same=same) for case in cases.split() for parts, law in [WELL_FORMED[case]]}


HERMES = {
    # Dynamo and SGLang cut the space off the text before a call.
    **well_formed("2.c 8.a 8.c 8.d", same="vllm"),
    "4.b": answer(cut("get_weather", '{"location": "NYC"'), law=NOT_WHOLE, same="vllm sglang"),
    "4.c": answer('<tool_call>{"arguments": {"location": "NYC"}}</tool_call>', law=KEPT, same="dynamo vllm"),
    "5.d": answer(BOTH_CITIES, BOSTON, NEW_YORK, law=UNCLOSED, same="vllm sglang"),
    "5.e": answer(BOTH_CITIES, BOSTON, CUT_VALUE, law=CUT_OFF, same="dynamo"),
    "6.c": answer(NOW, law=NO_ARGUMENTS, same="sglang"),
    "13.a": answer('<tool_call>{"name": "unknown_tool", "arguments": {"location": "NYC"}}</tool_call>', law=UNKNOWN),
    "13.c": answer(
        NYC,
        '<tool_call>{"name": "unknown_tool", "arguments": {"location": "LA"}}</tool_call>',
        law=UNKNOWN,
        same="sglang",
    ),
}

# vLLM has no parser of that name, so there is no agreement of three.
QWEN25 = {
    # Dynamo and SGLang agree, and so do we.
    **well_formed("1 2.a 2.d 3 6.a 6.b 7.a 7.b 7.c 7.d 7.e 7.f 8.b 9.a 9.b 10", same="dynamo sglang"),
    "4.a": answer("<tool_call>not even json</tool_call>", law=KEPT, same="dynamo sglang"),
    "4.b": answer(cut("get_weather", '{"location": "NYC"'), law=NOT_WHOLE, same="dynamo sglang"),
    "4.c": answer('<tool_call>{"arguments": {"location": "NYC"}}</tool_call>', law=KEPT, same="dynamo sglang"),
    "5.b": answer(
        '{"name": "get_weather", "arguments": {"location": "NYC"}}</tool_call>', law=KEPT, same="dynamo sglang"
    ),
    "5.e": answer(BOTH_CITIES, BOSTON, CUT_VALUE, law=CUT_OFF, same="dynamo sglang"),
    # They agree, and we do not: both cut the space off the text before a call, both drop a whole call that is not
    # closed, and to both a call without arguments is none.
    **well_formed("2.c 8.a 8.c 8.d", same=""),
    "5.d": answer(BOTH_CITIES, BOSTON, NEW_YORK, law=UNCLOSED),
    "6.c": answer(NOW, law=NO_ARGUMENTS),
    # They differ.
    "4.d": answer(NYC, law=UNCLOSED),
    "5.a": answer(NYC, law=UNCLOSED),
    "5.c": answer(CUT_KEY, law=CUT_OFF, same="sglang"),
    "13": answer('<tool_call>\n{"name": "unknown_tool", "arguments": {"location": "NYC"}}\n</tool_call>', law=UNKNOWN),
}

QUERY_COMMA = ToolCall("run_query", '{"sql": "SELECT a, SELECT b"}')
QUERY_BRACKETS = ToolCall("run_query", '{"sql": "SELECT value WHERE note has brace } and bracket ]"}')
QUERY_MARKERS = ToolCall("run_query", '{"sql": "literal [TOOL_CALLS marker][][/TOOL_CALLS marker] stays text"}')

# SGLang's detector reads none of the lists that `[/TOOL_CALLS]` closes.
MISTRAL = {
    **well_formed("1 2.a 2.c 2.d 6.a 6.b 7.a 7.b 7.c 7.d 7.e 7.f 8.a 8.b 8.c 10", same="dynamo vllm"),
    "4.a": answer("[TOOL_CALLS]not a json array[/TOOL_CALLS]", law=KEPT, same="dynamo"),
    "4.b": answer(cut("get_weather", '{"location": "NYC"]'), law=NOT_WHOLE, same="dynamo"),
    "4.c": answer('[TOOL_CALLS][{"arguments": {"location": "NYC"}}][/TOOL_CALLS]', law=KEPT),
    "4.d": answer(NYC, law=UNCLOSED, same="dynamo vllm"),
    "5.a": answer(NYC, law=UNCLOSED, same="dynamo vllm"),
    "5.c": answer(CUT_KEY, law=CUT_OFF),
    "5.d": answer(BOTH_CITIES, BOSTON, NEW_YORK, law=UNCLOSED, same="dynamo vllm"),
    "5.e": answer(BOTH_CITIES, BOSTON, CUT_VALUE, law=CUT_OFF, same="dynamo"),
    "6.c": answer(NOW, law=NO_ARGUMENTS, same="vllm"),
    **well_formed("8.d", same=""),
    "13.a": answer(
        '[TOOL_CALLS][{"name": "unknown_tool", "arguments": {"location": "NYC"}}][/TOOL_CALLS]', law=UNKNOWN
    ),
    # The list's end is markup of the call before it.
    "13.c": answer(NYC, ', {"name": "unknown_tool", "arguments": {"location": "LA"}}', law=UNKNOWN),
    "30.a": answer(QUERY_COMMA, law=ISOLATION, same="dynamo vllm"),
    "30.b": answer(QUERY_BRACKETS, law=ISOLATION, same="dynamo vllm"),
    "30.c": answer(QUERY_MARKERS, law=ISOLATION, same="dynamo vllm"),
    "31.a": answer(QUERY_COMMA, EST, law=ISOLATION, same="dynamo vllm"),
    "31.b": answer(QUERY_BRACKETS, EST, law=ISOLATION, same="dynamo vllm"),
}

BARE_NYC = "<function=get_weather>\n<parameter=location>\nNYC\n</parameter>\n</function>\n</tool_call>"

QWEN3_CODER = {
    "4.a": answer("<tool_call>\nrandom text without function tag\n</tool_call>", law=KEPT, same="vllm"),
    "4.f": answer("<tool_call>\n<terminal>\necho hello\n</function>\n</tool_call>", law=KEPT, same="vllm"),
    "5.b": answer(BARE_NYC, law=KEPT, same="sglang"),
    # The engines take the line break before a call for content; here it is the marker's own.
    "5.d": answer(BOTH_CITIES, BOSTON, NEW_YORK, law=UNCLOSED),
    "5.e": answer(BOTH_CITIES, BOSTON, NEW_YORK, law=ENDS),
    "5.f": answer(BARE_NYC, BOSTON, law=KEPT),
    "5.g": answer(f"I will check that. {BARE_NYC}", law=KEPT, same="sglang"),
    **well_formed("7.f", same="dynamo"),
}

ANSWERS: dict[str, dict[str, Answer]] = {
    "hermes": HERMES,
    "qwen25": QWEN25,
    "mistral": MISTRAL,
    "qwen3_coder": QWEN3_CODER,
}

AFTER_CALLS = {
    ("hermes", "8.b"): " Let me know if you need more.",
    ("qwen3_coder", "2.c"): " Results above.",
    ("qwen3_coder", "8.b"): " Let me know if you need more.",
    ("qwen3_coder", "8.c"): " Let me know if you need more.",
    ("qwen3_coder", "8.d"): " Then check LA weather. ",
}
"""Cases on which the engines agree, and drop text that we keep."""

EMITTED = {("qwen3_coder", "13")}
"""Cases on which the engines agree to pass on a call to a tool that was not offered. So do we, where asked to: with
`unknown_tools="emit"`. Otherwise it is text."""
