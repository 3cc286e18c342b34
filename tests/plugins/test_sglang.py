"""The drop-in for SGLang, in SGLang: its own FunctionCallParser, ReasoningParser and chat server run our detectors."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import unbraid
from unbraid import Format, Message, Text, ToolCall
from unbraid.plugins import sglang as plugin

from .sglang_package import Chat, parsers

FORMATS = [format for format in unbraid.all_formats() if format.tools is not None or format.reasoning is not None]
every_format = pytest.mark.parametrize("format", FORMATS, ids=[format.name for format in FORMATS])
REPLACED = ["hermes", "qwen", "qwen25", "mistral", "qwen3_coder", "lfm2"]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
STEP_CALL = '<tool_call>function\nget_weather\n{"city": "上海"}</tool_call>'


@pytest.fixture
def sglang() -> Iterator[Any]:
    """SGLang's parsers, as they were again afterwards."""
    found = parsers()
    registries = (found.FunctionCallParser.ToolCallParserEnum, found.ReasoningParser.DetectorMap)
    before = [dict(registry) for registry in registries]
    yield found
    for registry, old in zip(registries, before, strict=True):
        registry.clear()
        registry.update(old)


@pytest.fixture
def installed(sglang: Any) -> Any:
    plugin.install()
    return sglang


def tools(sglang: Any, *names: str, strict: bool = False) -> list[Any]:
    functions = [{"name": name, "parameters": CITY, "strict": strict} for name in names or ("get_weather", "search")]
    return [sglang.Tool(type="function", function=function) for function in functions]


def fold(steps: list[tuple[str, list[Any]]]) -> tuple[str, list[tuple[str, str]]]:
    """The text and the calls of a stream. The name comes first, and alone."""
    calls: list[list[str]] = []
    for _, items in steps:
        for item in items:
            if item.name is not None:
                assert (item.tool_index, item.parameters) == (len(calls), "")
                calls.append([item.name, ""])
            else:
                assert item.tool_index == len(calls) - 1
                calls[-1][1] += item.parameters
    return "".join(text for text, _ in steps), [(name, arguments) for name, arguments in calls]


def streamed(parser: Any, text: str, size: int = 1) -> tuple[str, list[tuple[str, str]]]:
    steps = [parser.parse_stream_chunk(text[at : at + size]) for at in range(0, len(text), size)]
    return fold([*steps, parser.parse_stream_end()])


def a_turn(format: Format) -> Message:
    """A message with all that the format has."""
    parts: list[Any] = []
    if format.reasoning is not None:
        parts.append(Text("reasoning", "They ask for Paris."))
    parts.append(Text("content", "Let me look."))
    if format.tools is not None:
        marker = format.tools.open.strip()
        # Where strings stand bare between tags, some markers end them.
        marker = "marker" if format.name in ("minimax-m3", "deepseek-v4.1") else marker
        arguments = json.dumps({"city": f"a {marker} in a string"}, ensure_ascii=False)
        parts += [ToolCall("get_weather", arguments, "abcdefghi"), ToolCall("search", "{}", "abcdefghj")]
    return Message(tuple(parts))


# --- Registered ----------------------------------------------------------------------------------------------------


def test_every_format_has_its_name(sglang: Any) -> None:
    names = plugin.install()
    assert names.tool_call_parsers == [f"unbraid-{f.name}" for f in FORMATS if f.tools is not None] + ["step_audio_2"]
    assert names.reasoning_parsers == [f"unbraid-{f.name}" for f in FORMATS if f.reasoning is not None] + [
        "step-audio2"
    ]
    assert set(names.tool_call_parsers) <= set(sglang.FunctionCallParser.ToolCallParserEnum)
    assert set(names.reasoning_parsers) <= set(sglang.ReasoningParser.DetectorMap)
    assert sglang.FunctionCallParser.ToolCallParserEnum["step_audio_2"] is plugin.StepAudio2Detector
    assert "unbraid" not in type(sglang.FunctionCallParser([], "hermes").detector).__module__


def test_the_command_line_takes_the_names(installed: Any) -> None:
    server_args = pytest.importorskip("sglang.srt.server_args", exc_type=ImportError)
    assert {"step_audio_2", "unbraid-hermes"} <= set(server_args._tool_call_parser_choices())
    assert {"step-audio2", "unbraid-qwen3"} <= set(server_args._reasoning_parser_choices())


