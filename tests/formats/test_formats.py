"""Each format by example, the names they are known by, and formats made of parts."""

from __future__ import annotations

import json
from itertools import permutations

import pytest

import unbraid
from unbraid import Format, Message, Part, Speech, Tag, ToolCall, UnbraidError, UnknownFormat
from unbraid.core.grammar import Between, Call, Calls, Name
from unbraid.core.notations import Arguments, TaggedArguments
from unbraid.formats.hub_names import HUB_NAMES, family_names

from ..support import real_tokenizers
from ..support.parsing import broken, call, content, kinds, parse, reasoning

Example = tuple[str, tuple[Part, ...]]


def check(
    format: str, text: str, parts: tuple[Part, ...], diagnostics: list[str] | None = None, **options: str
) -> None:
    message = parse(format, text, **options)
    assert message.parts == parts
    assert kinds(message) == (diagnostics or [])


# --- Step-Audio 2 --------------------------------------------------------------------------------------------------

WEATHER = '<tool_call>function\nget_weather\n{"city": "Paris"}</tool_call>'
WEATHER_CALL = call("get_weather", '{"city": "Paris"}')

STEP_AUDIO_2: dict[str, Example] = {
    "text": ("Hello", (content("Hello"),)),
    "reasoning": ("<think>\nwhy\n</think>\n\nso", (reasoning("why"), content("so"))),
    "call": (f"Well:{WEATHER}", (content("Well:"), WEATHER_CALL)),
    "two calls": (WEATHER * 2, (WEATHER_CALL, WEATHER_CALL)),
    "call in reasoning": (
        f"<think>hm{WEATHER}ok</think>so",
        (reasoning("hm"), WEATHER_CALL, reasoning("ok"), content("so")),
    ),
    "speech": ("<tts_start>Hi<audio_1><audio_2><tts_end>", (Speech("Hi", (1, 2)),)),
    "speech, then text": ("<tts_start>Hi<audio_1><tts_end>Hi!", (Speech("Hi", (1,)), content("Hi!"))),
    "speech that is not closed": ("<tts_start>Hi<audio_1>", (Speech("Hi", (1,)),)),
    "several sections": (
        "<tts_start>a<audio_1><tts_end>b<tts_start>c<audio_2><tts_end>",
        (Speech("a", (1,), 0), content("b"), Speech("c", (2,), 1)),
    ),
    "call after speech": (f"<tts_start>Hi<audio_1><tts_end>{WEATHER}", (Speech("Hi", (1,)), WEATHER_CALL)),
    "call in speech, not closed": (f"<tts_start>Hi<audio_1>{WEATHER}", (Speech("Hi", (1,)), WEATHER_CALL)),
    "call in speech, closed after it": (
        f"<tts_start>Hi<audio_1>{WEATHER}<tts_end>ok",
        (Speech("Hi", (1,)), WEATHER_CALL, content("ok")),
    ),
    "speech goes on after a call": (
        f"<tts_start>Hi<audio_1>{WEATHER}yo<audio_2><tts_end>",
        (Speech("Hi", (1,)), WEATHER_CALL, Speech("yo", (2,))),
    ),
    "reasoning in speech": (
        "<tts_start><think>\nwhy\n</think>\n\nHi<audio_1><tts_end>",
        (reasoning("why"), Speech("Hi", (1,))),
    ),
    "call in reasoning in speech": (
        f"<tts_start>a<think>b{WEATHER}c</think>d<tts_end>e",
        (Speech("a"), reasoning("b"), WEATHER_CALL, reasoning("c"), Speech("d"), content("e")),
    ),
    "speech in reasoning": (
        "<think>a<tts_start>b<audio_1><tts_end>c</think>d",
        (reasoning("a"), Speech("b", (1,)), reasoning("c"), content("d")),
    ),
    "padding": (
        "<tts_start>Hi<audio_1><audio_6561><tts_pad><audio_2><audio_6561><tts_end>",
        (Speech("Hi", (1, 2)),),
    ),
    "codes inside a marker": (
        "<tts_start>Hi<tts<audio_1>_e<tts_pad>nd>ok",
        (Speech("Hi", (1,)), content("ok")),
    ),
    "codes inside the markers of a call": (
        '<tts_start>Hi<tool<audio_1>_call>func<audio_2>tion\nf\n{"a": 1}</tool<audio_3>_call>',
        (Speech("Hi", (1, 2)), call("f", '{"a": 1}'), Speech("", (3,))),
    ),
    "codes inside the name of a call": (
        "<tts_start>Hi<tool_call>function\nget_<audio_1>weather\n{}</tool_call>",
        (Speech("Hi", (1,)), call("get_weather")),
    ),
    "codes outside speech": ("a<audio_5>b", (content("a<audio_5>b"),)),
    "codes in a string": (
        '<tts_start><tool_call>function\nf\n{"a": "<audio_5><tts_end>"}</tool_call>',
        (call("f", '{"a": "<audio_5><tts_end>"}'),),
    ),
    "no codes": (
        "<tts_start><audio_6562><audio_05><audio_99999><audio_><audio_-1><tts_end>",
        (Speech("<audio_6562><audio_05><audio_99999><audio_><audio_-1>"),),
    ),
    "the last code": ("<tts_start><audio_6560><audio_0><tts_end>", (Speech("", (6560, 0)),)),
}


