"""Our answers to the recorded cases, each with the law or rule that it follows.

The cases have the same numbers in every family: `5.c` is an output that ends inside the arguments. So one answer is
written for a number, and others (`but`) for the families whose text or grammar is particular. An answer is what the
stream folds to, in the order of the text: strings are content, calls are calls.

No engine is followed for its own sake. The rules, where the laws leave a choice:

- A call is whole when its arguments are. A missing closing marker loses nothing and is only reported.
- JSON that is not whole is not repaired: nobody knows what the model would have written. The call has begun by then, so
  it stays a call, not complete.
- A string between tags ends at its closing tag, at the next tag, or with the call. That its closing tag is missing is
  only reported. Where the output ends inside of it, nobody knows how it would have gone on: the call is not complete.
- A JSON call without arguments is a call with none: a function without parameters needs none.
- A call to a tool that was not offered is text, for a client cannot run it (`unknown_tools="emit"` passes it on).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from unbraid import Text, ToolCall

from .cases import Case

Part = str | ToolCall | Text
Parts = tuple[Part, ...]


@dataclass(frozen=True)
class Answer:
    parts: Callable[[Case], Parts]
    law: str = ""
    """Empty: that of the number."""


@dataclass(frozen=True)
class Number:
    """What the cases of one number hold in all families, and our answer to them."""

    title: str
    answer: Answer
    but: Mapping[str, Answer] = field(default_factory=dict)
    """Families with an answer of their own."""

    def answer_for(self, family: str) -> Answer:
        own = self.but.get(family, self.answer)
        return own if own.law else Answer(own.parts, self.answer.law)


def answer(*parts: Part, law: str = "") -> Answer:
    return Answer(lambda case: parts, law)


def number(title: str, *parts: Part, law: str, but: Mapping[str, Answer] | None = None) -> Number:
    return Number(title, answer(*parts, law=law), but or {})


def all_text(law: str = "") -> Answer:
    """All of the output is content."""
    return Answer(lambda case: (case.text,), law)


def _stray_call_then_boston(case: Case) -> Parts:
    """The text through the first of its closing markers, the last of which ends it; then the call."""
    closer = case.text[case.text.rindex("<") :]
    return case.text[: case.text.index(closer) + len(closer)], BOSTON


# The parts


def weather(location: str) -> ToolCall:
    return ToolCall("get_weather", f'{{"location": "{location}"}}')


def query(sql: str) -> ToolCall:
    return ToolCall("run_query", f'{{"sql": "{sql}"}}')


def cut(arguments: str) -> ToolCall:
    return ToolCall("get_weather", arguments, complete=False)


NYC, LA, BOSTON, NEW_YORK, DALLAS = map(weather, ("NYC", "LA", "Boston", "New York", "Dallas"))
EST = ToolCall("get_time", '{"timezone": "EST"}')
NOW = ToolCall("get_time", "{}")
BOTH_CITIES = "I'll start by fetching the weather for both Boston and New York at the same time!"
CHECK, MORE, THEN_LA = "I will check the weather. ", " Let me know if you need more.", " Then check LA weather. "
KIMI_CHECK = "I'll check the weather. "
NEED = Text("reasoning", "Need to use function get_weather.")
FLIGHT = ToolCall("book_flight", '{"destination": "Paris", "passengers": 2, "first_class": true}')
NESTED = ToolCall("process_data", '{"items": [1,2,3], "config": {"nested": true}}')
DEEP = ToolCall(
    "process_data",
    '{"payload": {"regions": [{"name": "west", "scores": [1, 2, 3]}, {"name": "east", "scores": [4, 5, 6]}], '
    '"flags": {"enabled": true, "retry": null}, "empty": {}}}',
)
TOKYO, TOKYO_IN_TAGS = ToolCall("get_weather", '{"location": "Tōkyō \\"central\\""}'), weather("Tōkyō central")
BRACKETS = query("SELECT value WHERE note has brace } and bracket ]")
COMMA, SEMICOLON, GEMMA_COMMA = map(query, ("SELECT a, SELECT b", "SELECT a; SELECT b", "SELECT a,b:and{brace}"))

# The laws

GRAMMAR = "the grammar: a well-formed call is a call"
NO_CALL = "the grammar: without markup, all is content"
FENCE = "the grammar: the fence may be missing"
HEADER = "the grammar: a header may lack its beginning, where the prompt has written it"
NO_OUTER_TAG = "the grammar: models forget the outer tag, or only that it opens"
STRAY = "law 3: what is no call is text; a closing marker that no text has is markup"
SPACE = "law 3: space before a call is content, and so is text after it"
FIDELITY = "law 5: arguments byte for byte, other notations by their value"
ISOLATION = "law 6: markup in a string is data"
NOISE = "law 16: what no prose has is not shown, and neither is a call that cannot be read or made"
BY_SCHEMA = "the schema: a number between quotes is one, where no string may be"
KEPT = "law 8: what is no call is kept as text"
NO_RECIPIENT = "law 3: a message to nobody else is to the user"
NOT_WHOLE = "law 8: not repaired; kept as a call that is not complete"
NEXT = "law 8: where JSON has no place for a bracket, it opens the next call; the first is not complete"
CUT_OFF = "laws 4 and 12: the call had begun; kept, not complete"
UNCLOSED = "law 8: a whole call is a call, closed or not"
ENDS = "law 8: a string between tags ends where the call does"
LINE = "the line break before a marker is the marker's own (law 10), where its template writes one"
NO_ARGUMENTS = "law 8: a call without arguments is a call with none"
UNKNOWN = "law 8: a call to no tool of the request is kept as text"


def families(names: str, own: Answer) -> dict[str, Answer]:
    return dict.fromkeys(names.split(), own)


_TAGS = "deepseek_v3_2 deepseek_v4 minimax_m2 nemotron_nano qwen3_coder"
_COMPACT = "deepseek_v3_1 kimi_k2 harmony"
_UNKNOWN_LA = '{"name": "unknown_tool", "arguments": {"location": "LA"}}'

NUMBERS: dict[str, Number] = {
    "1": number("One call", NYC, law=GRAMMAR),
    "2.a": number("Two calls", NYC, EST, law=GRAMMAR),
    "2.b": number("Two sections of calls", NYC, EST, law=GRAMMAR),
    "2.c": number(
        *("Two calls, with text around them", "Both: ", NYC, EST, " Done."),
        law=SPACE,
        but={
            "deepseek_v3_1": answer("Both: ", NYC, EST, " Results."),
            "glm47": answer("Checking: ", NYC, EST, " Done."),
            "harmony": answer("I need both. ", NYC, EST, " Done."),
            "kimi_k2": answer("I will check both. ", NYC, EST, " Done."),
            "qwen3_coder": answer("Both queries: ", NYC, EST, " Results above."),
        },
    ),
    "2.d": number("Two calls of one function", NYC, LA, law=GRAMMAR),
    "3": Number("No call", all_text(NO_CALL)),
    "4.a": Number(
        "Garbage where a call should be",
        all_text(KEPT),
        {
            **families("deepseek_v3 deepseek_v3_1 gemma4 kimi_k2", answer("nonsense", law=NOISE)),
            **families("deepseek_v3_2 deepseek_v4", answer("\nnot a valid invoke", law=NOISE)),
            "llama3_json": answer("not even json", law=NOISE),
            "harmony": answer(cut("not json at all"), law=NOT_WHOLE),
        },
    ),
    "4.b": number(
        *("Arguments with a bracket or a quote missing", cut('{"location": "NYC"')),
        law=NOT_WHOLE,
        but={
            **families("jamba mistral phi4", answer(cut('{"location": "NYC"]'))),
            "deepseek_v3": answer(cut('{"location": "NYC"\n```')),
            "kimi_k2": answer(cut('{"location":"NYC"')),
            # The quote is missing: then the markers stand in a string, and are data (law 6).
            "deepseek_v3_1": answer(cut('{"location":"NYC<｜tool▁call▁end｜><｜tool▁calls▁end｜>')),
            "harmony": answer(cut('{"location":"NYC<|call|>')),
            "nemotron_deci": answer(cut('{"location": "NYC</TOOLCALL>')),
        },
    ),
    "4.c": Number(
        "A call without a name",
        all_text(KEPT),
        {
            **families(
                "deepseek_v3 deepseek_v3_1 deepseek_v3_2 deepseek_v4 gemma4 kimi_k2 llama3_json", answer(law=NOISE)
            ),
            "harmony": answer('{"location":"NYC"}', law=NO_RECIPIENT),
        },
    ),
    "4.d": number(
        *("A marker inside the section missing, or another one", NYC),
        law=UNCLOSED,
        but={
            "deepseek_v3": answer(NYC, law=FENCE),
            **families("glm47 nemotron_nano qwen3_coder", answer(NYC, law=ENDS)),
            **families("deepseek_v3_2 deepseek_v4", answer(weather("NYC\\n"), law=ENDS)),
            "pythonic": answer(cut('{"location": "NYC"'), "]", law=NOT_WHOLE),
            "gemma4": answer(NYC, "</tool_call>"),
        },
    ),
    "4.e": number("A broken call, then a whole one", cut("{"), ToolCall("get_weather", "{}"), law=NEXT),
    "4.f": Number("The name as a tag of its own", all_text(KEPT)),
    "5.a": number(
        *("The last marker missing", NYC),
        law=UNCLOSED,
        but={
            # Another argument could have followed,
            "glm47": answer(cut('{"location": "NYC"'), law=CUT_OFF),
            **families("deepseek_v3 llama3_json", answer(cut('{"location": "NYC"}'), law=CUT_OFF)),
            # or more of the string: models forget to escape quotes in it.
            "pythonic": answer(cut('{"location": "NYC'), law=CUT_OFF),
        },
    ),
    "5.b": Number(
        "The first marker missing",
        all_text(KEPT),
        {
            **families(f"{_TAGS} kimi_k2 deepseek_v3 deepseek_v3_1", answer(NYC, law=NO_OUTER_TAG)),
            "gemma4": Answer(lambda case: (case.text.removesuffix("<tool_call|>"),), STRAY),
            "harmony": answer(NYC, law=HEADER),
        },
    ),
    "5.c": number(
        *("The output ends inside the arguments", cut('{"loc')),
        law=CUT_OFF,
        but={
            **families(_TAGS, answer(cut('{"location": "NY'))),
            "glm47": answer(cut('{"location": "N')),
            **families("pythonic gemma4", answer(cut('{"location": "N'))),
        },
    ),
    "5.d": number(
        *("Two calls, the last marker missing", BOTH_CITIES, BOSTON, NEW_YORK),
        law=UNCLOSED,
        but={
            # No line break belongs to its marker.
            "deepseek_v3": answer(f"{BOTH_CITIES}\n", BOSTON, cut('{"location": "New York"}'), law=CUT_OFF),
            "llama3_json": answer(BOTH_CITIES, BOSTON, cut('{"location": "New York"}'), law=CUT_OFF),
            **families(
                "deepseek_v3_1 kimi_k2", answer(BOTH_CITIES, BOSTON, cut('{"location":"New York"}'), law=CUT_OFF)
            ),
            **families(_TAGS, answer(BOTH_CITIES, BOSTON, NEW_YORK, law=f"{UNCLOSED}; {LINE}")),
            "glm47": answer(BOTH_CITIES, BOSTON, cut('{"location": "New York"'), law=CUT_OFF),
            "pythonic": answer(BOTH_CITIES, BOSTON, cut('{"location": "New York'), law=CUT_OFF),
        },
    ),
    "5.e": number(
        *("Two calls, the output ends inside the last one", BOTH_CITIES, BOSTON, cut('{"location": "New York')),
        law=CUT_OFF,
        but={
            "deepseek_v3": answer(f"{BOTH_CITIES}\n", BOSTON, cut('{"location": "New York')),
            **families(_COMPACT, answer(BOTH_CITIES, BOSTON, cut('{"location":"New York'))),
            **families(_TAGS, answer(BOTH_CITIES, BOSTON, cut('{"location": "New York'), law=f"{CUT_OFF}; {LINE}")),
        },
    ),
    "5.f": Number(
        "A call without its first marker, then a whole one",
        Answer(_stray_call_then_boston, KEPT),
        {
            **families("deepseek_v4 kimi_k2 minimax_m2 qwen3_coder", answer(NYC, BOSTON, law=NO_OUTER_TAG)),
            "gemma4": Answer(lambda case: (case.text.partition("<tool_call|>")[0], BOSTON), STRAY),
        },
    ),
    "5.g": Number(
        "Text, then a call without its first marker",
        all_text(KEPT),
        {
            **families(
                "deepseek_v4 kimi_k2 minimax_m2 qwen3_coder", answer("I will check that. ", NYC, law=NO_OUTER_TAG)
            ),
            "gemma4": Answer(lambda case: (case.text.removesuffix("<tool_call|>"),), STRAY),
        },
    ),
    "6.a": number("No arguments", NOW, law=GRAMMAR),
    "6.b": number("No arguments, with space between", NOW, law=GRAMMAR),
    "6.c": number(
        *("Nothing where the arguments should be", NOW),
        law=NO_ARGUMENTS,
        but=families("deepseek_v3_1 kimi_k2 harmony", answer(law=NOISE)),
    ),
    "7.a": number("Arguments of several types", FLIGHT, law=FIDELITY),
    "7.b": number(
        *("Letters of other scripts, and quotes", TOKYO),
        law=FIDELITY,
        but=families(f"{_TAGS} gemma4 glm47", answer(TOKYO_IN_TAGS)),
    ),
    "7.c": number(
        *("A string that the schema forbids", ToolCall("set_temperature", '{"celsius": "20"}')),
        law=FIDELITY,
        but=families("gemma4 kimi_k2 mistral", answer(ToolCall("set_temperature", '{"celsius": 20}'), law=BY_SCHEMA)),
    ),
    "7.d": number("Nested arguments", NESTED, law=FIDELITY),
    "7.e": number("Deeply nested arguments", DEEP, law=FIDELITY),
    "7.f": number("A number of many digits", ToolCall("set_limit", '{"count": 9007199254740993}'), law=FIDELITY),
    "8.a": number(
        *("Text before a call", CHECK, NYC),
        law=SPACE,
        but={"kimi_k2": answer(KIMI_CHECK, DALLAS), "harmony": answer(CHECK, NEED, NYC)},
    ),
    "8.b": number(
        *("Text after a call", NYC, MORE),
        law=SPACE,
        but={"kimi_k2": answer(DALLAS, MORE), "harmony": answer(NEED, NYC, MORE)},
    ),
    "8.c": number(
        *("Text before and after a call", CHECK, NYC, MORE),
        law=SPACE,
        but={"kimi_k2": answer(KIMI_CHECK, DALLAS, MORE), "harmony": answer(CHECK, NEED, NYC, MORE)},
    ),
    "8.d": number(
        *("Text between calls", CHECK, NYC, THEN_LA, LA),
        law=SPACE,
        but={
            "kimi_k2": answer("First check Dallas. ", DALLAS, " Then check NYC. ", NYC),
            "harmony": answer(CHECK, NEED, NYC, THEN_LA, LA),
        },
    ),
    "9.a": number("Nothing at all", law=NO_CALL),
    "9.b": Number("Nothing but space", all_text(NO_CALL)),
    "10": number("Two calls of one function", NYC, LA, law=GRAMMAR),
    # MiniMax's is no call in any case: it has another notation.
    "13": Number(
        "A call to no tool of the request",
        all_text(UNKNOWN),
        {
            "minimax_m2": all_text(KEPT),
            **families("deepseek_v3 deepseek_v3_1 deepseek_v3_2 deepseek_v4 harmony kimi_k2", answer(law=NOISE)),
        },
    ),
    "13.a": Number(
        "A call to no tool of the request", all_text(UNKNOWN), families("gemma4 llama3_json", answer(law=NOISE))
    ),
    # What stands between the brackets of a list is the call's; the brackets are the list's.
    "13.c": number(
        *("A call to a tool, then one to none", NYC, f", {_UNKNOWN_LA}"),
        law=UNKNOWN,
        but={
            "gemma4": answer(NYC, law=NOISE),
            "hermes": answer(NYC, f"<tool_call>{_UNKNOWN_LA}</tool_call>"),
            "llama3_json": answer(NYC, f";{_UNKNOWN_LA}"),
            "pythonic": answer(NYC, ', unknown_tool(location="LA")'),
        },
    ),
    "30.a": number(
        *("What separates calls, in a string", COMMA),
        law=ISOLATION,
        but={"llama3_json": answer(SEMICOLON), "gemma4": answer(GEMMA_COMMA)},
    ),
    "30.b": number("Brackets in a string", BRACKETS, law=ISOLATION),
    "30.c": number(
        *(
            "What looks like a marker, in a string",
            query("literal [TOOL_CALLS marker][][/TOOL_CALLS marker] stays text"),
        ),
        law=ISOLATION,
        but={
            "gemma4": answer(query("literal <|tool_call marker> call:get_time{} stays text")),
            "jamba": answer(query("literal <tool_calls marker>[]</tool_calls marker> stays text")),
            "llama3_json": answer(query("literal <|python_tag marker|>{name:x} stays text")),
            "phi4": answer(query("literal func-tools marker[] stays text")),
            "pythonic": answer(query("literal [get_time marker] stays text")),
        },
    ),
    "31.a": number(
        *("What separates calls, in a string, and another call", COMMA, EST),
        law=ISOLATION,
        but={"llama3_json": answer(SEMICOLON, EST), "gemma4": answer(GEMMA_COMMA, EST)},
    ),
    "31.b": number("Brackets in a string, and another call", BRACKETS, EST, law=ISOLATION),
}

EMITTED = {("gemma4", "13.a"), ("gemma4", "13.c"), ("kimi_k2", "13"), ("qwen3_coder", "13")}
"""Cases on which the engines agree to pass on a call to a tool that was not offered. So do we, where asked to: with
`unknown_tools="emit"`. Otherwise it is text."""

_GARBAGE = "law 3: they drop what is no call; here it is text"
_LOSE_CUT = "laws 3 and 4: they drop a call that is cut off; it had begun, and is kept, not complete"
_LOSE_UNCLOSED = "law 8: they drop a whole call, because a marker after it is missing"
_LOSE_ARGUMENT = "law 3: they drop an argument, because its closing tag is missing, and call without it"
_LATE = "law 4: they take a list for text that is not closed, which only its end tells; a call goes out with its name"
_STRIP = "law 3: they strip the content"
DIFFERENT = {
    **dict.fromkeys([("deepseek_v3", "4.a"), ("deepseek_v3_1", "4.a"), ("harmony", "4.c")], _GARBAGE),
    ("kimi_k2", "4.a"): _GARBAGE,
    **dict.fromkeys([(family, "5.c") for family in ("deepseek_v3", "deepseek_v3_1", "harmony", "kimi_k2")], _LOSE_CUT),
    **dict.fromkeys([("deepseek_v3", "5.a"), ("harmony", "5.a")], _LOSE_UNCLOSED),
    **dict.fromkeys([(family, "4.d") for family in ("deepseek_v3_1", "kimi_k2")], _LOSE_UNCLOSED),
    ("gemma4", "7.c"): "the schema: they pass on a string where it has none, and coerce what stands without quotes",
    ("kimi_k2", "7.c"): "the schema: vLLM takes the quotes off since these were recorded (0.32, in a whole reply)",
    **dict.fromkeys([("deepseek_v3_2", "4.d"), ("glm47", "4.d")], _LOSE_ARGUMENT),
    **dict.fromkeys([("pythonic", "5.d"), ("pythonic", "5.e")], _LATE),
    ("pythonic", "6.b"): "law 4: they take the list for text, though Python reads it; a call goes out with its name",
    **dict.fromkeys([("harmony", "8.a"), ("harmony", "8.b")], _STRIP),
    ("qwen3_coder", "5.c"): "law 12: they close a string that the output cuts off, and call with half of it",
}
"""Cases on which all three engines agree, and we differ; and why."""