@every_format
@pytest.mark.parametrize("size", [1, 5, 1000])
def test_streamed_as_whole(installed: Any, format: Format, size: int) -> None:
    message = a_turn(format)
    text = unbraid.render(format, message)
    name, known = f"unbraid-{format.name}", tools(installed)
    if format.reasoning is not None:
        whole = installed.ReasoningParser(name).parse_non_stream(text)
        parser = installed.ReasoningParser(name)
        steps = [parser.parse_stream_chunk(text[at : at + size]) for at in range(0, len(text), size)]
        assert tuple(map("".join, zip(*steps, parser.parse_stream_end(), strict=True))) == whole
        reasoning, text = whole
        assert reasoning == message.reasoning
    if format.tools is not None:
        calls = [(call.name, call.arguments) for call in message.tool_calls]
        content, items = installed.FunctionCallParser(known, name).parse_non_stream(text)
        assert [(item.name, item.parameters) for item in items] == calls
        assert [item.tool_index for item in items] == [0, 1]
        assert streamed(installed.FunctionCallParser(known, name), text, size) == (content, calls)
        text = content
    assert text == message.content


@pytest.mark.parametrize("name", REPLACED)
def test_in_the_place_of_sglangs_own(sglang: Any, name: str) -> None:
    theirs = sglang.FunctionCallParser.ToolCallParserEnum[name]
    assert name in plugin.install(replace=True).tool_call_parsers
    plugin.install(replace=True)  # a second time changes nothing
    parser = sglang.FunctionCallParser(tools(sglang), name)
    assert isinstance(parser.detector, theirs)
    assert type(parser.detector).__bases__[1] is theirs
    message = a_turn(unbraid.compose(tools=name))
    calls = [(call.name, call.arguments) for call in message.tool_calls]
    assert streamed(parser, unbraid.render(name, message)) == (message.content, calls)


def test_reasoning_in_the_place_of_sglangs_own(sglang: Any) -> None:
    theirs = dict(sglang.ReasoningParser.DetectorMap)
    names = plugin.install(replace=True).reasoning_parsers
    for name in ("deepseek-r1", "qwen3", "qwen3-thinking", "mistral"):
        assert name in names
        assert isinstance(sglang.ReasoningParser(name).detector, theirs[name])
    call = '<tool_call>\n{"name": "f", "arguments": {"a": "</think>"}}\n</tool_call>'
    assert sglang.ReasoningParser("qwen3").parse_non_stream(f"<think>\nA {call}") == ("A ", call)
    assert sglang.ReasoningParser("deepseek-r1").parse_non_stream("A\n</think>\n\nB") == ("A", "B")


def test_what_sglang_says_goes_to_its_own_class(sglang: Any) -> None:
    """It has defaults of its own, and options that no other has."""
    theirs = dict(sglang.ReasoningParser.DetectorMap)
    names = [name for name in plugin.install(replace=True).reasoning_parsers if name in theirs]
    assert {"deepseek-r1", "k2_horizon", "gpt-oss", "ling3"} <= set(names)
    for name in names:
        ours, own = sglang.ReasoningParser(name).detector, theirs[name]()
        assert ours._must_answer == own._force_nonempty_content
        assert ours.reasoning_default == own.reasoning_default
        assert ours._inside or not own.force_reasoning
    # `step3` reasons whatever the guess is, as DeepSeek-R1 does.
    assert sglang.ReasoningParser("step3", force_reasoning=False).parse_non_stream("A</think>B") == ("A", "B")
    asked = sglang.ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "?"}], reasoning_effort="low")
    quick = sglang.ReasoningParser("k2_horizon", request=asked, force_reasoning=True)
    assert quick.detector.think_end_token == "</ifm|think_faster>"
    assert quick.parse_non_stream("A</ifm|think_faster>B") == ("A", "B")


def test_detectors_that_ask_the_tokenizer_stay(sglang: Any) -> None:
    """What `hunyuan` reads depends on it, and of `beam` the server knows the class."""
    registries = (sglang.FunctionCallParser.ToolCallParserEnum, sglang.ReasoningParser.DetectorMap)
    kept = [{name: registry[name] for name in ("hunyuan", "beam")} for registry in registries]
    plugin.install(replace=True)
    for registry, before in zip(registries, kept, strict=True):
        assert {name: registry[name] for name in before} == before
        assert not any(issubclass(registry[f"unbraid-{name}"], before["beam"]) for name in ("beam", "hunyuan-3"))