@pytest.mark.parametrize(("text", "parts"), STEP_AUDIO_2.values(), ids=STEP_AUDIO_2)
def test_step_audio_2(text: str, parts: tuple[Part, ...]) -> None:
    check("step-audio-2", text, parts)


@pytest.mark.parametrize("end", ["<tts_end>", ""])
def test_step_audio_2_speaks_and_calls(end: str) -> None:
    """A spoken turn: one piece of text to four codes, padding where either is short, then a call."""
    sentence = ["好的", "，", "我来", "帮", "你", "查", "一下", "上海", "的", "天气", "。"]
    codes = list(range(1000, 1081))
    spelled = [f"<audio_{code}>" for code in codes] + ["<audio_6561>"] * 3
    written = ""
    for at in range(21):
        written += sentence[at] if at < len(sentence) else "<tts_pad>"
        written += "".join(spelled[4 * at : 4 * at + 4])
    arguments = '{"query": "上海今天的天气"}'
    text = f"{written}{end}<tool_call>function\nsearch\n{arguments}</tool_call>"
    message = parse("step-audio-2", text, prompt="<|BOT|>assistant\n<tts_start>", tools=[{"name": "search"}])
    assert kinds(message) == []
    (section,) = message.speech
    assert section.codes == tuple(codes)
    (one,) = message.tool_calls
    assert message.to_openai() == {
        "role": "assistant",
        "content": None,
        "reasoning_content": None,
        "tool_calls": [{"id": one.id, "type": "function", "function": {"name": "search", "arguments": arguments}}],
        "tts_content": {
            "tts_text": "好的，我来帮你查一下上海的天气。",
            "tts_audio": "".join(f"<audio_{code}>" for code in codes),
        },
    }


def test_step_audio_2_several_sections_in_one_reply() -> None:
    reply = parse("step-audio-2", "<tts_start>a<audio_1><tts_end>b<tts_start>c<audio_2>").to_openai()
    assert reply["content"] == "b"
    assert reply["tts_content"] == {"tts_text": "ac", "tts_audio": "<audio_1><audio_2>"}


# --- Mistral -------------------------------------------------------------------------------------------------------

DEEP = '{"a": ' * 400 + "1" + "}" * 400
HARD = '{"n": 12345678901234567890, "x": -0.10e+5, "s": "a\\"b\\\\ \\u00e9\\n[TOOL_CALLS]", "l": [[], {}, null, true]}'
LISTED = '{"name": "f", "arguments": {"a": 1}}', '{"name": "g", "arguments": {}}'
F, G = call("f", '{"a": 1}'), call("g")

MISTRAL_NAMED: dict[str, Example] = {
    "one call": ('[TOOL_CALLS]f{"a": 1}', (F,)),
    "two calls": ('[TOOL_CALLS]f{"a": 1}[TOOL_CALLS]g{}', (F, G)),
    "with [ARGS]": ('[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}', (F, G)),
    "with [CALL_ID]": ('[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"a": 1}', (F,)),
    "with [CALL_ID] alone": ('[TOOL_CALLS]f[CALL_ID]abcdefghi{"a": 1}', (F,)),
    "content before": ('Sure. [TOOL_CALLS]f{"a": 1}', (content("Sure. "), F)),
    "content after": ("[TOOL_CALLS]g{} and", (G, content(" and"))),
    "spaces": ('[TOOL_CALLS] f {"a": 1} [/TOOL_CALLS]', (F,)),
    "line breaks": ('[TOOL_CALLS]\nf\n{"a": 1}\n[TOOL_CALLS]g{}', (F, content("\n"), G)),
    "closed": ("[TOOL_CALLS]g{}[/TOOL_CALLS] and", (G, content(" and"))),
    "reasoning": ("[THINK]why[/THINK]so[TOOL_CALLS]g{}", (reasoning("why"), content("so"), G)),
    "call in reasoning": (
        "[THINK]why[TOOL_CALLS]g{}yes[/THINK]so",
        (reasoning("why"), G, reasoning("yes"), content("so")),
    ),
    "hard arguments": (f"[TOOL_CALLS]f{HARD}", (call("f", HARD),)),
    "deep arguments": (f"[TOOL_CALLS]f{DEEP}[TOOL_CALLS]g{{}}", (call("f", DEEP), G)),
    "brackets in content": ("see [1] and [TOOL", (content("see [1] and [TOOL"),)),
}
MISTRAL_LISTED: dict[str, Example] = {
    "one call": (f"[TOOL_CALLS][{LISTED[0]}]", (F,)),
    "two calls": (f"[TOOL_CALLS][{LISTED[0]}, {LISTED[1]}]", (F, G)),
    "compact": ('[TOOL_CALLS][{"name":"f","arguments":{"a": 1}},{"name":"g","arguments":{}}]', (F, G)),
    "spread out": (f"[TOOL_CALLS] [\n  {LISTED[0]} ,\n  {LISTED[1]}\n]", (F, G)),
    "arguments first": ('[TOOL_CALLS][{"arguments": {"a": 1}, "name": "f"}]', (F,)),
    "content around": (f"Sure. [TOOL_CALLS][{LISTED[1]}] and", (content("Sure. "), G, content(" and"))),
    "closed": (f"[TOOL_CALLS] [{LISTED[1]}] [/TOOL_CALLS]", (G,)),
    "hard arguments": (f'[TOOL_CALLS][{{"name": "f", "arguments": {HARD}}}]', (call("f", HARD),)),
    "deep arguments": (f'[TOOL_CALLS][{{"name": "f", "arguments": {DEEP}}}]', (call("f", DEEP),)),
    "reasoning": (f"[THINK]why[/THINK][TOOL_CALLS][{LISTED[1]}]", (reasoning("why"), G)),
}


@pytest.mark.parametrize("format", ["mistral", "mistral-v11", "mistral-v13"])
@pytest.mark.parametrize(("text", "parts"), MISTRAL_NAMED.values(), ids=MISTRAL_NAMED)
def test_mistral_named(format: str, text: str, parts: tuple[Part, ...]) -> None:
    check(format, text, parts)


@pytest.mark.parametrize("format", ["mistral", "mistral-v3"])
@pytest.mark.parametrize(("text", "parts"), MISTRAL_LISTED.values(), ids=MISTRAL_LISTED)
def test_mistral_listed(format: str, text: str, parts: tuple[Part, ...]) -> None:
    check(format, text, parts)


@pytest.mark.parametrize("cut", range(len("[TOOL_CALLS]get_weather{")))
def test_mistral_name_cut_in_two(cut: int) -> None:
    """The name is sent whole, once."""
    text = "[TOOL_CALLS]get_weather{"
    parser = unbraid.parser("mistral")
    events = parser.feed(text[:cut]) + parser.feed(text[cut:] + "}")
    assert [event.name for event in events if isinstance(event, unbraid.ToolCallStart)] == ["get_weather"]


# --- Hermes and Qwen -----------------------------------------------------------------------------------------------


def tool_call(body: str) -> str:
    return f"\n<tool_call>\n{body}\n</tool_call>\n"


def quoted(arguments: str) -> str:
    """A call with its arguments as a JSON string."""
    return tool_call(f'{{"name": "f", "arguments": {json.dumps(arguments)}}}')


HERMES: dict[str, Example] = {
    "one call": (tool_call(LISTED[0]), (F,)),
    "no line breaks": (f"<tool_call>{LISTED[0]}</tool_call>", (F,)),
    "spread out": ('<tool_call>\n{\n  "name" : "f" ,\n  "arguments" : {"a": 1}\n}\n</tool_call>', (F,)),
    "several calls": (tool_call(LISTED[0]) + tool_call(LISTED[1]), (F, G)),
    "several calls, close together": (f"<tool_call>{LISTED[0]}</tool_call><tool_call>{LISTED[1]}</tool_call>", (F, G)),
    "text between": (
        f"First:{tool_call(LISTED[0])}Then:{tool_call(LISTED[1])}Done.",
        (content("First:"), F, content("Then:"), G, content("Done.")),
    ),
    "only the marker's own line breaks are markup": (
        f"a\n\n{tool_call(LISTED[1])}\n\nb",
        (content("a\n\n"), G, content("\n\nb")),
    ),
    "parameters": (tool_call('{"name": "f", "parameters": {"a": 1}}'), (F,)),
    "other order": (tool_call('{"type": "function", "arguments": {"a": 1}, "name": "f"}'), (F,)),
    "hard arguments": (tool_call(f'{{"name": "f", "arguments": {HARD}}}'), (call("f", HARD),)),
    "name with escapes": (tool_call('{"name": "\\u0066", "arguments": {"a": 1}}'), (F,)),
    "arguments in a string": (quoted('{"a": 1}'), (F,)),
    "with escapes": (quoted(HARD), (call("f", HARD),)),
    "with Unicode escapes": (quoted('{"é": "天气 😀"}'), (call("f", '{"é": "天气 😀"}'),)),
    "with half a pair": (
        tool_call('{"name": "f", "arguments": "{\\"a\\": \\"\\ud83d\\"}"}'),
        (call("f", '{"a": "\\ud83d"}'),),
    ),
    "with space around": (quoted(' {"a": 1}\n'), (call("f", ' {"a": 1}\n'),)),
}


@pytest.mark.parametrize("format", ["hermes", "qwen2.5", "qwen3"])
@pytest.mark.parametrize(("text", "parts"), HERMES.values(), ids=HERMES)
def test_hermes(format: str, text: str, parts: tuple[Part, ...]) -> None:
    check(format, text, parts)


# --- Reasoning -----------------------------------------------------------------------------------------------------

THINK: dict[str, tuple[str, tuple[Part, ...], list[str]]] = {
    "explicit": ("<think>\nwhy\n</think>\n\nso", (reasoning("why"), content("so")), []),
    "close together": ("<think>why</think>so", (reasoning("why"), content("so")), []),
    "empty": ("<think>\n\n</think>\n\nso", (content("so"),), []),
    "own line breaks": ("<think>\n\nwhy\n\n</think>\n\n\nso", (reasoning("\nwhy\n"), content("\nso")), []),
    "several": ("<think>a</think><think>c</think>d", (reasoning("ac"), content("d")), []),
    "named": ("<think>a</think>b<think>c</think>d", (reasoning("a"), content("b<think>c</think>d")), []),
    "named after text": ("so\n<think>why</think>yes", (content("so\n<think>why</think>yes"),), []),
    "not closed": ("<think>\nwhy", (reasoning("why"),), ["unclosed"]),
    "not closed, marker cut off": ("<think>\nwhy\n</thi", (reasoning("why\n</thi"),), ["unclosed"]),
    "closes nothing": ("so</think>yes", (content("so</think>yes"),), ["stray_closer"]),
    "closes nothing any more": (
        "<think>a</think>b</think>c",
        (reasoning("a"), content("b</think>c")),
        ["stray_closer"],
    ),
    "opened inside": ("<think>a<think>b</think>c", (reasoning("a<think>b"), content("c")), []),
    "no markers": ("< think > <Think> think", (content("< think > <Think> think"),), []),
}


@pytest.mark.parametrize("format", ["think", "qwen3", "step-audio-2"])
@pytest.mark.parametrize(("text", "parts", "diagnostics"), THINK.values(), ids=THINK)
def test_think(format: str, text: str, parts: tuple[Part, ...], diagnostics: list[str]) -> None:
    check(format, text, parts, diagnostics)


@pytest.mark.parametrize("format", ["deepseek-r1", "qwen3-thinking"])
def test_think_implicit(format: str) -> None:
    """Models whose prompt opens the reasoning."""
    check(format, "why\n</think>\n\nso", (reasoning("why"), content("so")))
    check(format, "why", (reasoning("why"),), ["unclosed"])


def test_call_in_reasoning() -> None:
    check(
        "qwen3",
        f"<think>\nhm{tool_call(LISTED[0])}ok\n</think>\n\nso",
        (reasoning("hm"), F, reasoning("ok"), content("so")),
    )


def test_reasoning_closed_inside_a_broken_call() -> None:
    check(
        "qwen3",
        '<think>\nhm<tool_call>{"name": "f", "arguments": {"a": 1,\n</think>\n\nso',
        (reasoning("hm"), broken("f", '{"a": 1,\n'), content("so")),
        ["malformed_json", "malformed_call"],
    )


# --- The registry --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("step-audio-2", "step-audio-2"),
        ("Step_Audio_2", "step-audio-2"),
        ("step-audio2", "step-audio-2"),
        ("STEP_AUDIO_2_TTS_TA4", "step-audio-2"),
        (" step.audio.2 ", "step-audio-2"),
        ("qwen25", "qwen2.5"),
        ("qwen2_5", "qwen2.5"),
        ("Qwen-2.5", "qwen2.5"),
        ("QWEN3", "qwen3"),
        ("qwq", "qwen3-thinking"),
        ("deepseek_r1", "deepseek-r1"),
        ("DeepSeekR1", "deepseek-r1"),
        ("mistral_v7", "mistral-v3"),
        ("magistral", "mistral-v13"),
        ("nous_hermes", "hermes"),
        ("qwen3_coder", "qwen3-coder"),
        ("qwen3_xml", "qwen3-coder"),
        ("LFM2.5", "lfm2"),
    ],
)
def test_names(name: str, format: str) -> None:
    assert unbraid.find(name).name == format


def test_every_name_finds_its_format() -> None:
    for format, aliases in unbraid.all_formats().items():
        for name in (format.name, *aliases):
            assert unbraid.find(name) is format


@pytest.mark.parametrize(
    ("name", "near"),
    [("qwen4", "qwen3"), ("step-audio", "step-audio-2"), ("mistrall", "mistral"), ("hermes9", "hermes")],
)
def test_an_unknown_name(name: str, near: str) -> None:
    with pytest.raises(UnknownFormat, match=f"{name}.*did you mean .*{near}"):
        unbraid.parser(name)


def test_an_unknown_name_that_is_near_nothing() -> None:
    with pytest.raises(UnknownFormat, match=r"unbraid formats.*unbraid detect"):
        unbraid.find("%%%%")


PYTHIA = Format(
    "pythia",
    reasoning=Between("((", "))"),
    tools=Calls("@@", Call((Name(), "(", Arguments(), ")")), ";;"),
)


@pytest.mark.usefixtures("own_registry")
def test_a_new_format_in_a_few_lines() -> None:
    unbraid.register(PYTHIA, "oracle")
    check("Oracle", '((hm))So @@f( {"a": 1} );;done', (reasoning("hm"), content("So "), F, content("done")))
    assert unbraid.render("pythia", Message((reasoning("hm"), F))) == '((hm))@@f({"a": 1});;'
    assert unbraid.all_formats()[PYTHIA] == ["oracle"]


def test_a_format_need_not_be_registered() -> None:
    assert parse(PYTHIA, "((hm))@@g({});;").parts == (reasoning("hm"), G)


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("aliases", [("qwen3",), ("oracle", "QWEN_3")])
def test_a_name_that_is_taken(aliases: tuple[str, ...]) -> None:
    with pytest.raises(UnbraidError, match="taken by the format 'qwen3'"):
        unbraid.register(PYTHIA, *aliases)
    for name in ("pythia", "oracle"):
        with pytest.raises(UnknownFormat):
            unbraid.find(name)
    assert unbraid.find("qwen3").name == "qwen3"


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize(
    "format",
    [
        Format("bad", reasoning=Between("<a>", "  ")),
        Format("bad", reasoning=Between("", "</a>")),
        Format("bad", reasoning=Between("<a", "</a>"), tools=Calls("<ab", Call((Name(), Arguments())))),
        Format("bad", speech=unbraid.core.grammar.SpeechMarkup("<s>", "</s>", code="<audio>", codes=5)),
        Format("bad", speech=unbraid.core.grammar.SpeechMarkup("<s>", "</s>", code="<audio_{}", codes=5)),
        Format("bad", speech=unbraid.core.grammar.SpeechMarkup("<s>", "</s>", code="<a{}>", codes=5, codebooks=2)),
    ],
    ids=[
        *("closed by whitespace", "opened by nothing", "one marker begins another"),
        *("codes without a number", "codes without an end", "codebooks of different sizes"),
    ],
)
def test_a_grammar_that_contradicts_itself(format: Format) -> None:
    with pytest.raises(unbraid.InvalidFormat):
        unbraid.register(format)


# --- Formats made of parts -----------------------------------------------------------------------------------------

PARTS = {"reasoning": "mistral", "tools": "hermes", "audio": "step-audio-2"}


def test_compose_three_parts() -> None:
    format = unbraid.compose(**PARTS)
    text = f"[THINK]why[/THINK]so<tts_start>Hi<audio_1>{tool_call(LISTED[0])}<tts_end>yes"
    message = parse(format, text)
    assert message.parts == (reasoning("why"), content("so"), Speech("Hi", (1,)), F, content("yes"))
    assert kinds(message) == []
    assert {"</s>", "<|im_end|>", "<|EOT|>"} <= set(format.ends)


@pytest.mark.parametrize("order", [*permutations(PARTS)])
def test_compose_in_any_order(order: tuple[str, ...]) -> None:
    assert unbraid.compose(**{part: PARTS[part] for part in order}) == unbraid.compose(**PARTS)


def test_compose_takes_only_what_is_asked_for() -> None:
    text = f"<think>a</think>b{tool_call(LISTED[1])}"
    assert parse(unbraid.compose(tools="qwen3"), text).parts == (content("<think>a</think>b"), G)
    assert parse(unbraid.compose(reasoning="qwen3"), text).parts == (
        reasoning("a"),
        content(f"b{tool_call(LISTED[1])}"),
    )
    assert parse(unbraid.compose(), text).parts == (content(text),)


def test_compose_starts_where_the_reasoning_does() -> None:
    format = unbraid.compose(reasoning="deepseek-r1", tools="mistral")
    assert parse(format, "why</think>so[TOOL_CALLS]g{}").parts == (reasoning("why"), content("so"), G)


@pytest.mark.parametrize(
    ("part", "name", "lacks"),
    [("reasoning", "hermes", "reasoning"), ("tools", "think", "tools"), ("audio", "qwen3", "speech")],
)
def test_compose_of_a_part_that_is_not_there(part: str, name: str, lacks: str) -> None:
    with pytest.raises(UnbraidError, match=f"'{name}' has no {lacks}"):
        unbraid.compose(**{part: name})


def test_compose_of_an_unknown_format() -> None:
    with pytest.raises(UnknownFormat, match="mistrl"):
        unbraid.compose(tools="mistrl")


@pytest.mark.parametrize(("version", "source"), [(3, "mistral-v3"), (11, "mistral-v11"), (13, "mistral-v13")])
def test_compose_carries_mistral_s_versions(version: int, source: str) -> None:
    format = unbraid.compose(reasoning="qwen3", tools="mistral").for_version(version)
    assert format.tools == unbraid.find(source).tools
    assert format.reasoning == unbraid.find("qwen3").reasoning
    assert format.call_ids == unbraid.find(source).call_ids
    assert set(format.ends) == {*unbraid.find("qwen3").ends, *unbraid.find(source).ends}


def test_compose_of_mistral_makes_mistral_s_ids() -> None:
    (one,) = parse(unbraid.compose(tools="mistral"), "[TOOL_CALLS]f{}").tool_calls
    assert len(one.id) == 9
    assert one.id.isalnum()


# --- Rendering -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "part", "lacks"),
    [
        ("hermes", reasoning("why"), "'hermes' has no reasoning"),
        ("hermes", Speech("Hi", (1,)), "'hermes' has no speech"),
        ("think", call("f"), "'think' has no tool calls"),
    ],
)
def test_what_a_format_cannot_say(format: str, part: Part, lacks: str) -> None:
    with pytest.raises(UnbraidError, match=lacks):
        unbraid.render(format, Message((part,)))


def test_content_cannot_stand_inside_speech() -> None:
    message = Message((Speech("a"), content("b"), Speech("c")))
    with pytest.raises(UnbraidError, match="inside speech"):
        unbraid.render("step-audio-2", message)


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("hermes", 'Hi\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\n'),
        ("qwen3", 'Hi\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\n'),
        ("mistral-v3", 'Hi[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}]'),
        ("mistral-v11", 'Hi[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"a": 1}'),
        ("mistral-v13", 'Hi[TOOL_CALLS]f[ARGS]{"a": 1}'),
        ("mistral", 'Hi[TOOL_CALLS]f[ARGS]{"a": 1}'),
        ("step-audio-2", 'Hi<tool_call>function\nf\n{"a": 1}</tool_call>'),
        (
            "qwen3-coder",
            "Hi\n<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>\n",
        ),
        ("lfm2", "Hi<|tool_call_start|>[f(a=1)]<|tool_call_end|>"),
    ],
)
def test_what_a_call_is_written_as(format: str, text: str) -> None:
    message = Message((content("Hi"), ToolCall("f", '{"a": 1}', "abcdefghi")))
    assert unbraid.render(format, message) == text
    assert parse(format, text) == message


ALL_KINDS = r'{"s": "it\"s\n\/\u00e9", "n":1.50, "t": true, "f":[false, {"true": null}], "e": ""}'


@pytest.mark.parametrize(
    ("format", "arguments"),
    [
        ("lfm2", r's="it\"s\n/\u00e9", n=1.50, t=True, f=[False, {"true": None}], e=""'),
        (
            "qwen3-coder",
            "".join(
                f"<parameter={key}>\n{value}\n</parameter>\n"
                for key, value in {
                    "s": 'it"s\n/é',
                    "n": "1.50",
                    "t": "true",
                    "f": '[false, {"true": null}]',
                    "e": "",
                }.items()
            ),
        ),
    ],
)
def test_what_arguments_are_written_as(format: str, arguments: str) -> None:
    text = unbraid.render(format, Message((ToolCall("f", ALL_KINDS),)))
    assert arguments in text
    [read] = parse(format, text).tool_calls
    assert json.loads(read.arguments) == json.loads(ALL_KINDS)


@pytest.mark.parametrize("format", ["lfm2", "qwen3-coder"])
@pytest.mark.parametrize("arguments", ['{"a": ', "[]", "", "[" * 100_000])
def test_arguments_that_cannot_be_written(format: str, arguments: str) -> None:
    with pytest.raises(UnbraidError, match="cannot write"):
        unbraid.render(format, Message((ToolCall("f", arguments),)))


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("open", ["<parameter>", "{key}>", "<parameter={key}"])
def test_a_tag_that_does_not_say_where_the_key_is(open: str) -> None:
    call = Call((Name(), ">", TaggedArguments(open, "</parameter>"), "</function>"))
    with pytest.raises(unbraid.InvalidFormat, match="key"):
        unbraid.register(Format("odd", tools=Calls("<function=", call)))


# Whisper


@pytest.mark.parametrize("by", ["text", "ids"])
def test_a_transcript(by: str) -> None:
    """The language and the times are strands of their own; other tags are markup, and what only looks like one is
    text."""
    said = "<|startoftranscript|><|de|><|transcribe|><|0.00|> Hallo<|1.28|><|1.28|> <|hello|>!<|30.00|><|endoftext|>"
    if by == "text":
        message = unbraid.parse("whisper", said.removesuffix("<|endoftext|>"))
    else:
        tokenizer = real_tokenizers.whisper_like()
        message = unbraid.parse("whisper", real_tokenizers.encode(tokenizer, said), tokenizer=tokenizer)
    assert message.language == "de"
    assert message.content == " Hallo <|hello|>!"
    times = [part.value for part in message.parts if isinstance(part, Tag)]
    assert times == ["de", 0.0, 1.28, 1.28, 30.0]
    assert message.diagnostics == ()


def test_a_transcript_needs_its_tokens() -> None:
    with pytest.raises(unbraid.MissingTokens, match=r"<\|notimestamps\|>"):
        unbraid.parser("whisper", tokenizer=real_tokenizers.qwen3_huggingface())


@pytest.mark.parametrize(("format", "name"), [(format, name) for format, names in HUB_NAMES.items() for name in names])
def test_a_name_on_the_hub_is_an_alias(format: str, name: str) -> None:
    assert unbraid.find(name).name == format


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("unsloth/Qwen3-0.6B-GGUF", "qwen3"),
        ("mlx-community/Qwen3-8B-4bit", "qwen3"),
        ("meta-llama/Llama-3.1-405B-Instruct-FP8", "llama-3"),
        ("lmstudio-community/gpt-oss-20b-GGUF", "harmony"),
        ("unsloth/Llama-3.2-1B-Instruct-bnb-4bit", "llama-3"),
        ("neuralmagic/Meta-Llama-3.1-70B-Instruct-quantized.w8a8", "llama-3"),
        ("qwen3:8b", "qwen3"),  # as Ollama writes it
        ("qwen3:8b-q4_K_M", "qwen3"),
    ],
)
def test_organisation_size_and_quantisation_do_not_matter(name: str, format: str) -> None:
    assert unbraid.find(name).name == format


@pytest.mark.parametrize(
    "name", ["Qwen/Qwen4-8B", "THUDM/glm-4-9b-chat", "microsoft/phi-4", "meta-llama/Llama-2-7b-chat-hf", "a/b"]
)
def test_another_family_is_not_guessed(name: str) -> None:
    with pytest.raises(unbraid.UnknownFormat, match="no format named"):
        unbraid.find(name)


def test_hub_names_are_told_apart() -> None:
    formats: dict[str, set[str]] = {}
    for format, names in HUB_NAMES.items():
        for name in names:
            formats.setdefault(family_names(name)[-1], set()).add(format)
    assert all(len(each) == 1 for each in formats.values())
    assert set(HUB_NAMES) <= {format.name for format in unbraid.all_formats()}


CWM_TOOLS = [
    {"name": "bash", "parameters": {"properties": {"command": {"type": "string"}}}},
    {
        "name": "create",
        "parameters": {
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
            "required": ["path", "content"],
        },
    },
]


@pytest.mark.parametrize(
    ("body", "call"),
    [
        ('ls -l\n  echo "a"', unbraid.ToolCall("bash", json.dumps({"command": 'ls -l\n  echo "a"'}))),
        ("  { ls; }", unbraid.ToolCall("bash", '{"command": "  { ls; }"}')),
        ('{"command": "ls"}', unbraid.ToolCall("bash", '{"command": "ls"}')),
        (
            "/a.py\n  x = '</b>'\n",
            unbraid.ToolCall("create", json.dumps({"path": "/a.py", "content": "  x = '</b>'\n"})),
        ),
        ("/a.py", unbraid.ToolCall("create", '{"path": "/a.py"}')),
    ],
)
def test_cwm_plain_text(body: str, call: unbraid.ToolCall) -> None:
    text = f"So.\n<tool: {call.name}>\n{body}\n</tool>"
    for pieces in ([text], list(text)):
        parser = unbraid.parser("cwm", tools=CWM_TOOLS, prompt="")
        for piece in pieces:
            parser.feed(piece)
        parser.finish()
        (made,) = parser.message.tool_calls
        assert (made.name, made.arguments, made.complete) == (call.name, call.arguments, True)
        assert parser.message.content == "So."
        assert parser.message.diagnostics == ()