def test_the_environment_asks_for_it(sglang: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugin.REPLACE, "1")
    assert "hermes" in plugin.install().tool_call_parsers
    assert "hermes" not in plugin.install(replace=False).tool_call_parsers


# --- Calls ---------------------------------------------------------------------------------------------------------


def test_step_audio_2_calls(installed: Any) -> None:
    detector = plugin.StepAudio2Detector()
    assert detector.has_tool_call(STEP_CALL)
    assert not detector.has_tool_call("How can I help?")
    assert not detector.has_tool_call("")
    known = tools(installed)
    text = f"Let me see.\n{STEP_CALL}<tool_call>function\nsearch\n{{}}</tool_call>\nSo."
    found = detector.detect_and_parse(text, known)
    assert found.normal_text == "Let me see.\n\nSo."
    assert [(c.tool_index, c.name, c.parameters) for c in found.calls] == [
        (0, "get_weather", '{"city": "上海"}'),
        (1, "search", "{}"),
    ]
    assert detector.detect_and_parse("Hi.", known).normal_text == "Hi."


def test_a_name_first_and_then_fragments(installed: Any) -> None:
    detector, known = plugin.StepAudio2Detector(), tools(installed)
    assert (detector.prev_tool_call_arr, detector.streamed_args_for_tool) == ([], [])
    steps = []
    for piece in ["Well. <tool_call>function\n", "get_weather\n", '{"ci', 'ty": "上', '海"}', "</tool_call>", " So."]:
        found = detector.parse_streaming_increment(piece, known)
        steps.append((found.normal_text, [(c.tool_index, c.name, c.parameters) for c in found.calls]))
    assert steps == [
        ("Well. ", []),
        ("", []),
        ("", [(0, "get_weather", ""), (0, None, '{"ci')]),
        ("", [(0, None, 'ty": "上')]),
        ("", [(0, None, '海"}')]),
        ("", []),
        (" So.", []),
    ]
    assert detector.prev_tool_call_arr == [{"name": "get_weather", "arguments": {"city": "上海"}}]
    assert detector.streamed_args_for_tool == ['{"city": "上海"}']
    assert detector.incomplete_tool_call_indices == set()
    assert detector.current_tool_id == 0


def test_what_is_held_back_comes_at_the_end(installed: Any) -> None:
    parser = installed.FunctionCallParser(tools(installed), "step_audio_2")
    assert parser.parse_stream_chunk("a <tool_call>func") == ("a ", [])
    assert parser.parse_stream_end() == ("<tool_call>func", [])
    assert parser.parse_stream_end() == ("", [])
    untouched = installed.FunctionCallParser(tools(installed), "step_audio_2")
    assert untouched.parse_stream_end() == ("", [])
    reasoning = installed.ReasoningParser("step-audio2")
    assert reasoning.parse_stream_chunk("a <thi") == ("", "a ")
    assert reasoning.parse_stream_end() == ("", "<thi")
    assert reasoning.parse_stream_end() == ("", "")


def test_a_call_that_breaks_off(installed: Any) -> None:
    """Streamed, it has been seen to begin; whole, it is text."""
    text = STEP_CALL[:-15]
    parser = installed.FunctionCallParser(tools(installed), "step_audio_2")
    content, calls = streamed(parser, text)
    assert (content, calls) == ("", [("get_weather", '{"city": "上')])
    assert parser.detector.incomplete_tool_call_indices == {0}
    # The server sends what the one has and the other lacks: nothing.
    assert parser.detector.prev_tool_call_arr[-1]["arguments"] == parser.detector.streamed_args_for_tool[-1]
    assert installed.FunctionCallParser(tools(installed), "step_audio_2").parse_non_stream(text) == (text, [])


def test_a_call_to_an_unknown_tool_is_text(installed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    known = tools(installed, "search")
    assert streamed(installed.FunctionCallParser(known, "step_audio_2"), STEP_CALL) == (STEP_CALL, [])
    assert installed.FunctionCallParser(known, "step_audio_2").parse_non_stream(STEP_CALL) == (STEP_CALL, [])
    monkeypatch.setenv("SGLANG_FORWARD_UNKNOWN_TOOLS", "1")
    assert streamed(installed.FunctionCallParser(known, "step_audio_2"), STEP_CALL)[1] == [
        ("get_weather", '{"city": "上海"}')
    ]
    _, [item] = installed.FunctionCallParser(known, "step_audio_2").parse_non_stream(STEP_CALL)
    assert (item.tool_index, item.name) == (-1, "get_weather")


@pytest.mark.parametrize("name", ["functionary-v3.2", "hunyuan-a13b"])
def test_an_answer_without_a_call(installed: Any, name: str) -> None:
    """The markers around it are taken off, streamed or not, whether or not there are tools."""
    text = unbraid.render(name, Message((Text("content", "Hi."),)))
    assert text != "Hi."
    known = tools(installed)
    assert streamed(installed.FunctionCallParser(known, f"unbraid-{name}"), text) == ("Hi.", [])
    assert installed.FunctionCallParser(known, f"unbraid-{name}").parse_non_stream(text) == ("Hi.", [])
    assert installed.FunctionCallParser([], f"unbraid-{name}").parse_non_stream(text) == ("Hi.", [])


@pytest.mark.parametrize("name", ["functionary-v3.2", "hunyuan-a13b"])
def test_an_answer_through_the_server(installed: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    text = unbraid.render(name, Message((Text("content", "Hi."),)))
    chat = Chat(monkeypatch, f"unbraid-{name}", None)
    for request in ({}, {"tools": [tool.model_dump() for tool in tools(installed)]}):
        assert asyncio.run(chat.stream([*text], **request))["content"] == "Hi."
        assert chat.whole(text, **request)["content"] == "Hi."
        assert chat.whole(text, **request)["finish_reason"] == "stop"


# --- Reasoning -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("forced", [None, False, True])
def test_step_audio_2_reasons_only_where_it_says_so(installed: Any, forced: bool | None) -> None:
    parser = installed.ReasoningParser(model_type="step-audio2", force_reasoning=forced)
    for text in ("Hello.", "<tts_start>Hi<audio_1><tts_end>", STEP_CALL):
        assert parser.parse_non_stream(text) == ("", text)
    assert parser.parse_non_stream(f"<think>\nHm.\n</think>\n\nSo. {STEP_CALL}") == ("Hm.", f"So. {STEP_CALL}")
    assert parser.parse_non_stream(f"<tts_start>a<think>b{STEP_CALL}</think>c<tts_end>") == (
        "b",
        f"<tts_start>a{STEP_CALL}c<tts_end>",
    )


def test_reasoning_that_the_prompt_has_opened(installed: Any) -> None:
    forced = installed.ReasoningParser("unbraid-qwen3", force_reasoning=True)
    assert forced.parse_non_stream("A\n</think>\n\nB") == ("A", "B")
    assert forced.parse_non_stream("<think>\nA\n</think>\n\nB") == ("A", "B")
    assert installed.ReasoningParser("unbraid-qwen3").parse_non_stream("A") == ("", "A")
    for said, expected in (
        ("\n<think>\n", ("A", "B")),
        ("<think>\nSo far", ("A", "B")),
        ("<think>\na\n</think>\n\nSo", ("", "A\n</think>\n\nB")),
        ("So", ("", "A\n</think>\n\nB")),
    ):
        turn = [{"role": "user", "content": "?"}, {"role": "assistant", "content": said}]
        request = installed.ChatCompletionRequest(model="m", messages=turn, continue_final_message=True)
        parser = installed.ReasoningParser("step-audio2", request=request)
        assert parser.parse_non_stream("A\n</think>\n\nB") == expected


def test_reasoning_in_one_piece(installed: Any) -> None:
    parser = installed.ReasoningParser("unbraid-qwen3", stream_reasoning=False)
    steps = [parser.parse_stream_chunk(piece) for piece in ("<think>\nA", "B", "C\n</think>\n\n", "D")]
    assert [*steps, parser.parse_stream_end()] == [("", ""), ("", ""), ("", ""), ("ABC", "D"), ("", "")]
    cut_off = installed.ReasoningParser("unbraid-qwen3", stream_reasoning=False)
    assert cut_off.parse_stream_chunk("<think>\nA") == ("", "")
    assert cut_off.parse_stream_end() == ("A", "")


def test_an_answer_where_one_must_come(installed: Any) -> None:
    """What SGLang does for `force_nonempty_content`: without an answer, the reasoning is one."""
    request = installed.ChatCompletionRequest(
        model="m", messages=[{"role": "user", "content": "?"}], chat_template_kwargs={"force_nonempty_content": True}
    )
    whole = installed.ReasoningParser("unbraid-qwen3", request=request)
    assert whole.parse_non_stream("<think>\nA") == ("", "A")
    assert whole.parse_non_stream("<think>\nA\n</think>\n\nB") == ("A", "B")
    stream = installed.ReasoningParser("unbraid-qwen3", request=request)
    assert [stream.parse_stream_chunk("<think>\nA"), stream.parse_stream_end()] == [("A", ""), ("", "A")]
    answered = installed.ReasoningParser("unbraid-qwen3", request=request)
    answered.parse_stream_chunk("<think>\nA\n</think>\n\nB<")
    assert answered.parse_stream_end() == ("", "<")


# --- Constraints ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["step_audio_2", "unbraid-qwen3", "unbraid-mistral-v3", "unbraid-mistral-v13"])
def test_what_is_constrained_is_read(installed: Any, name: str) -> None:
    pytest.importorskip("xgrammar", reason="xgrammar needs torch: `make test-engines` has both")
    from ..constraints.grammar_engines import XGrammarGrammar

    known = tools(installed, strict=True)
    parser = installed.FunctionCallParser(known, name)
    assert parser.owns_tool_format()
    format = unbraid.find(name.removeprefix("unbraid-"))
    one, other = (ToolCall(name, '{"city": "Paris"}', "abcdefghi") for name in ("get_weather", "search"))

    def accepts(choice: Any, *calls: ToolCall, before: str = "", parallel: bool = True) -> bool:
        kind, tag = parser.get_structure_constraint(choice, parallel_tool_calls=parallel)
        assert kind == "structural_tag"
        sent = json.loads(installed.convert_json_schema_to_str(tag.model_dump(by_alias=True)))
        text = before + unbraid.render(unbraid.compose(tools=format.name), Message(calls))
        return XGrammarGrammar.from_structural_tag(sent).accepts(text)

    assert accepts("required", one, other)
    assert not accepts("required", one, other, parallel=False)
    assert not accepts("required", one, before="Well. ")
    assert accepts("auto", one, before="Well. ")
    named = installed.ToolChoice(type="function", function={"name": "search"})
    assert accepts(named, other)
    assert not accepts(named, one)
    wrong = ToolCall("search", '{"city": 3}', "abcdefghi")
    assert not accepts("required", wrong)


def test_a_schema_that_cannot_be_enforced(installed: Any) -> None:
    """A call is required all the same, and in the format that is read."""
    pytest.importorskip("xgrammar", reason="xgrammar needs torch: `make test-engines` has both")
    schema = {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}
    function = {"name": "f", "parameters": schema, "strict": True}
    parser = installed.FunctionCallParser([installed.Tool(type="function", function=function)], "step_audio_2")
    kind, tag = parser.get_structure_constraint("required")
    assert kind == "structural_tag"
    assert "<tool_call>" in tag.model_dump_json()


def test_without_xgrammar_sglang_asks_for_json(installed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["unbraid.plugins.sglang.detectors"], "HAS_TAGS", False)
    parser = installed.FunctionCallParser(tools(installed), "step_audio_2")
    assert not parser.owns_tool_format()
    assert parser.get_structure_constraint("required")[0] == "json_schema"


@pytest.mark.parametrize("name", ["hermes", "qwen25", "mistral"])
def test_what_sglang_constrains_is_read(sglang: Any, name: str) -> None:
    """Detectors that took another's place still have its grammar."""
    plugin.install(replace=True)
    known = tools(sglang)
    parser = sglang.FunctionCallParser(known, name)
    for tag in parser.get_legacy_structural_tag(at_least_one=True).structures:
        content, [call] = sglang.FunctionCallParser(known, name).parse_non_stream(
            f'{tag.begin}{{"city": "a"}}{tag.end}'
        )
        assert (content, call.parameters) == ("", '{"city": "a"}')


# --- The server ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool_call_parser", "reasoning_parser", "format"),
    [("step_audio_2", "step-audio2", "step-audio-2"), ("unbraid-qwen3", "unbraid-qwen3", "qwen3")],
)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_through_the_server(
    installed: Any,
    monkeypatch: pytest.MonkeyPatch,
    tool_call_parser: str,
    reasoning_parser: str,
    format: str,
    size: int,
) -> None:
    chat = Chat(monkeypatch, tool_call_parser, reasoning_parser)
    message = a_turn(unbraid.find(format))
    text = unbraid.render(format, message)
    # Qwen 3 reasons by default, so SGLang takes the reasoning to be open: the tag that comes again is no harm.
    request = {"tools": [tool.model_dump() for tool in tools(installed)], "tool_choice": "auto"}
    expected = {
        "content": message.content,
        "reasoning_content": message.reasoning,
        "tool_calls": [{"name": call.name, "arguments": call.arguments} for call in message.tool_calls],
        "finish_reason": "tool_calls",
    }
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert asyncio.run(chat.stream(pieces, **request)) == expected
    assert chat.whole(text, **request) == expected
    plain = {"content": "Hi <", "reasoning_content": "", "tool_calls": [], "finish_reason": "stop"}
    if format == "step-audio-2":
        assert asyncio.run(chat.stream(["Hi", " <"], **request)) == plain
        assert asyncio.run(chat.stream(["Hi", " <"])) == plain
        assert chat.whole("Hi <", **request) == plain
        cut = asyncio.run(chat.stream([STEP_CALL[:-15]], **request))
        assert cut["tool_calls"] == [{"name": "get_weather", "arguments": '{"city": "上'}]
        assert cut["finish_reason"] == "stop"


# --- The command, and what is missing ------------------------------------------------------------------------------


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *(("-c", code) if code else ("-m", "unbraid.plugins.sglang")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_without_sglang() -> None:
    """The drop-in itself can be imported, and says what is missing."""
    code = (
        "import sys; sys.modules['sglang'] = None\n"
        "import unbraid.plugins.sglang as plugin\n"
        "try: plugin.install()\n"
        "except plugin.SGLangMissing as error: print(isinstance(error, ImportError), error)\n"
        "try: plugin.StepAudio2Detector\n"
        "except plugin.SGLangMissing: print('no detector')\n"
        "assert not hasattr(plugin, 'nonsense')\n"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("True SGLang's parsers cannot be imported")
    assert "0.5.23" in done.stdout
    assert done.stdout.endswith("no detector\n")


def test_an_sglang_that_is_too_old() -> None:
    """One that tells no detector of the end of a stream would lose what is held back."""
    code = (
        "import sys, types\n"
        "class Any(type):\n"
        "    def __getattr__(cls, name):\n"
        "        if name.startswith('__') or name == 'parse_stream_end': raise AttributeError(name)\n"
        "        return Old\n"
        "class Old(metaclass=Any): pass\n"
        "class Module(types.ModuleType):\n"
        "    __path__ = []\n"
        "    def __getattr__(self, name):\n"
        "        if name.startswith('__'): raise AttributeError(name)\n"
        "        return type(name, (Old,), {})\n"
        "names = ['environ', 'function_call.base_format_detector', 'function_call.core_types',\n"
        "    'function_call.function_call_parser', 'parser.reasoning_parser', 'function_call', 'parser']\n"
        "for name in ['sglang', 'sglang.srt', *('sglang.srt.' + name for name in names)]:\n"
        "    sys.modules[name] = Module(name)\n"
        "import unbraid.plugins.sglang as plugin\n"
        "try: plugin.install()\n"
        "except plugin.SGLangMissing as error: print(error)\n"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "SGLang's FunctionCallParser has no parse_stream_end: use SGLang 0.5.23 or later\n"


def test_the_command(sglang: Any) -> None:
    if run("import sglang.srt.function_call.function_call_parser").returncode:
        pytest.skip("sglang is here without what it needs to run")
    listed = run("")
    assert listed.returncode == 0, listed.stderr
    assert "step_audio_2" in listed.stdout
    assert "hermes," not in listed.stdout.replace("unbraid-hermes,", "")
    assert "hermes," in run("", "--replace").stdout.replace("unbraid-hermes,", "")
    version = run("", "version")
    assert "sglang version: 0.5" in version.stdout, version.stderr


def test_processes_that_sglang_starts_have_the_names(sglang: Any) -> None:
    """SGLang starts its scheduler as a new process, which makes a reasoning parser of its own."""
    if run("import sglang.srt.function_call.function_call_parser").returncode:
        pytest.skip("sglang is here without what it needs to run")
    code = (
        "import multiprocessing, runpy, sys\n"
        "def main():\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    process = context.Process(target=eval, args=(\"__import__('sys').exit('step-audio2' not in __import__(\"\n"
        "        \"'sglang.srt.parser.reasoning_parser', fromlist=['_']).ReasoningParser.DetectorMap)\",))\n"
        "    process.start(); process.join(); sys.exit(process.exitcode)\n"
        "import types; cli = types.ModuleType('sglang.cli.main'); cli.main = main\n"
        "sys.modules['sglang.cli.main'] = cli\n"
        "sys.argv = ['x', 'serve']\n"
        "runpy.run_module('unbraid.plugins.sglang', run_name='__main__', alter_sys=True)\n"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr
